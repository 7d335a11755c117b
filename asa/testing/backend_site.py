"""A batch system under test: how fast it is, and the few things that the conformance suite does with it."""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Resources
from asa.core.ports import Backend, Clock
from asa.testing.backend_fake import Run

_PROGRAM = re.compile(r"sleep (\S+); exit (\d+)")


def program(run_time_s: float, exit_code: int = 0) -> tuple[str, ...]:
    """A program that runs for `run_time_s` [s] and exits with `exit_code`."""
    return ("sh", "-c", f"sleep {run_time_s}; exit {exit_code}")


def run_of(request: JobRequest) -> Run:
    """What a job made with `program` will do; for batch systems that run nothing.

    >>> run_of(JobRequest("a", Resources(), 60.0, program(1.5, exit_code=3)))
    Run(run_time_s=1.5, exit_code=3)
    """
    match = _PROGRAM.fullmatch(request.argv[-1])
    assert match, f"not one of the suite's programs: {request.argv}"
    return Run(float(match[1]), int(match[2]))


@dataclass
class Site:
    """A batch system under test, and how fast it is.

    Parameters
    ----------
    backend, clock
        The batch system, and the time it lives in.
    directory
        Where programs write; its nodes see it too.
    whole
        A job that fills the machine; the largest one that the backend knows of unless given. An even number of cores.
    run_s
        How long a short program runs [s]; well above `resolution_s`.
    resolution_s
        How exact the times are that the batch system tells [s].
    walltime_s
        Wall time of jobs that are not meant to reach it [s].
    shortest_s
        Shortest wall time that the batch system enforces [s].
    patience_s
        How long anything may take, besides reaching a wall time [s]: a few short programs in a row, a start, a kill.
    """

    backend: Backend
    clock: Clock
    directory: Path
    whole: Resources = field(default_factory=Resources)
    run_s: float = 0.2
    resolution_s: float = 0.01
    walltime_s: float = 60.0
    shortest_s: float = 0.3
    patience_s: float = 20.0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        if self.whole == Resources():
            largest = self.backend.capabilities().largest
            assert largest, "the backend does not tell its largest job: give the site `whole`"
            self.whole = Resources(cores=largest.cores)
        assert self.whole.cores >= 2, "the suite needs a machine of two cores at least"

    @property
    def half(self) -> Resources:
        """A job of which two fit at a time."""
        return Resources(cores=self.whole.cores // 2)

    def request(self, *argv: str, run_s: float = 0.0, exit_code: int = 0, **fields: Any) -> JobRequest:
        """A job of one core that runs `argv`, or else a short program; `fields` are those of `JobRequest`."""
        default = JobRequest(
            token=f"suite-{secrets.token_hex(4)}-{next(self._numbers)}",
            resources=Resources(),
            walltime_s=self.walltime_s,
            argv=argv or program(run_s or self.run_s, exit_code),
            workdir=str(self.directory),
        )
        return replace(default, **fields)

    def submit(self, request: JobRequest) -> JobHandle:
        """Submit one job, which must be taken."""
        (outcome,) = self.backend.submit([request])
        assert isinstance(outcome, JobHandle), f"refused: {outcome}"
        return outcome

    def submit_array(self, *requests: JobRequest) -> list[JobHandle]:
        """Submit jobs as the elements of one array, all of which must be taken."""
        name = f"suite-array-{secrets.token_hex(4)}"
        outcomes = self.backend.submit([replace(request, array=name) for request in requests])
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        assert len(handles) == len(requests), f"refused: {outcomes}"
        return handles

    def status(self, handle: JobHandle) -> JobStatus:
        """How one job stands."""
        (status,) = self.backend.query([handle])
        assert status.handle == handle, "a status must be that of the job asked for"
        return status

    def until(self, condition: Callable[[], Any], patience_s: float | None = None) -> None:
        """Wait until a condition holds, asking as often as the backend stands."""
        deadline = self.clock.now() + (self.patience_s if patience_s is None else patience_s)
        while not condition():
            assert self.clock.now() < deadline, f"{condition} does not come true"
            self.sleep(self.backend.capabilities().poll_s)

    def reach(self, handle: JobHandle, *states: JobState, patience_s: float | None = None) -> JobStatus:
        """Wait until a job is in one of these states; fail at once if it ends in another."""

        def there() -> bool:
            status = self.status(handle)
            assert status.state in states or not status.state.final, f"expected {states}, not {status}"
            return status.state in states

        self.until(there, patience_s)
        return self.status(handle)

    def sleep(self, seconds: float) -> None:
        """Let time pass [s]."""
        self.clock.wait(threading.Event(), self.clock.now() + seconds)

    def later(self, first: float | None, second: float | None) -> bool:
        """Whether `second` is not before `first` [s], as exactly as the batch system tells."""
        assert first is not None, "a time is missing"
        assert second is not None, "a time is missing"
        return second >= first - self.resolution_s


class Pulse:
    """Signs of life of a process, wherever it runs: a file that grows."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.every_s = site.run_s / 10
        self.file = site.directory / f"pulse-{secrets.token_hex(4)}"

    def stopped(self) -> bool:
        """Whether the file has ceased to grow."""
        size = self.file.stat().st_size
        self._site.sleep(self._site.run_s)
        return self.file.stat().st_size == size


def unknown(site: Site) -> JobHandle:
    """The handle of a job that never was."""
    return JobHandle("99999999", "nobody", site.clock.now())
