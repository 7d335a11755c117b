"""Jobs whose driver is gone: found from the logs of their runs, and cancelled on request."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.allocations.budget import QUERY, SharedBudget
from asa.allocations.watch import SPARE
from asa.core.decision import DispatchDecision
from asa.core.errors import AsaError, BackendError, InvalidInput, StateError
from asa.core.event import (
    CancelAsked,
    Cancelled,
    DriverStarted,
    Event,
    HoldAsked,
    JobEnded,
    RunEnded,
    RunStarted,
    RunState,
    SubmitRefused,
    Submitted,
    Submitting,
)
from asa.core.job import JobHandle, JobStatus
from asa.core.ports import Backend
from asa.core.registry import BACKENDS, parse_spec, with_options
from asa.core.run import CALLS
from asa.core.units import brief
from asa.core.view import QueueView
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from asa.security.files import write_private
from asa.workflows.assemble import HOLD, RELEASE
from asa.workflows.settings import load_settings


@dataclass(frozen=True)
class Leftover:
    """A job that no driver looks after.

    Parameters
    ----------
    run
        Whose it was.
    allocation
        Its token.
    status
        What the batch system says of it.
    resumable
        Whether the run has no result yet, so that `asa resume` would use the job.
    """

    run: RunDirectory
    allocation: str
    status: JobStatus
    resumable: bool


def leftovers(state: Path, unread: dict[str, str] | None = None) -> Iterator[Leftover]:
    """Jobs of runs without a driver that have not ended, over all runs of a state directory.

    Parameters
    ----------
    unread
        Takes the names of runs of which not everything could be looked at, and why. Of a damaged log, what can be read
        is looked at. A batch system that does not answer for one run is not asked for the next ones.
    """
    unread = {} if unread is None else unread
    silent: dict[str, str] = {}
    for run in list_runs(state):
        try:
            jobs, resumable = _logged(run, unread)
            if not jobs:
                continue
            if (spec := str(_backend_spec(run))) not in silent:
                try:
                    yield from _left(run, jobs, resumable)
                    continue
                except BackendError as error:
                    silent[spec] = " ".join(str(error).splitlines()[-1:])
            named = ", ".join(handle.job_id if handle else "one without a number" for handle in jobs.values())
            unread[run.name] = f"whether its jobs ({named}) are left is not known, {spec} does not say: {silent[spec]}"
        except AsaError as error:
            unread[run.name] = str(error)


def _logged(run: RunDirectory, unread: dict[str, str]) -> tuple[dict[str, JobHandle | None], bool]:
    """Jobs that have not ended, as the log of a run without a driver says; whether `asa resume` would use them."""
    if run.is_driven() or not run.events.exists():
        return {}, False
    jobs: dict[str, JobHandle | None] = {}
    last: Event | None = None
    virtual = False
    with EventLog(run.events) as log:
        for event in _readable(log, run, unread):
            if isinstance(event, Submitting):
                jobs[event.allocation] = None
            elif isinstance(event, Submitted):
                jobs[event.allocation] = event.handle
            elif isinstance(event, SubmitRefused | JobEnded):
                jobs.pop(event.allocation, None)
            elif isinstance(event, RunEnded | DriverStarted):
                last = event
            elif isinstance(event, RunStarted):
                virtual = event.is_virtual
    resumable = not (isinstance(last, RunEnded) and last.state is RunState.SUCCEEDED)
    return {} if virtual else jobs, resumable  # a queue in virtual time ends with its driver


def _left(run: RunDirectory, jobs: Mapping[str, JobHandle | None], resumable: bool) -> Iterator[Leftover]:
    """Those of a run's jobs that have not ended, as its batch system says."""
    if not jobs:
        return
    with contextlib.closing(backend_of(run)) as backend:
        unsure = [key for key, handle in jobs.items() if handle is None]
        handles = {key: handle for key, handle in jobs.items() if handle is not None}
        handles |= backend.find(unsure) if unsure else {}
        for token, status in zip(handles, backend.query(list(handles.values())), strict=True):
            if not status.state.final:
                yield Leftover(run, token, status, resumable)


def _readable(log: EventLog, run: RunDirectory, unread: dict[str, str]) -> Iterator[Event]:
    """The events of a log, one by one; of a damaged one those that can be read, once more from the first."""
    try:
        for _, event in log.read():
            yield event
    except StateError as error:
        unread[run.name] = str(error)
        for _, event in log.readable()[0]:
            yield event


