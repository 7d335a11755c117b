from __future__ import annotations

import pickle
import stat
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from asa.core.task import Input
from asa.log.values import INLINE_MOST, dump, fill, keep, load


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.5, 2j, "text", b"bytes", Path("b"), [1, {2}], Pair(1, 2), Input(3)),
        *([1, (2, {3})], {"a": Path("b")}, {("k", 1): {}}, list(range(2000)), [[threading.Thread]], {"x": len}),
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    loaded = load(dump(value))
    assert loaded == value and type(loaded) is type(value)


def test_functions_go_by_value() -> None:
    offset = 5
    assert load(dump([lambda x: x + offset]))[0](1) == 6


def test_a_short_result_stays_in_memory_and_a_long_one_is_a_private_file(tmp_path: Path) -> None:
    assert keep(b"x" * INLINE_MOST, tmp_path, "s", 0) == b"x" * INLINE_MOST
    long = dump(b"x" * INLINE_MOST)
    kept = keep(long, tmp_path, "odd/../name of a stage", 5)
    assert isinstance(kept, str)
    assert Path(kept).parent == tmp_path and Path(kept).name.startswith("odd_.._name_of_a_stage-5-")
    assert stat.S_IMODE(Path(kept).stat().st_mode) == 0o600
    assert load(kept) == b"x" * INLINE_MOST
    assert keep(long, tmp_path, "s", 5) != keep(long, tmp_path, "s", 5), "two attempts do not meet"


def test_inputs_take_their_places() -> None:
    inputs = tuple(map(dump, (10, 11, 12)))
    assert fill([Input(0), Pair({"k": Input(2)}, 0)], inputs) == [10, Pair({"k": 12}, 0)]
    assert fill(Input(1, 2), inputs) == [11, 12]
    assert fill(Input(1, 0), inputs) == []


def test_an_input_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "three"
    file.write_bytes(pickle.dumps(3))
    assert fill((Input(0),), (str(file),)) == (3,)


def test_an_input_in_several_places_is_one_object() -> None:
    first, second = fill([Input(0), Input(0)], (dump([1]),))
    assert first == [1] and first is second
