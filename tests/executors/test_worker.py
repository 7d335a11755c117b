import pickle
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from asa.core.task import Input, Value
from asa.log.values import INLINE_MOST, load
from executors.wire import OrderOutcome, TaskOrder
from executors.worker import Caller


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a function as a worker would."""

    def run(function: Any, *args: Any, inputs: tuple[Value, ...] = (), stage: str = "s") -> OrderOutcome:
        file = tmp_path / "function"
        file.write_bytes(cloudpickle.dumps(function))
        order = TaskOrder(1, stage, 5, str(file), pickle.dumps((args, {})), inputs, 1, 0, 0, 1)
        return Caller(str(tmp_path)).run(order)

    return run


def test_a_value_returns(run: Any) -> None:
    outcome = run(lambda a, b: a + b, 1, 2)
    assert load(outcome.value) == 3 and outcome.error == "" and outcome.started <= outcome.ended


def test_a_long_result_goes_to_a_file(run: Any, tmp_path: Path) -> None:
    outcome = run(lambda: b"x" * INLINE_MOST)
    assert Path(outcome.value).parent == tmp_path
    assert load(outcome.value) == b"x" * INLINE_MOST


def test_a_disk_that_takes_no_result_is_named(run: Any, tmp_path: Path) -> None:
    def fill_disk() -> bytes:
        tmp_path.joinpath("function").unlink()
        tmp_path.rmdir()
        return b"x" * INLINE_MOST

    outcome = run(fill_disk)
    assert outcome.value is None
    assert "keeping the result, of type 'bytes'" in outcome.error and str(tmp_path) in outcome.error


def test_each_step_that_fails_says_which(run: Any, tmp_path: Path) -> None:
    lost = TaskOrder(1, "s", 0, str(tmp_path / "absent"), b"", (), 1, 0, 0, 1)
    assert "loading the function: FileNotFoundError" in Caller("").run(lost).error
    assert "loading an input: FileNotFoundError" in run(abs, Input(0), inputs=(str(tmp_path / "no"),)).error
    assert run(abs, "text").error.startswith("TypeError: bad operand")
    assert "keeping the result, of type 'generator': TypeError: cannot pickle" in run(lambda: (n for n in (1,))).error


def test_a_task_that_exits_fails_and_no_more(run: Any) -> None:
    assert run(sys.exit, 3).error == "SystemExit: 3"


def test_an_exception_that_cannot_say_what_it_is_fails_the_task_and_no_more(run: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def fail() -> None:
        raise Mute

    outcome = run(fail)
    assert outcome.error == "Mute" and "in fail" in outcome.traceback


def test_the_traceback_begins_in_the_task(run: Any) -> None:
    def outer() -> None:
        raise KeyError("band")

    outcome = run(outer)
    assert outcome.traceback.count("File") == 1 and "in outer" in outcome.traceback
    assert outcome.traceback.endswith("KeyError: 'band'\n")
