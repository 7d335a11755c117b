from __future__ import annotations

import math
import random
import sys
import types

import pytest

from asa.cli.main import main
from asa.core.context import Context, Geometry
from asa.core.errors import InvalidInput, StateError, UnknownName
from asa.core.ports import RunTimePredictor
from asa.core.registry import Registry
from asa.estimators import forest
from asa.estimators.waits import StageTimes, WaitRow, Waits
from asa.log.database import LearnedStore

SMALL, LARGE = Geometry("site", "core", 4, "1h"), Geometry("site", "core", 112, "1h")


class Scaled:
    """Says the last wait, times a factor."""

    def __init__(self, *, factor=1.0):
        self.factor, self.last = factor, 0.0

    def predict(self, context=None, quantile=None):
        return self.factor * self.last

    def learn(self, wait_s, predicted_s=None, context=None):
        self.last = wait_s

    def state(self):
        return {"last": self.last}

    def restore(self, state):
        if "last" not in state:
            raise InvalidInput("the state has no 'last'")
        self.last = state["last"]


class Dice:
    """Draws; keeps what it was told to have drawn."""

    def __init__(self, *, seed=0):
        self.random, self.told = random.Random(seed), []

    def predict(self, context=None, quantile=None):
        return self.random.random()

    def learn(self, wait_s, predicted_s=None, context=None):
        self.told.append(predicted_s)

    def state(self):
        version, numbers, gauss = self.random.getstate()
        return {"told": self.told, "generator": [version, list(numbers), gauss]}

    def restore(self, state):
        version, numbers, gauss = state["generator"]
        self.told = list(state["told"])
        self.random.setstate((version, tuple(numbers), gauss))


@pytest.fixture
def registry(monkeypatch):
    module = types.ModuleType("estimators_of_this_test")
    module.Scaled, module.Dice = Scaled, Dice
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Registry("estimator", {name.lower(): f"{module.__name__}:{name}" for name in ("Scaled", "Dice")})


@pytest.fixture
def store(tmp_path):
    return LearnedStore(tmp_path / "learned.db")


def test_each_geometry_learns_for_itself(store, registry):
    waits = Waits(store, "scaled", registry=registry)
    assert waits.learn(SMALL, "job-1", 60.0)
    assert waits.learn(LARGE, "job-2", 7000.0)
    assert (waits.predict(SMALL), waits.predict(LARGE)) == ([60.0], [7000.0])


def test_a_job_teaches_once(store, registry):
    waits = Waits(store, "scaled", registry=registry)
    assert waits.learn(SMALL, "job-1", 60.0)
    assert not waits.learn(SMALL, "job-1", 99.0)
    assert not Waits(store, "scaled:factor=2", registry=registry).learn(SMALL, "job-1", 99.0)
    assert waits.predict(SMALL) == [60.0]


def test_what_was_learned_is_shared_by_later_runs(store, registry, tmp_path):
    Waits(store, "scaled", registry=registry).learn(SMALL, "job-1", 60.0)
    later = Waits(LearnedStore(tmp_path / "learned.db"), "scaled", registry=registry)
    assert later.predict(SMALL) == [60.0]


def test_options_keep_states_apart_but_their_order_does_not(store, registry):
    Waits(store, "scaled:factor=2", registry=registry).learn(SMALL, "job-1", 60.0)
    assert Waits(store, "scaled: factor = 2", registry=registry).predict(SMALL) == [120.0]
    assert Waits(store, "scaled:factor=3", registry=registry).predict(SMALL) == [0.0]
    assert Waits(store, "scaled", registry=registry).predict(SMALL) == [0.0]


def test_draws_go_on_where_they_stopped(store, registry, tmp_path):
    expected = Dice(seed=7)
    drawn = [expected.predict() for _ in range(3)]
    first = Waits(store, "dice", seed=7, registry=registry)
    again = Waits(LearnedStore(tmp_path / "learned.db"), "dice", seed=7, registry=registry)
    assert [*first.predict(SMALL), *again.predict(SMALL, quantiles=(0.1, None))] == drawn
    first.learn(SMALL, "job-1", 5.0, drawn[0])
    assert store.get(f"waits {SMALL}")["states"]["dice"]["told"] == [drawn[0]]
    assert again.predict(SMALL) == [expected.predict()]


def test_asking_one_that_does_not_draw_writes_nothing_and_waits_for_nobody(store, registry, monkeypatch):
    waits = Waits(store, "scaled", registry=registry)
    assert waits.predict(SMALL) == [0.0]
    assert store.keys() == []
    waits.learn(SMALL, "job-1", 60.0)
    monkeypatch.delattr(LearnedStore, "update")
    assert waits.predict(SMALL, quantiles=(0.1, 0.9)) == [60.0, 60.0]


