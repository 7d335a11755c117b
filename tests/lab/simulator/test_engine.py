"""The engine, what users do to their jobs, and a dispatcher on top."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import DispatchDecision, NodeRun, Reject, Reserve, SetSpeed, Start
from asa.core.errors import AsaError, IllegalDecision, InvalidInput, Starved, UnknownName
from asa.core.job import DependencyKind, JobState, QueueRegime
from asa.core.registry import DISPATCHERS
from asa.core.view import QueuedJob
from asa.lab.core.cluster import Cluster, NodeFailures, Partition
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import Instance, example, from_view, read_instance
from asa.lab.dispatchers.predictors import NearestJobs
from asa.lab.simulator import operations
from asa.lab.simulator.decisions import Decision, DecisionSample
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import DispatchLoop, simulate
from asa.lab.simulator.settings import MachineSettings, Multifactor
from asa.lab.simulator.state import StopReason
from tests.lab.simulator.cases import SLOTS, mixed, workloads
from tests.lab.simulator.validate import lines, violations

# -- Engine -----------------------------------------------------------------------------------------------------------

FCFS = rule_of("fcfs")


def jobs(*rows: tuple[float, float, int], walltime: float = 100.0) -> Workload:
    """Jobs of (submission, run time, cores)."""
    submit, run, cores = zip(*rows, strict=True)
    return Workload.of(submit=submit, run=run, cores=cores, walltime=np.full(len(rows), walltime))


def outcome(state: JobState) -> int:
    return OUTCOMES.index(state)


def first(view: TableView | None) -> TableView:
    assert view is not None
    return view


def test_all_events_of_an_instant_come_before_the_decision() -> None:
    engine = Engine(jobs((0, 10, 2), (10, 5, 1), (10, 5, 1)), Cluster.of(2))
    engine.apply([Start(0)] if engine.advance() else [])
    view = first(engine.advance())
    assert view.now == 10.0
    assert view.waiting.tolist() == [1, 2]
    assert view.active.tolist() == []


def test_nor_does_a_crowd_split_an_instant() -> None:
    """More jobs than the tables have room for at first."""
    crowd = jobs(*[(0, 1, 1)] * 3000)
    assert len(first(Engine(crowd, Cluster.of(4)).advance()).waiting) == 3000


def test_advance_stops_at_the_given_time() -> None:
    engine = Engine(jobs((0, 10, 1), (50, 10, 1)), Cluster.of(1))
    engine.apply([Start(0)] if engine.advance() else [])
    assert engine.advance(until=20.0) is None
    assert engine.now == 20.0
    assert first(engine.advance()).now == 50.0


def test_views_cannot_be_written_to() -> None:
    view = first(Engine(jobs((0, 1, 1)), Cluster.of(1)).advance())
    with pytest.raises(ValueError, match="read-only"):
        view.waiting[0] = 7


@pytest.mark.parametrize(
    ("decision", "problem"),
    [
        (Start(1), "no room for 2 x \\(1 cores\\): 1 cores are free"),
        (Start(3), "not submitted yet, not waiting"),
        (Start(7), "no row 7"),
        (Start(0), "running, not waiting"),
        (Reserve(0, 5.0), "running, not waiting"),
        (SetSpeed(1, 0.5), "waiting, not running"),
        (SetSpeed(0, 0.0), "above 0"),
        (Start(2, (NodeRun(0, 0, 1),)), "no room for 1 units"),
        (Start(2, (NodeRun(1, 4, 1),)), "there are 2"),
        (Start(1, (NodeRun(1, 1, 1),)), "hold 1 units; the job has 2"),
        (Start(1, (NodeRun(1, 1, 1), NodeRun(0, 1, 1))), "names a node again"),
        (Start("1"), "no row '1'"),
        (Start(1.0), "no row 1.0"),
        ("start!", "Start, Reserve, Reject, SetSpeed or SetWidth expected"),
    ],
)
def test_a_decision_that_breaks_a_law_is_named(decision: DispatchDecision, problem: str) -> None:
    engine = Engine(jobs((0, 10, 1), (0, 10, 2), (0, 1, 1), (5, 1, 1)), Cluster.of(2))
    engine.advance()
    engine.apply([Start(0)])
    with pytest.raises(IllegalDecision, match=problem) as caught:
        engine.apply([decision])
    assert caught.value.decision == decision


def test_a_dispatcher_may_choose_the_nodes() -> None:
    engine = Engine(jobs((0, 10, 2)), Cluster.of(nodes=4))
    engine.advance()
    engine.apply([Start(0, (NodeRun(1, 1, 1), NodeRun(3, 3, 1)))])
    assert engine.view().free[:, 0].tolist() == [1, 0, 1, 0]


def test_runs_of_nodes_may_not_overlap() -> None:
    """Together they would put more units on a node than may share one; more runs than there are nodes have no room."""
    work = Workload.of(submit=[0], run=[1], walltime=[1], units=[3], per_node=[2])
    engine = Engine(work, Cluster.of(nodes=2, cores=4))
    engine.advance()
    for runs in ([NodeRun(0, 0, 2), NodeRun(0, 0, 1)], [NodeRun(0, 0, 1)] * 3):
        with pytest.raises(IllegalDecision, match="names a node again"):
            engine.apply([Start(0, tuple(runs))])
    engine.apply([Start(0, (NodeRun(1, 1, 2), NodeRun(0, 0, 1)))])
    assert engine.view().free[:, 0].tolist() == [3, 2]


class LastFit:
    """A placement of one's own, written in Python: whole jobs, on the highest node that has room."""

    def choose(self, free: Any, need: Any, units: int, per_node: int) -> tuple[NodeRun, ...]:
        fitting = np.flatnonzero((np.asarray(free) >= units * np.asarray(need)).all(axis=1))
        return (NodeRun(int(fitting[-1]), int(fitting[-1]), units),) if len(fitting) else ()


