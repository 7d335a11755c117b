"""A simulated queue at the moment at which runs begin, and what its users had seen of it by then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.ports import Estimator
from asa.core.units import DAY, WEEK
from asa.lab.backend.options import Options
from asa.lab.backend.simulated import Simulated
from asa.lab.dispatchers.backfill import Rule, rule_of
from asa.lab.simulator.engine import Engine
from asa.lab.studies.accuracy import Probe, foretell
from asa.lab.studies.probes import Kind, watch
from asa.lab.virtual import MemoryWaits

Probes = Mapping[Kind, Sequence[Probe]]


@dataclass(frozen=True)
class Queue:
    """Which queue, and since when it is watched.

    Parameters
    ----------
    system
        A site model: its name, a file that holds one, or a `Site`.
    regime
        What becomes of a dependent job's place, as `asa.lab.backend.options.Options` takes it; None for the
        site's own.
    seed
        Of other people's jobs.
    warmup
        How long it fills at least before the runs begin [days]. They begin within the week after that, at a time that
        depends on the seed, so that a mean over seeds is one over the hours of the week.
    days
        How long others go on to submit jobs after the runs have begun [days].
    learning, every_s
        For how long before the runs it is watched [days], and how often a probe of each kind is submitted [s].
    """

    system: Any
    regime: str | None = None
    seed: int = 0
    warmup: float = 7.0
    days: float = 14.0
    learning: float = 3.0
    every_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 0 < self.learning < self.warmup:
            raise InvalidInput(
                f"learning={self.learning!r} is not above 0 and less than the warm-up of {self.warmup!r} days: give a "
                "smaller learning= or a larger warmup="
            )
        if not self.every_s >= 1:
            raise InvalidInput(f"every_s={self.every_s!r}: at least 1 s between probes expected")

    @property
    def begin(self) -> float:
        """When the runs begin [days]."""
        return self.warmup + float(np.random.default_rng(self.seed).uniform(0.0, WEEK / DAY))


@dataclass(frozen=True, eq=False)
class Scene:
    """A queue at the moment at which runs begin.

    Parameters
    ----------
    name
        The site's.
    engine
        The machine; never let time pass on it, but on copies.
    dispatcher, rule
        What starts its jobs, and its compiled form.
    end
        From when on other people submit nothing any more [s].
    probes
        What was seen, by kind of job.
    """

    name: str
    engine: Engine
    dispatcher: Any
    rule: Rule
    end: float
    probes: Probes

    @property
    def regime(self) -> str:
        """What becomes of a dependent job's place."""
        return QueueRegime(self.engine.settings.model.regime).value

    def queue(self) -> Simulated:
        """A copy of it, for one run."""
        return Simulated(engine=self.engine.copy(), name=self.name, dispatcher=self.dispatcher)

    def learned(self, estimator: str, seed: int) -> MemoryWaits:
        """What an estimator knows when runs begin: the waits of all probes that have started by then."""
        waits = MemoryWaits(estimator, seed)
        together: dict[int, tuple[Estimator, list[Probe]]] = {}  # kinds of one geometry have one estimator
        for kind, found in self.probes.items():
            each = waits.of(Resources(cores=kind.cores), kind.walltime_s)
            together.setdefault(id(each), (each, []))[1].extend(found)
        for each, found in together.values():
            foretell(each, sorted(found), until=self.engine.now)
        return waits


def set_scene(queue: Queue, kinds: Callable[[Capabilities], Iterable[Kind]]) -> Scene:
    """Fill a queue, watch what jobs of some kinds wait, and stop when runs are to begin.

    Parameters
    ----------
    queue
        Which.
    kinds
        Tells the kinds from what the machine is like.

    Raises
    ------
    InvalidInput
        When there is no such site, or its dispatcher is not a compiled rule.
    """
    options = Options(site=queue.system, regime=queue.regime, seed=queue.seed, warmup=queue.begin, days=queue.days)
    made = options.scene()
    name = made.name.removeprefix("sim-")
    rule = rule_of(made.dispatcher)
    scene = Scene(
        name, Engine(made.workload, made.cluster, options.settings(made)), made.dispatcher, rule, made.end, {}
    )
    chosen = kinds(scene.queue().capabilities())
    times = np.arange(made.start - queue.learning * DAY, made.start, queue.every_s).tolist()
    probes = watch(scene.engine, rule, chosen, times)
    scene.engine.drive(rule, until=made.start)
    return replace(scene, probes=probes)
