"""A batch system's queue as a state machine: events in, jobs to start and to kill out. No I/O, `now` is an argument.

The embedded batch system (`asa.backends.local`) drives it with processes, the fake one (`asa.testing.backend_fake`) in
virtual time. Jobs are served in the order in which they were submitted; a job that something holds back (another job,
its begin time, the throttle of its array, parking) keeps its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from asa.core.decision import JobKey, Reject, Reserve, Start
from asa.core.errors import BackendError
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Reason,
    Refused,
    Resources,
)
from asa.core.ports import Dispatcher
from asa.core.view import QueuedJob, QueueView, RunningJob


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job in the queue.

    Parameters
    ----------
    ending
        The state in which it will end once its program is gone: it is being cancelled, or out of wall time.
    array
        Id of the first element of its job array, or "".
    throttle
        How many elements of that array may run at a time.
    parked
        Whether it asks for nodes that do not exist.
    """

    request: JobRequest
    status: JobStatus
    ending: JobState | None = None
    array: str = ""
    throttle: int = 1
    parked: bool = False

    @property
    def job_id(self) -> str:
        return self.status.handle.job_id

    @property
    def running(self) -> bool:
        return self.status.state is JobState.RUNNING

    @property
    def pending(self) -> bool:
        return self.status.state is JobState.PENDING

    @property
    def ends(self) -> float:
        """When a running job's wall time is over [s]."""
        assert self.status.started is not None, "only a running job ends"
        return self.status.started + self.request.walltime_s


@dataclass(frozen=True)
class QueueActions:
    """What the driver is to do now: programs to start, and programs to kill."""

    start: list[QueueEntry] = field(default_factory=list)
    kill: list[QueueEntry] = field(default_factory=list)


def only_throttles(changes: JobChanges) -> bool:
    """Whether these change the throttle of an array and nothing else, so that the job named need not wait."""
    return changes.throttle is not None and replace(changes, throttle=None) == JobChanges()


def throttle_problem(throttle: int | None, array: bool, lives: bool) -> str:
    """Why the throttle of a job's array cannot be changed, or "".

    `array`: the job is an element of one; `lives`: not all of its elements have ended.
    """
    if throttle is None:
        return ""
    if not array:
        return "is no element of a job array: there is no throttle to change"
    if throttle < 1:
        return f"has an array of which at least 1 element may run, not {throttle!r}"
    return "" if lives else "belongs to an array whose elements have all ended"


_READY = Reason.PRIORITY
"""Reason of a job that nothing but the dispatcher holds back."""


