"""The simulated backend and its executor, in virtual time."""

from __future__ import annotations

import gzip
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.allocation import Allocation
from asa.core.clock import ManualClock
from asa.core.decision import DispatchDecision
from asa.core.errors import BackendError, InvalidInput, Starved, UnknownName
from asa.core.event import Event, NodeJoined, NodeLost, TaskDone, TaskFailed
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.ports import Outcome, RunContext
from asa.core.registry import BACKENDS
from asa.core.task import Task
from asa.core.units import DAY
from asa.lab.backend.scene import SimulatedMachine, at_load, make_scene
from asa.lab.backend.simulated import Simulated
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import BackfillRule, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Fifo, MachineSettings, Multifactor
from asa.lab.traces.patterns import offered_load
from asa.lab.traces.site import JobClass, NodeKind, SiteModel
from asa.testing.backend_fake import FakeBatch, FakeRun
from asa.testing.backends import BatchSemantics, TestedSite, run_of

# -- Simulated --------------------------------------------------------------------------------------------------------

INF = float("inf")


class PlainEasy:
    """EASY as written without knowledge of the compiled loop."""

    def decide(self, view: TableView) -> Sequence[DispatchDecision]:
        return Easy().decide(view)


class StartsNothing:
    def decide(self, view: TableView) -> Sequence[DispatchDecision]:
        return ()


def site_of(directory: Path, **options: Any) -> TestedSite:
    """An empty simulated machine under the suite."""
    backend = Simulated(run=run_of, poll_s=1.0, **{"warmup": 0.01, **options})
    return TestedSite(
        backend, backend.clock, directory, run_s=10.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0
    )


def taken_over() -> Engine:
    """Two nodes at 1,000 s, on which other people's jobs take single cores; so do ours."""
    engine = Engine(Workload.of(submit=[0], run=[1], cores=[2], walltime=[1]), Cluster.of(2, 2))
    engine.dispatch(BackfillRule(1.0, 100), until=1000.0)
    return engine


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "nodes": lambda: {"nodes": 2, "cores": 2},
    "single cores": lambda: {"engine": taken_over()},
    "multifactor": lambda: {"nodes": 4, "dispatcher": "conservative", "regime": "accrue-always"},
    "dispatcher in Python": lambda: {"nodes": 4, "dispatcher": PlainEasy()},
    "predictor that learns": lambda: {"nodes": 4, "predictor": "last-two"},
}


class TestSimulated(BatchSemantics):
    @pytest.fixture(params=KINDS)
    def site(self, request: pytest.FixtureRequest, tmp_path: Path) -> TestedSite:
        return site_of(tmp_path, **KINDS[request.param]())


def request(token: str, cores: int = 1, walltime_s: float = 100.0, **fields: Any) -> JobRequest:
    return JobRequest(token, fields.pop("resources", Resources(cores)), walltime_s, ("true",), **fields)


def submitted(queue: Simulated, *args: Any, **fields: Any) -> JobHandle:
    (outcome,) = queue.submit([request(*args, **fields)])
    assert isinstance(outcome, JobHandle), outcome
    return outcome


def refusal(queue: Simulated, *args: Any, **fields: Any) -> str:
    (outcome,) = queue.submit([request(*args, **fields)])
    assert isinstance(outcome, Refused)
    return outcome.reason


def test_reasons_are_slurms_words() -> None:
    queue = Simulated(nodes=4, warmup=0.01)
    runs = submitted(queue, "runs", 4)
    first, second = submitted(queue, "first", 4), submitted(queue, "second", 4)
    after = submitted(queue, "after", dependencies=(Dependency(first),))
    begins = submitted(queue, "begins", begin=queue.clock.now() + 500)
    assert [status.reason for status in queue.query([after, begins])] == ["Dependency", "BeginTime"], "at once, too"
    queue.sleep(10)
    reasons = [status.reason for status in queue.query([runs, first, second, after, begins])]
    assert reasons == ["", "Resources", "Priority", "Dependency", "BeginTime"]
    assert queue.query([first])[0].planned == queue.query([runs])[0].started + 100
    queue.sleep(1000)
    reasons = [status.reason for status in queue.query([runs, first, second, after, begins])]
    assert reasons == ["TimeLimit"] * 3 + ["DependencyNeverSatisfied", "TimeLimit"]
    assert queue.query([first])[0].planned is None


