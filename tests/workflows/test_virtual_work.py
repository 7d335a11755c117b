"""Tasks in virtual time are called as workers call them."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.task import Input, Task
from asa.log.events import EventLog
from asa.log.values import dump, load
from asa.testing.runlogs import run_begins, stage_spec
from asa.workflows.virtual_work import Calls, Times, recorded
from executors import hub
from executors.worker import Caller


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.fixture
def both(tmp_path: Path) -> Any:
    """Calls a function with arguments and inputs in both ways: value (or None), error and traceback of each."""

    def call(function: Any, args: tuple[Any, ...], inputs: tuple[bytes, ...] = ()) -> list[tuple[Any, str, str]]:
        file = tmp_path / f"function-{id(function)}"
        file.write_bytes(dump(function))
        task = Task("s", 0, str(file), dump((args, {})), inputs, Resources())
        outcomes = [
            Calls(Times(), tmp_path, str(Path.cwd())).call(task),
            Caller(str(tmp_path)).run(hub.task_order(task, 1, spanning=False)),
        ]
        return [
            (None if outcome.value is None else load(outcome.value), outcome.error, outcome.traceback)
            for outcome in outcomes
        ]

    return call


def test_run_times_of_a_run_that_tells_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such event log"):
        recorded(tmp_path / "nothing", None)
    with EventLog(tmp_path / "events.db") as log:
        log.append(run_begins(stage_spec("a", 1, 1)))
    with pytest.raises(InvalidInput, match="no task of that run has ended, so it tells no run times"):
        recorded(tmp_path, None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([Pair(Input(0), 2)], [Pair(7, 2)]),
        (OrderedDict(a=Input(1)), OrderedDict(a=8)),
        ({"x": Input(0, 2)}, {"x": [7, 8]}),
    ],
)
def test_inputs_take_their_places(both: Any, given: Any, expected: Any) -> None:
    virtual, real = both(lambda value: value, (given,), (dump(7), dump(8)))
    assert virtual == real == (expected, "", "")
    assert type(virtual[0]) is type(real[0]) is type(expected)


def test_a_task_that_fails_says_the_same(both: Any) -> None:
    def fail(word: str) -> None:
        raise KeyError(word)

    virtual, real = both(fail, ("band",))
    assert virtual == real
    assert virtual[1] == "KeyError: 'band'" and virtual[2].count("File") == 1


def test_a_long_result_is_a_file_in_both(both: Any, tmp_path: Path) -> None:
    virtual, real = both(lambda: b"x" * 100_000, ())
    assert virtual == real == (b"x" * 100_000, "", "")
    assert len(list(tmp_path.glob("s-0-*.pkl"))) == 2
