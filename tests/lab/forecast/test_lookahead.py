from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Resources
from asa.core.registry import ESTIMATORS
from asa.core.view import QueueView
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.forecast.futures import Ahead, visible
from asa.lab.forecast.lookahead import MOST, Correction, Lookahead
from asa.lab.simulator import operations
from asa.lab.virtual import MemoryWaits
from asa.testing import estimators as suite
from tests.lab.forecast.queues import CORES, jobs, machine, queue, running, steady, waiting

times = st.floats(0.0, 1e7)


@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_it_finds_the_factor_with_the_least_absolute_error(true: float) -> None:
    rng = np.random.default_rng(1)
    said = rng.lognormal(8, 1, 4000)
    waits = said * true * rng.lognormal(0, 0.5, 4000)
    correction = Correction(0.02)
    for forecast, wait in zip(said.tolist(), waits.tolist(), strict=True):
        correction.learn(forecast, wait)
    factors = np.geomspace(0.25, 4, 100)
    best = factors[np.abs(said[:, None] * factors - waits[:, None]).sum(axis=0).argmin()]
    assert correction.factor == pytest.approx(best, rel=0.15)


@given(st.lists(st.tuples(times, times)), st.floats(0, 1))
def test_the_factor_is_bounded(seen: list[tuple[float, float]], step: float) -> None:
    correction = Correction(step)
    for forecast, wait in seen:
        correction.learn(forecast, wait)
    assert 0.999 / MOST <= correction.factor <= 1.001 * MOST


def test_forecasts_of_nothing_and_right_ones_change_nothing() -> None:
    correction = Correction(0.5)
    correction.learn(0.0, 1e6)
    correction.learn(70.0, 70.0)
    assert correction.factor == 1.0


def test_a_state_survives_json() -> None:
    one, other = Correction(0.1), Correction(0.1)
    for state in (one.state, lambda: one.learn(10.0, 30.0) or one.state()):
        written = json.dumps(state(), allow_nan=False)
        other.restore(json.loads(written))
        assert json.dumps(other.state()) == written
    assert other.factor == pytest.approx(math.exp(0.1))


@pytest.mark.parametrize(
    "wrong", [{}, {"log": 0.0}, {"log": 9.0, "mean_s": 1.0}, {"log": 0.0, "mean_s": -1.0}, {"log": "x", "mean_s": None}]
)
def test_a_broken_state_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no state of a correction"):
        Correction(0.1).restore(wrong)


def job(view: QueueView | None, cores: int = CORES, walltime_s: float = 600.0) -> Context:
    return Context(0.0 if view is None else view.now, cores=cores, walltime_s=walltime_s, queue=view)


def busy(now: float = 0.0) -> QueueView:
    """A full machine, and a job as large that waits."""
    return queue(now, (waiting("w", CORES, 1000.0),), (running("r", CORES, now + 1000.0),))


MAKERS = {
    "learned": lambda seed: Lookahead(seed=seed, futures=2, quantile=0.8, base="median"),
    "requested": lambda seed: Lookahead(seed=seed, runs="requested", step=0, base="last"),
}
CASES = [(name, check) for name in MAKERS for check in suite.CHECKS]
CASES.remove(("requested", suite.check_state_is_bounded))  # thousands of forecasts, and nothing that the other lacks