def test_other_peoples_jobs_are_in_the_way() -> None:
    others = Workload.of(submit=[0, 1000], run=[900, 900], cores=[4, 4], walltime=[900, 900])
    queue = Simulated(engine=Engine(others, Cluster.of(4)), run=lambda _request: FakeRun(50.0))
    first, late = submitted(queue, "first"), submitted(queue, "late", begin=1001.0)
    queue.sleep(3000)
    statuses = queue.query([first, late])
    assert [status.started for status in statuses] == [900.0, 1900.0]
    assert [status.ended for status in statuses] == [950.0, 1950.0]


def test_the_same_seed_gives_the_same_queue() -> None:
    def starts(seed: int) -> list[float | None]:
        queue = Simulated(nodes=4, cores=8, load=0.95, seed=seed, warmup=2, days=2)
        handles = [submitted(queue, str(cores), cores) for cores in (1, 16, 32)]
        queue.sleep(86400)
        return [status.started for status in queue.query(handles)]

    assert starts(2) == starts(2) != starts(3)


def test_a_copy_goes_its_own_way() -> None:
    queue = Simulated(nodes=4, cores=8, load=0.9, seed=1, warmup=2, days=2)
    queue.sleep(3600)
    one, two = queue.copy(), queue.copy()
    handle = submitted(one, "job", 32)
    one.sleep(86400)
    assert two.clock.now() == queue.clock.now()
    assert two.query([handle])[0].state is JobState.LOST
    assert submitted(two, "job", 32) == handle
    two.sleep(86400)
    assert two.query([handle]) == one.query([handle])
    submitted(one, "more")
    with pytest.raises(InvalidInput, match="own jobs"):
        one.copy()


def test_a_queue_that_predicts_as_it_goes_is_not_copied() -> None:
    with pytest.raises(InvalidInput, match="learns"):
        Simulated(nodes=4, predictor="last-two").copy()


def test_a_requeued_job_starts_its_program_anew() -> None:
    queue = Simulated(nodes=4, warmup=0.01, run=lambda _request: FakeRun(60.0))
    handle = submitted(queue, "job")
    queue.sleep(30)
    began = queue.clock.now()
    operations.requeue(queue.engine, 0)
    queue.sleep(45)
    status = queue.query([handle])[0]
    assert (status.state, status.restarts, status.started) == (JobState.RUNNING, 1, began)
    queue.sleep(45)
    assert queue.query([handle])[0].ended == began + 60


def test_a_job_larger_than_any_node_takes_several() -> None:
    queue = Simulated(nodes=4, cores=8, memory="32G", gpus=1, warmup=0.01)
    whole = Resources(cores=16, memory=2**35, gpus=2)
    handle = submitted(queue, "job", resources=whole)
    queue.sleep(1)
    assert queue.query([handle])[0].nodes == ("n0", "n1")
    largest = queue.capabilities().largest
    assert largest == Resources(32, memory=2**37, gpus=4)
    assert whole.fits(largest)


def test_a_job_of_seven_cores_is_no_equal_parts_of_nodes_and_runs() -> None:
    queue = Simulated(nodes=4, cores=2, warmup=0.01)
    handle = submitted(queue, "job", 7)
    queue.sleep(1)
    assert queue.query([handle])[0].state is JobState.RUNNING


def test_a_job_of_single_cores_has_as_many_nodes_as_it_asks_for() -> None:
    others = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    queue = Simulated(engine=Engine(others, Cluster.of(4, 8)))
    alone, spread = submitted(queue, "a", 12), submitted(queue, "b", resources=Resources(16, nodes=4))
    queue.sleep(1)
    alone_on, spread_on = (status.nodes for status in queue.query([alone, spread]))
    assert alone_on == ("n0",)
    assert len(set(spread_on)) == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cores": 33}, "33 cores"),
        ({"resources": Resources(2, gpus=1)}, "GPU"),
        ({"resources": Resources(16, memory=2**40)}, "1.02e+03 GiB"),
        ({"walltime_s": 0.0}, "wall time"),
        ({"walltime_s": 7201.0}, "wall time"),
        ({"dependencies": (Dependency(JobHandle("7", "nobody", 0.0)),)}, "job 7, which is not known"),
    ],
)
def test_what_can_never_run_is_refused_with_a_reason(fields: dict[str, Any], words: str) -> None:
    queue = Simulated(nodes=4, cores=8, memory="16G", longest="2h")
    assert words in refusal(queue, "job", **fields)
    assert queue.capabilities().longest_s == 7200.0


