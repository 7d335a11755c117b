import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators import forest
from asa.estimators.context import COUNTS, FEATURES, MISSING, TIMES, Contextual, features
from asa.testing import estimators as suite

SMALL = {"memory": 40, "regrow": 7, "trees": 3, "leaf": 2}


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_conformance_with_a_short_memory(check):
    check(lambda seed: Contextual(seed=seed, tau=0.7, halflife=20.0, **SMALL))


def busy(number, source):
    """A job whose wait is its queue's backlog, known or not, and the wait."""
    backlog = float(source.choice([0.0, 600.0, 30_000.0]))
    wait = backlog * source.lognormal(0.0, 0.1)
    return Context(at=500.0 * number, cores=4, backlog_s=backlog), wait


def test_it_finds_the_field_that_tells_the_wait():
    source, estimator, errors = np.random.default_rng(1), Contextual(), []
    for number in range(400):
        context, wait = busy(number, source)
        if number >= 100:
            errors.append(abs(estimator.predict(Context(4e5, 4, backlog_s=context.backlog_s)) - wait) / (wait + 60.0))
        estimator.learn(wait, None, context)
    assert np.median(errors) < 0.1
    assert np.mean(errors) < 0.2


def test_trees_have_jobs_to_grow_from_however_short_the_memory_is():
    source, estimator = np.random.default_rng(4), Contextual(memory=200, regrow=10_000)
    for number in range(1000):
        context, wait = busy(number, source)
        estimator.learn(wait, None, context)
    short, long = (estimator.predict(Context(5e5, 4, backlog_s=backlog)) for backlog in (600.0, 30_000.0))
    assert short < 1000.0 < 15_000.0 < long


def test_a_field_that_nobody_tells_is_unlike_any_that_is_told():
    row = features(Context(at=0.0, cores=1))
    told = features(Context(at=0.0, cores=1, **dict.fromkeys((*TIMES, *COUNTS[1:]), 0)))
    for name in (*TIMES[1:], *COUNTS[1:]):
        place = FEATURES.index(name)
        assert row[place] == MISSING < told[place]
    assert (features(None) == MISSING).all()


def test_only_waits_known_at_the_time_count():
    estimator = Contextual()
    for number in range(300):
        estimator.learn(50.0 if number < 150 else 9000.0, None, Context(at=10_000.0 * number, cores=4))
    assert estimator.predict(Context(at=1_490_100.0, cores=4)) == 50.0
    assert estimator.predict(Context(at=9e6, cores=4)) == 9000.0
    assert estimator.predict(Context(at=-1.0, cores=4)) == 0.0


def test_waits_of_another_size_stand_in_until_there_are_own_ones():
    estimator = Contextual()
    for number in range(60):
        estimator.learn(700.0, None, Context(at=1000.0 * number, cores=16))
    assert estimator.predict(Context(at=1e6, cores=24)) == 700.0


def test_new_waits_count_before_the_trees_are_grown_anew():
    estimator = Contextual(regrow=1000, memory=1000, halflife=5.0)
    for _ in range(31):
        estimator.learn(10.0)
    for _ in range(5):
        estimator.learn(4000.0)
    assert estimator.state()["grown"] == 31, "with the next growth at 37, none of the new waits is in the trees"
    assert estimator.predict(None, 0.9) == 4000.0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 64), st.none() | st.floats(0, 1e6)), min_size=1, max_size=90),
    st.lists(st.floats(0.01, 0.99), min_size=2, max_size=5),
)
def test_predictions_are_waits_that_were_and_quantiles_are_in_order(jobs, quantiles):
    estimator = Contextual(**SMALL)
    for number, (wait, cores, backlog) in enumerate(jobs):
        estimator.learn(wait, None, Context(at=2e6 * number, cores=cores, backlog_s=backlog))
    asked = Context(at=1e9, cores=8, backlog_s=100.0)
    said = [estimator.predict(asked, quantile) for quantile in sorted(quantiles)]
    assert said == sorted(said)
    assert set(said) <= {wait for wait, _, _ in jobs[-SMALL["memory"] :]}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 130), st.integers(0, 60))
def test_a_restored_estimator_goes_on_like_its_author_wherever_it_stood(before, after):
    source, author, reader = np.random.default_rng(before), Contextual(**SMALL), Contextual(seed=9, **SMALL)
    for number in range(before):
        context, wait = busy(number, source)
        author.learn(wait, None, context)
    reader.restore(json.loads(json.dumps(author.state())))
    for number in range(before, before + after):
        context, wait = busy(number, source)
        assert reader.predict(context) == author.predict(context)
        author.learn(wait, None, context)
        reader.learn(wait, None, context)
    assert reader.state() == author.state()