@pytest.mark.parametrize("rule", ["fcfs", "easy"])
def test_nodes_may_be_chosen_in_python(rule: str) -> None:
    work = jobs((0, 10, 2), (0, 10, 1), (1, 10, 1), (2, 10, 2))
    schedule = simulate(work, Cluster.of(nodes=2, cores=2), rule, placement=LastFit())
    assert violations(schedule) == []
    assert schedule.start.tolist() == [0.0, 0.0, 1.0, 10.0]
    assert schedule.placements is not None
    assert [schedule.placements.of(row)[0].first for row in range(4)] == [1, 0, 0, 1]


def test_they_find_no_room_either() -> None:
    """One core is left on each node: room for the units of the job, but not where they would have to be."""
    engine = Engine(
        jobs((0, 9, 1), (0, 9, 1), (0, 9, 2)), Cluster.of(nodes=2, cores=2), MachineSettings(placement=LastFit())
    )
    engine.apply([Start(0, (NodeRun(0, 0, 1),)), Start(1, (NodeRun(1, 1, 1),))] if engine.advance() else [])
    with pytest.raises(IllegalDecision, match=r"no room for 2 x \(1 cores\): 2 cores are free"):
        engine.apply([Start(2)])


def test_watched_jobs_do_not_stop_who_asks_for_decisions_only() -> None:
    engine = Engine(jobs((0, 5, 2)), Cluster.of(2))
    operations.submit(engine, run=1.0, walltime=1.0, units=1, at=3.0)
    engine.apply([Start(0)] if engine.advance() else [])
    view = first(engine.advance())
    assert (view.now, view.waiting.tolist()) == (3.0, [1])
    engine.apply([])
    assert first(engine.advance()).now == 5.0


def test_rows_of_the_view_are_names_of_jobs() -> None:
    """Integers of NumPy, too, as they come out of its arrays."""
    engine = Engine(jobs((0, 10, 1), (0, 10, 1), (0, 10, 2)), Cluster.of(2))
    one, other, large = first(engine.advance()).waiting
    engine.apply([Start(one), Start(other), SetSpeed(one, 0.5), Reserve(large, 20.0)])
    assert sorted(engine.view().active.tolist()) == [0, 1]
    engine.apply([Reject(large, "not today")])
    assert engine.view().waiting.tolist() == []


def test_rejected_jobs_find_room_in_a_full_log() -> None:
    engine = Engine(jobs((0, 10, 1), *[(0, 1, 1)] * 200), Cluster.of(1))
    engine.apply([Start(0)] if engine.advance() else [])
    lines = int(engine.state.world[0]["lines"])
    engine.extend(log=engine.state.log[: lines + 9].copy())  # as much as is always left
    engine.apply([Reject(row, "not today") for row in range(1, 201)])
    assert engine.state.world[0]["lines"] == lines + 200 <= len(engine.state.log)
    assert engine.advance() is None
    assert engine.schedule().outcome.tolist() == [outcome(JobState.COMPLETED)] + [outcome(JobState.CANCELLED)] * 200


def test_a_rejected_job_is_cancelled() -> None:
    engine = Engine(jobs((0, 10, 1)), Cluster.of(1))
    engine.advance()
    engine.apply([Reject(0, "not today")])
    assert engine.advance() is None
    assert engine.schedule().outcome.tolist() == [outcome(JobState.CANCELLED)]


def test_a_job_gets_on_at_another_speed() -> None:
    engine = Engine(jobs((0, 10, 1), (4, 1, 1), (6, 1, 1)), Cluster.of(2))
    engine.apply([Start(0)] if engine.advance() else [])
    engine.apply([SetSpeed(0, 0.5), Start(1)] if engine.advance() else [])  # 4 s done, 6 left at half the speed
    engine.apply([SetSpeed(0, 2.0), Start(2)] if engine.advance() else [])  # one more done, 5 left at twice the speed
    while engine.advance() is not None:
        pass
    assert engine.schedule().end.tolist() == [8.5, 5.0, 7.0]


def test_the_wall_time_ends_a_slow_job() -> None:
    engine = Engine(jobs((0, 10, 1), walltime=12.0), Cluster.of(1))
    engine.advance()
    engine.apply([Start(0), SetSpeed(0, 0.1)])
    engine.advance()
    assert engine.schedule().end.tolist() == [12.0]
    assert engine.schedule().outcome.tolist() == [outcome(JobState.TIMEOUT)]


def test_a_dispatcher_that_starves_a_job_is_named() -> None:
    class Picky:
        def decide(self, view: TableView) -> list[DispatchDecision]:
            return [Start(row) for row in view.waiting.tolist() if view.jobs["cores"][row] == 1]

    with pytest.raises(Starved, match=r"Picky.*1 jobs wait.*job 2 \(2 cores\) could start since 1 s"):
        simulate(jobs((0, 5, 1), (1, 5, 2)), Cluster.of(2), Picky())  # type: ignore[arg-type]