class BatchQueue:
    """The queue of one machine; `entries` are jobs of an earlier queue to go on with, in order of submission.

    Elements of a job array start in order; or, as with Slurm, unless `ordered`, whichever finds room first.
    """

    def __init__(
        self,
        capacity: Resources,
        dispatcher: Dispatcher,
        entries: Iterable[QueueEntry] = (),
        first_id: int = 1,
        *,
        ordered: bool = True,
    ) -> None:
        self.capacity, self._ordered = capacity, ordered
        self._dispatcher = dispatcher
        self._next_id = first_id
        self._free_ids: list[str] = []
        self._entries: dict[str, QueueEntry] = {}
        self._live: dict[str, None] = {}  # ids of jobs not ended, in order of submission
        self._outlook: dict[str, tuple[str, float | None]] = {}  # why a pending job waits, and its promised start
        self._statuses: dict[str, tuple[QueueEntry, tuple[str, float | None], JobStatus]] = {}
        self._changed: dict[str, None] = {}
        for entry in entries:
            self._set(entry)
        self._changed.clear()

    # -- what the outside world asks -----------------------------------------------------------------------------

    def submit(self, requests: Sequence[JobRequest], now: float) -> list[JobHandle | Refused]:
        """Put jobs at the end of the queue, in order; they start at a later `tick`."""
        arrays: dict[str, list[JobHandle]] = {}
        return [self._submit(request, now, arrays) for request in requests]

    def cancel(self, handle: JobHandle, now: float) -> list[QueueEntry]:
        """End a job: a waiting one at once; a running one is returned, to be killed. Others are passed over."""
        entry = self.entry(handle)
        if entry is None or entry.status.state.final or entry.ending:
            return []
        if entry.pending:
            self._finish(entry, JobState.CANCELLED, now, "cancelled while it waited")
            return []
        return [self._end_as(entry, JobState.CANCELLED)]

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array.

        Raises a `BackendError`, and changes nothing, when it does not wait any more, when the machine could never run
        it as changed, or when there is no throttle to change.
        """
        entry = self.entry(handle)
        if entry is None or not (entry.pending or only_throttles(changes)):
            state = entry.status.state.value if entry else "unknown"
            raise BackendError(f"job {handle.token!r} is {state}: only a job that waits can be changed")
        kept = {
            name: value
            for name in ("walltime_s", "resources", "dependencies", "begin")
            if (value := getattr(changes, name)) is not None
        }
        request = replace(entry.request, **kept)
        elements = [other for other in self.live() if entry.array and other.array == entry.array]
        problem = self._problem(request.resources, request.walltime_s, request.dependencies)
        if problem := problem or throttle_problem(changes.throttle, bool(entry.array), bool(elements)):
            raise BackendError(f"job {handle.token!r} cannot be changed: it {problem}")
        if not only_throttles(changes):
            parked = entry.parked if changes.parked is None else changes.parked
            self._set(replace(entry, request=request, parked=parked, status=replace(entry.status, eligible=None)))
        if changes.throttle is not None:
            for element in elements:
                self._set(replace(self._entries[element.job_id], throttle=changes.throttle))

    def status(self, handle: JobHandle) -> JobStatus:
        """How a job stands; ``LOST`` when the handle's id, token and time of submission belong to no job."""
        entry = self.entry(handle)
        if entry is None:
            return JobStatus(handle, JobState.LOST, "no such job")
        if entry.ending and entry.running:
            return replace(entry.status, reason=f"being ended as {entry.ending.value}")
        if not entry.pending:
            return entry.status
        outlook = self._outlook.get(entry.job_id, (_READY, None))
        known = self._statuses.get(entry.job_id)  # hundreds may wait, and all are asked about
        if known is None or known[0] is not entry or known[1] != outlook:
            reason, planned = outlook
            status = replace(entry.status, reason=reason, planned=planned, ages_since=handle.submitted)
            known = self._statuses[entry.job_id] = entry, outlook, status
        return known[2]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """The latest job of each token; unknown tokens are left out."""
        wanted = set(tokens)
        handles = (entry.status.handle for entry in self._entries.values())
        return {handle.token: handle for handle in handles if handle.token in wanted}

    def entry(self, handle: JobHandle) -> QueueEntry | None:
        """None when there is no such job."""
        found = self._entries.get(handle.job_id)
        return found if found and found.status.handle == handle else None

    def entries(self) -> list[QueueEntry]:
        """All jobs, in order of submission."""
        return list(self._entries.values())

    def live(self) -> list[QueueEntry]:
        """Jobs that have not ended, in order of submission."""
        return [self._entries[job_id] for job_id in self._live]

    def look(self, now: float) -> QueueView:
        """The queue as the dispatcher sees it."""
        ready = [self._entries[str(key)] for key, reason in self._reasons().items() if reason == _READY]
        return self._view(now, ready, [entry for entry in self.live() if entry.running])

    # -- what the driver reports ---------------------------------------------------------------------------------

    def tick(self, now: float) -> QueueActions:
        """Let time pass: settle dependencies and begin times, end wall times, and start what the dispatcher says.

        After a start or an end, tick again: others may have waited for it.
        """
        self._settle(now)
        running = [entry for entry in self.live() if entry.running]
        kill = [self._end_as(entry, JobState.TIMEOUT) for entry in running if not entry.ending and entry.ends <= now]
        reasons = self._reasons()
        self._outlook.update({str(key): (reason, None) for key, reason in reasons.items()})
        waiting = {key: self._entries[str(key)] for key, reason in reasons.items() if reason == _READY}
        start: list[QueueEntry] = []
        room = self._room()
        for decision in self._dispatcher.decide(self._view(now, waiting.values(), running)):
            if isinstance(decision, Start):
                entry = waiting[decision.job]
                if entry.array:
                    room[entry.array] -= 1
                    if room[entry.array] < 0:
                        continue
                started = replace(entry, status=replace(entry.status, state=JobState.RUNNING, started=now))
                self._set(started)
                start.append(started)
            elif isinstance(decision, Reserve):
                self._outlook[waiting[decision.job].job_id] = (Reason.RESOURCES, decision.at)
            elif isinstance(decision, Reject):
                self._finish(waiting[decision.job], JobState.CANCELLED, now, decision.reason)
                self._settle(now)  # others may depend on it
        return QueueActions(start, kill)

    def placed(self, job_id: str, nodes: tuple[str, ...]) -> None:
        """A job that was to start runs on these nodes."""
        entry = self._entries[job_id]
        self._set(replace(entry, status=replace(entry.status, nodes=nodes)))

    def ended(
        self, job_id: str, at: float, exit_code: int | None, state: JobState | None = None, reason: str = ""
    ) -> None:
        """A running job's program is gone, by itself or killed; `state` when the exit code does not say it all."""
        entry = self._entries[job_id]
        own = JobState.COMPLETED if exit_code == 0 else JobState.FAILED
        if entry.ending:
            reason = Reason.TIME_LIMIT if entry.ending is JobState.TIMEOUT else "cancelled while it ran"
        at = max(at, entry.status.started or at)  # clocks of different resolution must not make it end before its start
        self._finish(entry, entry.ending or state or own, at, reason, exit_code)

    def requeued(self, job_id: str, reason: str) -> None:
        """A running job lost its nodes, and waits again at its old place."""
        entry = self._entries[job_id]
        status = entry.status
        again = JobStatus(status.handle, JobState.PENDING, restarts=status.restarts + 1)
        self._set(replace(entry, status=again))
        self._outlook[job_id] = (reason, None)

    def forget(self, job_id: str, *, again: bool = False) -> None:
        """Remove a job, as if it had never been submitted; the next one gets its id if that is to be used `again`."""
        if again:
            self._free_ids.append(job_id)
        for book in (self._entries, self._live, self._outlook, self._statuses, self._changed):
            book.pop(job_id, None)

    def changes(self) -> list[QueueEntry]:
        """Entries that changed since the last call: what must be saved."""
        changed = [self._entries[job_id] for job_id in self._changed]
        self._changed.clear()
        return changed

    # -- rules ---------------------------------------------------------------------------------------------------

    def _submit(self, request: JobRequest, now: float, arrays: dict[str, list[JobHandle]]) -> JobHandle | Refused:
        """Put a job at the end of the queue; `arrays` are those of this call, by name."""
        if problem := self._problem(request.resources, request.walltime_s, request.dependencies):
            return Refused(request.token, f"job {request.token!r} {problem}")
        elements = arrays.setdefault(request.array, []) if request.array else None
        index = None if elements is None else len(elements)
        if self._free_ids:
            job_id = self._free_ids.pop()
        else:
            job_id, self._next_id = str(self._next_id), self._next_id + 1
        handle = JobHandle(job_id, request.token, now, index)
        array = ""
        if elements is not None:
            elements.append(handle)
            array = elements[0].job_id
        self._set(QueueEntry(request, JobStatus(handle, JobState.PENDING), array=array))
        return handle

    def _reasons(self) -> dict[JobKey, str]:
        """Why the eligible jobs wait, in order; `_READY` for those that nothing but the dispatcher holds back."""
        room = self._room()
        reasons: dict[JobKey, str] = {}
        for entry in self.live():
            if not entry.pending or entry.status.eligible is None:
                continue
            if entry.parked:
                reasons[entry.job_id] = Reason.BARRED
            elif entry.array and room[entry.array] <= 0:
                reasons[entry.job_id] = Reason.THROTTLED
            else:
                reasons[entry.job_id] = _READY
                if entry.array and self._ordered:
                    room[entry.array] -= 1
        return reasons

    def _room(self) -> dict[str, int]:
        """How many more elements of each array may run."""
        room: dict[str, int] = {}
        for entry in self.live():
            if entry.array:
                room[entry.array] = room.get(entry.array, entry.throttle) - entry.running
        return room

    def _problem(self, need: Resources, walltime_s: float, dependencies: Sequence[Dependency]) -> str:
        """Why the machine could never run such a job, or "" when it could."""
        if not walltime_s > 0:
            return f"has a wall time of {walltime_s!r} s: it must be above 0"
        for what, asked, there in (
            ("cores", need.cores, self.capacity.cores),
            ("GPUs", need.gpus, self.capacity.gpus),
            ("bytes of memory", need.memory or 0, self.capacity.memory or need.memory or 0),
        ):
            if asked > there:
                return f"asks for {asked} {what}, more than the {there} there are"
        for dependency in dependencies:
            if self.entry(dependency.on) is None:
                return f"depends on job {dependency.on.job_id} ({dependency.on.token!r}), which is not known here"
        return ""

    def _settle(self, now: float) -> None:
        """Find which pending jobs have become eligible, and cancel those that never will."""
        cancelled = True
        while cancelled:  # again after a cancellation, on which others may depend
            cancelled = False
            for entry in self.live():
                if not entry.pending or entry.status.eligible is not None:
                    continue
                times = [self._satisfied(dependency) for dependency in entry.request.dependencies]
                if math.inf in times:
                    self._finish(entry, JobState.CANCELLED, now, Reason.NEVER)
                    cancelled = True
                elif None in times:
                    self._outlook[entry.job_id] = (Reason.DEPENDENCY, None)
                elif entry.request.begin is not None and entry.request.begin > now:
                    self._outlook[entry.job_id] = (Reason.BEGIN, None)
                else:
                    known = [time for time in times if time is not None]
                    eligible = max(entry.status.handle.submitted, entry.request.begin or -math.inf, *known)
                    self._set(replace(entry, status=replace(entry.status, eligible=eligible)))

    def _satisfied(self, dependency: Dependency) -> float | None:
        """When a dependency was fulfilled [s]: None while it may yet be, infinite when it cannot be any more."""
        other = self.entry(dependency.on)
        if other is None:  # removed since: it has ended, how is unknown
            return math.inf if dependency.kind is DependencyKind.AFTER_OK else -math.inf
        status = other.status
        if dependency.kind is DependencyKind.AFTER and status.started is not None:
            return status.started
        if not status.state.final:
            return None
        if dependency.kind is DependencyKind.AFTER_OK and status.state is not JobState.COMPLETED:
            return math.inf
        return status.ended

    def _view(self, now: float, waiting: Iterable[QueueEntry], running: Iterable[QueueEntry]) -> QueueView:
        return QueueView(
            now,
            self.capacity,
            tuple(
                QueuedJob(job.job_id, job.request.resources, job.request.walltime_s, job.status.handle.submitted)
                for job in waiting
            ),
            tuple(RunningJob(job.job_id, job.request.resources, job.ends, job.request.walltime_s) for job in running),
        )

    def _end_as(self, entry: QueueEntry, state: JobState) -> QueueEntry:
        ending = replace(entry, ending=state)
        self._set(ending)
        return ending

    def _finish(self, entry: QueueEntry, state: JobState, at: float, reason: str, exit_code: int | None = None) -> None:
        status = replace(entry.status, state=state, ended=at, reason=reason, exit_code=exit_code)
        self._set(replace(entry, status=status))

    def _set(self, entry: QueueEntry) -> None:
        self._entries[entry.job_id] = entry
        self._changed[entry.job_id] = None
        if entry.status.state.final:
            self._live.pop(entry.job_id, None)
            self._outlook.pop(entry.job_id, None)
            self._statuses.pop(entry.job_id, None)
        else:
            self._live[entry.job_id] = None