def cancel(
    left: list[Leftover], unread: dict[str, str] | None = None, reason: str = "cancelled by asa clean"
) -> list[Leftover]:
    """Cancel these jobs, and say so in their runs' logs, so that a resumed run asks for new ones; those cancelled.

    That they have ended is for a resumed run to find, which then takes the results that their nodes have kept.

    Parameters
    ----------
    unread
        Takes the names of runs whose jobs could not be cancelled, and why.
    reason
        What the logs say of why.
    """
    unread = {} if unread is None else unread
    by_run: dict[RunDirectory, list[Leftover]] = {}
    for item in left:
        by_run.setdefault(item.run, []).append(item)
    done = []
    for run, items in by_run.items():
        try:
            with run.lock(), contextlib.closing(backend_of(run)) as backend:
                try:
                    with EventLog(run.events) as log:
                        now = time.time()
                        log.append([Cancelled(now, item.allocation, reason) for item in items])
                except StateError as error:  # of a damaged run: its jobs are cancelled all the same
                    unread[run.name] = str(error)
                backend.cancel([item.status.handle for item in items])
                done += items
        except AsaError as error:
            unread[run.name] = str(error)
    return done


def jobs_left(run: RunDirectory) -> int:
    """How many jobs of a run without a driver have not ended.

    Raises
    ------
    StateError
        When not all of its log can be read.
    BackendError
        When the batch system does not say.
    """
    unread: dict[str, str] = {}
    count = sum(1 for _ in _left(run, *_logged(run, unread)))
    if unread:
        raise StateError(unread[run.name])
    return count


def cancel_run(run: RunDirectory, patience_s: float) -> int:
    """End a run: its driver is asked to, wherever it is; without one its jobs are cancelled, and it is logged.

    Parameters
    ----------
    patience_s
        How long to wait for the driver [s].

    Returns
    -------
    int
        How many jobs without a driver were cancelled.

    Raises
    ------
    InvalidInput
        When it has ended already.
    StateError
        When its driver has not ended it in time, or its jobs could not be cancelled.
    """
    reason, until = "cancelled by asa cancel", time.monotonic() + patience_s
    with EventLog(run.events) as log:
        state = run.standing(log)
        if state not in (RunState.RUNNING, RunState.INTERRUPTED):
            raise InvalidInput(f"run {run.name} has {ENDS[state]} already: there is nothing to cancel")
        if run.is_driven():
            write_private(run.cancel_request, reason.encode())
        while (state := run.standing(log)) is RunState.RUNNING:
            if time.monotonic() >= until:
                raise StateError(
                    f"run {run.name} was asked to end, and has not after {brief(patience_s)}: its driver may be hung, "
                    "or on a machine that sees the request later; `asa status` tells, or end that process"
                )
            time.sleep(LOOK_S)
    if state is not RunState.INTERRUPTED:
        if state is not RunState.CANCELLED:
            raise InvalidInput(f"run {run.name} has {ENDS[state]} before it could be cancelled")
        return 0
    unread: dict[str, str] = {}
    left = list(_left(run, *_logged(run, unread)))
    done = cancel(left, unread, reason)
    if unread or len(done) < len(left):
        raise StateError(f"not all jobs of run {run.name} could be cancelled: {unread.get(run.name, 'try it again')}")
    with run.lock(), EventLog(run.events) as log:
        now = _now(log)
        log.append([CancelAsked(now, reason), RunEnded(now, RunState.CANCELLED, reason)])
    run.cancel_request.unlink(missing_ok=True)
    if jobs := next_drivers(run):
        with contextlib.closing(backend_of(run)) as backend:
            backend.cancel(list(jobs.values()))
    return len(done)