def test_a_job_larger_than_the_machine_is_refused() -> None:
    schedule = simulate(jobs((0, 5, 3), (1, 5, 2)), Cluster.of(2))
    assert schedule.outcome.tolist() == [outcome(JobState.FAILED), outcome(JobState.COMPLETED)]
    assert schedule.start[1] == 1.0


def test_wall_times_are_needed_to_plan_with() -> None:
    without = Workload.of(submit=[0, 1], run=[5, 5], cores=[2, 2])
    with pytest.raises(InvalidInput, match="2 of 2 jobs have no requested time, and easy plans"):
        simulate(without, Cluster.of(2), "easy")
    assert simulate(without, Cluster.of(2), "fcfs").start.tolist() == [0.0, 5.0]
    some = Workload.of(submit=[0, 1, 2, 3], run=[9, 9, 3, 3], cores=[1, 2, 1, 1], walltime=[9, 9, np.nan, 3])
    schedule = simulate(some, Cluster.of(2), "easy")
    assert schedule.start.tolist() == [0.0, 9.0, 18.0, 3.0], "planned as 9 s, the third would delay the second"
    assert schedule.ran.all()
    assert simulate(without, Cluster.of(2), "easy", predictor="oracle").start.tolist() == [0.0, 5.0]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'easy'"):
        simulate(jobs((0, 1, 1)), Cluster.of(1), "eazy")
    with pytest.raises(UnknownName, match="unknown overrun"):
        MachineSettings(overrun="kill")
    with pytest.raises(InvalidInput, match="ask for 'gpus'"):
        Engine(Workload.of(submit=[0], run=[1], units=[1], demands=[[1, 0, 1]]), Cluster.of(1))


def test_memory_is_counted_where_the_machine_states_it() -> None:
    both = Workload.of(submit=[0, 0], run=[5, 5], walltime=[5, 5], units=[1, 1], demands=[[1, 6]])
    assert simulate(both, Cluster.of(1, cores=2)).start.tolist() == [0.0, 0.0]
    assert simulate(both, Cluster.of(1, cores=2, memory=10)).start.tolist() == [0.0, 5.0]


def test_partitions_keep_to_their_nodes() -> None:
    cluster = Cluster(np.array([[1], [1]]), partitions={"short": Partition((0,)), "long": Partition((1,))})
    work = Workload.of(
        submit=[0, 0, 0], run=[5, 5, 5], walltime=[5, 5, 5], cores=[1, 1, 1], partition=[0, 0, 1],
        labels={"partition": ("short", "long")},
    )  # fmt: skip
    schedule = simulate(work, cluster)
    assert schedule.start.tolist() == [0.0, 5.0, 0.0]
    assert schedule.placements is not None
    assert [run.first for _, run in schedule.placements] == [0, 1, 0]
    other = Workload.of(submit=[0], run=[5], cores=[1], partition=[0], labels={"partition": ("gpu",)})
    with pytest.raises(InvalidInput, match="names partition 'gpu', which is not there: choose one of short, long"):
        Engine(other, cluster)


def test_shareable_cores_may_be_held_twice() -> None:
    cluster = Cluster(np.array([[2]]), shareable=frozenset({"cores"}))

    class All:
        def decide(self, view: TableView) -> list[DispatchDecision]:
            return [Start(row) for row in view.waiting.tolist()]

    schedule = simulate(jobs((0, 5, 2), (1, 5, 2)), cluster, All())  # type: ignore[arg-type]
    assert schedule.start.tolist() == [0.0, 1.0]


def test_dependent_jobs_wait_for_the_end_and_think() -> None:
    work = Workload.of(
        submit=[0, 0, 0], run=[5, 5, 5], walltime=[9, 9, 9], cores=[1, 1, 1], after=[-1, 0, 1], think=[0, 0, 3]
    )
    schedule = simulate(work, Cluster.of(3))
    assert schedule.start.tolist() == [0.0, 5.0, 13.0]
    assert schedule.eligible.tolist() == [0.0, 5.0, 13.0]


def after_a_node_failed(what: str) -> Schedule:
    """Two jobs on one node, which fails at 3 s and is back at 5 s."""
    engine = Engine(jobs((0, 10, 1), (1, 2, 1)), Cluster.of(1), MachineSettings(node_failure=what))
    operations.fail_node(engine, 0, at=3.0, back=5.0)
    engine.dispatch(FCFS)
    return engine.schedule()


def test_jobs_of_a_node_that_fails_wait_again_behind_the_others() -> None:
    schedule = after_a_node_failed("requeue")
    assert schedule.start.tolist() == [7.0, 5.0]
    assert schedule.restarts.tolist() == [1, 0]
    assert schedule.end.tolist() == [17.0, 7.0]
    assert violations(schedule) == []


def test_when_many_jobs_wait_again_there_is_room_for_what_is_written() -> None:
    count = 1000
    engine = Engine(jobs(*[(0, 10, 1)] * count), Cluster.of(1, cores=count))
    operations.fail_node(engine, 0, at=1.0, back=2.0)
    operations.fail_node(engine, 0, at=3.0, back=4.0)
    engine.dispatch(FCFS)
    kinds = Counter(line.kind for line in lines(engine))
    assert kinds == {
        "submitted": count, "started": 3 * count, "requeued": 2 * count, "eligible": 2 * count, "finished": count,
        "node down": 2, "node up": 2,
    }  # fmt: skip
    assert engine.schedule().end.tolist() == [14.0] * count


