"""Jobs that are held back on a simulated machine, seen through the Backend port: throttled, parked, made to depend.

The lane is that of `tests/lab/simulator/test_queue_age.py`: one core, busy until 200 s, for which everybody waits.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.clock import ManualClock
from asa.core.errors import BackendError
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, JobStatus, QueueRegime, Resources
from asa.lab.backend.simulated import Simulated
from asa.lab.simulator.priority import Fifo, Multifactor
from asa.testing.backend_fake import FakeBatch, FakeRun

FIFO, MF, LIM, AA = (
    QueueRegime.FIFO, QueueRegime.MULTIFACTOR, QueueRegime.LIMITS, QueueRegime.ACCRUE_ALWAYS,
)  # fmt: skip
REGIMES = (FIFO, MF, LIM, AA)
AGEING = (MF, LIM, AA)


class Lane:
    """One core, and whoever waits for it; `runs` tells how long a job's program runs [s], 10 s where it does not."""

    def __init__(self, regime: QueueRegime, cores: int = 1, **runs: float) -> None:
        priority = Fifo() if regime is FIFO else Multifactor(age=100_000, max_age_s=600, regime=regime)
        self.batch = Simulated(
            nodes=cores, warmup=0, priority=priority, run=lambda request: FakeRun(runs.get(request.token, 10.0))
        )
        self.handles: dict[str, JobHandle] = {}

    def until(self, at: float) -> None:
        self.batch.sleep(at - self.batch.clock.now())

    def submit(self, *tokens: str, cores: int = 1, **fields: Any) -> None:
        requests = [JobRequest(token, Resources(cores), 300.0, ("true",), **fields) for token in tokens]
        for outcome in self.batch.submit(requests):
            assert isinstance(outcome, JobHandle), outcome
            self.handles[outcome.token] = outcome

    def change(self, token: str, **changes: Any) -> None:
        self.batch.update(self.handles[token], JobChanges(**changes))

    def after(self, token: str) -> tuple[Dependency, ...]:
        return (Dependency(self.handles[token]),)

    def __getitem__(self, token: str) -> JobStatus:
        return self.batch.query([self.handles[token]])[0]

    def ages(self, token: str) -> float | None:
        return self[token].ages_since

    def order(self) -> str:
        """Who starts when, the job that keeps the core busy left out."""
        self.until(3000)
        starts = {token: self[token].started for token in self.handles if token != "busy"}
        return " ".join(sorted((token for token, at in starts.items() if at is not None), key=lambda t: starts[t] or 0))


def lane_until_p(regime: QueueRegime, **fields: Any) -> Lane:
    """A lane at 12 s, at which P is submitted."""
    lane = Lane(regime, busy=200.0)
    lane.submit("busy")
    lane.submit("never", begin=2000.0)
    lane.until(2)
    lane.submit("C0")
    lane.until(12)
    after = lane.after("never") if fields.pop("depends", False) else ()
    lane.submit("P", dependencies=after, **fields)
    return lane


KEPT, LOST, WORST = "C0 P C1 C2 never", "C0 C1 P C2 never", "C0 C1 C2 P never"


@pytest.mark.parametrize(
    ("fields", "park", "let_go", "expected"),
    [
        ({}, {}, {}, (KEPT, KEPT, KEPT, KEPT)),
        ({"depends": True}, {}, {"dependencies": ()}, (KEPT, LOST, LOST, KEPT)),
        ({}, {"dependencies": "never"}, {"dependencies": ()}, (KEPT, KEPT, LOST, KEPT)),
        ({"begin": 3600.0}, {}, {"begin": 100.0}, (KEPT, WORST, LOST, KEPT)),
        ({}, {"begin": 3600.0}, {"begin": 100.0}, (KEPT, KEPT, LOST, KEPT)),
        ({}, {"parked": True}, {"parked": False}, (LOST, KEPT, KEPT, KEPT)),
    ],
)
@pytest.mark.parametrize("regime", REGIMES)
def test_places_are_kept_and_lost_as_measured(
    regime: QueueRegime, fields: dict[str, Any], park: dict[str, Any], let_go: dict[str, Any], expected: tuple[str, ...]
) -> None:
    lane = lane_until_p(regime, **fields)
    lane.until(30)
    lane.submit("C1")
    lane.until(50)
    if park:
        lane.change("P", **{name: lane.after("never") if value == "never" else value for name, value in park.items()})
    lane.until(100)
    if let_go:
        lane.change("P", **let_go)
    lane.until(110)
    lane.submit("C2")
    assert lane.order() == expected[REGIMES.index(regime)]


