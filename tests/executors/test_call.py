import pickle
import stat
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from asa.core.task import Input
from executors.call import INLINE, Caller, dump, one_line
from executors.inputs import fill
from executors.wire import Order, Outcome, Stored, load

Pair = namedtuple("Pair", "left right")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a function as a worker would."""

    def run(function: Any, *args: Any, inputs: tuple[Stored, ...] = (), stage: str = "s") -> Outcome:
        file = tmp_path / "function"
        file.write_bytes(cloudpickle.dumps(function))
        order = Order(1, stage, 5, str(file), pickle.dumps((args, {})), inputs, 1, 0, 0, 1)
        return Caller(str(tmp_path)).run(order)

    return run


def test_a_value_returns(run: Any) -> None:
    outcome = run(lambda a, b: a + b, 1, 2)
    assert load(outcome.value) == 3 and outcome.error == "" and outcome.started <= outcome.ended


def test_a_long_result_goes_to_a_private_file(run: Any, tmp_path: Path) -> None:
    outcome = run(lambda: b"x" * INLINE, stage="odd/../name of a stage")
    path = Path(outcome.value)
    assert path.parent == tmp_path and path.name.startswith("odd_.._name_of_a_stage-5-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(outcome.value) == b"x" * INLINE


def test_a_disk_that_takes_no_result_is_named(run: Any, tmp_path: Path) -> None:
    def fill_disk() -> bytes:
        tmp_path.joinpath("function").unlink()
        tmp_path.rmdir()
        return b"x" * INLINE

    outcome = run(fill_disk)
    assert outcome.value is None
    assert "keeping the result, of type 'bytes'" in outcome.error and str(tmp_path) in outcome.error


def test_each_step_that_fails_says_which(run: Any, tmp_path: Path) -> None:
    lost = Order(1, "s", 0, str(tmp_path / "absent"), b"", (), 1, 0, 0, 1)
    assert "loading the function: FileNotFoundError" in Caller("").run(lost).error
    assert "loading an input: FileNotFoundError" in run(abs, Input(0), inputs=(str(tmp_path / "no"),)).error
    assert run(abs, "text").error.startswith("TypeError: bad operand")
    assert "keeping the result, of type 'generator': TypeError: cannot pickle" in run(lambda: (n for n in (1,))).error


def test_a_task_that_exits_fails_and_no_more(run: Any) -> None:
    assert run(sys.exit, 3).error == "SystemExit: 3"


def test_the_traceback_begins_in_the_task(run: Any) -> None:
    def outer() -> None:
        raise KeyError("band")

    outcome = run(outer)
    assert outcome.traceback.count("File") == 1 and "in outer" in outcome.traceback
    assert outcome.traceback.endswith("KeyError: 'band'\n")


def test_errors_of_one_line() -> None:
    assert one_line(ValueError("first\nsecond")) == "ValueError: first"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line(ValueError("x" * 10_000))) <= 500


@pytest.mark.parametrize("value", [None, True, 1, 1.5, 2j, "text", b"bytes", [1, {2}], Pair(1, 2)])
def test_results_are_kept_as_they_are(value: Any) -> None:
    loaded = pickle.loads(dump(value))
    assert loaded == value and type(loaded) is type(value)


def test_inputs_at_any_depth() -> None:
    inputs = tuple(map(dump, (10, 11, 12)))
    given = [Input(0), (Input(1),), {"k": [Input(2)]}, {Input(0), 5}, frozenset({Input(1)}), Pair(Input(2), 0), "rest"]
    assert fill(given, inputs) == [10, (11,), {"k": [12]}, {10, 5}, frozenset({11}), Pair(12, 0), "rest"]
    assert fill(Input(1, 2), inputs) == [11, 12]
    assert fill(Input(1, 0), inputs) == []


def test_an_input_in_several_places_is_one_object() -> None:
    first, second = fill([Input(0), Input(0)], (dump([1]),))
    assert first == [1] and first is second
