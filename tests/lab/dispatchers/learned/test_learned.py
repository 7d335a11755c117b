"""Dispatchers that learn: the frame, and what networks see and say."""

from __future__ import annotations

import pytest

pytest.importorskip("safetensors", reason="needs the extra 'learn'")

import json
import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from asa.core.decision import Reserve, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.registry import MODELS
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import (
    SLOPE,
    DecimaPg,
    DrasDql,
    DrasModel,
    DrasPg,
    NetworkShape,
    Rows,
    Selecting,
    SelectionPolicy,
    job_rows,
    node_rows,
    observe,
    one_by_one,
    read_model,
)
from asa.lab.dispatchers.learned.selection import Memory, Mode, QueueColumns, Selection, Turns, queue_of
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.policies import NODES, at_random, first, largest, smallest, workloads, youngest
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dispatchers.views import Job, node_view, queue_view

# -- Selection --------------------------------------------------------------------------------------------------------

ONE = Resources(cores=1)


def test_a_table_and_objects_say_the_same() -> None:
    engine = Engine(Workload.of(submit=[0, 3], run=[9, 9], cores=[3, 2], walltime=[10, 20]), Cluster.of(4))
    engine.advance()
    engine.apply([Start(0)])
    table = engine.advance()
    assert table is not None
    objects = QueueView(table.now, table.capacity, table.queue, table.running)
    for found in (queue_of(table), queue_of(objects)):
        assert (found.now, list(found.keys), found.free, found.total) == (3.0, [1], 1, 4)
        columns = (found.size, found.estimate, found.wait, found.priority, found.ends, found.held)
        assert [column.tolist() for column in columns] == [[2], [20], [0], [0], [10], [3]]


def test_an_overdue_job_ends_now() -> None:
    view = QueueView(50.0, Resources(cores=2), (), (RunningJob("R", ONE, 40.0),))
    assert queue_of(view).ends.tolist() == [50.0]


def test_what_it_does_not_know() -> None:
    with pytest.raises(InvalidInput, match="equal nodes"):
        queue_of(node_view([Job(1)], [[8, 4]], demands=((1, 1),)))
    with pytest.raises(InvalidInput, match="job 1 has no wall time"):
        queue_of(queue_view([Job(1), Job(1, estimate=np.nan)], free=1, total=2))
    greedy = QueuedJob("A", Resources(cores=1, gpus=1), 60.0, 0.0)
    with pytest.raises(InvalidInput, match="memory or GPUs"):
        queue_of(QueueView(0.0, Resources(cores=4, gpus=4), (greedy,), ()))


def queue(*jobs: tuple[int, float], free: int = 4, running: tuple[tuple[float, int], ...] = ()) -> QueueColumns:
    """Jobs A, B, ... of (size, estimate) at time 100; what runs as (end, nodes)."""
    size, estimate = np.array([job[0] for job in jobs]), np.array([float(job[1]) for job in jobs])
    ends, held = np.array([float(end) for end, _ in running]), np.array([nodes for _, nodes in running], dtype=int)
    zeros = np.zeros(len(jobs))
    keys = "ABCDEFGHIJ"[: len(jobs)]
    return QueueColumns(100.0, list(keys), size, estimate, zeros, zeros, free, free + int(held.sum()), ends, held)


def test_two_levels() -> None:
    """B starts, the blocked A is reserved for; what does not delay A fills the gaps: D by its end, E by its size."""
    found = queue((6, 50), (2, 10), (2, 999), (1, 30), (1, 999), free=4, running=((130, 3),))
    selection = Selection(found, 5, Memory())
    assert selection.places.tolist() == [0, 1, 2, 3, 4] and selection.mask.all()
    assert selection.select(1) == (1, Mode.READY)
    assert selection.places.tolist() == [0, 2, 3, 4] and selection.mask.tolist() == [True] * 4 + [False]
    assert selection.select(0) == (0, Mode.RESERVED)
    assert selection.decisions == [Start("B"), Reserve("A", 130.0)]
    # At 130 seven nodes are free: one is spare. C would take two.
    assert selection.places.tolist() == [3, 4]
    assert selection.select(1) == (4, Mode.BACKFILLED)
    assert selection.places.tolist() == [3]  # the spare node is gone, but D ends in time
    assert selection.select(0) == (3, Mode.BACKFILLED)
    assert selection.over and selection.waiting.tolist() == [True, False, True, False, False]


