"""In which order a machine's queue stands: by submission, or by Slurm's multifactor priority.

References
----------
SchedMD, "Multifactor Priority Plugin", https://slurm.schedmd.com/priority_multifactor.html.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.lab.core.compiled import inner, inner_allocating
from asa.lab.core.ranking import picked, ranking
from asa.lab.simulator.state import State

FIFO, NICED, MULTIFACTOR = range(3)


@dataclass(frozen=True)
class Fifo:
    """Jobs stand in the order in which they were submitted; `nice` moves one behind so many others.

    What is released from a hold goes to the end, as in Slurm's ``priority/basic``.
    """

    regime: QueueRegime = QueueRegime.FIFO

    def weights(self) -> Floats:
        """The model as numbers, for the compiled engine."""
        return np.array([FIFO, 0.0, 0.0, 0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Multifactor:
    """Slurm's multifactor priority: a weighted sum of factors in [0, 1], less the job's nice value.

    Deviations: factors are those of the very moment, where Slurm makes them anew every few minutes
    (``PriorityCalcPeriod``); a user's usage counts when a job has ended; all users have equal shares.

    Parameters
    ----------
    age, size, fairshare, qos
        Weights, >= 0. The age factor grows with the time since the job began to age; the size factor is its part of
        the machine's cores; the fair-share factor is ``2 ** -(usage / share)``, with shares of all users' usage; the
        QOS factor is the job's own.
    max_age_s
        Age at which that factor is 1 [s].
    half_life_s
        After so long [s], usage counts half.
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

    def weights(self) -> Floats:
        """The model as numbers, for the compiled engine."""
        return np.array([MULTIFACTOR, self.age, self.size, self.fairshare, self.qos, self.max_age_s])


def _regime(word: QueueRegime | str) -> QueueRegime:
    ageing = (QueueRegime.MULTIFACTOR, QueueRegime.LIMITS, QueueRegime.ACCRUE_ALWAYS)
    for regime in ageing:
        if word in (regime, regime.value):
            return regime
    raise InvalidInput(f"regime {word!r} has no ages: choose one of {', '.join(each.value for each in ageing)}")


@inner_allocating
def prioritise(s: State, weights: Floats) -> Ints:
    """The waiting rows, in order of priority; equal ones by place."""
    world = s.world[0]
    waiting = s.queue[: world.waiting]
    keys = np.empty(len(waiting))
    if weights[0] == NICED:
        for k in range(len(waiting)):
            keys[k] = s.jobs[waiting[k]].place + s.jobs[waiting[k]].nice
        return picked(waiting, ranking(keys))
    cores = 0
    for node in range(len(s.full)):
        cores += s.full[node, 0]
    total = 0.0
    for user in range(len(s.usage)):
        total += _used(s, user)
    for k in range(len(waiting)):
        job = s.jobs[waiting[k]]
        age = min(1.0, max(0.0, world.now - job.accrue) / weights[5])
        share = 1.0
        if weights[3] > 0 and total > 0 and job.user >= 0:
            share = 2.0 ** -(_used(s, job.user) / total * len(s.usage))
        value = weights[1] * age + weights[2] * job.cores / cores + weights[3] * share + weights[4] * job.qos - job.nice
        keys[k] = -max(value, 1.0)  # no priority is below 1
    return picked(waiting, ranking(keys))


@inner
def _used(s: State, user: int) -> float:
    """What a user has used, by now [core-s, decayed]."""
    world = s.world[0]
    return float(s.usage[user, 0] * 0.5 ** ((world.now - s.usage[user, 1]) / world.half_life))