def test_without_limits_a_dependency_before_the_begin_time_keeps_the_age_from_then_on() -> None:
    lane = lane_until_p(MF, begin=17.0)
    lane.until(15)
    lane.change("P", dependencies=lane.after("never"))
    assert lane.ages("P") is None, "its begin time has not come"
    lane.until(30)
    lane.submit("C1")
    assert lane.ages("P") == 17.0
    lane.until(100)
    lane.change("P", dependencies=())
    assert (lane["P"].reason, lane.ages("P")) == ("Priority", 17.0)
    assert lane.order() == "C0 P C1 never"


@pytest.mark.parametrize(
    ("regime", "since"), [(FIFO, (2.0, 12.0)), (MF, (2.0, 12.0)), (LIM, (2.0, 12.0)), (AA, (2.0, 2.0))]
)
def test_elements_age_from_their_begin_time(regime: QueueRegime, since: tuple[float, float]) -> None:
    lane = Lane(regime, busy=200.0)
    lane.submit("busy")
    lane.until(2)
    lane.submit("A0", "A1", array="a")
    lane.submit("B0", "B1", array="b", begin=12.0)
    lane.until(11)
    assert lane["B1"].reason == "BeginTime"
    assert (lane.ages("B1") is None) == (regime is not AA)
    lane.until(20)
    for name, expected in zip("AB", since, strict=True):
        assert [lane.ages(f"{name}{k}") for k in (0, 1)] == [expected, expected]
        assert lane[f"{name}0"].reason != "JobArrayTaskLimit" == lane[f"{name}1"].reason


@pytest.mark.parametrize("wider", [True, False])
@pytest.mark.parametrize("regime", REGIMES)
def test_a_throttled_element_keeps_its_place(regime: QueueRegime, wider: bool) -> None:
    """Let go by the throttle, or by the end of the first element."""
    lane = Lane(regime, P0=100.0)
    lane.submit("P0", "P1", array="p")
    lane.until(10)
    lane.submit("C0")
    lane.until(50)
    if wider:
        lane.change("P1", throttle=2)
    assert lane.order() == "P0 P1 C0"


@pytest.mark.parametrize(("regime", "first"), [(MF, "C"), (LIM, "C"), (AA, "P1"), (FIFO, "P1")])
def test_an_older_job_goes_before_an_element_that_began_to_age_later(regime: QueueRegime, first: str) -> None:
    lane = Lane(regime, busy=20.0, P0=100.0)
    lane.submit("busy")
    lane.submit("P0", "P1", array="p", begin=15.0)
    lane.until(5)
    lane.submit("C")
    lane.until(16)
    lane.change("P1", throttle=2)
    lane.batch.cancel([lane.handles["P0"]])
    assert lane.order().split()[0] == first


def test_a_new_begin_time_costs_a_throttled_element_its_age_under_enforced_limits() -> None:
    lane = Lane(LIM, P0=100.0)
    lane.submit("P0", "P1", array="p")
    lane.until(5)
    assert lane.ages("P1") == 0.0
    lane.change("P1", begin=5.0)
    lane.until(75)
    assert (lane["P1"].reason, lane.ages("P1")) == ("JobArrayTaskLimit", None), "as Slurm: not even from now on"
    lane.change("P1", throttle=2)
    assert lane.ages("P1") == 75.0


@pytest.mark.parametrize("regime", REGIMES)
def test_elements_that_age_alike_go_in_order_whatever_their_size(regime: QueueRegime) -> None:
    lane = Lane(regime, cores=4)
    sizes = {"a": 1, "b": 4, "c": 2, "d": 3}
    requests = [
        JobRequest(token, Resources(cores), 20.0 * cores, ("true",), array="x") for token, cores in sizes.items()
    ]
    lane.handles = {handle.token: handle for handle in lane.batch.submit(requests) if isinstance(handle, JobHandle)}
    assert [handle.array_index for handle in lane.handles.values()] == [0, 1, 2, 3]
    lane.until(1)
    lane.change("c", walltime_s=15.0, resources=Resources(4))
    lane.until(100)
    assert [(lane[token].started, lane[token].ended) for token in sizes] == [(0, 10), (10, 20), (20, 30), (30, 40)]


@pytest.mark.parametrize("regime", AGEING)
def test_a_job_that_is_parked_before_it_is_seen_ages_all_the_same(regime: QueueRegime) -> None:
    lane = Lane(regime)
    lane.submit("now")
    lane.submit("later", begin=30.0)
    for token in ("now", "later"):
        lane.change(token, parked=True)
        assert lane[token].state is JobState.PENDING
    lane.until(50)
    assert [lane[token].reason for token in ("now", "later")] == ["BadConstraints"] * 2
    assert [lane.ages(token) for token in ("now", "later")] == [0.0, 0.0 if regime is AA else 30.0]
    assert lane["now"].planned is None
    lane.change("later", parked=False)
    lane.until(51)
    assert [lane[token].state for token in ("now", "later")] == [JobState.PENDING, JobState.RUNNING]