def test_a_change_that_does_not_fit_changes_nothing() -> None:
    queue = Simulated(nodes=4, cores=8, memory="16G")
    handle = submitted(queue, "job", resources=Resources(8, memory=2**34), begin=1e7)
    for resources in (Resources(8, memory=2**33), Resources(33)):
        with pytest.raises(BackendError, match="cannot be changed"):
            queue.update(handle, JobChanges(resources=resources, walltime_s=1.0))
    unknown = Dependency(JobHandle("7", "nobody", 0.0), DependencyKind.AFTER_ANY)
    with pytest.raises(BackendError, match="not known"):
        queue.update(handle, JobChanges(dependencies=(unknown,), walltime_s=1.0))
    assert queue.engine.state.jobs["walltime"][0] == 100.0


def test_a_wall_time_can_be_changed() -> None:
    queue = Simulated(nodes=4, warmup=0.01)
    handle = submitted(queue, "job", begin=queue.clock.now() + 100)
    queue.update(handle, JobChanges(walltime_s=30.0))
    queue.sleep(1000)
    status = queue.query([handle])[0]
    assert status.ended == status.started + 30


def test_when_others_have_left_nothing_is_submitted_any_more() -> None:
    queue = Simulated(nodes=4, cores=8, load=0.5, warmup=1, days=1)
    submitted(queue, "in time")
    queue.sleep(86401)
    with pytest.raises(BackendError, match="more days="):
        queue.submit([request("too late")])


def test_a_dispatcher_that_starts_nothing_is_found_out() -> None:
    queue = Simulated(nodes=4, dispatcher=StartsNothing())
    submitted(queue, "job")
    with pytest.raises(Starved):
        queue.sleep(3600)


def test_a_machine_whose_nodes_do_not_come_back_is_found_out() -> None:
    engine = Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(1))
    queue = Simulated(engine=engine, run=lambda _request: FakeRun(50.0))
    operations.fail_node(engine, 0, at=5.0)
    queue.sleep(10)
    submitted(queue, "job")
    with pytest.raises(Starved, match="1 jobs wait on an idle machine, and nothing will happen any more"):
        queue.sleep(3600)


def test_a_dispatcher_of_windows_is_waited_for() -> None:
    queue = Simulated(nodes=4, dispatcher="nwp:window=600", warmup=0)
    queue.sleep(60)
    job = submitted(queue, "job")
    queue.sleep(530)
    assert queue.query([job])[0].state is JobState.PENDING
    queue.sleep(20)
    assert queue.query([job])[0].started == 600.0


def test_only_a_program_that_runs_can_exit() -> None:
    queue = Simulated(nodes=4, warmup=0)
    submitted(queue, "runs", 4)
    submitted(queue, "waits", 4)
    queue.sleep(1)
    with pytest.raises(InvalidInput, match="job 'waits' is pending: only one that runs can end"):
        queue.end("waits")
    with pytest.raises(InvalidInput, match="job 'other' is unknown: only one that runs can end"):
        queue.end("other")
    queue.end("runs", 3)
    with pytest.raises(InvalidInput, match="job 'runs' is failed"):
        queue.end("runs")


def test_waiting_for_ever_ends_with_an_error() -> None:
    import threading

    with pytest.raises(RuntimeError, match="no event left"):
        Simulated(nodes=4).clock.wait(threading.Event())


def test_one_run_at_a_time() -> None:
    queue = Simulated(nodes=4)
    assert queue.enter() is queue.clock
    with pytest.raises(BackendError, match="busy"):
        queue.enter(patience_s=0.01)
    queue.close()
    queue.enter()


@pytest.mark.parametrize(
    ("options", "regime"),
    [
        ({}, QueueRegime.FIFO),
        ({"priority": "multifactor"}, QueueRegime.LIMITS),
        ({"priority": "multifactor:age=5", "regime": "multifactor"}, QueueRegime.MULTIFACTOR),
        ({"regime": "accrue-always"}, QueueRegime.ACCRUE_ALWAYS),
        ({"priority": "multifactor", "regime": "fifo"}, QueueRegime.FIFO),
    ],
)
def test_the_regime_is_reported_and_kept(options: dict[str, Any], regime: QueueRegime) -> None:
    queue = Simulated(nodes=4, **options)
    assert queue.capabilities().regime is regime
    assert QueueRegime(queue.engine.settings.model.regime) is regime


