"""How a simulated machine behaves, and in which order its queue stands.

References
----------
SchedMD, "Multifactor Priority Plugin", https://slurm.schedmd.com/priority_multifactor.html.
SchedMD, "Fair Tree Fairshare Algorithm", https://slurm.schedmd.com/fair_tree.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import QueueRegime
from asa.core.ports import JobPredictor, Placement
from asa.core.units import check_number
from asa.lab.core.registry import PLACEMENTS, PRIORITIES

# -- Order of the queue -----------------------------------------------------------------------------------------------

FIFO, NICED, MULTIFACTOR = range(3)


@dataclass(frozen=True)
class Fifo:
    """Jobs stand in the order in which they were submitted; `nice` moves one behind so many others.

    What is released from a hold goes to the end, as in Slurm's ``priority/basic``.
    """

    regime: QueueRegime = QueueRegime.FIFO

    def weights(self) -> Floats:
        return np.array([FIFO, 0.0, 0.0, 0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Multifactor:
    """Slurm's multifactor priority: a weighted sum of factors in [0, 1], less the job's nice value.

    Deviations: factors are those of the very moment, where Slurm makes them anew every few minutes
    (``PriorityCalcPeriod``): those of fair share only with `calc_period_s`. In the classic formula all users have equal
    shares.

    Parameters
    ----------
    age, size, fairshare, qos
        Weights, >= 0. The age factor grows with the time since the job began to age; the size factor is its part of
        the machine's cores; the fair-share factor is ``2 ** -(usage / share)``, with shares of all users' usage, or
        that of `tree`; the QOS factor is the job's own.
    tree
        Fair Tree: users are ranked by what they, and the accounts above them, have used of their shares. Accounts are
        the machine's, and the groups of jobs.
    max_age_s
        Age at which that factor is 1 [s].
    half_life_s
        After so long [s], usage counts half. That of running jobs counts, too.
    calc_period_s
        Fair-share factors are made anew at multiples of this time [s]; 0 for each decision.
    regime
        Who ages: ``MULTIFACTOR`` where limits are not enforced, ``LIMITS`` where they are, ``ACCRUE_ALWAYS`` with that
        flag.

    Raises
    ------
    InvalidInput
        When a weight is negative, a time is not positive, or the regime has no ages.
    """

    age: float = 1000.0
    size: float = 0.0
    fairshare: float = 0.0
    qos: float = 0.0
    max_age_s: float = 7 * 86400.0
    half_life_s: float = 7 * 86400.0
    tree: bool = False
    calc_period_s: float = 0.0
    regime: QueueRegime | str = QueueRegime.LIMITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "regime", _regime(self.regime))
        for name in ("age", "size", "fairshare", "qos"):
            if not getattr(self, name) >= 0:
                raise InvalidInput(f"weight {name!r} must be at least 0, not {getattr(self, name)!r}")
        if not (self.max_age_s > 0 and self.half_life_s > 0):
            raise InvalidInput(
                f"max_age_s and half_life_s must be above 0 s, not {self.max_age_s!r} and {self.half_life_s!r}"
            )
        if not self.calc_period_s >= 0:
            raise InvalidInput(f"calc_period_s must be at least 0 s, not {self.calc_period_s!r}")

    def weights(self) -> Floats:
        return np.array([MULTIFACTOR, self.age, self.size, self.fairshare, self.qos, self.max_age_s])


def _regime(word: QueueRegime | str) -> QueueRegime:
    ageing = (QueueRegime.MULTIFACTOR, QueueRegime.LIMITS, QueueRegime.ACCRUE_ALWAYS)
    for regime in ageing:
        if word in (regime, regime.value):
            return regime
    raise InvalidInput(f"regime {word!r} has no ages: choose one of {', '.join(each.value for each in ageing)}")


# -- Settings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineSettings:
    """How a simulated machine behaves.

    Parameters
    ----------
    placement
        On which nodes jobs run: ``"first-fit"``, ``"best-fit"``, ``"contiguous"``, or a `Placement`.
    priority
        The order of the queue: ``"fifo"``, ``"multifactor"`` with options as in
        ``"multifactor:age=1000,regime=limits"``, or such an object.
    predictor
        How long the dispatcher takes jobs to run: ``"user"`` (their wall times), ``"oracle"`` (their run times),
        ``"knn"``, ``"last-two"``, ``"heuristic"``, or a `JobPredictor`.
    overrun
        What becomes of a job whose run time is longer than its wall time: ``"clip"`` ends it there, ``"allow"`` lets it
        run.
    node_failure
        What becomes of the jobs of a node that fails: ``"requeue"`` or ``"fail"``.
    instant
        When events of one instant are decided on: ``"together"``, after all of them; or ``"one-by-one"``: expected ends
        first, then each submission, then each early end, with a decision after every one. The second is what pyss does,
        whose scheduler is called by each event and knows of the others only what it expects.
    resize_s
        How long a malleable job does not get on when its width changes [s]; its wall time is longer by that; >= 0.
    """

    placement: Any = "first-fit"
    priority: Any = "fifo"
    predictor: Any = "user"
    overrun: str = "clip"
    node_failure: str = "requeue"
    instant: str = "together"
    keep_nodes: bool = True
    resize_s: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (
            ("overrun", ("clip", "allow")),
            ("node_failure", ("requeue", "fail")),
            ("instant", ("together", "one-by-one")),
        ):
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), known)
        check_number("resize_s", self.resize_s, 0)
        if not isinstance(self.model, Fifo | Multifactor):
            raise InvalidInput(f"priority must be fifo or multifactor, not {self.priority!r}")

    @cached_property
    def model(self) -> Fifo | Multifactor:
        model: Fifo | Multifactor = PRIORITIES.create(self.priority)
        return model

    @cached_property
    def method(self) -> Placement:
        method: Placement = PLACEMENTS.create(self.placement)
        return method

    @property
    def native(self) -> int | None:
        """Code of the compiled placement, or None for one of Python's."""
        return getattr(self.method, "native", None)

    @cached_property
    def learner(self) -> JobPredictor | None:
        """What predicts run times as jobs come and go, or None where that is settled from the start."""
        if self.predictor in ("user", "oracle"):
            return None
        from asa.lab.core.registry import PREDICTORS

        learner: JobPredictor = PREDICTORS.create(self.predictor)
        return learner
