"""The budget of calls that all runs of a user share."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.allocations.budget import QUERY, SUBMIT, Bucket, CallLimits, SharedBudget, in_turn
from asa.allocations.watch import JobWatch
from asa.core.clock import ManualClock
from asa.core.errors import InvalidInput
from asa.core.event import Event, JobEnded
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Refused, Resources
from asa.core.view import QueueView
from asa.testing.backend_fake import FakeBatch, FakeRun

WINDOW_S = 600.0


def most_within(times: Sequence[float], span_s: float = WINDOW_S) -> int:
    """The most of these times that lie within one stretch of so long [s]."""
    times = sorted(times)
    return max((bisect_right(times, at + span_s - 1e-6) - place for place, at in enumerate(times)), default=0)


class Counted(FakeBatch):
    """A batch system that notes when it was called."""

    def __init__(self, clock: ManualClock, calls: dict[str, list[float]]) -> None:
        super().__init__(clock, 64, run=lambda job: FakeRun(float(job.argv[0])), wait=30.0, poll=15.0)
        self._time, self._calls = clock, calls

    def _note(self, kind: str, count: int = 1) -> None:
        self._calls.setdefault(kind, []).extend([self._time.now()] * count)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        self._note(SUBMIT, len({item.array or item.token for item in requests}))
        return super().submit(requests)

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        self._note(QUERY)
        return super().query(handles)

    def look(self) -> QueueView | None:
        self._note(QUERY)
        return super().look()

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        self._note("cancel")
        super().cancel(handles)


class Run:
    """A watch over jobs of its own, one of several that share a budget."""

    def __init__(self, name: str, clock: ManualClock, budget: SharedBudget, calls: dict[str, list[float]]) -> None:
        self.name, self.events = name, list[Event]()
        post: Callable[[Sequence[Event]], None] = self.events.extend
        self.watch = JobWatch(Counted(clock, calls), clock, post, looks=True, budget=budget)

    def requests(self, count: int, run_s: float = 40.0, array: str = "") -> list[JobRequest]:
        each: dict[str, Any] = {"array": array} if array else {}
        return [
            JobRequest(f"{self.name}.{number}", Resources(1), 60.0, (str(run_s),), **each) for number in range(count)
        ]

    @property
    def ended(self) -> list[JobState]:
        return [event.state for event in self.events if isinstance(event, JobEnded)]


def drive(clock: ManualClock, runs: Sequence[Run], until: Callable[[], bool], most_s: float = 20_000.0) -> None:
    """Let all watches do what is due, in order of time."""
    began = clock.now()
    while not until():
        assert clock.now() - began < most_s, "it takes for ever"
        dues = [run.watch.step() for run in runs]
        if not until():
            clock.wait(threading.Event(), max(min(dues), clock.now() + 0.01))


def test_twenty_runs_with_a_thousand_jobs_keep_to_it_and_all_get_done(tmp_path: Path) -> None:
    clock, calls = ManualClock(), dict[str, list[float]]()
    runs = [Run(f"r{n}", clock, SharedBudget(tmp_path / "budget", CallLimits()), calls) for n in range(20)]
    for each in runs:
        each.watch.submit(each.requests(50))
    drive(clock, runs, lambda: sum(len(each.ended) for each in runs) == 1000)
    assert all(state is JobState.COMPLETED for each in runs for state in each.ended)
    assert most_within(calls[QUERY]) <= WINDOW_S / 15
    assert most_within(calls[SUBMIT]) <= WINDOW_S / 2
    assert len(calls[SUBMIT]) == 1000
    assert max(calls[SUBMIT]) - min(calls[SUBMIT]) < 1000 * 2.2, "what is allowed is used"


def test_a_lone_run_is_not_slower_at_first(tmp_path: Path) -> None:
    def first_end(limits: CallLimits | None) -> float:
        clock, calls = ManualClock(), dict[str, list[float]]()
        budget = None if limits is None else SharedBudget(tmp_path / "budget", limits)
        alone = Run("r", clock, budget, calls)  # type: ignore[arg-type]
        began = clock.now()
        alone.watch.submit(alone.requests(3, run_s=5.0))
        drive(clock, [alone], lambda: len(alone.ended) == 3)
        return clock.now() - began

    assert first_end(CallLimits()) == first_end(None)


def test_the_elements_of_an_array_count_once_and_submissions_keep_their_order(tmp_path: Path) -> None:
    clock, calls = ManualClock(), dict[str, list[float]]()
    one = Run("r", clock, SharedBudget(tmp_path / "budget", CallLimits(burst=1)), calls)
    singles = one.requests(3)
    elements = [JobRequest(f"e{n}", Resources(1), 60.0, ("5",), array="a") for n in range(8)]
    one.watch.submit([*singles[:1], *elements, *singles[1:]])
    began = clock.now()
    drive(clock, [one], lambda: len(calls.get(SUBMIT, ())) == 4)
    assert [round(at - began, 1) for at in calls[SUBMIT]] == pytest.approx([0.0, 2.0, 4.0, 6.0], abs=0.1)


def test_cancelling_needs_no_leave(tmp_path: Path) -> None:
    clock, calls = ManualClock(), dict[str, list[float]]()
    one = Run("r", clock, SharedBudget(tmp_path / "budget", CallLimits(burst=1)), calls)
    one.watch.submit(one.requests(1, run_s=500.0))
    drive(clock, [one], lambda: bool(calls.get(QUERY)))
    one.watch.cancel(JobHandle("1", "r.0", clock.now()))
    one.watch.step()
    assert calls["cancel"] == [clock.now()]


def test_what_a_backend_asks_besides_is_counted(tmp_path: Path) -> None:
    class Curious(Counted):
        """It asks five questions at the start, and one before each cancellation."""

        questions = 5

        def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
            self.questions += 1
            return super().query(handles)

        def look(self) -> QueueView | None:
            self.questions += 2
            return super().look()

    clock, calls = ManualClock(), dict[str, list[float]]()
    curious, events = Curious(clock, calls), list[Event]()
    watch = JobWatch(curious, clock, events.extend, looks=True, budget=SharedBudget(tmp_path / "budget", CallLimits()))
    watch.submit([JobRequest("a", Resources(1), 3600.0, ("3000",))])
    for second in range(600):
        watch.step()
        clock.wait(threading.Event(), float(second + 1))
    assert 30 <= curious.questions <= WINDOW_S / 15, "as many as may be, those of the start among them"


@given(st.lists(st.floats(0.0, 60.0), max_size=150), st.integers(1, 39))
def test_no_ten_minutes_have_more_calls_than_the_mean(pauses: list[float], burst: int) -> None:
    bucket, now, times = Bucket(float(burst), 0.0), 0.0, list[float]()
    for pause in pauses:
        now += pause
        bucket, at = bucket.reserve(now, 15.0, burst)
        assert at is not None and at >= (times[-1] if times else 0.0), "in the order of asking"
        times.append(at)
    assert most_within(times) <= WINDOW_S / 15 + 1e-6


@pytest.mark.parametrize(
    "text",
    [b"", b"\0\xff", b"[]", b"null", b'{"query": 7}', b'{"query": [1e999, 0], "submit": [NaN, 1]}', b"[" * 5000,
     b'{"query": [-1e300, 0]}', b'{"query": [1, null]}', b'{"query": ["a", "b"]}'],
)  # fmt: skip
def test_a_damaged_file_begins_anew(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "budget"
    path.write_bytes(text)
    budget = SharedBudget(path, CallLimits())
    assert [budget.reserve(QUERY, 100.0) for _ in range(11)] == [100.0] * 10 + [120.0]
    assert json.loads(path.read_text())[QUERY] == [-1.0, 100.0]


def test_a_clock_that_is_behind_takes_nothing_back(tmp_path: Path) -> None:
    budget = SharedBudget(tmp_path / "budget", CallLimits(burst=1))
    assert budget.reserve(QUERY, 1000.0) == 1000.0
    later = budget.reserve(QUERY, 10.0)
    assert later is not None and 10.0 < later < 30.0


def test_without_a_file_it_keeps_its_own(tmp_path: Path) -> None:
    budget = SharedBudget(tmp_path / "none" / "budget", CallLimits())
    assert [budget.reserve(SUBMIT, 0.0) for _ in range(11)][9:] != [0.0, 0.0]


def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    holds = (
        "import fcntl, os, signal, struct, sys\n"
        "d = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.fcntl(d, fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "budget"
    subprocess.run([sys.executable, "-c", holds, str(path)], check=False)
    SharedBudget(path, CallLimits()).reserve(QUERY, 0.0)
    assert json.loads(path.read_text()) == {QUERY: [9.0, 0.0]}


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", CallLimits()),
        ("off", None),
        ("query=30", CallLimits(30.0)),
        ("submit=1, burst=3", CallLimits(15.0, 1.0, 3)),
    ],
)
def test_it_is_read_from_the_environment(text: str, limits: CallLimits | None) -> None:
    assert CallLimits.of({"ASA_SCHEDULER_BUDGET": text}) == limits


@pytest.mark.parametrize(
    "text", ["query", "query=x", "query=0", "query=nan", "burst=1.5", "burst=40", "poll=3", "burst=0"]
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="ASA_SCHEDULER_BUDGET"):
        CallLimits.of({"ASA_SCHEDULER_BUDGET": text})


@pytest.mark.parametrize("place", ["one file", "nowhere"])
def test_runs_that_begin_at_once_ask_one_after_the_other(tmp_path: Path, place: str) -> None:
    asking, most = threading.Semaphore(1), list[bool]()
    path = tmp_path / "lock" if place == "one file" else tmp_path / "absent" / "lock"

    def begin() -> None:
        with in_turn(path):
            alone = asking.acquire(blocking=False)
            most.append(alone)
            time.sleep(0.05)
            if alone:
                asking.release()

    runs = [threading.Thread(target=begin) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(most) == 4 and all(most) == (place == "one file")


def test_no_run_waits_for_ever_for_another_that_begins(tmp_path: Path) -> None:
    with in_turn(tmp_path / "lock"), in_turn(tmp_path / "lock", 0.05):
        pass