def test_specs() -> None:
    queue = BACKENDS.create("sim:nodes=4,cores=8,memory=16G,seed=3,regime=limits,warmup=0.5", directory=Path("x"))
    assert (queue.options.seed, queue.scene.start) == (3, 43200.0)
    assert queue.capabilities().site == "sim-4x8"
    hpc2n = BACKENDS.create("sim:hpc2n,regime=limits,days=1").capabilities()
    assert (hpc2n.site, hpc2n.cores_per_node, hpc2n.regime) == ("sim-hpc2n", 28, QueueRegime.LIMITS)
    assert BACKENDS.create("sim:nodes=4,name=mine").capabilities().site == "mine"


def parted(**limits: Any) -> Simulated:
    """A site of four nodes of two cores: `all`, and `few` with the first two."""
    classes = (JobClass(1.0, (1,), (60.0,)),)
    parts = {"all": Partition((0, 1, 2, 3), 3600.0), "few": Partition((0, 1), **limits)}
    model = SiteModel("parted", 4, 2, 1e-6, classes, dispatcher="easy", partitions=parts)
    return Simulated(model, warmup=0, days=1, longest="2h")


def in_partition(token: str, cores: int, name: str, walltime_s: float = 600.0) -> JobRequest:
    options = (("partition", name),) if name else ()
    return JobRequest(token, Resources(cores, options=options), walltime_s, ("true",))


def test_a_site_has_partitions() -> None:
    queue = parted(max_nodes=1, tier=2)
    own = queue.capabilities()
    assert (own.partition, own.largest, own.longest_s) == ("all", Resources(8), 3600.0)
    few = own.for_jobs((("partition", "few"),))
    assert (few.partition, few.largest, few.longest_s, few.cores_per_node) == ("few", Resources(2), 7200.0, 2)
    with pytest.raises(InvalidInput, match="names partition 'gpu', which is not there: choose one of all, few"):
        own.for_jobs((("partition", "gpu"),))
    asked = [
        in_partition("first", 8, ""), in_partition("later", 8, "all"), in_partition("before", 2, "few"),
        in_partition("long", 2, "all", 3601.0), in_partition("wide", 3, "few"), in_partition("odd", 1, "gpu"),
    ]  # fmt: skip
    queue.sleep(3600.0)  # the others' only job is over
    (first,), begun = queue.submit(asked[:1]), queue.clock.now()
    queue.sleep(1.0)
    handles = queue.submit(asked[1:])
    assert [each.reason for each in handles if isinstance(each, Refused)] == [
        "job 'long' has a wall time of 3601.0 s: above 0, up to 3600 expected",
        "job 'wide' asks for 3 cores, which partition 'few' of <Cluster of 4 nodes: 8 cores> could never give to one "
        "job",
        "job 'odd' names partition 'gpu', which is not there: choose one of all, few",
    ]
    assert isinstance(first, JobHandle)
    later, before = (each for each in handles if not isinstance(each, Refused))
    queue.sleep(1200.0)
    statuses = queue.query([first, later, before])
    assert [status.started for status in statuses] == [begun, begun + 1200.0, begun + 600.0]  # the higher tier first
    assert statuses[2].nodes == ("n0",)
    with pytest.raises(BackendError, match="up to 7200 expected"):
        queue.update(queue.submit([in_partition("more", 1, "few")])[0], JobChanges(walltime_s=7201.0))  # type: ignore[arg-type]


