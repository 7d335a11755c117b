"""Jobs whose driver is gone: found from the logs of their runs, and cancelled on request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asa.core.decision import DispatchDecision
from asa.core.event import Cancelled, DriverStarted, RunEnded, RunState
from asa.core.job import JobHandle, JobStatus
from asa.core.ports import Backend
from asa.core.registry import BACKENDS, parse_spec, with_options
from asa.core.run import Pool
from asa.core.view import QueueView
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
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


def leftovers(state: Path) -> Iterator[Leftover]:
    """Jobs of runs without a driver that have not ended, over all runs of a state directory."""
    for run in list_runs(state):
        if run.is_driven() or not run.events.exists():
            continue
        with EventLog(run.events) as log:
            pool = Pool()
            for _, event in log.read():
                pool.on(event)
            last = log.latest(RunEnded, DriverStarted)
        if not pool.held:
            continue
        resumable = not (isinstance(last, RunEnded) and last.state is RunState.SUCCEEDED)
        backend = backend_of(run)
        unsure = [key for key, held in pool.held.items() if held.handle is None]
        handles: dict[str, JobHandle] = {key: held.handle for key, held in pool.held.items() if held.handle}
        handles |= backend.find(unsure) if unsure else {}
        for token, status in zip(handles, backend.query(list(handles.values())), strict=True):
            if not status.state.final:
                yield Leftover(run, token, status, resumable)
        backend.close()


def cancel(left: list[Leftover]) -> None:
    """Cancel these jobs, and say so in their runs' logs, so that a resumed run asks for new ones."""
    by_run: dict[RunDirectory, list[Leftover]] = {}
    for item in left:
        by_run.setdefault(item.run, []).append(item)
    for run, items in by_run.items():
        with run.lock(), EventLog(run.events) as log:
            now = time.time()
            log.append([Cancelled(now, item.allocation, "cancelled by asa clean") for item in items])
            backend = backend_of(run)
            backend.cancel([item.status.handle for item in items])
            backend.close()


class _StartNothing:
    """A dispatcher for the embedded batch system that is only looked at."""

    def decide(self, view: QueueView) -> Sequence[DispatchDecision]:
        return ()


def backend_of(run: RunDirectory) -> Backend:
    """The batch system that the jobs of a run are in, opened anew."""
    name, options = parse_spec(load_settings(run).backend)
    options.pop("dispatcher", None)  # the run's own would start what waits
    backend: Backend = BACKENDS.create(with_options(name, **options), directory=run.backend, dispatcher=_StartNothing())
    return backend
