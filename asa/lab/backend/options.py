"""The options of a simulated queue, named alike in Python and behind ``sim:`` on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from asa.core.errors import UnknownName
from asa.core.job import QueueRegime
from asa.core.specs import fitting
from asa.core.units import duration
from asa.lab.backend.scene import Machine, Scene, make_scene
from asa.lab.core.registry import PRIORITIES
from asa.lab.simulator.priority import Fifo, Multifactor
from asa.lab.simulator.settings import Settings


@dataclass(frozen=True)
class Options:
    """A simulated queue.

    Parameters
    ----------
    site
        A site model: its name, a file that holds one (``asa calibrate`` writes them), or a `Site`. On the command line
        the name alone is enough: ``sim:hpc2n``.
    trace
        Instead: a log of other people's jobs; see `asa.lab.traces.load`.
    load
        Instead: the offered load of other people's jobs, which are then those of the Lublin-Feitelson model; 0: none.
    nodes, cores, memory, gpus
        The machine, where neither site nor trace tells: nodes, and what each of them has; memory in bytes or like
        ``"64G"``. One node of one core unless given.
    seed
        Of other people's jobs.
    warmup
        How long the queue fills before one's own jobs come [days]. A model's time 0 is midnight, a site's that of a
        Monday; so by default it is noon.
    days
        How long other people go on to submit jobs from then on [days].
    dispatcher
        What starts jobs: a name of `asa.core.registry.DISPATCHERS`, or a `Dispatcher`; the site's, or EASY.
    priority
        The order of the queue, as in `Settings`; the site's, or first come, first served. Options that hold a comma
        need an object.
    regime
        What becomes of a dependent job's place: a word of `QueueRegime`. Anything but ``fifo`` means multifactor
        priority.
    placement, predictor
        As in `Settings`.
    longest
        Longest wall time that is allowed: seconds, or like ``"3d"``; None for no limit.
    poll_s
        Longest time between questions about jobs [s]. News come by themselves, so it need not be short.
    name
        Under which name waits are learned; ``sim-`` and what the queue is made of unless given.
    compute
        Whether tasks really call their functions. Otherwise every value is None.
    times
        An earlier run (its name, or its ``events.db``), whose run times the tasks have unless their stage declares one.

    Raises
    ------
    InvalidInput
        When values do not go together, or a source cannot be read.
    """

    site: Any = ""
    trace: str | Path = ""
    load: float = 0.0
    nodes: int = 0
    cores: int = 0
    memory: int | str = 0
    gpus: int = 0
    seed: int = 0
    warmup: float = 7.5
    days: float = 30.0
    dispatcher: Any = None
    priority: Any = None
    regime: QueueRegime | str | None = None
    placement: Any = "first-fit"
    predictor: Any = "user"
    longest: float | str | None = None
    poll_s: float = 3600.0
    name: str = ""
    compute: bool = True
    times: str | Path | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Options:
        """Options from keywords, or from a spec, in which a word without a value is the name of a site.

        Raises
        ------
        UnknownName
            When there is no such option.
        InvalidInput
            When one is text that should be a number or a boolean.
        """
        known, options = {item.name: item.type for item in fields(cls)}, dict(given)
        for word in [word for word, value in given.items() if word not in known]:
            if options[word] is not True or options.get("site"):
                raise UnknownName("option of backend 'sim':", word, known)
            options["site"] = word.replace("_", "-")
            del options[word]
        return cls(**{name: fitting(name, value, known[name]) for name, value in options.items()})

    @property
    def longest_s(self) -> float | None:
        """Longest wall time [s]."""
        return None if self.longest is None else duration(self.longest, what="longest")

    def scene(self) -> Scene:
        """The machine and other people's jobs."""
        made = make_scene(
            Machine(self.nodes, self.cores, self.memory, self.gpus),
            site=self.site,
            trace=self.trace,
            load=self.load,
            seed=self.seed,
            warmup=self.warmup,
            days=self.days,
        )
        return replace(
            made,
            name=self.name or made.name,
            dispatcher=made.dispatcher if self.dispatcher is None else self.dispatcher,
            priority=self._priority(made.priority),
        )

    def settings(self, scene: Scene) -> Settings:
        """How the machine behaves."""
        return Settings(placement=self.placement, priority=scene.priority, predictor=self.predictor, keep_nodes=False)

    def _priority(self, sites: Any) -> Fifo | Multifactor:
        model: Fifo | Multifactor = PRIORITIES.create(sites if self.priority is None else self.priority)
        if self.regime is None:
            return model
        words = [regime.value for regime in QueueRegime if regime is not QueueRegime.IMMEDIATE]
        regime = QueueRegime(self.regime) if self.regime in (*words, *QueueRegime) else None
        if regime in (None, QueueRegime.IMMEDIATE):
            raise UnknownName("regime", str(self.regime), words)
        if regime is QueueRegime.FIFO:
            return Fifo()
        return replace(model, regime=regime) if isinstance(model, Multifactor) else Multifactor(regime=regime)
