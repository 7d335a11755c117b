"""What the plan wants done. The runner does it, and logs the events that follow."""

from __future__ import annotations

from dataclasses import dataclass

from asa.core.decision import Amend, Ask
from asa.core.event import RunState
from asa.core.job import Resources
from asa.core.run import Wait


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a job under this token."""

    token: str
    ask: Ask


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a job that is pending, holds no live work, or does not answer."""

    allocation: str
    reason: str
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Change a job that was submitted."""

    change: Amend


@dataclass(frozen=True, slots=True)
class Release:
    """Let an allocation end with exit code 0."""

    allocation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Give tasks of a stage to an allocation, as half-open index ranges."""

    stage: str
    ranges: tuple[tuple[int, int], ...]
    allocation: str


@dataclass(frozen=True, slots=True)
class Expand:
    """Find out how many tasks a stage has: its predecessors are done."""

    stage: str


@dataclass(frozen=True, slots=True)
class AskWait:
    """Ask the estimator how long a job for this stage would wait, at these quantiles."""

    stage: str
    late: float | None = None
    soon: float | None = None


@dataclass(frozen=True, slots=True)
class Teach:
    """Tell the estimator how long the queue made a job wait [s], unless that is `censored`: then only log it."""

    wait: Wait
    wait_s: float
    censored: bool


@dataclass(frozen=True, slots=True)
class Want:
    """Say how many more tasks of which size could run now; None when no task waits for room."""

    task: Resources | None
    count: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The outcome is known. Jobs may still be ending."""

    state: RunState
    message: str = ""
    stage: str = ""


Action = Submit | Cancel | Update | Release | Launch | Expand | AskWait | Teach | Want | Finish