def test_the_job_that_was_selected_is_reserved_for_not_the_first_one() -> None:
    memory = Memory()
    selection = Selection(queue((5, 10), (6, 10), free=4, running=((130, 1), (150, 1))), 2, memory)
    selection.select(1)
    assert selection.decisions == [Reserve("B", 150.0)] and memory.reserved == "B"


def test_level_2_looks_at_the_whole_queue() -> None:
    found = queue((5, 10), (5, 10), (5, 10), (1, 10), free=4, running=((130, 1),))
    selection = Selection(found, 2, Memory())
    assert selection.places.tolist() == [0, 1]
    selection.select(0)
    assert selection.places.tolist() == [3]


def test_a_reservation_holds() -> None:
    memory = Memory(reserved="B")
    selection = Selection(queue((5, 10), (6, 10), (1, 10), free=4, running=((130, 2),)), 3, memory)
    assert selection.decisions == [Reserve("B", 130.0)] and selection.places.tolist() == [2]
    selection = Selection(queue((5, 10), (6, 10), free=7), 3, memory)
    assert selection.decisions == [Start("B")] and memory.reserved is None
    assert selection.places.tolist() == [0]
    assert Selection(queue((5, 10)), 3, Memory(reserved="Z")).decisions == []  # it was cancelled


def test_patience() -> None:
    """Two reservations for others; then only the head of the queue is left to select."""
    memory = Memory(Turns(patience=2))
    for passed in (1, 2):
        selection = Selection(queue((6, 10), (5, 10), free=4, running=((130, 2),)), 2, memory)
        assert selection.places.tolist() == [0, 1]
        selection.select(1)
        assert memory.passed == passed
        memory.reserved = None  # it has started
    selection = Selection(queue((6, 10), (5, 10), free=4, running=((130, 2),)), 2, memory)
    assert selection.places.tolist() == [0]
    selection.select(0)
    assert memory.passed == 0


def waited(*hours: float) -> QueueColumns:
    """A cannot start before 130; B, C and D can."""
    found = queue((6, 10), (2, 10), (1, 10), (1, 10), free=4, running=((130, 2),))
    return replace(found, wait=3600.0 * np.array(hours))


def test_overdue_jobs_come_first_at_both_levels() -> None:
    selection = Selection(waited(3, 1, 3, 3), 4, Memory(Turns(threshold=7200.0)))
    assert selection.places.tolist() == [0]
    assert selection.select(0).mode is Mode.RESERVED
    assert selection.places.tolist() == [2]
    selection.select(0)
    assert selection.places.tolist() == [3]
    selection.select(0)
    assert selection.places.tolist() == [1]
    assert Selection(waited(2, 1, 1, 1), 4, Memory(Turns(threshold=7200.0))).places.tolist() == [0, 1, 2, 3]


def test_a_reservation_need_not_hold() -> None:
    memory = Memory(Turns(keeps=False), reserved="A")
    selection = Selection(waited(0, 0, 0, 0), 4, memory)
    assert selection.decisions == [] and memory.reserved is None and selection.places.tolist() == [0, 1, 2, 3]


def test_without_levels_what_does_not_fit_is_masked() -> None:
    selection = Selection(queue((6, 10), (3, 10), (2, 10), free=4, running=((130, 2),)), 2, Memory(), levels=False)
    assert selection.places.tolist() == [0, 1] and selection.mask.tolist() == [False, True]
    assert selection.select(1).mode is Mode.READY
    assert selection.over and selection.decisions == [Start("B")]


def test_a_job_larger_than_the_machine_is_passed_over() -> None:
    assert Selection(queue((9, 10), free=4), 3, Memory()).over


def test_what_is_refused() -> None:
    selection = Selection(queue((1, 10)), 3, Memory())
    for action in (-1, 1, 3):
        with pytest.raises(InvalidInput, match=r"masked: \[0\] are"):
            selection.select(action)
    with pytest.raises(InvalidInput, match="at least 1 job"):
        Selection(queue((1, 10)), 0, Memory())
    for patience in (-1.0, float("nan")):
        with pytest.raises(InvalidInput, match="patience"):
            Turns(patience)
    for threshold in (0.0, float("nan")):
        with pytest.raises(InvalidInput, match="threshold"):
            Turns(threshold=threshold)