def test_a_parked_element_takes_no_room_in_its_array() -> None:
    lane = Lane(LIM)
    lane.submit("P0", "P1", array="p")
    lane.change("P0", parked=True)
    lane.until(5)
    assert [lane[token].state for token in ("P0", "P1")] == [JobState.PENDING, JobState.RUNNING]
    lane.change("P0", parked=False)
    assert lane["P0"].reason == "JobArrayTaskLimit"
    lane.until(50)
    assert lane["P0"].started == 10.0


def test_arrays_of_one_name_and_two_calls_are_two() -> None:
    lane = Lane(FIFO, cores=4)
    lane.submit("a0", "a1", array="same")
    lane.submit("b0", "b1", array="same")
    lane.until(5)
    assert [lane[token].state.value for token in lane.handles] == ["running", "pending"] * 2


def test_a_look_shows_other_peoples_jobs() -> None:
    batch = Simulated(nodes=4, cores=8, load=1.2, seed=1, warmup=1, days=1)
    batch.sleep(3600)
    view = batch.look()
    assert view is not None
    assert view.now == batch.clock.now()
    assert view.queue
    assert view.capacity.cores == 32
    assert all(job.ends >= view.now for job in view.running)


def fake(_regime: QueueRegime, run: float) -> Any:
    return FakeBatch(ManualClock(), cores=4, run=lambda _request: FakeRun(run))


def simulated(regime: QueueRegime, run: float) -> Any:
    return Simulated(nodes=4, warmup=0, regime=regime, run=lambda _request: FakeRun(run))


CHANGES = [*(JobChanges(throttle=most) for most in (1, 2, 3)), JobChanges(parked=True), JobChanges(parked=False)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.0, 15.0]),  # how long nothing is done before
        st.integers(0, 4),  # to which element it is done
        st.sampled_from([*CHANGES, JobChanges(begin=20.0), JobChanges(walltime_s=50.0), None]),  # None: cancel it
    ),
    max_size=12,
)


@pytest.mark.parametrize("make", [fake, simulated])
@given(
    regime=st.sampled_from(REGIMES),
    sizes=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    steps=STEPS,
    run=st.sampled_from([3.0, 10.0]),
)
@settings(max_examples=100, deadline=None)
def test_no_element_starts_beyond_its_throttle_or_while_it_is_parked_and_all_end(
    make: Any, regime: QueueRegime, sizes: list[int], steps: list[tuple[float, int, JobChanges | None]], run: float
) -> None:
    batch = make(regime, run)
    requests = [JobRequest(str(k), Resources(size), 100.0, ("true",), array="x") for k, size in enumerate(sizes)]
    handles, now = batch.submit(requests), 0.0
    throttles: list[tuple[float, int]] = [(0.0, 1)]
    parked: list[dict[float, bool]] = [{} for _ in handles]
    cancelled = set()
    for seconds, element, changes in [*steps, (0.0, 0, JobChanges(throttle=1))]:
        batch.sleep(seconds)
        now += seconds
        before = batch.query(handles)
        if changes is None:
            cancelled.add(element)
            batch.cancel([handles[element]])
            continue
        try:
            batch.update(handles[element], changes)
        except BackendError:
            if changes.throttle is None:
                assert before[element].state is not JobState.PENDING
            else:
                assert all(status.state.final for status in before)
            continue
        if changes.throttle is not None:
            throttles.append((now, changes.throttle))
        if changes.parked is not None:
            parked[element][now] = changes.parked
    for element, status in enumerate(batch.query(handles)):
        if status.state is JobState.PENDING:
            batch.update(handles[element], JobChanges(parked=False))
            parked[element][now] = False
    batch.sleep(20.0 + 6 * run)
    ended = batch.query(handles)
    for element, status in enumerate(ended):
        assert status.state is JobState.COMPLETED or (status.state is JobState.CANCELLED and element in cancelled)
        if (at := status.started) is None:
            continue
        together = [job for job in ended if None not in (job.started, job.ended) and job.started <= at < job.ended]
        last = [most for when, most in throttles if when < at][-1:]
        assert len(together) <= max([*last, *(most for when, most in throttles if when == at)])
        told = [value for when, value in sorted(parked[element].items()) if when < at]
        assert told[-1:] != [True] or parked[element].get(at) is False