def hold_run(run: RunDirectory, held: bool, patience_s: float) -> bool:
    """Have nothing new submitted or launched for a run, or go on: its driver is asked to, or the next one finds it so.

    Parameters
    ----------
    patience_s
        How long to wait for the driver [s].

    Returns
    -------
    bool
        Whether that is another than before.

    Raises
    ------
    InvalidInput
        When the run has ended, is one of calls, or is in virtual time.
    StateError
        When its driver has not taken notice in time.
    """
    until, asked = time.monotonic() + patience_s, False
    with EventLog(run.events) as log:
        started = log.latest(RunStarted)
        if isinstance(started, RunStarted):
            if started.strategy == CALLS:
                raise InvalidInput(f"run {run.name} is one of calls: stop calling; only runs of workflows can be held")
            if started.is_virtual:
                raise InvalidInput(
                    f"run {run.name} is in virtual time, which does not pass while nothing happens: cancel it"
                )
        if _is_held(log) is held:
            return False
        while (state := run.standing(log)) is RunState.RUNNING and _is_held(log) is not held:
            if not asked:
                write_private(run.hold_request, (HOLD if held else RELEASE).encode())
            asked = True
            if time.monotonic() >= until:
                raise StateError(
                    f"run {run.name} was asked, and has not heeded it after {brief(patience_s)}: its driver may be "
                    "hung, or on a machine that sees the request later; `asa status` tells"
                )
            time.sleep(LOOK_S)
        if state not in (RunState.RUNNING, RunState.INTERRUPTED):
            raise InvalidInput(f"run {run.name} has {ENDS[state]} already: there is nothing to hold or release")
    if state is RunState.INTERRUPTED:
        with run.lock(), EventLog(run.events) as log:
            log.append([HoldAsked(time.time(), held)])
    return True


def _now(log: EventLog) -> float:
    """The time [s since the epoch]; that of a run in virtual time without a driver stays where it was."""
    started = log.latest(RunStarted)
    if isinstance(started, RunStarted) and started.is_virtual:
        return max(event.at for _, event in log.read(log.last - 1))
    return time.time()


def _is_held(log: EventLog) -> bool:
    last = log.latest(HoldAsked)
    return isinstance(last, HoldAsked) and last.held


_NEXT = "driver.next"
"""File in the run's directory with the jobs of the next drivers."""
_ASK_S = 30.0
"""How often a run without a driver has the batch system asked about the next one's job [s]."""


def driver_name(run: RunDirectory, number: int) -> str:
    """Of the job of this driver, if it is in one."""
    return f"{run.name}.driver-{number}"


def note_drivers(run: RunDirectory, jobs: Mapping[int, JobHandle]) -> None:
    """Keep which jobs are to be drivers, by their numbers."""
    rows = [[number, job.job_id, job.submitted] for number, job in jobs.items()]
    write_private(run.path / _NEXT, json.dumps(rows).encode())


def next_drivers(run: RunDirectory) -> dict[int, JobHandle]:
    """The jobs of the run's next drivers by their numbers, the first one first: each waits, has just started, or is
    gone."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        rows = sorted(json.loads((run.path / _NEXT).read_bytes()))
        return {row[0]: JobHandle(row[1], driver_name(run, row[0]), row[2]) for row in rows if row[0] > run.generation}
    return {}


def awaits_driver(run: RunDirectory) -> Callable[[], bool]:
    """What says whether a run without a driver will have one: its jobs are asked about now and then."""
    asked, waits = -math.inf, True

    def ask() -> bool:
        nonlocal asked, waits
        jobs = [*next_drivers(run).values()]
        if jobs and time.monotonic() >= asked + _ASK_S:
            asked, budget = time.monotonic(), SharedBudget.of(run.state)
            if budget is None or budget.reserve(QUERY, time.time(), SPARE) is not None:
                with contextlib.suppress(BackendError), contextlib.closing(backend_of(run)) as backend:
                    waits = not all(status.state.final for status in backend.query(jobs))
        return bool(jobs) and waits

    return ask


ENDS = {
    RunState.SUCCEEDED: "succeeded",
    RunState.PARTIAL: "ended, with some tasks failed",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "been cancelled",
}
LOOK_S = 0.1
"""How long from one look at a run that is to end to the next [s]."""


class _StartNothing:
    """A dispatcher for the embedded batch system that is only looked at."""

    def decide(self, view: QueueView) -> Sequence[DispatchDecision]:
        return ()


def backend_of(run: RunDirectory) -> Backend:
    """The batch system that the jobs of a run are in, opened anew."""
    name, options = parse_spec(_backend_spec(run))
    options.pop("dispatcher", None)  # the run's own would start what waits
    backend: Backend = BACKENDS.create(with_options(name, **options), directory=run.backend, dispatcher=_StartNothing())
    return backend


def _backend_spec(run: RunDirectory) -> Any:
    """As the run's settings have it or, where these cannot be read, its log."""
    try:
        return load_settings(run).backend
    except StateError:
        with EventLog(run.events) as log:
            start = next((event for _, event in log.read() if isinstance(event, RunStarted)), None)
        if start is None:
            raise
        return start.backend