@pytest.mark.slow
@pytest.mark.parametrize(("name", "check"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_conformance(name: str, check: Callable[[suite.Make], None]) -> None:
    check(MAKERS[name])


@given(made=jobs, until=st.integers(0, 600), cores=st.integers(1, CORES), walltime=st.integers(1, 200))
def test_where_jobs_use_all_they_request_and_nobody_comes_it_knows_the_future(
    made: list[tuple[int, int, int, int]], until: int, cores: int, walltime: int
) -> None:
    engine = machine([(min(at, until), size, asked, 100) for at, size, asked, _ in made])
    rule = Easy().native
    engine.dispatch(rule, until=until)
    view = engine.view().plain()
    said = Lookahead(runs="requested").predict(job(view, cores, float(walltime)))
    row = operations.submit(engine, run=1.0, walltime=float(walltime), units=cores)
    while math.isnan(engine.state.jobs["started"][row]):
        engine.dispatch(rule)
    assert said == engine.state.jobs["started"][row] - view.now


def test_what_jobs_were_seen_to_use_shortens_the_wait() -> None:
    taught = Lookahead()
    for view in steady(share=0.1):
        taught.see(view)
    context = job(busy(1e6))
    assert taught.predict(context) < 0.6 * Lookahead().predict(context) < 0.8 * 2000.0


def test_a_job_that_fits_now_starts_now_in_every_future() -> None:
    view = queue(0.0, runs=(running("r", CORES - 2, 1000.0),))
    assert Lookahead().waits(visible(view), 2, 60.0).tolist() == [0.0]
    assert Lookahead().predict(job(view, 2), quantile=0.99) == 0.0


@settings(max_examples=20)
@given(st.lists(st.floats(0.01, 0.99), min_size=2, max_size=6))
def test_quantiles_do_not_cross(quantiles: list[float]) -> None:
    said = [Lookahead(futures=7).predict(job(busy()), quantile) for quantile in sorted(quantiles)]
    assert said == sorted(said)
    assert all(0 <= each <= 2000 for each in said)


def test_its_own_quantile_is_the_default() -> None:
    context = job(busy())
    assert Lookahead(quantile=0.9).predict(context) == Lookahead().predict(context, 0.9)
    assert Lookahead().predict(context, 0.1) < Lookahead().predict(context) < Lookahead().predict(context, 0.9)


def test_the_futures_of_one_look_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    wait = Ahead.wait
    monkeypatch.setattr(Ahead, "wait", lambda *given: tried.append(found := wait(*given)) or found)
    estimator, context = Lookahead(futures=7), job(busy())
    said = [estimator.predict(context, quantile) for quantile in (0.1, 0.9)]
    assert len(tried) == 1 + 7
    assert said == [Lookahead(futures=7).predict(job(busy()), quantile) for quantile in (0.1, 0.9)]

    tried.clear()
    for view in steady(share=0.1):
        estimator.see(view)
    taught = estimator.predict(context, 0.9)
    assert len(tried) == 1 + 7 and taught < said[1], "what was seen since makes other futures"
    estimator.restore(Lookahead(futures=7).state())
    assert estimator.predict(context, 0.9) == said[1]


def test_futures_are_tried_once_in_virtual_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a table is looked at, by a context of its own each time."""
    tried: list[float] = []
    wait = Ahead.wait
    monkeypatch.setattr(Ahead, "wait", lambda *given: tried.append(found := wait(*given)) or found)
    engine = machine([(0, CORES, 100, 50), (0, CORES, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    waits = MemoryWaits("forecast:futures=7")
    context = Context(10.0, cores=CORES, walltime_s=60.0).looked(engine.view())
    early, late = waits.predict(Resources(CORES), 60.0, context, [0.1, 0.9])
    assert early < late and len(tried) == 1 + 7
    engine.dispatch(Easy().native, until=60)
    later = Context(60.0, cores=CORES, walltime_s=60.0).looked(engine.view())
    assert waits.copy().predict(Resources(CORES), 60.0, later, [0.9])[0] < late


@pytest.mark.parametrize("context", [None, job(None), job(busy(), CORES + 1)], ids=["none", "unseen", "too large"])
def test_the_base_answers_where_it_cannot(context: Context | None) -> None:
    estimator, base = Lookahead(base="last"), ESTIMATORS.create("last")
    for each in (estimator, base):
        each.learn(1234.0)
    assert estimator.predict(context) == base.predict(context) == 1234.0


def test_the_queue_of_a_plain_context_is_learned_from_and_a_table_is_not() -> None:
    views = steady(share=0.1)
    taught, seen, table = Lookahead(), Lookahead(), Lookahead()
    for view in views:
        taught.learn(10.0, context=job(view))
        seen.see(view)
    assert taught.state()["sightings"] == seen.state()["sightings"] != Lookahead().state()["sightings"]
    engine = machine([(0, 8, 100, 50), (0, 8, 100, 50)])
    engine.dispatch(Easy().native, until=10)
    table.learn(10.0, context=job(engine.view()))  # type: ignore[arg-type]
    assert table.state()["sightings"] == Lookahead().state()["sightings"]
    table.see(engine.view())
    assert table.state()["sightings"]["at"] == 10.0


def test_forecasts_that_are_always_too_short_grow() -> None:
    context = job(busy())
    fresh = Lookahead().predict(context)
    for step, grown in ((0.05, True), (0.0, False)):
        estimator = Lookahead(step=step)
        for _ in range(10):
            estimator.learn(1e5, context=context)
        assert (estimator.predict(context) > 1.5 * fresh) is grown
        assert estimator.predict(job(queue(0.0))) == 0.0, "a job that fits still starts at once"


def test_asking_teaches_nothing_and_is_repeatable() -> None:
    estimator = Lookahead()
    for view in steady(100):
        estimator.see(view)
    before = json.dumps(estimator.state())
    said = {estimator.predict(job(busy(1e5))) for _ in range(3)}
    assert len(said) == 1
    assert json.dumps(estimator.state()) == before


def test_a_state_and_a_copy_go_on_alike() -> None:
    author, reader = Lookahead(seed=3), Lookahead(seed=8)
    for view in steady(100):
        author.see(view)
    reader.restore(json.loads(json.dumps(author.state(), allow_nan=False)))
    others = [reader, pickle.loads(pickle.dumps(author)), copy.deepcopy(author)]
    for estimator in (author, *others):
        estimator.see(busy(6100.0))
        estimator.learn(50.0, 40.0, job(busy(6160.0)))
    for other in others:
        assert other.predict(job(busy(6200.0))) == author.predict(job(busy(6200.0)))
        assert other.state() == author.state()


@pytest.mark.parametrize("key", list(Lookahead().state()))
def test_an_incomplete_state_is_refused_and_changes_nothing(key: str) -> None:
    estimator = Lookahead()
    estimator.see(busy())
    before = estimator.state()
    with pytest.raises(InvalidInput, match=f"no '{key}'"):
        estimator.restore({other: value for other, value in before.items() if other != key})
    assert estimator.state() == before


def test_seeds_make_other_futures() -> None:
    assert len({Lookahead(seed=seed, futures=2).predict(job(busy())) for seed in range(5)}) > 1


def test_a_dispatcher_may_be_given() -> None:
    view = queue(0.0, (waiting("w", CORES, 1000.0),), (running("r", CORES - 1, 1000.0),))
    small = job(view, 1, 500.0)
    assert Lookahead(runs="requested").predict(small) == 0.0, "backfilled"
    for dispatcher in ("fcfs", Backfill(0)):
        assert Lookahead(runs="requested", dispatcher=dispatcher).predict(small) == 2000.0


def test_options_out_of_bounds_are_refused() -> None:
    for wrong, words in (
        ({"runs": "guessed"}, "learned, requested"),
        ({"futures": 0}, "futures is 0"),
        ({"quantile": 1.0}, "quantile is 1.0"),
        ({"step": -0.1}, "step is -0.1"),
        ({"dispatcher": "random"}, "no backfilling rule"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Lookahead(**wrong)
    for option in ("base", "dispatcher"):
        with pytest.raises(UnknownName):
            Lookahead(**{option: "nobody"})


def test_it_has_a_name_and_is_pooled() -> None:
    estimator = ESTIMATORS.create("forecast:futures=3,base=last", seed=4)
    assert isinstance(estimator, Lookahead)
    assert estimator.pooled


def test_the_median_of_many_futures_is_steady() -> None:
    said = [Lookahead(seed=seed, futures=15).predict(job(busy())) for seed in range(20)]
    exact = np.median(Lookahead(futures=400).waits(visible(busy()), CORES, 600.0))
    assert np.mean(said) == pytest.approx(exact, rel=0.1)
