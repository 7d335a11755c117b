"""How a dispatcher of DRAS's is trained: which one, on what, for what reward.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, sections III-C and IV-D.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dispatcher import PATIENCE
from asa.lab.dispatchers.learned.model import Shape
from asa.lab.traces.resample import sampled, synthetic, weeks
from asa.lab.training.environment import objective_of


class Kind(NamedTuple):
    """A dispatcher that can be trained: the kind of its network, and whether it selects at two levels."""

    network: str
    levels: bool


KINDS: Mapping[str, Kind] = {"pg": Kind("pg", True), "dql": Kind("dql", True), "decima": Kind("pg", False)}
"""DRAS-PG, DRAS-DQL and Decima-PG."""


class System(NamedTuple):
    """What the paper has for one of its systems: the reward, and sizes of the hidden layers (table III)."""

    objective: str
    hidden: tuple[int, int]


SYSTEMS: Mapping[str, System] = {
    "theta": System("capability", (4000, 1000)),
    "cori": System("capacity", (10_000, 4000)),
}
"""A capability and a capacity system. How many nodes there are, the log says."""
PHASES = ("sampled", "real", "synthetic")
"""Sets of jobs in the paper's order, from the easiest: sampled from the log, weeks of the log, new ones like it."""


def system(name: str) -> System:
    """The system of this name.

    Raises
    ------
    UnknownName
        When there is none.
    """
    if name not in SYSTEMS:
        raise UnknownName("system", name, SYSTEMS)
    return SYSTEMS[name]


class Jobset(NamedTuple):
    """What an episode has: its phase, and its jobs."""

    phase: str
    jobs: Workload


@dataclass(frozen=True)
class Plan:
    """All that decides what becomes of a training, but the log.

    Parameters
    ----------
    kind
        One of `KINDS`.
    window
        Jobs in the window; >= 1.
    hidden
        Sizes of the fully connected layers; the paper's for Theta.
    scaling
        A name of `asa.lab.dispatchers.learned.observation.SCALINGS`. Deviation: the paper gives the network nodes and
        seconds (``"raw"``). A wait of a day then is 10^5 times a free node, and of a network with first weights at
        random the policy is all but deterministic before it has learned anything.
    objective
        The reward: ``"capability"`` or ``"capacity"``, with weights as options.
    rate
        Learning rate of Adam; > 0.
    discount
        Of DRAS-DQL: what a reward that comes an action later is worth, in [0, 1]; 1 as in the paper.
    patience
        See `asa.lab.dispatchers.learned.selection.Turns`; >= 0. The dispatcher that uses the model has one of its own.
    seed
        Of job sets, first weights and all that is drawn.
    order
        Phases in their order.
    jobs
        Jobs in each sampled and synthetic set; >= 1.
    sampled, synthetic
        How many such sets there are; >= 0.
    episodes
        How many to run at most; 0: one for each set.

    Raises
    ------
    InvalidInput
        When a number is out of its bounds.
    UnknownName
        When there is no such kind, scaling, phase, objective or weight of one.
    """

    kind: str = "pg"
    window: int = 50
    hidden: tuple[int, int] = (4000, 1000)
    scaling: str = "shares"
    objective: str = "capability"
    rate: float = 0.001
    discount: float = 1.0
    patience: float = PATIENCE
    seed: int = 0
    order: tuple[str, ...] = PHASES
    jobs: int = 3200
    sampled: int = 9
    synthetic: int = 82
    episodes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of dispatcher to train", self.kind, KINDS)
        for phase in self.order:
            if phase not in PHASES:
                raise UnknownName("phase of a training", phase, PHASES)
        counts = min(self.sampled, self.synthetic, self.episodes, self.patience)
        if not (self.rate > 0 and 0 <= self.discount <= 1 and self.jobs >= 1 and counts >= 0):
            raise InvalidInput(
                f"{self}: a rate above 0, a discount in [0, 1], sets of at least 1 job, counts of at least 0 expected"
            )
        objective_of(self.objective)
        self.shape(1)

    def shape(self, nodes: int) -> Shape:
        """The network, on a machine of so many nodes."""
        kind = KINDS[self.kind]
        return Shape(kind.network, nodes, self.window, self.hidden, self.scaling, kind.levels)

    def jobsets(self, log: Workload) -> Iterator[Jobset]:
        """What the episodes have, in order; the same for the same seed, whatever the order of the phases is.

        Raises
        ------
        InvalidInput
            When the log has no job, or there is no set.
        """
        seeds = np.random.SeedSequence(self.seed).generate_state(self.sampled + self.synthetic).tolist()
        easy, new = seeds[: self.sampled], seeds[self.sampled :]
        made = {
            "sampled": (sampled(log, self.jobs, seed=seed) for seed in easy),
            "real": iter(weeks(log)),
            "synthetic": (synthetic(log, self.jobs, seed=seed) for seed in new),
        }
        found = (Jobset(phase, jobs) for phase in self.order for jobs in made[phase])
        for number, jobset in enumerate(found):
            if self.episodes and number == self.episodes:
                return
            yield jobset

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return asdict(self) | {"hidden": list(self.hidden), "order": list(self.order)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Plan:
        """A plan from what `to_json` made.

        Raises
        ------
        InvalidInput
            When it is not that.
        """
        try:
            return cls(**{**values, "hidden": tuple(values["hidden"]), "order": tuple(values["order"])})
        except (KeyError, TypeError) as error:
            names = ", ".join(each.name for each in fields(cls))
            raise InvalidInput(f"no plan of a training: {error!r}; it has {names}") from error