def test_or_they_fail_with_it() -> None:
    schedule = after_a_node_failed("fail")
    assert schedule.outcome.tolist() == [outcome(JobState.NODE_FAIL), outcome(JobState.COMPLETED)]
    assert schedule.start.tolist() == [0.0, 5.0]


def test_nodes_fail_as_often_as_a_machine_says_and_not_while_they_are_down() -> None:
    failures = NodeFailures(each_s=100.0, repair_s=20.0)
    found = failures.drawn(nodes=50, begin=1000.0, until=13_000.0)
    assert len(found) == pytest.approx(50 * 12_000 / 120, rel=0.05)
    assert np.mean([back - at for _, at, back in found]) == pytest.approx(20, rel=0.1)
    for node in range(50):
        times = [at for one, *both in found if one == node for at in both]
        assert times == sorted(times) and times[0] > 1000 and times[-2] < 13_000
    assert failures.drawn(50, 1000.0, 13_000.0) == found
    assert replace(failures, seed=1).drawn(50, 1000.0, 13_000.0) != found


@given(seed=st.integers(0, 99), what=st.sampled_from(["requeue", "fail"]))
def test_where_nodes_fail_by_chance_jobs_start_again_or_fail_and_no_law_is_broken(seed: int, what: str) -> None:
    failures = NodeFailures(each_s=100.0, repair_s=20.0, seed=seed)
    failing = replace(Cluster.of(4), failures=failures)
    work = jobs(*[(7 * number, 30, 1 + number % 3) for number in range(40)])
    schedule = simulate(work, failing, "easy", node_failure=what)
    engine = Engine(work, Cluster.of(4), MachineSettings(node_failure=what))
    for node, at, back in failures.drawn(4, work.submit[0], work.submit[-1]):
        operations.fail_node(engine, node, at, back)
    assert engine.dispatch(DISPATCHERS.create("easy").native) is not StopReason.DECIDE
    np.testing.assert_array_equal(schedule.start, engine.schedule().start)
    hit = schedule.restarts.sum() if what == "requeue" else schedule.count(JobState.NODE_FAIL)
    assert hit > 0 and violations(schedule) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("repair=6h", "each= is missing"),
        ("each=1d,often=2", "unknown value of failures 'often'"),
        ("each=-1d", "each"),
    ],
)
def test_failures_that_make_no_sense_are_refused(words: str, says: str) -> None:
    with pytest.raises(AsaError, match=says):
        NodeFailures.of(words)
    with pytest.raises(InvalidInput, match="50,000,000 failures of 5,000 nodes"):
        NodeFailures(each_s=1.0).drawn(5000, 0.0, 10_000.0)


def test_a_node_that_stays_down_starves_no_job() -> None:
    engine = Engine(jobs((0, 1, 1), (2, 1, 2)), Cluster.of(2))
    operations.fail_node(engine, 1, at=1.5)
    engine.dispatch(FCFS)
    engine.check_starved()
    assert engine.schedule().outcome.tolist() == [outcome(JobState.COMPLETED), outcome(JobState.PENDING)]


def test_a_copy_goes_its_own_way() -> None:
    engine = Engine(jobs((0, 10, 1), (5, 1, 1)), Cluster.of(1))
    engine.apply([Start(0)] if engine.advance() else [])
    other = engine.copy()
    operations.cancel(other, 0)
    assert math.isnan(engine.schedule().end[0])
    assert other.schedule().end[0] == 0.0


def test_tables_grow_as_they_must() -> None:
    """More running jobs, log lines and placements than the tables have room for at first."""
    count = 3000
    crowd = Workload.of(submit=np.zeros(count), run=np.ones(count), cores=np.ones(count), walltime=np.ones(count))
    schedule = simulate(crowd, Cluster.of(nodes=1, cores=count + 1))
    assert (schedule.start == 0.0).all()
    engine = Engine(crowd.take([0]), Cluster.of(nodes=1, cores=count + 1))
    for _ in range(count):
        operations.submit(engine, run=1.0, walltime=1.0, units=1, watched=False)
    engine.dispatch(FCFS)
    assert (engine.state.job_states["ended"][: count + 1] == 1.0).all()


def test_progress_is_reported() -> None:
    told: list[float] = []
    simulate(jobs((0, 1, 1), (1, 1, 1)), Cluster.of(1), progress=told.append)
    assert told[-1] == 1.0


def test_last_two_learns_on_the_way() -> None:
    """The third job of the user is expected to run as long as the two before it, and fills the gap."""
    work = Workload.of(
        submit=[0, 10, 20, 21, 22], run=[2, 2, 6, 5, 2], walltime=[50, 50, 6, 5, 50], cores=[1, 1, 1, 2, 1],
        user=[1, 1, 2, 3, 1],
    )  # fmt: skip
    assert simulate(work, Cluster.of(2), "easy").start[4] == 31.0
    assert simulate(work, Cluster.of(2), "easy", predictor="last-two").start[4] == 22.0


