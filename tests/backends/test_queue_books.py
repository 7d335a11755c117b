"""Whatever happens to a queue, in any order."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from asa.backends.queue import Entry, Queue
from asa.core.errors import BackendError
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobState
from asa.core.serial import from_json, to_json
from asa.lab.dispatchers.backfill import Easy
from tests.backends.queues import CAPACITY, array, put, request


class Books(RuleBasedStateMachine):
    """Whatever happens: the machine is not overfull, no order is broken, and the journal alone rebuilds the queue."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(CAPACITY, Easy())
        self.now = 0.0
        self.journal: dict[str, Any] = {}
        self.dying: set[str] = set()

    @rule(target=handles, cores=st.integers(1, 4), walltime=st.integers(1, 5), begin=st.none() | st.integers(0, 20))
    def submit(self, cores: int, walltime: int, begin: int | None) -> JobHandle:
        return put(self.queue, request("x", cores, float(walltime), begin=begin), self.now)

    @rule(target=handles, on=handles, kind=st.sampled_from(DependencyKind))
    def submit_dependent(self, on: JobHandle, kind: DependencyKind) -> JobHandle:
        return put(self.queue, request("x", dependencies=(Dependency(on, kind),)), self.now)

    @rule(target=handles, cores=st.lists(st.integers(1, 4), min_size=2, max_size=4))
    def submit_array(self, cores: list[int]) -> Any:
        return multiple(*array(self.queue, *(request("x", count) for count in cores), now=self.now))

    @rule(handle=handles, throttle=st.integers(1, 3))
    def widen_or_narrow(self, handle: JobHandle, throttle: int) -> None:
        with contextlib.suppress(BackendError):
            self.queue.update(handle, JobChanges(throttle=throttle))

    @rule(handle=handles, parked=st.booleans())
    def park(self, handle: JobHandle, parked: bool) -> None:
        if self.queue.status(handle).state is JobState.PENDING:
            self.queue.update(handle, JobChanges(parked=parked))

    @rule(handle=handles)
    def cancel(self, handle: JobHandle) -> None:
        self.dying |= {entry.job_id for entry in self.queue.cancel(handle, self.now)}

    @rule(handle=handles, exit_code=st.integers(0, 1))
    def end(self, handle: JobHandle, exit_code: int) -> None:
        if self.queue.status(handle).state is JobState.RUNNING:
            self.queue.ended(handle.job_id, self.now, exit_code)
            self.dying.discard(handle.job_id)

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        actions = self.queue.tick(self.now)
        for entry in actions.start:
            for dependency in entry.request.dependencies:
                other = self.queue.status(dependency.on)
                if dependency.kind is DependencyKind.AFTER_OK:
                    assert other.state is JobState.COMPLETED
                elif dependency.kind is DependencyKind.AFTER_ANY:
                    assert other.state.final
                else:
                    assert other.started is not None or other.state.final
            assert entry.request.begin is None or entry.request.begin <= self.now
            assert not entry.parked
            if entry.array:
                assert sum(other.running for other in self.queue.live() if other.array == entry.array) <= entry.throttle
        for entry in actions.kill:
            assert entry.job_id not in self.dying, "killed once"
            assert entry.ends <= self.now
            self.dying.add(entry.job_id)

    @invariant()
    def not_overfull(self) -> None:
        assert sum(entry.request.resources.cores for entry in self.queue.live() if entry.running) <= CAPACITY.cores

    @invariant()
    def times_are_in_order(self) -> None:
        for entry in self.queue.entries():
            status = entry.status
            known = [status.handle.submitted, status.eligible, status.started, status.ended]
            times = [time for time in known if time is not None]
            assert times == sorted(times)

    @rule()
    def restart(self) -> None:
        kept = [from_json(Entry, text) for text in self.journal.values()]
        assert kept == self.queue.entries()
        self.queue = Queue(CAPACITY, Easy(), kept, first_id=len(kept) + 1)

    @invariant()
    def write_journal(self) -> None:
        for entry in self.queue.changes():
            self.journal[entry.job_id] = to_json(entry)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
