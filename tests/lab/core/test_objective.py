from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.objective import OBJECTIVES, Capability, Capacity, Waiting


def queue(wait: list[float], estimate: list[float], size: list[int], used: int = 4, total: int = 10) -> Waiting:
    return Waiting(np.array(wait), np.array(estimate), np.array(size, dtype=np.int64), used, total)


QUEUES = st.lists(
    st.tuples(st.sampled_from([0.0, 30.0, 3600.0]), st.sampled_from([0.5, 60.0, 900.0]), st.integers(1, 6)),
    min_size=1,
    max_size=6,
).map(lambda jobs: queue(*([job[k] for job in jobs] for k in range(3))))


def test_capability_is_equation_1() -> None:
    """Selected: waits 10 and 40 of at most 50, sizes 2 and 4 of 20; afterwards 5 + 2 of 20 are in use."""
    waiting = queue([10.0, 40.0, 50.0], [60.0] * 3, [2, 4, 9], used=5, total=20)
    reward = Capability(0.5, 0.3, 0.2).reward(waiting, [0, 1], started=[0])
    assert reward == pytest.approx(0.5 * 25 / 50 + 0.3 * 3 / 20 + 0.2 * 7 / 20)


def test_capability_of_nothing_selected_is_what_the_machine_does_anyway() -> None:
    assert Capability().reward(queue([5.0], [60.0], [2]), []) == pytest.approx(0.4 / 3)


def test_while_nobody_has_waited_only_sizes_count() -> None:
    waiting = queue([0.0, 0.0], [60.0, 60.0], [2, 4])
    assert Capability().reward(waiting, [1]) == pytest.approx((0.4 + 0.8) / 3)
    assert Capability().gains(waiting).tolist() == pytest.approx([2 * 0.2 / 3, 2 * 0.4 / 3])


@given(QUEUES)
def test_the_gain_of_one_job_is_what_selecting_it_alone_adds(waiting: Waiting) -> None:
    objective = Capability(0.6, 0.3, 0.1)
    for job, gain in enumerate(objective.gains(waiting)):
        assert objective.reward(waiting, [job]) == pytest.approx(gain + objective.reward(waiting, []))


def test_capacity_is_equation_2() -> None:
    waiting = queue([1.0, 1.0, 1.0], [10.0, 20.0, 50.0], [1, 1, 1])
    assert Capacity().reward(waiting, [0]) == pytest.approx(-(1 / 20 + 1 / 50) / 2)
    assert Capacity().reward(waiting, [0], started=[]) == pytest.approx(-(1 / 10 + 1 / 20 + 1 / 50) / 3)
    assert Capacity().reward(waiting, [0, 1, 2]) == 0.0


@given(QUEUES, st.data())
def test_gains_of_capacity_are_what_its_sum_loses(waiting: Waiting, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(waiting.wait) - 1))))
    before, left = len(waiting.wait), len(waiting.wait) - len(chosen)
    gained = Capacity().gains(waiting)[chosen].sum()
    sums = Capacity().reward(waiting, []) * before, Capacity().reward(waiting, chosen) * left
    assert sums[1] - sums[0] == pytest.approx(gained)


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
def test_capacity_needs_estimates(unknown: float) -> None:
    with pytest.raises(InvalidInput, match="at place 1 of the queue has no wall time"):
        Capacity().gains(queue([1.0, 1.0], [60.0, unknown], [1, 1]))


@pytest.mark.parametrize("weights", [(-1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (np.nan, 1.0, 1.0)])
def test_weights_out_of_bounds_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="weights of the capability objective"):
        Capability(*weights)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(waiting=QUEUES)
def test_every_start_gains_something(name: str, waiting: Waiting) -> None:
    assert (OBJECTIVES[name]().gains(waiting) > 0).all()
