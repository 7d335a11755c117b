"""Between the plan and the batch system: submits, cancels, and asks one question for all jobs.

`JobWatch.step` does what is due and says when to come again; it waits for nothing itself. On real clocks a thread of
its own calls it (`WatchThread`), so that a controller that does not answer holds up no task; in virtual time the clock
does (`WatchCalls`).
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from asa.allocations.budget import QUERY, SUBMIT
from asa.core.clock import Joinable, start_thread
from asa.core.errors import BackendError
from asa.core.event import (
    REPLACED,
    AllocationStarted,
    Amended,
    Event,
    JobEnded,
    Queued,
    Requeued,
    SubmitRefused,
    Submitted,
    Trouble,
)
from asa.core.job import (
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    Refused,
    is_limit,
    queue_name,
)
from asa.core.ports import Backend, Clock, CountsQuestions, Post, ShowsQueues, VirtualBackend, VirtualClock
from asa.core.view import QueueView

_log = logging.getLogger(__name__)

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_SOON_S = 0.5
DOUBT_S = 30.0
"""How long after a driver was about to submit a job, and died, that may still reach the batch system [s]."""
LATE_S, LATE_MOST_S = 20.0, 3600.0
"""How often a job is looked for that was never submitted, while another driver may yet do so, and for how long [s]."""
SPARE = 5.0
"""Questions that must be left to others when the whole queue is looked at."""
STALE_S = 30.0
"""A turn that was not taken for so long is lost [s]: turns that are saved up would come all at once."""


@dataclass
class _Watched:
    """A job; of one that holds a place (`placed`) every change is reported: `said`, since when it `ages`; of others,
    that they wait for a limit. `last` is the answer that was looked at last."""

    handle: JobHandle
    placed: bool = False
    said: str = ""
    ages: float | None = None
    state: JobState = JobState.PENDING
    started: float | None = None
    last: JobStatus | None = None


class Budget(Protocol):
    """What the watch asks of `asa.allocations.budget`."""

    def reserve(self, kind: str, now: float, spare: float = 0.0) -> float | None: ...
    def charge(self, kind: str, now: float, count: int) -> None: ...


def shown(backend: Backend, queues: Sequence[Options]) -> list[QueueView | None]:
    """What a backend shows of the queues of jobs with these options, of a single partition if it cannot show more.

    Raises
    ------
    BackendError
        When the batch system does not answer.
    """
    if any(queues) and isinstance(backend, ShowsQueues):
        return backend.looks(queues)
    own = None if all(queues) else backend.look()
    return [None if options else own for options in queues]


class JobWatch:
    """Jobs of one run, from submission to their end.

    Parameters
    ----------
    backend
        The batch system.
    clock
        Source of time.
    post
        Where events go.
    wake
        Called, from any thread, when there is something new to do.
    looks
        Whether to look at the whole queue now and then, for those who want to know (`seen`).
    queues
        Options of the queues to look at besides that which jobs without options are in.
    budget
        How often the batch system may be called; None for as often as is useful. What it does not allow yet is put off:
        questions, and submissions and changes in their order. The queue is looked at with what is to spare. Cancelling
        needs no leave. What a backend asks besides, at the start and before changes, is counted where it reports it.
    is_replaced
        Asks whether the run has another driver by now: then nothing is submitted, changed or cancelled any more.
    may_be_late
        Whether the driver before may still live: a job that it submits late is found by its name, and cancelled.

    Notes
    -----
    The interval between questions starts at half a second after anything happened and doubles up to the backend's
    `poll_s`. Errors are tried again for ever, ever more slowly; `trouble` has the last one. After a submission without
    an answer the backend is asked for the jobs' tokens first, so that none is submitted twice; it need not remember.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        post: Post,
        wake: Callable[[], None] = lambda: None,
        *,
        looks: bool = False,
        queues: Iterable[Options] = (),
        budget: Budget | None = None,
        is_replaced: Callable[[], bool] = lambda: False,
        may_be_late: bool = False,
    ) -> None:
        self._is_replaced, self._may_be_late = is_replaced, may_be_late
        self._late: dict[str, float] = {}  # tokens of jobs that may come late, and until when they are looked for
        self._next_late = math.inf
        self._backend, self._clock, self._post, self._wake = backend, clock, post, wake
        self._slowest = backend.capabilities().poll_s
        self._interval = self._soonest = min(_SOON_S, self._slowest)
        self._lock = threading.Lock()
        self._to_submit: list[JobRequest] = []
        self._to_amend: list[tuple[JobHandle, JobChanges]] = []
        self._to_cancel: list[JobHandle] = []
        self._to_find: dict[str, float] = {}
        self._next_find = -math.inf
        self._doubtful: set[str] = set()
        self._jobs: dict[str, _Watched] = {}
        self._next_query = math.inf
        self._next_look = -math.inf if looks else math.inf
        self._seen: dict[Options, QueueView | None] = dict.fromkeys(((), *queues))
        self._unseen: set[Options] = set()
        self._virtual = isinstance(backend, VirtualBackend)
        self._counts = backend if isinstance(backend, CountsQuestions) else None
        self._not_before = -math.inf
        self._failures = 0
        self._budget = budget
        self._turns: dict[str, float] = {}
        self._paid = 0
        self._winds_up = self._withdrawn = False
        self.trouble = ""

    def submit(self, requests: Sequence[JobRequest]) -> None:
        """Submit jobs, all in one call to the batch system; their fate comes as events."""
        with self._lock:
            self._to_submit += requests
        self._wake()

    def amend(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job; how that went comes as an event, and what becomes of its place."""
        with self._lock:
            self._to_amend.append((handle, changes))
        self._wake()

    def cancel(self, handle: JobHandle) -> None:
        """Cancel a job; changes of it that have not been made are forgotten."""
        with self._lock:
            self._to_amend = [item for item in self._to_amend if item[0] != handle]
            self._to_cancel.append(handle)
        self._wake()

    def wind_up(self) -> None:
        """Submit and change nothing any more; what may have been submitted is still looked for."""
        with self._lock:
            self._winds_up = True
        self._wake()

    def withdraw(self) -> None:
        """Submit and change nothing any more, and cancel all jobs: also one that is being submitted at this moment, as
        soon as the batch system has answered."""
        with self._lock:
            self._winds_up = self._withdrawn = True
            self._to_cancel += [job.handle for job in self._jobs.values()]
        self._wake()

    def adopt(
        self,
        handles: Mapping[str, JobHandle],
        unsure: Mapping[str, float],
        running: Collection[str] = (),
        placed: Collection[str] = (),
    ) -> None:
        """Take over jobs of an earlier driver.

        Parameters
        ----------
        handles
            Token -> job.
        unsure
            Token -> when it was about to be submitted [s since the epoch], for jobs that may or may not have been.
        running
            Tokens of those that ran when last asked about; they may have been requeued since.
        placed
            Tokens of those whose places are held.
        """
        with self._lock:
            for token, handle in handles.items():
                state = JobState.RUNNING if token in running else JobState.PENDING
                self._jobs[token] = _Watched(handle, token in placed, state=state)
            self._to_find.update(unsure)
            self._next_query = self._clock.now()
        self._wake()

    def hurry(self, seconds: float = 0.0) -> None:
        """Something is about to change: ask again in so many seconds [s], and then soon."""
        with self._lock:
            if self._jobs:
                self._interval = self._soonest
                self._next_query = min(self._next_query, self._clock.now() + seconds)
        self._wake()

    @property
    def busy(self) -> bool:
        """Whether something has been asked for that the batch system does not know."""
        with self._lock:
            return bool(self._to_submit or self._to_amend or self._to_cancel or self._to_find)

    def seen(self, options: Options = ()) -> QueueView | None:
        """The queue of jobs with these options as it was when last looked at, which it will be from now on; None where
        it is not looked at, or nothing can be seen."""
        if self._next_look < math.inf and self._virtual:
            return shown(self._backend, [options])[0]  # costs nothing, and time may have jumped
        with self._lock:
            return self._seen.setdefault(options, None)

    def step(self) -> float:
        """Do what is due; when to come again [s since the epoch], infinite when there is nothing to wait for."""
        now = self._clock.now()
        if now >= self._not_before:
            try:
                if self._to_submit or self._to_amend or self._to_cancel:
                    self._check_replaced()
                self._look(now)
                self._find(now)
                self._find_late(now)
                self._submit()
                self._amend()
                self._query(now)
                self._cancel()
                self._failures = 0
                self._tell("", now)
            except Exception as error:  # of whatever backend: a thread that died here would leave the run waiting
                self._failures += 1
                _log.debug("failure %d in a row", self._failures, exc_info=not isinstance(error, BackendError))
                self._not_before = now + _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S)) - 1]
                self._tell(str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}", now)
        self._charge(now)
        with self._lock:
            asks, sends = self._turns.get(QUERY, now), self._turns.get(SUBMIT, now)
            due = [
                now if self._to_cancel else math.inf,
                max(sends, asks if self._doubtful else sends) if self._to_submit or self._to_amend else math.inf,
                max(asks, self._next_find) if self._to_find else math.inf,
                max(asks, self._next_late) if self._late else math.inf,
                max(self._next_query, asks) if self._jobs else math.inf,
            ]
        return max(min(due), self._not_before)

    def _may(self, kind: str) -> bool:
        """Whether it is our turn for a call of this kind, which is taken then; otherwise it comes at `_turns[kind]`."""
        if self._budget is None:
            return True
        now = self._clock.now()
        turn = self._turns.pop(kind, None)
        if turn is None or now > turn + STALE_S:
            turn = self._budget.reserve(kind, now)
        if turn is None or turn <= now:
            self._paid += kind == QUERY
            return True
        self._turns[kind] = turn
        return False

    def _charge(self, now: float) -> None:
        """Count the questions that were asked without a reservation."""
        if self._budget is not None and self._counts is not None:
            if (unpaid := self._counts.questions - self._paid) > 0:
                self._budget.charge(QUERY, now, unpaid)
            self._paid = self._counts.questions

    def _tell(self, trouble: str, now: float) -> None:
        """Say what the batch system failed with, or that it answers again, where that is new."""
        if trouble != self.trouble:
            if trouble:
                _log.warning(
                    "the batch system does not answer, asked again in %g s: %s", self._not_before - now, trouble
                )
            else:
                _log.info("the batch system answers again")
            self.trouble = trouble
            self._post([Trouble(now, trouble)])

    def _look(self, now: float) -> None:
        """Look at the queue, no more often than at one's own jobs when nothing happens to them."""
        if now < self._next_look or self._virtual:
            return
        if self._budget is not None and self._budget.reserve(QUERY, now, SPARE) is None:
            return
        self._paid += 1
        try:
            with self._lock:
                queues = list(self._seen)
            views = shown(self._backend, queues)
            with self._lock:
                self._seen |= zip(queues, views, strict=True)
            for options in (options for options, view in zip(queues, views, strict=True) if options and view is None):
                if options not in self._unseen:
                    _log.info("queue %s cannot be seen: waits there are predicted without it", queue_name(options))
                    self._unseen.add(options)
            self._next_look = now + self._slowest
        except BackendError as error:
            if error.transient:
                raise
            self._next_look = math.inf  # the site shows nothing; that must hold up no job
            _log.info("the site does not show its queue, waits are predicted without it: %s", error)

    def _find(self, now: float) -> None:
        """Look for jobs of which it is not known whether they were submitted; what is not there yet may still come."""
        tokens = list(self._to_find)
        if not tokens or now < self._next_find or not self._may(QUERY):
            return
        found = self._backend.find(tokens)
        events: list[Event] = []
        with self._lock:
            for token in tokens:
                if token in found:
                    self._add(_Watched(found[token]))
                    events.append(Submitted(self._clock.now(), token, found[token]))
                elif now >= self._to_find[token] + DOUBT_S:
                    events.append(self._never_submitted(token))
                    if self._may_be_late:
                        self._late[token], self._next_late = now + LATE_MOST_S, now + LATE_S
                else:
                    continue
                del self._to_find[token]
            self._next_find = max([now, *(asked + DOUBT_S for asked in self._to_find.values())])
        self._post(events)

    def _check_replaced(self) -> None:
        """Forget all that is to be done, for good, if the run has another driver: that one knows of it from the log.

        The runner finds that it cannot log that, and ends.
        """
        if self._is_replaced():
            with self._lock:
                _log.warning(
                    "the run has another driver: not submitted %s, not changed %s, not cancelled %s",
                    [request.token for request in self._to_submit],
                    [handle.token for handle, _ in self._to_amend],
                    [handle.token for handle in self._to_cancel],
                )
                self._to_submit, self._to_amend, self._to_cancel = [], [], []
            self._post([Trouble(self._clock.now(), REPLACED)])

    def _find_late(self, now: float) -> None:
        """Cancel jobs that another driver has submitted although they had been taken for lost."""
        if not self._late or now < self._next_late or not self._may(QUERY):
            return
        self._next_late = now + LATE_S
        found = self._backend.find(list(self._late))
        self._late = {token: until for token, until in self._late.items() if token not in found and now < until}
        if found:
            _log.warning("jobs of a driver before were submitted late, and are cancelled: %s", sorted(found))
            with self._lock:
                self._to_cancel += found.values()

    def _never_submitted(self, token: str) -> JobEnded:
        return JobEnded(self._clock.now(), token, JobState.LOST, reason="never submitted")

    def _submit(self) -> None:
        with self._lock:
            dropped = [request.token for request in self._to_submit] if self._winds_up else []
            if dropped:
                self._to_find |= {token: -math.inf for token in dropped if token in self._doubtful}
                self._to_submit.clear()
            requests = list(self._to_submit)
        if never := [token for token in dropped if token not in self._doubtful]:
            self._post([self._never_submitted(token) for token in never])
        if requests and self._doubtful and not self._may(QUERY):
            return  # they are looked for first, which is a question
        requests = self._sendable(requests)
        if not requests:
            return
        outcomes = self._outcomes(requests)
        now = self._clock.now()
        events: list[Event] = []
        with self._lock:
            del self._to_submit[: len(requests)]
            for request, outcome in zip(requests, outcomes, strict=True):
                if isinstance(outcome, Refused):
                    events.append(SubmitRefused(now, request.token, outcome.reason, outcome.later))
                else:
                    self._add(_Watched(outcome, placed=bool(request.array) or request.begin is not None))
                    events.append(Submitted(now, request.token, outcome))
            self._interval = self._soonest
            self._next_query = min(self._next_query, now + self._interval)
        self._post(events)

    def _add(self, job: _Watched) -> None:
        self._jobs[job.handle.token] = job
        if self._withdrawn:
            self._to_cancel.append(job.handle)

    def _sendable(self, requests: list[JobRequest]) -> list[JobRequest]:
        """The first of these, as many as it is our turn for; the elements of an array count once."""
        for place, request in enumerate(requests):
            another = place > 0 and request.array and request.array == requests[place - 1].array
            if not another and not self._may(SUBMIT):
                return requests[:place]
        return requests

    def _outcomes(self, requests: list[JobRequest]) -> list[JobHandle | Refused]:
        unsure = [request.token for request in requests if request.token in self._doubtful]
        outcomes: dict[str, JobHandle | Refused] = dict(self._backend.find(unsure)) if unsure else {}
        new = [request for request in requests if request.token not in outcomes]
        self._doubtful.update(request.token for request in new)
        try:
            taken = self._backend.submit(new) if new else []
        except BackendError as error:
            if error.transient:
                raise
            taken = [Refused(request.token, str(error)) for request in new]
        self._doubtful.difference_update(request.token for request in requests)  # others are sent when it is our turn
        outcomes.update(zip((request.token for request in new), taken, strict=True))
        return [outcomes[request.token] for request in requests]

    def _amend(self) -> None:
        with self._lock:
            if self._winds_up:
                self._to_amend.clear()
            wanted = list(self._to_amend)
        done = 0
        for handle, changes in wanted:
            if (handle, changes) not in self._to_amend:
                continue  # it was cancelled meanwhile
            if not self._may(SUBMIT):
                break
            done += 1
            refused = ""
            try:
                self._backend.update(handle, changes)
            except BackendError as error:
                if error.transient:
                    raise
                refused = str(error)
            with self._lock:
                if (handle, changes) in self._to_amend:
                    self._to_amend.remove((handle, changes))
                if job := self._jobs.get(handle.token):
                    job.placed, job.said, job.last = True, "", None
            self._post([Amended(self._clock.now(), handle.token, refused)])
        if done:
            self.hurry()

    def _cancel(self) -> None:
        with self._lock:
            handles = list(self._to_cancel)
        if handles:
            try:
                self._backend.cancel(handles)
            except BackendError as error:
                if error.transient:
                    raise
                # else asking again would not help, and would only hold up everything else
                _log.warning("jobs %s cannot be cancelled: %s", [handle.job_id for handle in handles], error)
            with self._lock:
                del self._to_cancel[: len(handles)]
            self.hurry()

    def _query(self, now: float) -> None:
        with self._lock:
            watched = list(self._jobs.items()) if now >= self._next_query else []
        if not watched or not self._may(QUERY):
            return
        events: list[Event] = []
        for (token, job), status in zip(watched, self._backend.query([job.handle for _, job in watched]), strict=True):
            if status is not job.last:  # of hundreds that wait a backend may say the same
                events += self._changes(token, job, status)
                job.last = status
        with self._lock:
            self._interval = self._soonest if events else min(2 * self._interval, self._slowest)
            self._next_query = self._clock.now() + self._interval
        if events:
            self._post(events)

    def _changes(self, token: str, job: _Watched, status: JobStatus) -> list[Event]:
        """What became of a job since the last question."""
        now = self._clock.now()
        events: list[Event] = []
        if job.state is JobState.RUNNING and status.state is JobState.PENDING:
            events.append(Requeued(now, token, status.reason))
            job.started = None
        elif status.started is not None and status.state is not JobState.PENDING and job.started != status.started:
            if job.started is not None:  # requeued and started again between two questions
                events.append(Requeued(now, token, status.reason))
            events.append(
                AllocationStarted(
                    now, token, status.started, status.nodes, cores=status.cores, submitted=status.submitted
                )
            )
            job.started = status.started
        job.state = status.state
        shown = job.placed or is_limit(status.reason)
        now_said = (status.reason, status.ages_since) if shown else ("", None)
        if status.state is JobState.PENDING and now_said != (job.said, job.ages):
            job.said, job.ages = now_said
            events.append(Queued(now, token, *now_said))
        if status.state.final:
            ended = now if status.ended is None else status.ended
            how = (status.state, status.started, status.exit_code, status.reason, status.cores, status.energy_j)
            events.append(JobEnded(ended, token, *how))
            with self._lock:
                del self._jobs[token]
        return events


class WatchThread:
    """Calls `JobWatch.step` whenever it is due, until closed.

    Parameters
    ----------
    start
        Starts the thread.
    """

    def __init__(self, clock: Clock, start: Callable[[Callable[[], None], str], Joinable] = start_thread) -> None:
        self._clock, self._start, self._signal, self._closing = clock, start, threading.Event(), False
        self._thread: Joinable | None = None

    def wake(self) -> None:
        """There is something new to do."""
        self._signal.set()

    def start(self, watch: JobWatch) -> None:
        self._thread = self._start(partial(self._run, watch), "asa-job-watch")

    def close(self) -> None:
        """End after the step that is going on, if it ends within a few seconds."""
        self._closing = True
        self._signal.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _run(self, watch: JobWatch) -> None:
        until = -math.inf
        while not self._closing:
            self._clock.wait(self._signal, until)
            self._signal.clear()
            until = watch.step()


class WatchCalls:
    """Has a clock in virtual time call `JobWatch.step` whenever it is due, until closed. Needs no thread.

    Raises
    ------
    BackendError
        When a step fails, in the waiting thread: in virtual time, trying again later changes nothing.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._due = clock, math.inf
        self._watch: JobWatch | None = None

    def wake(self) -> None:
        """There is something new to do."""
        self._come_at(self._clock.now())

    def start(self, watch: JobWatch) -> None:
        self._watch = watch
        self.wake()

    def close(self) -> None:
        """Call no more."""
        self._watch = None

    def _come_at(self, when: float) -> None:
        if when < self._due:
            self._due = when
            self._clock.call_at(when, partial(self._step, when))

    def _step(self, when: float) -> None:
        if self._watch is not None and when == self._due:  # else it was called earlier, and has set another time
            self._due = math.inf
            due = self._watch.step()
            if self._watch.trouble:
                raise BackendError(self._watch.trouble)
            self._come_at(due)