def test_the_table_tells_all_and_draws_nothing(store, registry):
    dice, scaled = (Waits(store, spec, seed=7, registry=registry) for spec in ("dice", "scaled:factor=2"))
    assert dice.table() == []
    scaled.learn(LARGE, "job-1", 60.0)
    scaled.learn(SMALL, "job-2", 10.0)
    (first,) = dice.predict(SMALL)
    dice.learn(SMALL, "job-3", 20.0, first)
    draw = Dice(seed=7)
    assert draw.predict() == first
    assert dice.table() == dice.table() == [
        WaitRow(SMALL, 2, 20.0, {"scaled:factor=2": 20.0, "dice": draw.predict()}),
        WaitRow(LARGE, 1, 60.0, {"scaled:factor=2": 120.0}),
    ]  # fmt: skip


def test_the_table_stands_estimators_that_are_gone(store, registry):
    Waits(store, "scaled", registry=registry).learn(SMALL, "job-1", 60.0)
    less = Registry("estimator", {"dice": "estimators_of_this_test:Dice"})
    assert Waits(store, "dice", registry=less).table() == [WaitRow(SMALL, 1, 60.0, {"scaled": None})]


def test_other_records_of_the_store_are_left_alone(store, registry):
    store.update("runtime a", lambda record: {"last": [1.0]})
    assert Waits(store, "scaled", registry=registry).table() == []


def test_unknown_estimators_and_options_are_named_at_once(store, registry):
    with pytest.raises(UnknownName, match="did you mean 'scaled'"):
        Waits(store, "scale", registry=registry)
    with pytest.raises(UnknownName, match="facto"):
        Waits(store, "scaled:facto=2", registry=registry)


def test_a_state_that_does_not_fit_is_named(store, registry):
    store.update(f"waits {SMALL}", lambda record: {"jobs": 1, "states": {"scaled": {"first": 1.0}}})
    waits = Waits(store, "scaled", registry=registry)
    with pytest.raises(StateError, match=rf"what scaled learned about {SMALL} cannot be used: the state has no 'last'"):
        waits.predict(SMALL)
    assert waits.table() == [WaitRow(SMALL, 1, None, {"scaled": None})]


@pytest.mark.parametrize("wait_s", [-1.0, math.inf, math.nan])
def test_a_wait_that_is_none_teaches_nothing(store, registry, wait_s):
    waits = Waits(store, "scaled", registry=registry)
    with pytest.raises(InvalidInput, match="wait_s"):
        waits.learn(SMALL, "job-1", wait_s)
    assert waits.learn(SMALL, "job-1", 1.0)


@pytest.mark.parametrize("spec", ["fixed-share", "fixed-share:eta=8", "algorithm1:sampling=tuned", "median"])
def test_the_built_in_estimators_survive_the_store(store, spec):
    waits = Waits(store, spec, seed=3)
    for job in range(6):
        (predicted,) = waits.predict(SMALL)
        assert waits.learn(SMALL, f"job-{job}", 1200.0, predicted)
    (row,) = waits.table()
    assert (row.jobs, row.last_wait_s, list(row.predictions)) == (6, 1200.0, [spec])
    assert math.isfinite(*waits.predict(SMALL))


def test_fixed_share_through_the_store_learns_as_it_does_in_memory(store):
    from asa.estimators.fixedshare import FixedShare

    alone, waits = FixedShare(), Waits(store)
    for job, wait_s in enumerate([20.0] * 5 + [7000.0] * 3 + [60.0, 3.0]):
        alone.learn(wait_s)
        waits.learn(SMALL, f"job-{job}", wait_s)
        assert waits.predict(SMALL) == [alone.predict()]


def test_pooled_estimators_are_kept_for_the_queue_and_tell_jobs_by_their_contexts(store):
    waits = Waits(store, "context")
    for job in range(30):
        geometry, wait_s = (SMALL, 5.0) if job % 2 else (LARGE, 9000.0)
        context = Context(at=20_000.0 * job, cores=geometry.cores)
        assert waits.learn(geometry, f"job-{job}", wait_s, None, context)
        assert not waits.learn(geometry, f"job-{job}", wait_s, None, context)
    assert store.keys("pooled waits ") == ["pooled waits site/core"]
    small, large = (Context(at=1e6, cores=cores) for cores in (4, 112))
    assert waits.predict(SMALL, small) == [5.0]
    assert waits.predict(SMALL, large) == [9000.0]
    assert waits.predict(LARGE, large, (0.9, None)) == [9000.0, 9000.0]
    assert waits.table() == [
        WaitRow(SMALL, 15, 5.0, {"context": 5.0}),
        WaitRow(LARGE, 15, 9000.0, {"context": 9000.0}),
    ]


def test_pooled_estimators_share_the_count_of_jobs_with_others(store):
    last, pooled = Waits(store, "last"), Waits(store, "context")
    assert last.learn(SMALL, "job-1", 60.0)
    assert pooled.learn(SMALL, "job-1", 60.0, None, Context(at=0.0, cores=4))
    assert pooled.table() == [WaitRow(SMALL, 1, 60.0, {"last": 60.0, "context": 60.0})]