def test_jobs_are_on_nodes_that_have_what_they_ask_for() -> None:
    kinds = (NodeKind((1,), 4, gpus=2, features=("new", "fat")), NodeKind((2,), 2, features=("new",)))
    model = SiteModel("kinds", 4, 2, 1e-6, (JobClass(1.0, (1,), (60.0,)),), kinds=kinds)
    queue = Simulated(model, warmup=0, days=1)
    own = queue.capabilities()
    assert (own.largest, own.cores_per_node) == (Resources(10, gpus=2), 4)
    new = own.for_jobs((("constraint", "new"),))
    assert (new.largest, new.cores_per_node) == (Resources(6, gpus=2), 4)
    assert own.for_jobs((("constraint", "new|fat"), ("qos", "any"))).largest == new.largest
    with pytest.raises(InvalidInput, match="no node is 'old': features of nodes are new, fat"):
        own.for_jobs((("constraint", "old"),))

    def asking(token: str, resources: Resources, constraint: str = "") -> JobRequest:
        options = (("constraint", constraint),) if constraint else ()
        return JobRequest(token, replace(resources, options=options), 600.0, ("true",))

    queue.sleep(3600.0)  # the others' only job is over
    begun = queue.clock.now()
    handles = queue.submit([
        asking("gpu", Resources(2, gpus=2)), asking("new", Resources(4), "new"), asking("next", Resources(1), "new"),
        asking("both", Resources(1), "new&fat"), asking("wide", Resources(8), "new"),
        asking("odd", Resources(1), "!new"),
    ])  # fmt: skip
    assert [each.reason for each in handles if isinstance(each, Refused)] == [
        "job 'wide' asks for 8 cores, which nodes 'new' of <Cluster of 4 nodes: 10 cores, 2 gpus> could never give to "
        "one job",
        "job 'odd' asks for constraint '!new': names of features joined by '&', or by '|', expected",
    ]
    queue.sleep(1000.0)
    statuses = queue.query([each for each in handles if isinstance(each, JobHandle)])
    assert [status.started for status in statuses] == [begun, begun, begun + 600.0, begun + 600.0]
    assert statuses[0].nodes == ("n1",)


@pytest.mark.parametrize(
    "spec", ["sim:nods=4", "sim:nodes=4,regime=immediate", "sim:dispatcher=esay", "sim:site=hpc2n,uppmax"]
)
def test_misspelt_options_are_named(spec: str) -> None:
    with pytest.raises(UnknownName):
        BACKENDS.create(spec)


@pytest.mark.parametrize("option", ["load=busy", "nodes=many", "compute=maybe"])
def test_text_is_no_number_and_no_boolean(option: str) -> None:
    with pytest.raises(InvalidInput, match=option):
        BACKENDS.create(f"sim:nodes=4,{option}")


