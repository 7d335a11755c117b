"""A simulated queue as a batch system."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from asa.core.decision import DispatchDecision
from asa.core.errors import BackendError, InvalidInput, Starved, UnknownName
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.registry import BACKENDS
from asa.lab.backend.simulated import Simulated
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy, Rule
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Settings
from asa.testing.backend_fake import FakeRun
from asa.testing.backends import BatchSemantics, TestedSite, run_of

INF = float("inf")


class PlainEasy:
    """EASY as somebody would write it who knows nothing of the compiled loop."""

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


class TestNodes(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        return site_of(tmp_path, nodes=2, cores=2)


class TestSingleCores(BatchSemantics):
    """Other people's jobs take single cores; so do ours."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        engine = Engine(Workload.of(submit=[0], run=[1], cores=[2], walltime=[1]), Cluster.of(2, 2))
        engine.drive(Rule(1.0, 100), until=1000.0)
        site = site_of(tmp_path, engine=engine)
        assert site.clock.now() == 1000.0
        return site


class TestMultifactor(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        return site_of(tmp_path, nodes=4, dispatcher="conservative", regime="accrue-always")


class TestPythonDispatcher(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        return site_of(tmp_path, nodes=4, dispatcher=PlainEasy())


class TestLearningPredictor(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        return site_of(tmp_path, nodes=4, predictor="last-two")


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
    edits.requeue(queue.engine, 0)
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
    edits.fail_node(engine, 0, at=5.0)
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


def test_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asa.lab.backend.simulated._PATIENCE_S", 0.01)
    queue = Simulated(nodes=4)
    assert queue.enter() is queue.clock
    with pytest.raises(BackendError, match="busy"):
        queue.enter()
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
def test_the_regime_is_told_and_kept(options: dict[str, Any], regime: QueueRegime) -> None:
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
    settings = Settings(priority="multifactor", overrun="allow")
    others = Workload.of(submit=[0], run=[1000], cores=[2], walltime=[10])
    engine = Engine(others, Cluster.of(2), settings)
    engine.drive(Rule(1.0, 100), until=500.0)
    queue = Simulated(engine=engine)
    assert queue.capabilities().regime is QueueRegime.LIMITS
    handle = submitted(queue, "job", 2, walltime_s=100.0)
    queue.sleep(5000)
    status = queue.query([handle])[0]
    assert (status.started, status.state, status.ended) == (1000.0, JobState.TIMEOUT, 1100.0)
