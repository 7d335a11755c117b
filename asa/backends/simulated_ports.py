"""What a backend in virtual time brings besides the Backend port: its own clock, and the executor that lives in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from asa.core.ports import Backend, Clock, Executor
from asa.core.task import Task, Value


class VirtualClock(Clock, Protocol):
    """A clock that stands still unless somebody waits, and then runs the calls that are due."""

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Run `call` when it is `when` [s], now if that is past."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: with a value, or with an error; `seconds` is how long the call really took [s]."""

    seconds: float
    value: Value | None
    error: str = ""
    traceback: str = ""


class Work(Protocol):
    """What tasks do, and how long that takes."""

    def seconds(self, task: Task) -> float | None:
        """Virtual run time of a task [s]; None for as long as the call really takes."""

    def call(self, task: Task) -> Outcome:
        """Run a task, here and now; never raises for what the task itself does."""


@runtime_checkable
class VirtualBackend(Backend, Protocol):
    """A backend in virtual time."""

    @property
    def compute(self) -> bool:
        """Whether tasks really call their functions."""

    @property
    def times(self) -> str | Path | None:
        """An earlier run, whose run times tasks have where nothing else tells."""

    def enter(self) -> VirtualClock:
        """Its clock. From now on until `close`, it belongs to one run; waits for the one before to let go."""

    def executor(self, work: Work) -> Executor:
        """The executor of its running jobs; no other one can run there."""

    def listen(self, call: Callable[[], None]) -> None:
        """Call this whenever something has happened to a job of the run, so that nobody need ask all the time."""


class Program(Protocol):
    """What a job's program will do: run for so long [s], then exit with this code."""

    @property
    def run_time_s(self) -> float: ...
    @property
    def exit_code(self) -> int: ...