class Spy:
    """Predicts the wall time, and records the calls."""

    def __init__(self, renews: bool) -> None:
        self.renews = renews
        self.said: list[tuple[str, object]] = []

    def predict(self, job: QueuedJob) -> float:
        self.said.append(("predict", job.key))
        return job.walltime_s

    def learn(self, job: QueuedJob, run_time_s: float) -> None:
        self.said.append(("learn", (job.key, run_time_s)))


@pytest.mark.parametrize("renews", [False, True])
def test_waiting_jobs_are_predicted_again_when_one_of_their_user_ends(renews: bool) -> None:
    """Jobs 1 to 3 wait for job 0; only job 2 is of its user. Nothing is learned before it has ended."""
    work = Workload.of(submit=[0, 1, 2, 3], run=[10, 10, 10, 10], walltime=[20] * 4, cores=[1] * 4, user=[1, 2, 1, -1])
    spy = Spy(renews)
    simulate(work, Cluster.of(1), "fcfs", predictor=spy)
    submitted = [("predict", key) for key in range(4)]
    again = [("predict", 2)] if renews else []
    ends = [("learn", (key, 10.0)) for key in (1, 2, 3)]
    assert spy.said == [*submitted, ("learn", (0, 10.0)), *again, *ends]


@given(mixed())
def test_the_nearest_jobs_give_the_same_schedule_again(case: tuple[Workload, Cluster]) -> None:
    first, second = (simulate(*case, "easy", predictor=NearestJobs(default_s=60.0)).start for _ in range(2))
    assert np.array_equal(first, second, equal_nan=True)


def test_fair_share_puts_the_modest_user_first() -> None:
    work = Workload.of(submit=[0, 10, 11], run=[20, 5, 5], walltime=[20, 5, 5], cores=[1, 1, 1], user=[0, 0, 1])
    assert simulate(work, Cluster.of(1), "fcfs").start.tolist() == [0.0, 20.0, 25.0]
    fair = "multifactor:age=0,fairshare=1000"
    assert simulate(work, Cluster.of(1), "fcfs", priority=fair).start.tolist() == [0.0, 25.0, 20.0]


