"""A batch system in virtual time, for tests: the embedded one's queue, with programs that do not really run.

It is the outside world of a run: it lives on when a test throws its driver away and starts another.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from asa.backends.queue import BatchQueue, QueueEntry
from asa.core.backfill import EASY
from asa.core.clock import ManualClock
from asa.core.decision import DispatchDecision
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    QueueRegime,
    Reason,
    Refused,
    Resources,
)
from asa.core.ports import Dispatcher
from asa.core.registry import DISPATCHERS
from asa.core.view import QueueView


@dataclass(frozen=True, slots=True)
class FakeRun:
    """What a program will do: run for so long [s], then exit with this code."""

    run_time_s: float
    exit_code: int = 0


class FakeBatch:
    """Batch system of one machine under a `ManualClock`. Deterministic: the same script gives the same run.

    Parameters
    ----------
    dispatcher
        Which waiting jobs start: EASY backfilling unless given; a dispatcher, or the name of one.
    run
        What a job's program will do. A program of which it says None runs until the test ends it, or the wall time.
    wait
        Least time [s] from a job's submission to its start, as if others stood in the queue; a number, or a function of
        the request. An infinite one lasts until `admit`.
    refuse
        Why a request is turned down, or None when it is not.
    watch
        Called after every change of a job's state.
    regime
        What `capabilities` says of a dependent job's place.
    poll
        Seconds [s] between questions about jobs.
    ages
        Whether a job grows older while it waits, given its request as it is by now. Its place is not touched: that is
        for tests of callers that believe `JobStatus.ages_since`.
    arrays, parks
        What `capabilities` says it has; without them, changes that need them are refused.
    ordered
        Whether elements of a job array start in order; if not, as with Slurm, whichever finds room first.
    most_jobs
        How many jobs a user may have in the queue, `others` from elsewhere included, or None for no limit; arrays are
        taken whole or not at all.

    Examples
    --------
    >>> clock = ManualClock()
    >>> batch = FakeBatch(clock, cores=4, run=lambda request: FakeRun(30.0), wait=10.0)
    >>> (handle,) = batch.submit([JobRequest("a", Resources(cores=4), walltime_s=60.0, argv=("true",))])
    >>> batch.sleep(15.0)
    >>> batch.query([handle])[0].state.value, batch.query([handle])[0].started
    ('running', 10.0)
    >>> batch.sleep(60.0)
    >>> batch.query([handle])[0].state.value, batch.query([handle])[0].ended
    ('completed', 40.0)
    """

    def __init__(
        self,
        clock: ManualClock,
        cores: int = 4,
        memory: int | None = None,
        gpus: int = 0,
        dispatcher: str | Dispatcher = EASY,
        *,
        run: Callable[[JobRequest], FakeRun | None] = lambda _request: None,
        wait: float | Callable[[JobRequest], float] = 0.0,
        refuse: Callable[[JobRequest], str | None] = lambda _request: None,
        watch: Callable[[JobRequest, JobStatus], None] = lambda _request, _status: None,
        regime: QueueRegime = QueueRegime.IMMEDIATE,
        poll: float = 1.0,
        ages: Callable[[JobRequest], bool] = lambda _request: True,
        arrays: bool = True,
        parks: bool = True,
        ordered: bool = True,
        most_jobs: int | None = None,
    ) -> None:
        self.most_jobs, self.others = most_jobs, 0
        self._clock, self._regime, self._poll = clock, regime, poll
        self._arrays, self._parks, self.ages = arrays, parks, ages
        self.run, self.refuse, self.watch = run, refuse, watch
        self.wait = wait if callable(wait) else lambda _request: wait
        self._waits = _Waits(DISPATCHERS.create(dispatcher))
        self._queue = BatchQueue(Resources(cores=cores, memory=memory, gpus=gpus), self._waits, ordered=ordered)
        self._faults: list[_Fault] = []
        self._reported: dict[str, tuple[JobState, int]] = {}

    # -- the port ------------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        capacity = self._queue.capacity
        return Capabilities(
            "fake", regime=self._regime, largest=capacity, cores_per_node=capacity.cores, poll_s=self._poll,
            arrays=self._arrays, parks=self._parks, most_jobs=self.most_jobs,
        )  # fmt: skip

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """Queue jobs; those that fit and need not wait have started when this returns."""
        with self._call("submit"):
            reasons = {request.token: self.refuse(request) for request in requests}
            refused = {token: Refused(token, reason) for token, reason in reasons.items() if reason}
            refused |= self._too_many([request for request in requests if request.token not in refused])
            taken = iter(self._submit([request for request in requests if request.token not in refused]))
            self._step()
            return [refused.get(request.token) or next(taken) for request in requests]

    def _too_many(self, requests: Sequence[JobRequest]) -> dict[str, Refused]:
        """Those for which there is no room."""
        left = math.inf if self.most_jobs is None else self.most_jobs - self.others
        left -= sum(not entry.status.state.final for entry in self._queue.entries())
        groups: dict[str, list[str]] = {}
        for request in requests:
            groups.setdefault(request.array or request.token, []).append(request.token)
        found: dict[str, Refused] = {}
        for group in groups.values():
            if len(group) > left:
                found |= {token: Refused(token, "AssocMaxSubmitJobLimit", later=True) for token in group}
            else:
                left -= len(group)
        return found

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        with self._call("query"):
            return [self._status(handle) for handle in handles]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        with self._call("find"):
            return self._queue.find(tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        with self._call("update"):
            for asked, there, what in (
                (changes.throttle is not None, self._arrays, "has no job arrays"),
                (changes.parked is not None, self._parks, "does not park jobs"),
            ):
                if asked and not there:
                    raise BackendError(f"job {handle.token!r} cannot be changed: this batch system {what}")
            self._queue.update(handle, changes)
            if changes.begin is not None:
                self._clock.call_at(changes.begin, self._step)
            self._step()

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        with self._call("cancel"):
            for handle in handles:
                for entry in self._queue.cancel(handle, self._clock.now()):
                    self._queue.ended(entry.job_id, self._clock.now(), None)
            self._step()

    def look(self) -> QueueView:
        with self._call("look"):
            return self._queue.look(self._clock.now())

    def close(self) -> None:
        """Nothing to let go of: the outside world goes on."""

    # -- the script ----------------------------------------------------------------------------------------------

    def jobs(self) -> list[tuple[JobRequest, JobStatus]]:
        """Every job that was ever taken and did not vanish, in order of submission."""
        return [(entry.request, self._status(entry.status.handle)) for entry in self._queue.entries()]

    def admit(self, token: str) -> None:
        """This job has waited long enough: it starts as soon as there is room."""
        self._waits.until[self._named(token).job_id] = -math.inf
        self._step()

    def end(self, token: str, exit_code: int = 0, *, job_id: str = "") -> None:
        """The program of this running job exits; its id says which it is where several have the same token."""
        self._queue.ended(job_id or self._named(token, running=True).job_id, self._clock.now(), exit_code)
        self._step()

    def fail(self, token: str, state: JobState = JobState.NODE_FAIL, reason: str = Reason.NODE_FAIL) -> None:
        """This running job ends through no doing of its own: its node died, it was preempted ..."""
        self._queue.ended(self._named(token, running=True).job_id, self._clock.now(), None, state, reason)
        self._step()

    def requeue(self, token: str, reason: str = Reason.BEGIN) -> None:
        """This running job is put back into the queue, to start again as soon as there is room."""
        self._queue.requeued(self._named(token, running=True).job_id, reason)
        self._step()

    def vanish(self, token: str, *, again: bool = False) -> None:
        """The batch system knows this job no longer, whether it runs or not; the next job gets its id if `again`."""
        job_id = self._named(token).job_id
        self._queue.forget(job_id, again=again)
        self._reported.pop(job_id, None)
        self._step()

    def break_next(self, call: str, error: BackendError, *, times: int = 1, after: bool = False) -> None:
        """The next `times` calls of this name raise `error`; with `after` they take effect, only the answer is lost."""
        self._faults += [_Fault(call, error, after)] * times

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass [s], and everything happen that is due meanwhile."""
        self._clock.wait(threading.Event(), self._clock.now() + seconds)

    # -- mechanics -----------------------------------------------------------------------------------------------

    def _submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        now = self._clock.now()
        outcomes = self._queue.submit(requests, now)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, JobHandle):
                until = self._waits.until[outcome.job_id] = now + self.wait(request)
                for time in (until, request.begin):
                    if time is not None and now < time < math.inf:
                        self._clock.call_at(time, self._step)
        return outcomes

    def _status(self, handle: JobHandle) -> JobStatus:
        status, entry = self._queue.status(handle), self._queue.entry(handle)
        return status if entry is None or self.ages(entry.request) else replace(status, ages_since=None)

    def _step(self) -> None:
        now = self._clock.now()
        actions = self._queue.tick(now)
        while actions.start or actions.kill:
            for entry in actions.kill:
                self._queue.ended(entry.job_id, now, None)
            for entry in actions.start:
                self._start(entry)
            actions = self._queue.tick(now)
        for entry in self._queue.changes():
            now_is = (entry.status.state, entry.status.restarts)
            if self._reported.get(entry.job_id) != now_is:
                self._reported[entry.job_id] = now_is
                self.watch(entry.request, entry.status)

    def _start(self, entry: QueueEntry) -> None:
        self._queue.placed(entry.job_id, ("fake1",))
        run = self.run(entry.request)
        if run is not None:
            self._clock.call_at(self._clock.now() + run.run_time_s, lambda: self._exit(entry, run.exit_code))
        self._clock.call_at(entry.ends, self._step)

    def _exit(self, started: QueueEntry, exit_code: int) -> None:
        """The program that was started then exits, unless it has been ended or started anew since."""
        now = self._queue.entry(started.status.handle)
        if now and now.running and now.status.restarts == started.status.restarts:
            self._queue.ended(now.job_id, self._clock.now(), exit_code)
            self._step()

    def _named(self, token: str, *, running: bool = False) -> QueueEntry:
        handle = self._queue.find([token]).get(token)
        entry = self._queue.entry(handle) if handle else None
        if entry is None or (running and not entry.running):
            raise InvalidInput(f"no {'running ' if running else ''}job {token!r}: jobs are {self.jobs()}")
        return entry

    @contextlib.contextmanager
    def _call(self, name: str) -> Iterator[None]:
        fault = next((fault for fault in self._faults if fault.call == name), None)
        if fault:
            self._faults.remove(fault)
            if not fault.after:
                raise fault.error
        yield
        if fault:
            raise fault.error


@dataclass(frozen=True, slots=True)
class _Fault:
    call: str
    error: BackendError
    after: bool


class _Waits:
    """A dispatcher that keeps jobs from another one until they have waited long enough."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.until: dict[str, float] = {}

    def decide(self, view: QueueView) -> Sequence[DispatchDecision]:
        admitted = tuple(job for job in view.queue if self.until[str(job.key)] <= view.now)
        return self._dispatcher.decide(replace(view, queue=admitted))
