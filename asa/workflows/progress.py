"""How far a stage has come. Folded from events by the plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.core.stage import StageSpec, StageState
from asa.core.view import AllocationView, StageView

BARREN_MOST = 3
"""Allocations in a row that may end without a task done before a stage is given up."""

_AHEAD_S = 0.5
_AHEAD_MOST = 256.0
_TRUST_SHARE = 0.2


@dataclass
class Progress:
    """A stage's tasks: which were never launched (from `fresh` on), lost and waiting again, running, done."""

    spec: StageSpec
    width: int | None
    state: StageState = StageState.WAITING
    fresh: int = 0
    again: dict[int, None] = field(default_factory=dict)
    launched: int = 0
    done: int = 0
    finished: bytearray = field(default_factory=bytearray)
    failures: dict[int, int] = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    predicted_wait_s: float | None = None
    soon_wait_s: float | None = None
    predicted_at: float | None = None
    attempts: int = 0
    displaced: int = 0
    barren: int = 0
    mean_s: float | None = None
    longest_s: float = 0.0
    error: str = ""

    @property
    def unlaunched(self) -> int:
        """Tasks that no allocation was given and that the stage is ready for."""
        if self.width is None or self.state not in (StageState.READY, StageState.RUNNING):
            return 0
        return self.width - self.fresh + len(self.again)

    @property
    def ahead(self) -> float:
        """How many times its capacity an allocation may hold queued: about half a second of work, so that short
        tasks do not wait for the driver and long ones are not bound to one allocation too early."""
        if self.mean_s is None or self.mean_s >= _AHEAD_S:
            return 0.0
        return min(_AHEAD_MOST, _AHEAD_S / max(self.mean_s, 1e-6))

    def next_ranges(self, count: int, skip: int = 0) -> tuple[tuple[int, int], ...]:
        """The next `count` tasks to launch after the first `skip`, lost ones first, as half-open ranges."""
        again = list(self.again)[skip : skip + count]
        ranges = [(index, index + 1) for index in again]
        first = self.fresh + max(0, skip - len(self.again))
        last = min(first + count - len(again), self.width or 0)
        return (*ranges, (first, last)) if last > first else tuple(ranges)

    def launch(self, start: int, stop: int, now: float) -> None:
        """Tasks were given to an allocation."""
        for index in range(start, min(stop, self.fresh)):
            self.again.pop(index, None)
        self.fresh = max(self.fresh, stop)
        self.launched += stop - start
        if not self.state.final:
            self.state = StageState.RUNNING
        self.started = now if self.started is None else self.started

    def finish(self, index: int, run_time_s: float, now: float) -> None:
        """A task is done; the first time counts."""
        if self.is_finished(index):
            return
        if len(self.finished) <= index:
            self.finished.extend(bytes(max(index + 1, self.width or 0) - len(self.finished)))
        self.finished[index] = 1
        self.again.pop(index, None)
        self.done += 1
        self.barren = 0
        self.mean_s = run_time_s if self.mean_s is None else 0.9 * self.mean_s + 0.1 * run_time_s
        self.longest_s = max(self.longest_s, run_time_s)
        if self.done == self.width and self.state is not StageState.FAILED:
            self.state, self.ended = StageState.DONE, now

    def is_finished(self, index: int) -> bool:
        return index < len(self.finished) and self.finished[index] == 1

    def lose(self, index: int) -> None:
        """A task that was launched has to run again."""
        if not self.is_finished(index):
            self.again[index] = None

    def fail(self, reason: str, now: float) -> None:
        """The stage is given up; the first reason is kept."""
        if not self.state.final:
            self.state, self.ended, self.error = StageState.FAILED, now, reason

    def reopen(self) -> None:
        """A new driver gives a stage that failed, or was skipped, another go."""
        if self.state in (StageState.FAILED, StageState.SKIPPED):
            self.state, self.ended, self.error = StageState.WAITING, None, ""
        self.failures.clear()
        self.barren = 0

    def expected_end(self, now: float) -> float | None:
        """When a running stage is expected to end [s since the epoch]: extrapolated from its tasks once a fifth of them
        is done, before that by its predicted run time."""
        if self.state is not StageState.RUNNING or self.started is None:
            return None
        if self.width and self.done >= _TRUST_SHARE * self.width:
            return max(now, self.started + (now - self.started) * self.width / self.done)
        return max(now, self.started + self.spec.run_time_s)

    def view(self, now: float, allocations: tuple[AllocationView, ...]) -> StageView:
        """What a strategy sees of it; `allocations` are those meant for it."""
        return StageView(
            spec=self.spec,
            state=self.state,
            allocations=allocations,
            started=self.started,
            ended=self.ended,
            expected_end=self.expected_end(now),
            predicted_wait_s=self.predicted_wait_s,
            attempts=self.attempts,
            unlaunched=self.unlaunched > 0 or self.state is StageState.WAITING or self.width is None,
            soon_wait_s=self.soon_wait_s,
            predicted_at=self.predicted_at,
            displaced=self.displaced,
        )