def test_large_jobs_first_by_size_weight() -> None:
    work = jobs((0, 20, 4), (1, 5, 1), (2, 5, 4))
    assert simulate(work, Cluster.of(4), "fcfs", priority="multifactor:age=0,size=1000").start.tolist() == [
        0.0,
        25.0,
        20.0,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dispatcher", ["binpacking", "random:seed=3", "knapsack"])
@pytest.mark.parametrize("placement", ["first-fit", "best-fit", "contiguous"])
def test_other_dispatchers_keep_the_laws(dispatcher: str, placement: str) -> None:
    rng = np.random.default_rng(5)
    walltime = rng.integers(1, 50, 200)
    work = Workload.of(
        submit=np.sort(rng.integers(0, 400, 200)),
        run=rng.integers(1, 60, 200),
        cores=rng.integers(1, 9, 200),
        walltime=walltime,
    )
    schedule = simulate(work, Cluster.of(nodes=4, cores=2), dispatcher, placement=placement)
    assert violations(schedule) == []
    assert schedule.ran.all()


def busy(until: float = 10.0, **settings: str) -> Engine:
    """Two cores, one of which a job holds; it is 10 s."""
    work = Workload.of(submit=[0], run=[50], cores=[1], walltime=[60])
    engine = Engine(work, Cluster.of(2), MachineSettings(**settings))
    go(engine, until)
    return engine


def go(engine: Engine, until: float = math.inf) -> None:
    while engine.dispatch(rule_of("fcfs"), until=until) is StopReason.JOB_CHANGED:
        pass


def ended(engine: Engine) -> list[tuple[JobState, float]]:
    """How and when [s] jobs ended."""
    job_states = engine.state.job_states[: engine.state.world[0]["jobs"]]
    return [(OUTCOMES[job_state["outcome"]], float(job_state["ended"])) for job_state in job_states]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda e: operations.submit(e, run=1.0, walltime=9.0, units=1, at=9.5),
            "submitted at 9.5 s: it is 10 s already",
        ),
        (lambda e: operations.submit(e, run=1.0, walltime=9.0, units=3), "a job of 3 units of .*could run 2 at most"),
        (lambda e: operations.submit(e, run=1.0, walltime=9.0, units=0), "a job of 0 units of .*could run 2 at most"),
        (lambda e: operations.submit(e, run=1.0, walltime=9.0, units=1, need=(0,)), "ask for nothing: at least one"),
        (lambda e: operations.fail_node(e, 0, at=9.0), "node 0 cannot fail at 9 s and be back at inf s: it is 10 s"),
        (lambda e: operations.fail_node(e, 0, at=12.0, back=12.0), "cannot fail at 12 s and be back at 12 s"),
        (lambda e: operations.fail_node(e, 2, at=12.0), "there is no node 2: nodes go from 0 to 1"),
        (lambda e: operations.fail_node(e, -1, at=12.0), "there is no node -1: nodes go from 0 to 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(edit: Callable[[Engine], object], message: str) -> None:
    engine = busy()
    with pytest.raises(InvalidInput, match=message):
        edit(engine)
    go(engine)
    assert ended(engine) == [(JobState.COMPLETED, 50.0)]


@pytest.mark.parametrize(
    ("kind", "job_state"),
    [
        (DependencyKind.AFTER_OK, (JobState.CANCELLED, 10.0)),
        (DependencyKind.AFTER_ANY, (JobState.COMPLETED, 13.0)),
        (DependencyKind.AFTER, (JobState.COMPLETED, 13.0)),
    ],
)
def test_a_job_that_follows_one_that_has_failed(kind: DependencyKind, job_state: tuple[JobState, float]) -> None:
    engine = busy()
    operations.end(engine, 0, JobState.FAILED)
    operations.submit(engine, run=3.0, walltime=9.0, units=1, after=[(0, kind)])
    go(engine)
    assert ended(engine) == [(JobState.FAILED, 10.0), job_state]


def test_what_has_ended_is_not_cancelled() -> None:
    engine = busy(until=55.0)
    operations.cancel(engine, 0)
    go(engine)
    assert ended(engine) == [(JobState.COMPLETED, 50.0)]


@pytest.mark.parametrize(
    ("overrun", "job_state"), [("clip", (JobState.TIMEOUT, 24.0)), ("allow", (JobState.COMPLETED, 27.0))]
)
def test_another_wall_time_ends_a_job_only_where_it_is_enforced(
    overrun: str, job_state: tuple[JobState, float]
) -> None:
    engine = busy(overrun=overrun)
    row = operations.submit(engine, run=7.0, walltime=9.0, units=1, begin=20.0)
    operations.set_walltime(engine, row, 4.0)
    go(engine)
    assert ended(engine)[row] == job_state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"age": -1.0}, "weight 'age' must be at least 0, not -1.0"),
        ({"qos": math.nan}, "weight 'qos' must be at least 0, not nan"),
        ({"max_age_s": 0.0}, "max_age_s and half_life_s must be above 0 s, not 0.0 and 604800.0"),
        ({"half_life_s": -5.0}, "max_age_s and half_life_s must be above 0 s, not 604800.0 and -5.0"),
        ({"regime": "fifo"}, "regime 'fifo' has no ages: choose one of multifactor, limits, accrue-always"),
        ({"regime": "never"}, "regime 'never' has no ages"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Multifactor(**options)


def test_regimes_go_by_their_words() -> None:
    assert Multifactor(regime="accrue-always").regime is QueueRegime.ACCRUE_ALWAYS


def test_only_orders_that_the_engine_knows_will_do() -> None:
    with pytest.raises(InvalidInput, match=r"priority must be fifo or multifactor, not <asa\.lab\.dispatchers"):
        MachineSettings(priority=DISPATCHERS.create("fcfs"))


# -- Run --------------------------------------------------------------------------------------------------------------


class Watch:
    """A stopwatch that only a dispatcher moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow:
    """A dispatcher that takes `seconds` [s] for each decision."""

    def __init__(self, rule: str, seconds: float, clock: Watch) -> None:
        self.rule, self.seconds, self.clock = DISPATCHERS.create(rule), seconds, clock
        self.asked: list[tuple[float, list[int]]] = []

    def decide(self, view: Any) -> Any:
        self.asked.append((view.now, view.waiting.tolist()))
        self.clock.now += self.seconds
        return self.rule.decide(view)


def slowly(jobs: Workload, cluster: Cluster, seconds: float, rule: str = "fcfs", **settings: Any) -> Any:
    clock = Watch()
    slow = Slow(rule, seconds, clock)
    return simulate(jobs, cluster, slow, dispatch_time="charge", clock=clock, **settings), slow.asked


def test_a_job_starts_when_the_answer_is_there() -> None:
    schedule, asked = slowly(jobs((5, 10, 1)), Cluster.of(1), 3.0)
    assert schedule.start.tolist() == [8.0] and schedule.end.tolist() == [18.0]
    assert asked == [(5.0, [0])]


def test_jobs_submitted_meanwhile_are_decided_on_next() -> None:
    schedule, asked = slowly(jobs((0, 10, 1), (1, 10, 1), (3, 10, 1)), Cluster.of(3), 3.0)
    assert schedule.start.tolist() == [3.0, 6.0, 6.0]
    assert asked == [(0.0, [0]), (3.0, [1, 2])], "the third came at the very instant of the answer"


def test_what_becomes_free_meanwhile_is_decided_on_next() -> None:
    schedule, asked = slowly(jobs((0, 5, 1), (7, 1, 1)), Cluster.of(1), 2.0)
    assert schedule.start.tolist() == [2.0, 9.0], "the first ended at 7 s, before anybody was asked"
    schedule, asked = slowly(jobs((0, 5, 1), (6, 1, 1)), Cluster.of(1), 2.0)
    assert schedule.start.tolist() == [2.0, 10.0]
    assert [at for at, _ in asked] == [0.0, 6.0, 8.0], "asked at 6 s, answered at 8 s; the first ended at 7 s"


def test_a_dispatcher_that_starts_jobs_is_asked_again() -> None:
    schedule, asked = slowly(jobs((0, 10, 1), (0, 10, 1)), Cluster.of(1), 1.0)
    assert asked == [(0.0, [0, 1]), (1.0, [1]), (11.0, [1])]
    assert schedule.start.tolist() == [1.0, 12.0]


def test_what_has_ended_meanwhile_is_left_out() -> None:
    class Hurry:
        clock = Watch()

        def decide(self, view: TableView) -> list[Start | SetSpeed]:
            starts = [Start(row) for row in view.waiting.tolist()]
            self.clock.now += 20.0 * bool(len(view.active))
            return [*starts, *(SetSpeed(row, 2.0) for row in view.active.tolist())]

    schedule = simulate(
        jobs((0, 10, 1), (1, 50, 1), (2, 1, 1)), Cluster.of(3), Hurry(), dispatch_time="charge", clock=Hurry.clock
    )
    assert schedule.end.tolist()[0] == 10.0
    assert schedule.start.tolist() == [0.0, 21.0, 41.0]
    assert schedule.end.tolist()[1] == 21.0 + 20.0 + 15.0, "twice as fast from 41 s on"


def test_predictions_are_made_meanwhile() -> None:
    """The third and fourth job come while the first one's start is decided on."""
    work = Workload.of(
        submit=[0, 1, 30, 31, 32], run=[2, 2, 6, 5, 2], walltime=[50, 50, 6, 5, 50], cores=[1, 1, 1, 2, 1],
        user=[1, 1, 2, 3, 1],
    )  # fmt: skip
    schedule, _ = slowly(work, Cluster.of(2), 2.5, "easy", predictor="last-two")
    assert schedule.start[2] == 32.5
    assert schedule.start[4] == 35.0, "it is expected to run as long as the user's last two"


@given(workloads(), st.sampled_from(["fcfs", "easy", "conservative", "listplan"]))
def test_no_time_is_as_if_it_were_ignored(work: Workload, rule: str) -> None:
    quick, _ = slowly(work, Cluster.of(SLOTS), 0.0, rule)
    assert np.array_equal(quick.start, simulate(work, Cluster.of(SLOTS), rule).start)


@given(mixed(), st.sampled_from([0.1, 1.0, 4.0]), st.sampled_from(["together", "one-by-one"]))
def test_laws_are_kept_whatever_it_takes(case: tuple[Workload, Cluster], seconds: float, instant: str) -> None:
    schedule, asked = slowly(*case, seconds, "easy", instant=instant)
    assert violations(schedule) == []
    assert (schedule.wait[schedule.ran] >= seconds - 1e-9).all()
    assert all(later - at >= seconds - 1e-9 for (at, _), (later, _) in pairwise(asked))


@given(mixed(), st.sampled_from(["user", "last-two"]))
def test_watching_changes_nothing(case: tuple[Workload, Cluster], predictor: str) -> None:
    seen: list[list[int]] = []
    watched = simulate(*case, "easy", predictor=predictor, watch=lambda view: seen.append(view.waiting.tolist()))
    assert np.array_equal(watched.start, simulate(*case, "easy", predictor=predictor).start)
    assert set().union(*seen) == set(np.flatnonzero(watched.ran))


def test_watching_takes_none_of_the_time() -> None:
    clock = Watch()

    def look(_: TableView) -> None:
        clock.now += 100.0

    found = simulate(
        jobs((0, 1, 1)), Cluster.of(1), Slow("fcfs", 2.0, clock), dispatch_time="charge", clock=clock, watch=look
    )
    assert found.start.tolist() == [2.0]


def test_dispatchers_given_by_name_rehearse() -> None:
    """What is compiled at the first decision is not charged: the clock is first read when all that is over."""
    readings = iter([0.0, 4.0, 4.0, 4.0])
    found = simulate(jobs((0, 1, 1)), Cluster.of(1), "listplan", dispatch_time="charge", clock=lambda: next(readings))
    assert found.start.tolist() == [4.0]


class Windows:
    """First come first served, at the ends of windows of 10 s."""

    window = 10.0

    def __init__(self) -> None:
        self.asked: list[float] = []

    def decide(self, view: TableView) -> list[Start]:
        self.asked.append(view.now)
        return [Start(row) for row in view.waiting.tolist()]


def test_a_queue_that_is_empty_again_asks_no_dispatcher() -> None:
    engine, rule = Engine(jobs((3, 5, 1), (35, 5, 1)), Cluster.of(1)), Windows()
    served = DispatchLoop(engine, rule)
    assert served.run(until=5.0) is StopReason.UNTIL
    operations.cancel(engine, 0)
    assert served.run() is StopReason.OVER
    assert rule.asked == [40.0]


def test_only_so_many_decisions_are_made() -> None:
    engine, rule = Engine(jobs(*[(10 * number, 5, 1) for number in range(1, 5)]), Cluster.of(1)), Windows()
    served = DispatchLoop(engine, rule)
    assert served.run(most=3) is StopReason.DECIDE
    assert rule.asked == [10.0, 20.0, 30.0]
    assert served.run(most=3) is StopReason.OVER
    assert rule.asked == [10.0, 20.0, 30.0, 40.0]


def test_other_words_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"dispatch time 'pay'.*charge, ignore"):
        simulate(jobs((0, 1, 1)), Cluster.of(1), "fcfs", dispatch_time="pay")


