"""The environment of learned dispatchers: a simulated machine, on which an action selects a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsInt

import gymnasium
import numpy as np

from asa.core.arrays import Bools
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import parse_spec
from asa.lab.core.cluster import Cluster
from asa.lab.core.objective import OBJECTIVES, Objective, Waiting
from asa.lab.core.schedule import Schedule
from asa.lab.core.workload import Reals, Workload
from asa.lab.dispatchers.learned.dras import TURNS, ObservationEncoder, Rows
from asa.lab.dispatchers.learned.selection import Memory, Mode, Selection, Turns, queue_of
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import check_walltimes
from asa.lab.simulator.settings import MachineSettings


def objective_of(spec: str | Objective) -> Objective:
    """An objective by name, with its weights as options.

    Raises
    ------
    InvalidInput
        When there is no such weight, or it is no number.
    UnknownName
        When there is no such objective.

    Examples
    --------
    >>> objective_of("capability:wait=1,size=0,utilisation=0.5")
    Capability(wait=1, size=0, utilisation=0.5)
    """
    if not isinstance(spec, str):
        return spec
    name, options = parse_spec(spec)
    if name not in OBJECTIVES:
        raise UnknownName("objective", name, OBJECTIVES)
    known = list(OBJECTIVES[name].__dataclass_fields__)
    for key, value in options.items():
        if key not in known:
            raise UnknownName(f"weight of {name}", key, known)
        if isinstance(value, bool | str):
            raise InvalidInput(f"the weight {key} of {name} is {value!r}: a number expected")
    found: Objective = OBJECTIVES[name](**options)
    return found


class Dispatching(gymnasium.Env[Reals, np.int64]):
    """An episode is a set of jobs on an empty machine, until all of them have been scheduled (section III-C).

    A state is what `sight` sees. An action is a place in the window, in
    [0, W); `action_masks` says which there are, and the others are refused. Each selects one job; when there is none to
    select any more, time passes until there is: see `asa.lab.dispatchers.learned.selection.Selection`. Scheduling
    instances that leave nothing to select, for a reservation holds, are passed over.

    The reward of an action is the objective of the one job that it selects, at that moment: the paper averages over
    the jobs that a decision selects, and selects one at a time. A job that is reserved for is selected, but not yet
    running.

    `info` has ``instance``, how many scheduling instances with something to select have begun, ``now`` [s], and after
    an action ``mode``: how its job comes to start. At the end `schedule` has what has become of the jobs.

    Parameters
    ----------
    workloads
        Sets of jobs; each episode takes the next one, and a seed the first one.
    objective
        ``"capability"`` (equation 1) or ``"capacity"`` (equation 2), with weights as options, or an `Objective`.
    levels
        Whether there are two levels (DRAS), or none (Decima-PG).
    turns
        Whose turn it is, whatever is selected.

    Raises
    ------
    InvalidInput
        When there is no workload, jobs have no wall times, or the machine's nodes differ.
    UnknownName
        When there is no such objective or weight.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's own)

    def __init__(
        self,
        workloads: Sequence[Workload],
        cluster: Cluster,
        sight: ObservationEncoder = Rows(),  # noqa: B008 (it never changes)
        *,
        objective: str | Objective = "capability",
        levels: bool = True,
        turns: Turns = TURNS,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not workloads:
            raise InvalidInput("no workloads to learn from: at least 1 expected")
        self._workloads, self.cluster, self._settings = workloads, cluster, MachineSettings(**settings or {})
        self._sight, self._levels, self._turns = sight, levels, turns
        self._objective, self._next = objective_of(objective), 0
        for workload in workloads:
            check_walltimes(workload, cluster, self, self._settings, "DRAS")
        self.nodes = Engine(workloads[0], cluster, self._settings).view().all_slots
        if self.nodes < 1:
            raise InvalidInput("DRAS needs a machine of equal nodes, and jobs that share one kind of unit")
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, sight.shape(self.nodes), np.float32)
        self.action_space = gymnasium.spaces.Discrete(sight.window)

    needs_estimates = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Reals, dict[str, Any]]:
        """Begin the next episode.

        Raises
        ------
        InvalidInput
            When its jobs leave nothing to select, or make another machine of the cluster than the first set does.
        """
        super().reset(seed=seed)
        self._next = 0 if seed is not None else self._next
        workload = self._workloads[self._next]
        self._next = (self._next + 1) % len(self._workloads)
        self._engine = Engine(workload, self.cluster, self._settings)
        self._memory, self._instance = Memory(self._turns), 0
        if not self._advance():
            raise InvalidInput("a set of jobs that leaves nothing to select: at least 1 job that fits expected")
        if (total := self._selection.queue.total) != self.nodes:
            raise InvalidInput(f"with these jobs the machine has {total} units, with the first set {self.nodes}")
        return self._look(), self.info()

    def step(self, action: SupportsInt) -> tuple[Reals, float, bool, bool, dict[str, Any]]:
        """Select a job."""
        mode, reward = rewarded(self._selection, int(action), self._objective)
        over = False
        if self._selection.over:
            self._engine.apply(self._selection.decisions)
            over = not self._advance()
        return self._look(), reward, over, False, self.info() | {"mode": mode.value}

    def action_masks(self) -> Bools:
        """Which actions there are, shape (W,); none at the end."""
        return self._selection.mask

    def schedule(self) -> Schedule:
        """What has become of all jobs by now."""
        return self._engine.schedule()

    def _advance(self) -> bool:
        """Go on to the next decision with something to select; whether there is one."""
        while (view := self._engine.advance()) is not None:
            self._selection = Selection(queue_of(view), self._sight.window, self._memory, levels=self._levels)
            if not self._selection.over:
                self._instance += 1
                return True
            self._engine.apply(self._selection.decisions)
        return False

    def _look(self) -> Reals:
        if self._selection.over:
            return np.zeros(self._sight.shape(self.nodes), np.float32)
        return self._sight(self._selection)

    def info(self) -> dict[str, Any]:
        """Scheduling instances so far, and the time [s]."""
        return {"instance": self._instance, "now": self._engine.now}


def rewarded(selection: Selection, action: int, objective: Objective) -> tuple[Mode, float]:
    """Select a job; how it comes to start, and what that is worth."""
    places, queue = np.flatnonzero(selection.waiting), waiting_of(selection)
    place, mode = selection.select(action)
    selected = np.flatnonzero(places == place)
    return mode, objective.reward(queue, selected, selected[:0] if mode is Mode.RESERVED else selected)


def waiting_of(selection: Selection) -> Waiting:
    """What an objective looks at: the jobs that still wait, and how full the machine is."""
    queue, still = selection.queue, selection.waiting
    used = int(queue.held.sum())
    return Waiting(queue.wait[still], queue.estimate[still], queue.size[still], used, queue.total)