@pytest.mark.parametrize("spec", ["last", "context"])
def test_the_wall_times_that_were_asked_for_are_shown_and_teach_nothing(store, tmp_path, monkeypatch, capsys, spec):
    waits, short = Waits(store, spec), Geometry("site", "core", 4, "15m")
    for job, (walltime_s, shown) in enumerate(
        [(None, "-"), (120.0, "2 min"), (120.0, "2 min"), (300.0, "2 min to 5 min")]
    ):
        waits.learn(short, f"job-{job}", 60.0, None, Context(at=float(job), cores=4), walltime_s)
        monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
        assert main(["waits"]) == 0
        header, row = capsys.readouterr().out.splitlines()
        at = [header.index(name) for name in ("wall_time", "class", "jobs")]
        assert [row[at[0] : at[1]].strip(), row[at[1] : at[2]].strip()] == [shown, "15m"]
    assert waits.table() == [WaitRow(short, 4, 60.0, {spec: 60.0}, (120.0, 300.0))]


def test_processes_that_share_a_store_learn_and_predict_as_one_that_reads_it_each_time(tmp_path):
    """What one keeps in memory between lessons never outlives a lesson of another."""
    rng, asked = random.Random(5), LearnedStore(tmp_path / "asked.db")
    several = [Waits(LearnedStore(tmp_path / "shared.db"), "context") for _ in range(2)]
    for number in range(80):
        job = Context(at=60.0 * number, cores=rng.choice([4, 112]), walltime_s=3600.0, queued=rng.randrange(9))
        geometry = LARGE if job.cores == 112 else SMALL
        there, fresh = rng.choice(several), Waits(asked, "context")
        for waits in (there, fresh):
            waits.learn(geometry, f"job-{number}", 10.0 * number * job.cores % 997, context=job)
        later = Context(at=1e5 + number, cores=job.cores, queued=rng.randrange(9))
        expected = Waits(asked, "context").predict(geometry, later, (0.2, None))
        assert [waits.predict(geometry, later, (0.2, None)) for waits in several] == [expected] * 2
    assert list(several[0].table()) == list(Waits(asked, "context").table())


def test_trees_are_grown_when_enough_was_learned_not_for_each_prediction(store, monkeypatch):
    grown, grow = [], forest.grow
    monkeypatch.setattr(forest, "grow", lambda *given: grown.append(given) or grow(*given))
    waits = Waits(store, "context")
    for number in range(60):
        job = Context(at=60.0 * number, cores=4)
        waits.learn(SMALL, f"job-{number}", float(number), context=job)
        for _ in range(3):
            waits.predict(SMALL, job)
    assert len(grown) == 11  # after 10 jobs, then for each fifth more: 12, 14, 16, 19 ...


def test_what_was_learned_is_known_where_time_begins_anew(store):
    """As in virtual time, with each run."""
    waits = Waits(store, "context")
    for job in range(5):
        waits.learn(SMALL, f"job-{job}", 60.0, None, Context(at=1e6 + job, cores=4))
    assert waits.predict(SMALL, Context(at=0.0, cores=4)) == [60.0]


def test_pooled_estimators_learn_without_a_context_and_say_something_to_any_geometry(store):
    waits = Waits(store, "context")
    assert waits.learn(SMALL, "job-1", 60.0)
    longest = Geometry("site", "core", 4, "longer")
    assert waits.predict(longest) == waits.predict(longest, Context(at=0.0)) == [60.0]
    assert waits.learn(longest, "job-2", 80.0)
    assert [row.geometry for row in waits.table()] == [SMALL, longest]


@pytest.fixture
def predictor(tmp_path):
    return StageTimes(LearnedStore(tmp_path / "learned.db"))


def test_the_wall_time_until_something_is_known(predictor):
    port: RunTimePredictor = predictor
    assert port.predict("montage/project", 3600.0) == 3600.0


def test_mean_of_the_last_two_of_that_key(predictor):
    predictor.learn("a", 100.0)
    assert predictor.predict("a", 3600.0) == 100.0
    predictor.learn("a", 200.0)
    predictor.learn("a", 400.0)
    predictor.learn("b", 1.0)
    assert predictor.predict("a", 3600.0) == 300.0


def test_never_above_the_wall_time(predictor):
    predictor.learn("a", 500.0)
    assert predictor.predict("a", 60.0) == 60.0


def test_shared_through_the_store(predictor, tmp_path):
    predictor.learn("a", 0.0)
    assert StageTimes(LearnedStore(tmp_path / "learned.db")).predict("a", 60.0) == 0.0


@pytest.mark.parametrize("run_time_s", [-1.0, math.inf, math.nan])
def test_run_times_that_are_none(predictor, run_time_s):
    with pytest.raises(InvalidInput, match="run_time_s"):
        predictor.learn("a", run_time_s)
    with pytest.raises(InvalidInput, match="walltime_s"):
        predictor.predict("a", 0.0)