CLUSTER = Cluster(np.array([[4, 8, 2], [4, 8, 0], [4, 8, 0], [2, 16, 0]]), ("cores", "memory", "mics"))


def crowd(seed: int = 3, count: int = 80) -> Workload:
    draw = np.random.default_rng(seed)
    run = draw.integers(1, 60, count).astype(float)
    return Workload.of(
        submit=np.sort(draw.uniform(0, 600, count)), run=run, walltime=run * draw.uniform(1, 2, count),
        units=draw.integers(1, 4, count), kind=draw.integers(0, 3, count), number=1000 + np.arange(count),
        demands=[[1, 1, 0], [2, 4, 1], [4, 0, 0]], resources=("cores", "memory", "mics"),
    )  # fmt: skip


def facts(found: Instance, names: Any = None) -> Any:
    """All that an instance says, however its tables are numbered."""
    held = [
        (at, node, units, *found.demands[kind].tolist())
        for at, (first, last, units, kind) in zip(found.release_at.tolist(), found.release.tolist(), strict=True)
        for node in range(first, last + 1)
    ]
    return (
        found.resources, found.capacity.tolist(), found.free.tolist(), held, tuple(names or found.names),
        found.units.tolist(), found.demands[found.kind].tolist(), found.per_node.tolist(),
        found.members[found.partition].tolist(), found.duration.tolist(), found.waited.tolist(),
    )  # fmt: skip