SIZES = st.tuples(st.integers(1, 9), st.sampled_from([5.0, 20.0, 50.0, 200.0]))


@UNTIMED
@given(
    st.lists(SIZES, min_size=1, max_size=10),
    st.lists(st.tuples(st.sampled_from([110.0, 120.0, 150.0]), st.integers(1, 3)), max_size=4),
    st.integers(0, 6),
    st.integers(1, 12),
    st.booleans(),
    st.data(),
)
def test_whatever_is_selected(jobs, running, free, window, levels, data) -> None:
    """Only actions of the mask are taken; what starts fits; and the reserved job is not delayed, by brute force."""
    found = queue(*jobs, free=free, running=tuple(running))
    selection = Selection(found, window, Memory(), levels=levels)
    while not selection.over:
        assert selection.mask.shape == (window,) and selection.mask.sum() <= len(selection.places)
        masked = np.flatnonzero(~selection.mask).tolist()
        if masked:
            with pytest.raises(InvalidInput, match="masked"):
                selection.select(data.draw(st.sampled_from(masked)))
        selection.select(data.draw(st.sampled_from(np.flatnonzero(selection.mask).tolist())))
    started = {found.keys.index(each.job) for each in selection.decisions if isinstance(each, Start)}
    assert len(started) == sum(isinstance(each, Start) for each in selection.decisions)
    assert found.size[sorted(started)].sum() <= free
    promises = [each for each in selection.decisions if isinstance(each, Reserve)]
    assert len(promises) <= levels
    for promise in promises:
        place = found.keys.index(promise.job)
        ends = [*running, *((100 + found.estimate[one], found.size[one]) for one in started)]
        there = {at: free - found.size[sorted(started)].sum() + sum(n for end, n in ends if end <= at)
                 for at in (end for end, _ in ends)}  # fmt: skip
        assert there[promise.at] >= found.size[place]
        before = [end for end, _ in running if end < promise.at]
        alone = free + sum(n for end, n in running if end in before)
        ready = selection.decisions[: selection.decisions.index(promise)]
        alone -= sum(
            found.size[found.keys.index(e.job)]
            for e in ready
            if 100 + found.estimate[found.keys.index(e.job)] >= promise.at
        )
        assert alone < found.size[place]  # it could not have been promised an earlier time


# -- Dras -------------------------------------------------------------------------------------------------------------

MACHINE = Cluster.of(NODES)