@pytest.mark.parametrize(
    "options",
    [
        {"load": 0.5, "trace": "log.swf"},
        {"trace": "no-such-file.swf"},
        {"load": -1.0},
        {"warmup": -1.0},
        {"load": 0.5, "days": 0},
        {"nodes": -1},
        {"site": "hpc2n", "nodes": 4},
        {"site": "no-such-site"},
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Simulated(**options)


def test_what_travels_is_what_it_was_made_with() -> None:
    queue = Simulated(nodes=4, cores=8, load=0.5, seed=5, warmup=1, days=1)
    queue.sleep(3600)
    again = pickle.loads(pickle.dumps(queue))
    assert again.options == queue.options
    assert again.clock.now() == again.scene.start


def test_a_machine_at_any_moment_is_taken_over() -> None:
    settings = MachineSettings(priority="multifactor", overrun="allow")
    others = Workload.of(submit=[0], run=[1000], cores=[2], walltime=[10])
    engine = Engine(others, Cluster.of(2), settings)
    engine.dispatch(BackfillRule(1.0, 100), until=500.0)
    queue = Simulated(engine=engine)
    assert queue.capabilities().regime is QueueRegime.LIMITS
    handle = submitted(queue, "job", 2, walltime_s=100.0)
    queue.sleep(5000)
    status = queue.query([handle])[0]
    assert (status.started, status.state, status.ended) == (1000.0, JobState.TIMEOUT, 1100.0)


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


def swf(path: Path, *, header: str = "; MaxProcs: 64\n", days: int = 4) -> Path:
    """A log with a job of two cores every hour."""
    rows = [f"{n} {3600 * n} 0 1800 2 -1 -1 2 3600 -1 1 1 1 1 1 1 -1 -1" for n in range(24 * days)]
    path.write_bytes(gzip.compress((header + "\n".join(rows) + "\n").encode()))
    return path


def test_a_trace_is_cut_to_the_days_asked_for(tmp_path: Path) -> None:
    scene = make_scene(SimulatedMachine(), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)
    assert scene.name == "sim-log"
    assert (scene.start, scene.end) == (DAY, 3 * DAY)
    assert len(scene.workload) == 72
    assert scene.cluster.cores == 64


def test_a_short_trace_ends_earlier(tmp_path: Path) -> None:
    scene = make_scene(SimulatedMachine(), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=30)
    assert scene.end == 3600 * 95
    with pytest.raises(InvalidInput, match="smaller warmup="):
        make_scene(SimulatedMachine(), trace=swf(tmp_path / "log.swf.gz"), warmup=4, days=1)


@pytest.mark.parametrize(
    ("machine", "nodes", "cores"),
    [(SimulatedMachine(cores=8), 8, 64), (SimulatedMachine(nodes=4), 4, 4), (SimulatedMachine(2, 32), 2, 64)],
)
def test_a_traces_machine_can_be_given(tmp_path: Path, machine: SimulatedMachine, nodes: int, cores: int) -> None:
    scene = make_scene(machine, trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)
    assert (scene.cluster.nodes, scene.cluster.cores) == (nodes, cores)


def test_a_trace_without_a_machine_needs_one(tmp_path: Path) -> None:
    path = swf(tmp_path / "log.swf.gz", header="")
    with pytest.raises(InvalidInput, match="give nodes"):
        make_scene(SimulatedMachine(), trace=path, warmup=1, days=2)
    with pytest.raises(InvalidInput, match="give nodes"):
        make_scene(SimulatedMachine(cores=4), trace=path, warmup=1, days=2)
    assert make_scene(SimulatedMachine(nodes=4), trace=path, warmup=1, days=2).cluster.cores == 4
    with pytest.raises(InvalidInput, match="no whole nodes of 7"):
        make_scene(SimulatedMachine(cores=7), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    nodes=st.integers(2, 40),
    cores=st.sampled_from([1, 8, 28]),
    load=st.floats(0.2, 1.2),
    days=st.floats(0.5, 10),
    seed=st.integers(0, 9),
)
def test_a_load_lasts_as_long_as_asked(nodes: int, cores: int, load: float, days: float, seed: int) -> None:
    cluster = Cluster.of(nodes, cores)
    made = at_load(cluster, load, days * DAY, seed)
    assert (made.submit < days * DAY).all()
    assert not made.walltime.size or (made.walltime >= made.run).all()
    whole = at_load(cluster, load, 50 * DAY, seed)
    assert whole.submit[-1] > 35 * DAY, "gaps have heavy tails: some are of a week"
    assert offered_load(whole, cluster.cores) == pytest.approx(load, rel=0.5), "but for what was cut off"


def test_a_single_core_has_no_such_load() -> None:
    with pytest.raises(InvalidInput, match="two cores"):
        make_scene(SimulatedMachine(), load=0.5, warmup=1, days=1)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("nodes=0", "nodes=0: a whole number of at least 1 expected"),
        ("nodes=4.5", "nodes=4.5: a whole number expected"),
        ("cores=-2", "cores=-2: a whole number of at least 1 expected"),
        ("gpus=-1", "gpus=-1: a whole number of at least 0 expected"),
        ("memory=0G", "memory '0G' is not a positive memory size"),
        ("memory=64", "memory '64' has no unit"),
        ("seed=-1", "seed=-1: a whole number of at least 0 expected"),
        ("seed=1.5", "seed=1.5: a whole number expected"),
        ("load=nan", "load=nan: a finite number below 2**63 expected"),
        ("days=0", "days=0: a finite number above 0 expected"),
        ("warmup=inf", "warmup=inf: a finite number of at least 0 expected"),
        ("poll_s=0", "poll_s=0: a finite number above 0 expected"),
    ],
)
def test_a_number_out_of_range_is_refused_by_the_name_of_its_option(option: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        BACKENDS.create(f"sim:{option}")


# -- Executor ---------------------------------------------------------------------------------------------------------

DONE = Outcome(3.0, b"done")


@dataclass
class Bench:
    """A queue, an executor, and work of known run time that remembers when it was called."""

    queue: Simulated = field(default_factory=lambda: Simulated(nodes=4, cores=8, memory="32G", gpus=1, warmup=0.01))
    seconds_of: Callable[[Task], float | None] = lambda _task: 10.0
    outcome: Outcome = DONE

    def __post_init__(self) -> None:
        self.events: list[Event] = []
        self.called: list[tuple[int, float]] = []
        self.executor = self.queue.executor(self)
        self.executor.start(RunContext("run", Path(), ".", ()), lambda events, _=None: self.events.extend(events))
        self.began = self.queue.clock.now()

    def seconds(self, task: Task) -> float | None:
        return self.seconds_of(task)

    def call(self, task: Task) -> Outcome:
        self.called.append((task.index, self.queue.clock.now() - self.began))
        return self.outcome

    def allocate(self, needs: Resources, token: str = "a", walltime_s: float = 100.0) -> JobHandle:
        argv = self.executor.bootstrap(Allocation(token, needs, walltime_s), RunContext("run", Path(), ".", ()))
        (handle,) = self.queue.submit([JobRequest(token, needs, walltime_s, argv)])
        assert isinstance(handle, JobHandle), handle
        self.queue.sleep(0)
        return handle

    def launch(self, count: int, allocation: str = "a", **needs: Any) -> None:
        tasks = [Task("stage", index, "", b"", (), Resources(**needs)) for index in range(count)]
        self.executor.launch(tasks, allocation)

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> list[tuple[int, float]]:
        return [(event.index, event.at - self.began) for event in self.told(TaskDone)]


def test_nodes_join_when_the_job_starts_and_tasks_take_their_time() -> None:
    bench = Bench()
    bench.allocate(Resources(4, nodes=2))
    assert [(event.node, event.cores) for event in bench.told(NodeJoined)] == [("n0", 2), ("n1", 2)]
    bench.launch(6)
    bench.queue.sleep(60)
    assert bench.ends() == [(0, 10), (1, 10), (2, 10), (3, 10), (4, 20), (5, 20)]
    assert bench.called == bench.ends(), "what is known to take so long is called when it is over"
    first = bench.told(TaskDone)[0]
    assert (first.node, first.started, first.value, first.path) == ("n0", bench.began, b"done", None)


def test_a_task_of_unknown_run_time_takes_as_long_as_its_call() -> None:
    bench = Bench(seconds_of=lambda _task: None)
    bench.allocate(Resources(1))
    bench.launch(2)
    bench.queue.sleep(60)
    assert bench.ends() == [(0, 3), (1, 6)]
    assert bench.called == [(0, 0), (1, 3)]


def test_a_large_task_is_not_overtaken() -> None:
    bench = Bench()
    bench.allocate(Resources(4))
    bench.launch(1, cores=3)
    bench.launch(1, cores=4)
    bench.launch(1, cores=1)
    bench.queue.sleep(60)
    assert [at for _, at in bench.ends()] == [10, 20, 30]


def test_memory_and_gpus_count() -> None:
    bench = Bench()
    bench.allocate(Resources(4, memory=2**30, gpus=1))
    bench.launch(2, memory=2**29 + 1)
    bench.queue.sleep(30)
    assert [at for _, at in bench.ends()] == [10, 20]
    bench.launch(2, gpus=1)
    bench.queue.sleep(30)
    assert [at for _, at in bench.ends()] == [10, 20, 40, 50]


def test_a_task_spans_nodes() -> None:
    bench = Bench()
    bench.allocate(Resources(8, nodes=4))
    bench.launch(3, cores=4, nodes=2)
    bench.queue.sleep(30)
    assert [event.node for event in bench.told(TaskDone)] == ["n0", "n2", "n0"]
    assert [at for _, at in bench.ends()] == [10, 10, 20]


def test_cores_anywhere_start_in_uneven_pieces_where_whole_nodes_would_wait() -> None:
    bench = Bench()
    for token, cores in (("x", 7), ("y", 5), ("z", 4), ("v", 8)):
        bench.allocate(Resources(cores, nodes=1), token)
    whole = bench.allocate(Resources(8, nodes=1), "whole")
    bench.allocate(Resources(8, unit=1))
    joined = {event.node: event.cores for event in bench.told(NodeJoined) if event.allocation == "a"}
    assert joined == {"n0": 1, "n1": 3, "n2": 4}
    assert bench.queue.query([whole])[0].state is JobState.PENDING
    bench.launch(8)
    bench.launch(1, cores=8, unit=1)
    bench.queue.sleep(30)
    assert [at for _, at in bench.ends()] == [10] * 8 + [20]


def test_units_are_not_parted() -> None:
    bench = Bench()
    for token, cores in (("x", 7), ("y", 5), ("z", 4)):
        bench.allocate(Resources(cores, nodes=1), token)
    bench.allocate(Resources(14, unit=2))
    joined = {event.node: event.cores for event in bench.told(NodeJoined) if event.allocation == "a"}
    assert joined == {"n1": 2, "n2": 4, "n3": 8}


def test_a_task_that_no_node_holds_fails_at_once_and_the_next_one_runs() -> None:
    bench = Bench()
    bench.allocate(Resources(4, nodes=2))
    bench.launch(1, cores=4)
    bench.launch(1)
    bench.queue.sleep(30)
    (failed,) = bench.told(TaskFailed)
    assert "4 cores" in failed.error and "have: 2 + 2 cores" in failed.error
    assert not failed.infrastructure
    assert len(bench.ends()) == 1


def test_what_a_task_raised_is_reported() -> None:
    bench = Bench(outcome=Outcome(1.0, None, "ValueError: no", "Traceback ..."))
    bench.allocate(Resources(1))
    bench.launch(1)
    bench.queue.sleep(30)
    (failed,) = bench.told(TaskFailed)
    assert (failed.error, failed.traceback, failed.infrastructure) == ("ValueError: no", "Traceback ...", False)
    assert failed.at == bench.began + 10


def test_a_run_time_that_cannot_be_computed_fails_the_task() -> None:
    def fail(_task: Task) -> float:
        raise InvalidInput("run_time of stage 'stage' raised")

    bench = Bench(seconds_of=fail)
    bench.allocate(Resources(1))
    bench.launch(1)
    bench.queue.sleep(30)
    assert bench.told(TaskFailed)[0].error == "run_time of stage 'stage' raised"
    assert not bench.called


def test_the_wall_time_takes_tasks_along() -> None:
    bench = Bench()
    handle = bench.allocate(Resources(1), walltime_s=15.0)
    bench.launch(3)
    bench.queue.sleep(60)
    assert bench.queue.query([handle])[0].state is JobState.TIMEOUT
    assert bench.called == [(0, 10)], "what is not over is never called"
    lost = bench.told(TaskFailed)
    assert [(event.index, event.infrastructure, event.at - bench.began) for event in lost] == [
        (1, True, 15),
        (2, True, 15),
    ]
    kinds = [type(event) for event in bench.events]
    assert kinds == [NodeJoined, TaskDone, TaskFailed, TaskFailed, NodeLost]


def test_a_released_allocation_ends_well_and_reports_nothing_more() -> None:
    bench = Bench()
    handle = bench.allocate(Resources(2))
    bench.launch(3)
    bench.queue.sleep(5)
    bench.executor.release("a")
    bench.executor.release("a")
    bench.queue.sleep(60)
    status = bench.queue.query([handle])[0]
    assert (status.state, status.exit_code, status.ended) == (JobState.COMPLETED, 0, bench.began + 5)
    assert [type(event) for event in bench.events] == [NodeJoined]


def test_a_requeued_job_loses_its_node_and_gets_another() -> None:
    bench = Bench()
    handle = bench.allocate(Resources(1))
    bench.launch(1)
    bench.queue.sleep(5)
    operations.requeue(bench.queue.engine, int(handle.job_id))
    bench.queue.sleep(0)
    assert [type(event) for event in bench.events] == [NodeJoined, TaskFailed, NodeLost, NodeJoined]
    bench.launch(1)
    bench.queue.sleep(60)
    assert bench.ends() == [(0, 15)], "and the one that was lost does not end"


def test_an_allocation_that_is_not_there_takes_nothing() -> None:
    bench = Bench()
    bench.launch(1, "nobody")
    bench.executor.release("nobody")
    bench.queue.sleep(60)
    assert bench.events == []


def test_a_closed_executor_hears_nothing() -> None:
    bench = Bench()
    bench.executor.close()
    bench.allocate(Resources(1))
    bench.queue.sleep(60)
    assert bench.events == []


@pytest.mark.parametrize("cores", [1, 3, 8])
def test_cores_are_never_overcommitted(cores: int) -> None:
    bench = Bench(seconds_of=lambda task: 1.0 + task.index % 3)
    bench.allocate(Resources(8), walltime_s=1000.0)
    bench.launch(20, cores=cores)
    bench.queue.sleep(500)
    done = bench.told(TaskDone)
    assert len(done) == 20
    for at in {event.started for event in done}:
        assert sum(cores for event in done if event.started <= at < event.at) <= 8