class Seeing(ListPlan):
    """Writes down the instance of each decision, with the trace's numbers for names."""

    def __init__(self) -> None:
        super().__init__()
        self.saw: dict[float, Any] = {}

    def decide(self, view: Any) -> Any:
        if len(view.waiting):
            self.saw.setdefault(view.now, facts(from_view(view), view.jobs["number"][view.waiting].tolist()))
        return super().decide(view)


@pytest.mark.parametrize("cluster", [CLUSTER, Cluster.of(nodes=6, cores=2)])
def test_a_saved_decision_is_what_the_planner_saw(cluster: Cluster, tmp_path: Path) -> None:
    work = crowd() if cluster is CLUSTER else Workload.of(
        submit=crowd().submit, run=crowd().run, walltime=crowd().walltime, cores=crowd().units * 3
    )  # fmt: skip
    seeing, sample = Seeing(), DecisionSample(1000)
    simulate(work, cluster, seeing, watch=sample)
    sample.write(tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(seeing.saw) == len(sample) == sample.seen
    for path in files:
        at = json.loads(gzip.decompress(path.read_bytes()))["at"]
        assert facts(read_instance(path)) == seeing.saw[at]
    assert max(len(each[4]) for each in seeing.saw.values()) > 5, "a queue worth saving"


def test_what_is_shared_is_kept(tmp_path: Path) -> None:
    draws = np.array([[7, 0], [20, 1]])
    found = replace(example(), shared=np.array([50, 3]), shared_names=("power", "licences"), shared_demands=draws)
    (tmp_path / "saved.json").write_text(json.dumps(Decision(0, 12.0, found).to_json()))
    read = read_instance(tmp_path / "saved.json")
    assert facts(read) == facts(found)
    assert read.shared.tolist() == [50, 3] and read.shared_names == ("power", "licences")
    assert read.shared_demands[read.kind].tolist() == found.shared_demands[found.kind].tolist()
    assert read.drawn.tolist() == found.drawn.tolist()


def test_the_planner_plans_the_same_from_the_file(tmp_path: Path) -> None:
    sample = DecisionSample(20, seed=1)
    simulate(crowd(), CLUSTER, "listplan", watch=sample)
    sample.write(tmp_path)
    for path, decision in zip(sorted(tmp_path.iterdir()), sample, strict=True):
        read, saved = (ListPlan().solve(each, 0.0).plan for each in (read_instance(path), decision.instance))
        assert read is not None and saved is not None
        assert read.start.tolist() == saved.start.tolist()


@given(st.integers(1, 12), st.integers(0, 3))
def test_a_sample_has_so_many_and_no_others(count: int, seed: int) -> None:
    every, some = DecisionSample(10_000), DecisionSample(count, seed)

    def watch(view: TableView) -> None:
        every(view), some(view)

    simulate(crowd(seed, 15), CLUSTER, "easy", watch=watch)
    assert every.seen == len(every) == some.seen
    assert len(some) == min(count, every.seen)
    all_of = {decision.number: facts(decision.instance) for decision in every}
    assert [decision.number for decision in every] == list(range(every.seen))
    assert all(facts(decision.instance) == all_of[decision.number] for decision in some)


def test_each_decision_has_the_same_chance() -> None:
    """5 of 20, 2,000 times: each is drawn in a quarter of all cases; six standard deviations are 0.058."""
    rows = 20
    work = Workload.of(submit=np.arange(rows) * 10.0, run=np.ones(rows), cores=np.ones(rows), walltime=np.ones(rows))
    views: list[Any] = []
    simulate(work, Cluster.of(1), "fcfs", watch=views.append)
    drawn = np.zeros(rows)
    for seed in range(2000):
        sample = DecisionSample(5, seed)
        for view in views:
            sample(view)
        drawn[[decision.number for decision in sample]] += 1
    assert np.abs(drawn / 2000 - 0.25).max() < 0.058


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        sample = DecisionSample(10, seed=4)
        simulate(crowd(), CLUSTER, "easy", watch=sample)
        assert sample.write(tmp_path / name) == f"10 of {sample.seen} decisions are in {tmp_path / name}"
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


def test_what_files_cannot_tell_is_refused() -> None:
    work = Workload.of(submit=[0], run=[1], units=[2], walltime=[1], per_node=[1], demands=[[2]])
    mixed = Cluster(np.array([[4], [2]]))
    with pytest.raises(InvalidInput, match="no units per node"):
        simulate(work, mixed, "easy", watch=DecisionSample(1))
    with pytest.raises(InvalidInput, match="at least 1"):
        DecisionSample(0)
