"""The compact policy: environment, imitation, training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'learn'")
pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import asa.lab.dras_paper.compact as compact
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.compact import COLUMNS, PARAMETERS, Compact, CompactNetwork, Shares
from asa.lab.dispatchers.learned.dras import Selecting
from asa.lab.dispatchers.learned.selection import Turns
from asa.lab.dras_paper.compact import (
    REFERENCE,
    SCALE,
    SHORT_S,
    Accrued,
    CompactOptions,
    CompactPoint,
    CompactPolicy,
    Cost,
    JobSetNetwork,
    TrainedCompact,
    cost_under,
    delayed,
    discounted,
    imitate,
    lessons,
    pieces,
    teacher,
    train,
)
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.policies import NODES, workloads
from tests.lab.dras_paper.workloads import MACHINE, busy

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
    before = environment.lead(info["now"])
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


def test_costs_are_in_units_of_easys_means() -> None:
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


WINDOW = 6


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As in training; several would wait for one another where cores are shared."""
    torch.set_num_threads(1)


def policy() -> CompactPolicy:
    torch.manual_seed(1)
    box = spaces.Box(-np.inf, np.inf, Shares(WINDOW).shape(1), np.float32)
    return CompactPolicy(box, spaces.Discrete(WINDOW), lambda left: 1e-3)


def observation(count: int, seed: int) -> np.ndarray:
    seen = np.zeros((1 + WINDOW, COLUMNS), np.float32)
    seen[: 1 + count] = np.random.default_rng(seed).normal(size=(1 + count, COLUMNS))
    seen[1 : 1 + count, 0] = 1
    return seen


@settings(deadline=None)
@given(st.integers(1, WINDOW), st.integers(0, 99))
def test_numpy_says_what_torch_says(count: int, seed: int) -> None:
    torch.manual_seed(seed)
    crowd, seen = JobSetNetwork(scores=True), observation(count, seed)
    network = CompactNetwork(crowd.tensors())
    assert sum(values.size for values in network.tensors.values()) == PARAMETERS
    with torch.no_grad():
        says = crowd(torch.as_tensor(seen.reshape(1, -1)))[0, :count].numpy()
    assert network.scores(seen[: 1 + count]) == pytest.approx(says, rel=1e-4, abs=1e-5)


def test_a_masked_action_has_no_probability() -> None:
    seen, mask = torch.as_tensor(observation(3, 0).reshape(1, -1)), np.array([[True, False, True, *[False] * 3]])
    trained = policy()
    chances = trained.get_distribution(seen, action_masks=mask).distribution.probs[0].detach()
    assert float(chances[~torch.as_tensor(mask[0])].max()) < 1e-6
    assert float(chances.sum()) == pytest.approx(1, abs=1e-5)


def test_the_teacher_prefers_the_shortest_job_that_there_is() -> None:
    seen, mask = observation(3, 0), np.array([True, True, True, False, False, False])
    seen[1:4, 3] = [0.2, 0.1, 0.3]
    assert teacher(seen, mask) == 1
    assert teacher(seen, mask & (np.arange(6) != 1)) == 0


def test_discounted_sums() -> None:
    draw = np.random.default_rng(0).normal(size=20)
    assert discounted(draw, 0.9)[3] == pytest.approx(sum(draw[3 + k] * 0.9**k for k in range(17)))


def test_it_learns_to_do_as_the_teacher() -> None:
    cost = Cost(1000.0, 5.0, 5000.0)
    school = Accrued([busy(60), busy(60, 1)], MACHINE, cost, Shares(WINDOW), turns=Turns(5))
    given = lessons(school, 60, gamma=0.9, seed=0)
    assert len(given.states) == len(given.masks) == len(given.actions) == len(given.returns) >= 60
    assert given.masks[np.arange(len(given.actions)), given.actions].all()
    one, same = policy(), policy()
    before = imitate(one, given, passes=0, seed=0)
    agrees, again = (imitate(each, given, passes=60, seed=0) for each in (one, same))
    assert agrees == again > before + 0.5
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is small."""
    for name, value in {
        "ENVIRONMENTS": 2, "STEPS": 32, "BATCH": 32, "PIECES": 2, "LESSONS": 60, "LESSON_PASSES": 2, "VALIDATIONS": 2,
        "EVERY": 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(compact, name, value)


def trained(**options: float) -> TrainedCompact:
    return train(busy(120), busy(60, 1), MACHINE, CompactOptions(window=6, **options))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_seed_gives_a_network(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    options = CompactOptions(steps=128, seed=1, window=6)
    first = train(busy(120), busy(60, 1), MACHINE, options, progress=lambda *done: told.append(done))
    second, other = trained(steps=128, seed=1), trained(steps=128, seed=2)
    assert [point.steps for point in first.curve] == [0, 64, 128] and told == [(0, 128), (64, 128), (128, 128)]
    best = min(first.curve, key=lambda point: point.score)
    for name, values in first.network.tensors.items():
        assert np.array_equal(values, second.network.tensors[name])
    assert not np.array_equal(first.network.tensors["first.weight"], other.network.tensors["first.weight"])
    first.network.save(tmp_path / "m")
    judge = compact.Validation(busy(60, 1), MACHINE, options)
    again = judge.point(first.network.tensors, best.steps, best.seconds)
    assert again == best
    assert np.isfinite(simulate(busy(60), MACHINE, Compact(str(tmp_path / "m"))).start).all()
    told_of = first.to_json()
    assert told_of["seed"] == 1 and len(told_of["curve"]) == 3 and 0 <= told_of["agreement"] <= 1


@pytest.mark.usefixtures("short")
def test_imitation_alone() -> None:
    found = trained(steps=0)
    assert [point.steps for point in found.curve] == [0]
    assert np.isfinite(simulate(busy(60), MACHINE, Compact(found.network)).start).all()


def test_long_waits_count_against_a_network() -> None:
    assert CompactPoint(0, 0.0, 0.8, 0.6, 1.0).score == pytest.approx(0.7)
    assert CompactPoint(0, 0.0, 0.8, 0.6, 1.3).score == pytest.approx(0.9)


def test_what_is_refused_compact() -> None:
    with pytest.raises(InvalidInput, match="-1 steps"):
        CompactOptions(steps=-1)
    with pytest.raises(InvalidInput, match="late=-1"):
        CompactOptions(late=-1)
    with pytest.raises(InvalidInput, match="no job of the log waits"):
        train(busy(120), busy(2), MACHINE, CompactOptions(steps=0))
