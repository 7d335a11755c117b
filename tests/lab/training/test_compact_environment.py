from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'learn'")

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.compact_sight import COLUMNS, Shares
from asa.lab.dispatchers.learned.dispatcher import Selecting
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.simulator.run import simulate
from asa.lab.training.compact_environment import REFERENCE, SCALE, SHORT_S, Accrued, Cost, cost_under, delayed, pieces
from tests.lab.dispatchers.learned.policies import NODES, workloads
from tests.lab.training.workloads import MACHINE, busy

COST = Cost(wait_s=100.0, slowdown=5.0, long_s=400.0, late=1.0)


def last(observation: np.ndarray, mask: np.ndarray) -> int:
    return int(np.flatnonzero(mask)[-1])


@settings(deadline=None, max_examples=20)
@given(workloads())
def test_rewards_add_up_to_what_it_is_better_than_the_reference(jobs: Workload) -> None:
    """And an episode is what the dispatcher does: actions without a choice are taken, but not asked for."""
    environment = Accrued([jobs, busy(30)], MACHINE, COST, Shares(5), turns=Turns(3))
    (state, info), over, rewards = environment.reset(), False, []
    jobs = environment.schedule().workload  # the first set may leave no choice
    before = environment._lead(info["now"])
    while not over:
        mask = environment.action_masks()
        assert mask.sum() > 1 and state.shape == (6, COLUMNS)
        state, reward, over, cut, info = environment.step(last(state, mask))
        assert not cut
        rewards.append(reward)
    done = simulate(jobs, MACHINE, Selecting(last, Shares(5), turns=Turns(3)))
    assert environment.schedule().start.tolist() == done.start.tolist()
    reference = simulate(jobs, MACHINE, REFERENCE)
    theirs = COST.of(np.minimum(reference.start, info["now"]) - jobs.submit, jobs.run)
    better = theirs - COST.of(done.wait, jobs.run)
    assert sum(rewards) == pytest.approx(SCALE * (better - before), rel=1e-6, abs=1e-6)


def test_costs_by_hand() -> None:
    assert COST.of(np.array([50.0]), np.array([1000.0])) == pytest.approx(50 / 100 + 50 / (5 * 1000))
    assert COST.of(np.array([50.0]), np.array([1.0])) == pytest.approx(50 / 100 + 50 / (5 * SHORT_S))
    late = 500 / 100 + 500 / (5 * 2000) + (500 - 400) ** 2 / (100 * 400)
    assert COST.of(np.array([50.0, 500.0]), np.array([1000.0, 2000.0])) == pytest.approx(0.51 + late)


def test_costs_are_told_in_easy_s_units() -> None:
    cost, easy = cost_under(busy(60), MACHINE, 2.0), simulate(busy(60), MACHINE, "easy")
    assert cost.wait_s == pytest.approx(easy.wait.mean()) and cost.late == 2.0
    assert cost.long_s == pytest.approx(np.percentile(easy.wait, 99))


@given(st.integers(1, 6), st.integers(0, 99))
def test_pieces_are_stretches_of_the_log(count: int, seed: int) -> None:
    log = busy(200)
    found = pieces(log, count, seed=seed, days=0.2)
    assert len(found) == count
    for piece in found:
        assert 1 < len(piece) < len(log) and (np.diff(piece.submit) >= 0).all() and piece.submit[0] >= 0
        rows = np.flatnonzero(np.isin(log.number, piece.number))
        assert len(rows) == len(piece) and rows[-1] - rows[0] == len(rows) - 1
        place = np.argsort(piece.number)
        assert np.array_equal(piece.run[place], log.run[rows]) and np.array_equal(piece.units[place], log.units[rows])
    assert [each.submit.tolist() for each in found] == [
        each.submit.tolist() for each in pieces(log, count, seed=seed, days=0.2)
    ]


def test_a_piece_of_one_job_is_drawn_again() -> None:
    far = Workload.of(submit=[0, 9 * DAY, 9 * DAY + 60, 20 * DAY], run=[1] * 4, cores=[1] * 4, walltime=[1] * 4)
    assert [len(piece) for piece in pieces(far, 4, seed=0, days=5.0)] == [2] * 4
    with pytest.raises(InvalidInput, match="no 5 days of the log to learn from have two jobs"):
        pieces(far.take([0, 1, 2]), 1, seed=0, days=5.0)  # the last one is in no stretch of 5 days


def test_delayed_jobs_come_later_but_not_much() -> None:
    log = busy(100)
    found = delayed(log, np.random.default_rng(0), most_s=600.0)
    later = found.submit[np.argsort(found.number, kind="stable")] - log.submit[np.argsort(log.number, kind="stable")]
    assert (later >= 0).all() and (later <= 600).all() and later.std() > 100
    assert sorted(found.number.tolist()) == sorted(log.number.tolist())


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="late at least 0"):
        Cost(1.0, 1.0, 1.0, -1.0)
    with pytest.raises(InvalidInput, match="means and long_s above 0"):
        Cost(0.0, 1.0, 1.0)
    idle = Workload.of(submit=[0, 1], run=[1, 1], cores=[1, 1], walltime=[1, 1])
    with pytest.raises(InvalidInput, match="no job of the log waits"):
        cost_under(idle, Cluster.of(NODES), 1.0)
    for few, days in ((idle.take([]), 15.0), (idle.take([0]), 15.0), (idle, 1 / DAY)):
        with pytest.raises(InvalidInput, match="have two jobs: a log with more jobs expected"):
            pieces(few, 1, seed=0, days=days)