def model_of(kind: str, *, nodes: int = NODES, levels: bool = True, seed: int = 0) -> DrasModel:
    shape = NetworkShape(kind, nodes=nodes, window=4, hidden=(6, 3), scaling="shares", levels=levels)
    draw = np.random.default_rng(seed)
    return DrasModel(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def dispatchers() -> list[Selecting]:
    decima = DecimaPg(model_of("pg", levels=False))
    return [DrasPg(model_of("pg")), DrasPg(model_of("pg"), greedy=True), DrasDql(model_of("dql")), decima]


@UNTIMED
@given(workloads())
def test_who_always_takes_the_first_job_is_easy(jobs: Workload) -> None:
    assert simulate(jobs, MACHINE, Selecting(first)).start.tolist() == simulate(jobs, MACHINE, "easy").start.tolist()


@pytest.mark.slow
@UNTIMED
@given(workloads(), st.sampled_from(range(4)))
def test_models_start_every_job(jobs: Workload, which: int) -> None:
    assert np.isfinite(simulate(jobs, MACHINE, dispatchers()[which]).start).all()


class Promises:
    """Passes decisions on, and keeps the first promise of each job."""

    needs_estimates = True

    def __init__(self, inner: Selecting) -> None:
        self.inner, self.promised = inner, dict[object, float]()

    def decide(self, view):
        decisions = self.inner.decide(view)
        for each in decisions:
            if isinstance(each, Reserve):
                self.promised.setdefault(each.job, each.at)
        return decisions


POLICIES = st.one_of(st.sampled_from([first, largest, smallest, youngest]), st.builds(at_random, st.integers(0, 99)))


@pytest.mark.slow
@UNTIMED
@given(workloads(), POLICIES, st.sampled_from([0, 1, 3, math.inf]), st.integers(1, 30))
def test_no_job_starts_later_than_first_promised(
    jobs: Workload, policy: SelectionPolicy, patience: float, window: int
) -> None:
    watched = Promises(Selecting(policy, Rows(window), turns=Turns(patience)))
    start = simulate(jobs, MACHINE, watched).start
    assert all(start[row] <= at for row, at in watched.promised.items())


@UNTIMED
@given(workloads(), POLICIES, st.integers(0, 3))
def test_reservations_bound_the_wait(jobs: Workload, policy: SelectionPolicy, patience: int) -> None:
    """Of whatever policy: each job ahead of one costs it at most patience + 2 of the longest wall times."""
    schedule = simulate(jobs, MACHINE, Selecting(policy, turns=Turns(patience)))
    longest = float(jobs.walltime.max())
    for row in range(len(jobs)):
        ahead = int((schedule.start[:row] > jobs.submit[row]).sum())
        assert schedule.wait[row] <= (ahead + 1) * (patience + 2) * longest


@UNTIMED
@given(workloads(), POLICIES, st.sampled_from([1.0, 20.0, 100.0]), st.booleans())
def test_a_threshold_bounds_the_wait(jobs: Workload, policy: SelectionPolicy, threshold: float, keeps: bool) -> None:
    """Of whatever policy: by the threshold, and one of the longest wall times for itself and each job ahead of it."""
    schedule = simulate(jobs, MACHINE, Selecting(policy, turns=Turns(threshold=threshold, keeps=keeps)))
    longest = float(jobs.walltime.max())
    for row in range(len(jobs)):
        ahead = int((schedule.start[:row] > jobs.submit[row]).sum())
        assert schedule.wait[row] <= threshold + (ahead + 1 + keeps) * longest


LARGE = 26
"""Row of the large job of an adversary: so many small ones have come before it."""


def adversary(jobs: int) -> Workload:
    """For ever jobs of half of the machine, more than can run; and one of all of it, when some wait."""
    small = np.arange(jobs - 1)
    return Workload.of(
        submit=[101.0, *(4.0 * small)],
        run=[10.0] * jobs,
        cores=[NODES, *([NODES // 2] * (jobs - 1))],
        walltime=[10.0] * jobs,
    )


@pytest.mark.parametrize("policy", [smallest, youngest])
def test_an_adversary_starves_a_job_only_where_nothing_ends_it(policy: SelectionPolicy) -> None:
    """With half as many jobs again it waits as long, or, without levels or patience, longer."""
    waits = {}
    for name, options in {
        "none": {"levels": False},
        "paper": {"turns": Turns()},
        "patient": {"turns": Turns(5)},
        "prompt": {"turns": Turns(threshold=60.0)},
    }.items():
        waits[name] = [
            float(simulate(adversary(jobs), MACHINE, Selecting(policy, **options)).wait[LARGE]) for jobs in (100, 150)
        ]
    assert waits["none"][1] > 1.3 * waits["none"][0] > 300
    assert waits["paper"][1] > 1.3 * waits["paper"][0] > 300
    assert waits["patient"][0] == waits["patient"][1] <= 7 * (5 + 2) * 10  # six were before it
    assert waits["prompt"][0] == waits["prompt"][1] <= 60 + 8 * 10


def test_a_seed_makes_the_same_draws_and_another_does_not() -> None:
    draw = np.random.default_rng(3)
    run = draw.integers(1, 50, 80)
    jobs = Workload.of(submit=np.arange(80), run=run, cores=draw.integers(1, 9, 80), walltime=run)
    one, same, other = (simulate(jobs, MACHINE, DrasPg(model_of("pg"), seed=seed)).start.tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_an_earlier_view_begins_another_life() -> None:
    jobs = Workload.of(submit=[5, 6, 7], run=[9, 9, 9], cores=[8, 8, 1], walltime=[9, 9, 9])
    dispatcher = Selecting(largest)
    assert simulate(jobs, MACHINE, dispatcher).start.tolist() == simulate(jobs, MACHINE, dispatcher).start.tolist()


def test_bad_dras_models_and_options_are_refused(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="model=FILE"):
        DrasPg()
    with pytest.raises(InvalidInput, match="'pg' with 2 levels: 'dql' with 2 expected"):
        DrasDql(model_of("pg"))
    with pytest.raises(InvalidInput, match="'pg' with 2 levels: 'pg' with 0 expected"):
        DecimaPg(model_of("pg"))
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    with pytest.raises(InvalidInput, match="machine of 9 nodes, not 8"):
        simulate(jobs, MACHINE, DrasPg(model_of("pg", nodes=9)))
    without = Workload.of(submit=[0], run=[1], cores=[1])
    with pytest.raises(InvalidInput, match="no requested time"):
        simulate(without, MACHINE, DrasPg(model_of("pg")))


CORI = (10_000, 4_000)


def random_model(shape: NetworkShape, seed: int = 0) -> DrasModel:
    draw = np.random.default_rng(seed)
    return DrasModel(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def test_the_paper_s_numbers_of_parameters() -> None:
    """Table III; on Cori it prints 161,764,004 for DRAS-DQL, which its own input does not give."""
    assert NetworkShape("pg", 4360).parameters == 21_890_053
    assert NetworkShape("dql", 4360).parameters == 21_449_004
    assert NetworkShape("pg", 12_076, hidden=CORI).parameters == 161_960_053
    assert NetworkShape("dql", 12_076, hidden=CORI).parameters == 160_784_004


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_scores_by_the_definition(kind: str) -> None:
    """One unit after the other, one job after the other."""
    shape = NetworkShape(kind, nodes=4, window=3, hidden=(5, 2))
    model, seen = random_model(shape), np.random.default_rng(1).normal(size=(10, 2)).astype(np.float32)
    t, leaky = model.tensors, lambda x: x if x > 0 else SLOPE * x
    expected = []
    for rows in [seen] if kind == "pg" else one_by_one(seen, 3):
        values = [t["filter.weight"][0] @ row + t["filter.bias"][0] for row in rows]
        for layer in ("first", "second"):
            values = [leaky(weights @ np.array(values)) for weights in t[f"{layer}.weight"]]
        expected += [t["output.weight"][k] @ np.array(values) + t["output.bias"][k] for k in range(shape.jobs)]
    assert model.scores(seen) == pytest.approx(np.array(expected), rel=1e-4)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_a_file_gives_the_model_back(kind: str, tmp_path) -> None:
    model = random_model(NetworkShape(kind, nodes=4, window=3, hidden=(5, 2), scaling="shares", levels=kind == "dql"))
    model.save(tmp_path / "m")
    found = read_model(tmp_path / "m")
    assert found.shape == model.shape and found.tensors.keys() == model.tensors.keys()
    assert all(np.array_equal(found.tensors[name], model.tensors[name]) for name in model.tensors)
    model.save(tmp_path / "again")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()


def test_what_is_refused_model(tmp_path) -> None:
    path, good = tmp_path / "m", random_model(NetworkShape("pg", nodes=4, window=3, hidden=(5, 2)))
    with pytest.raises(InvalidInput, match=r"m: .*Expected a file that asa train dras wrote"):
        read_model(path)
    path.write_bytes(b"\x80\x04nothing to unpickle")
    with pytest.raises(InvalidInput, match="Expected a file that asa train dras wrote"):
        read_model(path)
    save_file(dict(good.tensors), path)
    with pytest.raises(InvalidInput, match="Expected a file that asa train dras wrote"):
        read_model(path)
    about = {"kind": "pg", "nodes": 5, "window": 3, "hidden": [5, 2], "scaling": "raw", "levels": True}
    save_file(dict(good.tensors), path, metadata={"asa": json.dumps(about)})
    with pytest.raises(InvalidInput, match=r"first.weight: \(5, 10\); shape \(5, 11\) expected"):
        read_model(path)
    with pytest.raises(InvalidInput, match="no such tensor"):
        DrasModel(good.shape, {})
    with pytest.raises(UnknownName, match="pg"):
        NetworkShape("pgg", 4)
    with pytest.raises(UnknownName, match="raw"):
        NetworkShape("pg", 4, scaling="no")
    with pytest.raises(InvalidInput, match="at least 1"):
        NetworkShape("pg", 0)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_models_of_the_distribution_are_what_their_curves_say(kind: str) -> None:
    found = read_model(f"theta-{kind}")
    about = json.loads(MODELS.load(f"theta-{kind}").with_suffix(".json").read_text())
    plan = about["plan"]
    assert found.shape == NetworkShape(kind, 4392, plan["window"], tuple(plan["hidden"]), plan["scaling"])
    assert about["best"] == max(about["curve"], key=lambda point: point["validation_reward"])["episode"]
    assert all(np.isfinite(values).all() for values in found.tensors.values())
    assert f"--seed {plan['seed']}" in about["command"] and plan["objective"] in about["command"]


def test_a_file_of_the_same_name_is_meant_first(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    random_model(NetworkShape("pg", nodes=4, window=3, hidden=(5, 2))).save("theta-pg")
    assert read_model("theta-pg").shape.nodes == 4


QUEUE = QueueColumns(
    now=1000.0,
    keys=["A", "B", "C"],
    size=np.array([4, 1, 2]),
    estimate=np.array([3600.0, 60.0, 86400.0]),
    wait=np.array([500.0, 10.0, 0.0]),
    priority=np.array([1.0, 0.0, 0.0]),
    free=2,
    total=6,
    ends=np.array([1300.0, 1100.0]),
    held=np.array([2, 1]),
)
FEW_NODES = [[1, 0], [1, 0], [0, 100], [0, 300], [0, 300], [0, 0]]
"""Two are free, one is back at 1100, two at 1300, and one is down."""


def test_a_hand_written_example() -> None:
    seen = observe(QUEUE, np.array([0, 1]), window=3)
    jobs = [[4, 3600], [1, 500], [1, 60], [0, 10], [0, 0], [0, 0]]
    assert seen.tolist() == jobs + FEW_NODES and seen.dtype == np.float32 and seen.shape == (2 * 3 + 6, 2)


def test_it_shows_the_jobs_at_these_places() -> None:
    assert observe(QUEUE, np.array([2]), window=1)[:2].tolist() == [[2, 86400], [0, 0]]


def test_shares_are_of_the_machine_and_of_a_day() -> None:
    seen = observe(QUEUE, np.array([0, 2]), window=2, scaling="shares")
    assert seen[:4] == pytest.approx(np.array([[4 / 6, 1 / 24], [1, 500 / 86400], [2 / 6, 1], [0, 0]]))
    assert seen[4:] == pytest.approx(np.array(FEW_NODES) / [1, 86400])


def test_each_job_on_its_own_with_all_nodes() -> None:
    seen = one_by_one(observe(QUEUE, np.arange(3), window=3), window=3)
    assert seen.shape == (3, 2 + 6, 2)
    assert seen[1].tolist() == [[1, 60], [0, 10], *FEW_NODES]


def test_nothing_waits_and_nothing_runs() -> None:
    none = np.zeros(0)
    assert not job_rows(none.astype(int), none, none, none, window=2).any()
    assert node_rows(5.0, 3, 3, none, none.astype(int)).tolist() == [[1, 0]] * 3


def test_the_paper_s_shapes() -> None:
    """Table III: [4460, 2] and [4362, 2] on Theta."""
    none = np.zeros(0)
    theta = QueueColumns(0.0, [], none.astype(int), none, none, none, 4360, 4360, none, none.astype(int))
    seen = observe(theta, none.astype(int), window=50)
    assert seen.shape == (4460, 2) and one_by_one(seen, 50).shape == (50, 4362, 2)


def test_an_unknown_scaling() -> None:
    with pytest.raises(UnknownName, match="raw, shares"):
        observe(QUEUE, np.array([0]), window=1, scaling="share")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"window": 0}, InvalidInput, "the window must have room for at least 1 job, not 0"),
        ({"scaling": "rwa"}, UnknownName, "unknown scaling 'rwa'.*did you mean 'raw'"),
    ],
)
def test_sights_that_make_no_sense_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        Rows(**options)
