"""The environment of learned dispatchers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'learn'")

import gymnasium
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import Capability
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import Rows, Selecting
from asa.lab.dras_paper.environment import Dispatching, objective_of, side_by_side
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.policies import NODES, at_random, first, largest, workloads
from tests.lab.dispatchers.queues import UNTIMED
from tests.lab.dras_paper.workloads import MACHINE, busy, small

ONE = Workload.of(submit=[0], run=[5], cores=[2], walltime=[9])
FULL = Workload.of(submit=[0, 1, 1], run=[10, 10, 10], cores=[8, 6, 2], walltime=[10, 10, 10])
"""The first takes all nodes; the others can run side by side."""


class Unmasked(gymnasium.Wrapper):
    """Takes any action; gymnasium's checker draws them without a look at the mask."""

    def step(self, action):
        there = np.flatnonzero(self.unwrapped.action_masks())
        return self.env.step(there[int(action) % len(there)])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of wrappers, and of a box without bounds
def test_gymnasium_s_checker() -> None:
    check_env(Unmasked(small(busy(40))), skip_render_check=True)


@UNTIMED
@given(workloads(), st.booleans(), st.integers(0, 9))
def test_an_episode_is_what_the_dispatcher_does(jobs: Workload, levels: bool, seed: int) -> None:
    """Whoever steps through a simulation gets the schedule of the simulator that asks the same policy."""
    environment, policy = small(jobs, window=5, levels=levels), at_random(seed)
    state, _ = environment.reset()
    over = False
    while not over:
        assert state.shape == (2 * 5 + NODES, 2) and environment.action_masks().any()
        state, _, over, cut, _ = environment.step(policy(state, environment.action_masks()))
        assert not cut
    assert not environment.action_masks().any() and not state.any()
    asked = Selecting(at_random(seed), Rows(5, "shares"), levels=levels)
    assert environment.schedule().start.tolist() == simulate(jobs, MACHINE, asked).start.tolist()


def test_rewards_by_hand() -> None:
    """Equation (1) of the one job that an action selects; one that is reserved for does not run yet."""
    environment = small(FULL)
    environment.reset()
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 0 + 1 / 3 * 1 + 1 / 3 * 1) and info["mode"] == "ready" and not over
    # At 1 s both others came, and nobody has waited; the job that is reserved for adds nothing to what is in use.
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 6 / 8 + 1 / 3 * 8 / 8) and info["mode"] == "reserved" and not over
    # At 10 s the reserved job starts by itself; the last one is selected, the only one in the queue.
    _, reward, over, _, info = environment.step(0)
    assert reward == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 8 + 1 / 3 * 8 / 8) and info["mode"] == "ready" and over
    assert environment.schedule().start.tolist() == [0, 10, 10]


def test_the_capacity_reward() -> None:
    environment = small(FULL, objective="capacity")
    environment.reset()
    assert environment.step(0)[1] == 0
    assert environment.step(0)[1] == pytest.approx(-1 / 10)  # both still wait


def test_instances_are_counted_where_there_is_something_to_select() -> None:
    environment = small(busy(30))
    _, info = environment.reset()
    instances, over = [info["instance"]], False
    while not over:
        _, _, over, _, info = environment.step(np.flatnonzero(environment.action_masks())[0])
        instances.append(info["instance"])
    assert instances[0] == 1 and set(np.diff(instances)) <= {0, 1} and instances[-1] > 5


def test_episodes_take_turns_and_a_seed_begins_anew() -> None:
    environment = small(ONE, FULL)
    assert [len(_reset(environment)) for _ in range(3)] == [1, 3, 1]
    assert len(_reset(environment, seed=1)) == 1


def _reset(environment: Dispatching, seed: int | None = None) -> object:
    environment.reset(seed=seed)
    return environment.schedule().workload


def test_masked_actions_are_refused() -> None:
    environment = small(ONE)
    environment.reset()
    with pytest.raises(InvalidInput, match="masked"):
        environment.step(3)


def test_several_side_by_side() -> None:
    many = side_by_side([lambda: small(busy(20, 1)), lambda: small(busy(20, 2))])
    states, _ = many.reset()
    assert states.shape == (2, 2 * 4 + NODES, 2)
    for _ in range(30):
        masks = many.call("action_masks")
        states, *_ = many.step([int(np.flatnonzero(mask)[0]) if mask.any() else 0 for mask in masks])
    assert np.isfinite(states).all()


def test_a_policy_that_favours_large_jobs_earns_more_of_that_reward() -> None:
    totals = {}
    for name, policy in {"first": first, "largest": largest}.items():
        environment = small(busy(60, 3), window=8, objective="capability:wait=0,size=1,utilisation=0")
        state, _ = environment.reset()
        over, sizes = False, []
        while not over:
            state, reward, over, _, _ = environment.step(policy(state, environment.action_masks()))
            sizes.append(reward)
        totals[name] = np.cumsum(sizes)[: len(sizes) // 2].sum()
    assert totals["largest"] > totals["first"]


def test_weights() -> None:
    assert objective_of("capability:wait=1,size=0,utilisation=2") == Capability(1, 0, 2)
    with pytest.raises(UnknownName, match="weight of capability"):
        objective_of("capability:waits=1")
    with pytest.raises(InvalidInput, match="a number expected"):
        objective_of("capability:wait=much")
    with pytest.raises(UnknownName, match="objective"):
        objective_of("fairness")


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no workloads"):
        small()
    with pytest.raises(InvalidInput, match="no requested time"):
        small(Workload.of(submit=[0], run=[5], cores=[2]))
    with pytest.raises(InvalidInput, match="equal nodes"):
        Dispatching(
            [Workload.of(submit=[0], run=[5], units=[1], demands=[[2]], walltime=[9])], Cluster([[4], [8]]), Rows(4)
        )
    other = Workload.of(submit=[0], run=[5], units=[1], demands=[[2]], walltime=[9])
    machines = Dispatching([ONE, other], Cluster.of(4, 2), Rows(4))
    machines.reset()
    with pytest.raises(InvalidInput, match=r"with these jobs the machine has 4 units, with the first set 8"):
        machines.reset()
    nothing = small(Workload.of(submit=[0], run=[5], cores=[9], walltime=[9]))
    with pytest.raises(InvalidInput, match="nothing to select"):
        nothing.reset()