def test_the_state_is_small():
    source, estimator = np.random.default_rng(2), Contextual()
    for number in range(2500):
        context, wait = busy(number, source)
        estimator.learn(wait, None, context)
    assert len(json.dumps(estimator.state())) < 200_000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory": 10}, "memory 10"),
        ({"features": ["age"]}, "features"),
        ({"waits": "AAAA"}, "no packed array"),
        ({"waits": 5}, "no packed array"),
        ({"count": -1}, "count is -1"),
        ({"waits": "AAAAAAAA8P8="}, "is none"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, said):
    author, reader = Contextual(), Contextual()
    author.learn(60.0)
    reader.learn(30.0)
    before = reader.state()
    with pytest.raises(InvalidInput, match=said):
        reader.restore(author.state() | change)
    assert reader.state() == before


@pytest.mark.parametrize(
    "options",
    [{"tau": 0.0}, {"trees": 0}, {"leaf": 0}, {"memory": 19}, {"regrow": 0}, {"halflife": 0.0}, {"seed": -1}],
)
def test_options_out_of_bounds_are_refused(options):
    with pytest.raises(InvalidInput, match=next(iter(options))):
        Contextual(**options)


def grown(columns, target, leaf, seeds=(3,)):
    shape = len(seeds), 2 * len(target) // leaf + 3
    trees = np.zeros(shape, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    forest.grow(np.ascontiguousarray(columns.T), target, leaf, list(seeds), *trees)
    return trees, forest.leaves(columns, *trees)


def split_mix(state):
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        bits = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
        yield ((bits ^ (bits >> 31)) >> 11) * 2.0**-53


def grown_node_by_node(columns, target, leaf, seed):
    """One tree as its description says, in plain loops: (column, threshold, child) of each node."""
    draw, tree, parts = split_mix(seed), [], [list(range(len(target)))]
    for rows in parts:
        best = None
        if len(rows) >= 2 * leaf:
            total = sum(target[row] for row in rows)
            for _ in range(max(1, columns.shape[1] // 2)):
                tried = int(next(draw) * columns.shape[1])
                for cut in sorted(columns[rows[int(next(draw) * len(rows))], tried] for _ in range(2)):
                    low = [row for row in rows if columns[row, tried] <= cut]
                    if len(low) >= leaf and len(rows) - len(low) >= leaf:
                        part = sum(target[row] for row in low)
                        gain = part**2 / len(low) + (total - part) ** 2 / (len(rows) - len(low))
                        if best is None or gain > best[0]:
                            best = gain, tried, cut
        if best is None:
            tree.append((-1, 0.0, 0))
            continue
        _, tried, cut = best
        tree.append((tried, cut, len(parts)))
        parts.append([row for row in rows if columns[row, tried] <= cut])
        parts.append([row for row in rows if columns[row, tried] > cut])
    return tree


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 80), st.integers(1, 6), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3))
def test_trees_grown_at_once_are_those_grown_node_by_node(count, leaf, seeds):
    source = np.random.default_rng(seeds[0])
    columns = source.integers(0, 5, (count, 4)).astype(np.float32)
    target = source.integers(0, 100, count).astype(float)  # sums are exact in whatever order
    (column, threshold, child), _ = grown(columns, target, leaf, seeds)
    for number, seed in enumerate(seeds):
        expected = grown_node_by_node(columns, target, leaf, seed)
        assert column[number, : len(expected)].tolist() == [node[0] for node in expected]
        for node, (asked, cut, below) in enumerate(expected):
            assert asked < 0 or (threshold[number, node], child[number, node]) == (cut, below)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 120), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_each_leaf_holds_enough_rows_and_only_rows_on_its_side(count, leaf, seed):
    source = np.random.default_rng(seed)
    columns = source.integers(0, 5, (count, 4)).astype(np.float32)
    trees, (leaves,) = grown(columns, source.normal(size=count), leaf, [seed])
    assert min(np.bincount(leaves)[np.unique(leaves)]) >= min(leaf, count)
    lists = forest.as_lists(*trees)
    for row, found in zip(columns, leaves.tolist(), strict=True):
        assert forest.leaf_in_each(row.tolist(), lists) == [found]


def test_likeness_is_the_mean_share_of_the_leaves():
    leaves = np.array([[1, 1, 2, 2], [5, 6, 5, 6], [9, 9, 9, 9]], np.int32)
    weights = np.array([1.0, 3.0, 0.0, 2.0])
    found = forest.likeness(leaves, np.array([1, 5, 7], np.int32), weights)
    assert found.tolist() == [(0.25 + 1.0) / 2, 0.75 / 2, 0.0, 0.0]
    assert forest.likeness(leaves, np.array([0, 0, 0], np.int32), weights).tolist() == [0.0] * 4
