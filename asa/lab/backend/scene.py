"""What a simulated queue is made of: a machine, other people's jobs, how they start; and the options of ``sim:``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import QueueRegime
from asa.core.registry import fitting
from asa.core.units import DAY, check_number, duration
from asa.core.units import memory as size
from asa.lab.core.cluster import Cluster
from asa.lab.core.registry import PRIORITIES
from asa.lab.core.workload import Workload
from asa.lab.simulator.settings import Fifo, MachineSettings, Multifactor

if TYPE_CHECKING:
    from asa.lab.traces.site import SiteModel

# -- Scene -------------------------------------------------------------------------------------------------------------

_FEW = 1000


@dataclass(frozen=True, eq=False)
class QueueScene:
    """A machine and what goes on there besides one's own jobs.

    Parameters
    ----------
    cluster, workload
        The machine, and other people's jobs.
    start
        When one's own jobs come [s on the workload's clock]; before it, the queue fills.
    end
        From when on other people submit nothing any more [s]; infinite when there are no other users at all.
    """

    name: str
    cluster: Cluster
    workload: Workload
    dispatcher: Any = "easy"
    priority: Any = "fifo"
    start: float = 0.0
    end: float = math.inf


@dataclass(frozen=True)
class SimulatedMachine:
    """A machine of equal nodes, as far as it was said; None where it was not. `memory` like ``"64G"``.

    Raises
    ------
    InvalidInput
        When a number is out of range.
    """

    nodes: int | None = None
    cores: int | None = None
    memory: str | None = None
    gpus: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("cores", 1), ("gpus", 0)):
            if (value := getattr(self, name)) is not None:
                check_number(name, value, least, whole=True)

    def cluster(self) -> Cluster:
        """The machine; one node of one core unless the options say otherwise."""
        return Cluster.of(self.nodes or 1, self.cores or 1, self.bytes, self.gpus or 0)

    @property
    def bytes(self) -> int:
        """Its memory [bytes]; 0 where it was not said."""
        return 0 if self.memory is None else size(self.memory)

    def refuse(self, source: str) -> None:
        """Raise when anything was said, because `source` says it all."""
        if self != SimulatedMachine():
            raise InvalidInput(f"{source} has a machine of its own: leave nodes=, cores=, memory= and gpus= out")


def make_scene(
    machine: SimulatedMachine,
    *,
    site: Any = "",
    trace: str | Path = "",
    load: float = 0.0,
    seed: int = 0,
    warmup: float,
    days: float,
) -> QueueScene:
    """The scene that these options describe: a site model, a trace, a load, or an empty machine.

    Parameters
    ----------
    load
        Offered load of the Lublin-Feitelson model's jobs; 0 for none.
    warmup, days
        How long the queue fills before `QueueScene.start`, and how long others go on to submit from then on [days].

    Raises
    ------
    InvalidInput
        When two sources are named, one cannot be read, or a trace is shorter than the warm-up.
    """
    if sum(map(bool, (site, trace, load))) > 1:
        raise InvalidInput(
            f"site={site!r}, trace={str(trace)!r}, load={load!r}: other people's jobs have one source, give one of them"
        )
    check_number("load", load, 0)
    check_number("seed", seed, 0, whole=True)
    check_number("warmup", warmup, 0)
    check_number("days", days, 0, above=True)
    start, end = warmup * DAY, (warmup + days) * DAY
    if site:
        machine.refuse("a site model")
        return _of_site(site, start, end, seed)
    if trace:
        return _of_trace(Path(trace), machine, start, end)
    cluster = machine.cluster()
    name = f"sim-{cluster.nodes}x{int(cluster.capacity[0, 0])}"
    if load:
        return QueueScene(f"{name}-load{load:g}", cluster, at_load(cluster, load, end, seed), start=start, end=end)
    return QueueScene(name, cluster, Workload.of(submit=[], run=[], cores=[]), start=start)


def at_load(cluster: Cluster, load: float, span_s: float, seed: int) -> Workload:
    """Jobs of the Lublin-Feitelson model that offer `load` to a machine from midnight on, for `span_s` [s] at least.

    Users ask for round wall times, as they do (`modal`): exact ones would make backfilling look better than it is.
    """
    from asa.lab.traces.lublin import lublin
    from asa.lab.traces.patterns import span, work

    if not 0 < load < math.inf:
        raise InvalidInput(f"load={load!r}: a number above 0 expected, such as 0.7")
    jobs = _FEW
    while True:
        made = lublin(jobs, cluster.cores, seed=seed, load=load, estimates="modal")
        if span(made) >= span_s:
            return made.between(-math.inf, span_s)
        mean = work(made) / jobs
        jobs = max(2 * jobs, math.ceil(1.1 * load * cluster.cores * span_s / mean))


def _of_site(given: Any, start: float, end: float, seed: int) -> QueueScene:
    from asa.lab.traces.site import site as known

    model: SiteModel = known(given) if isinstance(given, str) else given
    return QueueScene(
        f"sim-{model.name}", model.cluster(), model.workload(end, seed), model.dispatcher, model.priority, start, end
    )


def _of_trace(path: Path, machine: SimulatedMachine, start: float, end: float) -> QueueScene:
    from asa.lab.traces.load import load_trace

    trace = load_trace(path)
    cluster = trace.machine(machine.nodes or 0, machine.cores or 0, machine.bytes, machine.gpus or 0)
    first = float(trace.workload.submit[0]) if len(trace.workload) else 0.0
    last = float(trace.workload.submit[-1]) if len(trace.workload) else 0.0
    if last <= first + start:
        raise InvalidInput(
            f"the jobs of {path} were submitted within {(last - first) / DAY:.3g} days, which is not more than the "
            f"warm-up of {start / DAY:g} days: give a smaller warmup="
        )
    workload = trace.workload.between(first, first + end)
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return QueueScene(f"sim-{stem}", cluster, workload, start=first + start, end=min(last, first + end))


# -- Options -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimulationOptions:
    """A simulated queue.

    Parameters
    ----------
    site
        A site model: its name, a file that holds one (``asa calibrate`` writes them), or a `SiteModel`. On the command
        line the name alone is enough: ``sim:hpc2n``.
    trace
        Instead: a log of other people's jobs; see `asa.lab.traces.load`.
    load
        Instead: the offered load of other people's jobs, which are then those of the Lublin-Feitelson model; 0: none.
    nodes, cores, memory, gpus
        The machine, where neither site nor trace tells: nodes, and what each of them has; memory like ``"64G"``.
        One node of one core unless given.
    warmup
        How long the queue fills before one's own jobs come [days]. A model's time 0 is midnight, a site's that of a
        Monday; so by default it is noon.
    days
        How long other people go on to submit jobs from then on [days].
    dispatcher
        What starts jobs: a name of `asa.core.registry.DISPATCHERS`, or a `Dispatcher`; the site's, or EASY.
    priority
        The order of the queue, as in `MachineSettings`; the site's, or first come, first served. Options that hold a
        comma need an object.
    regime
        What becomes of a dependent job's place: a word of `QueueRegime`. Anything but ``fifo`` means multifactor
        priority.
    placement, predictor
        As in `MachineSettings`.
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

    site: str | SiteModel = ""
    trace: str | Path = ""
    load: float = 0.0
    nodes: int | None = None
    cores: int | None = None
    memory: str | None = None
    gpus: int | None = None
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
    def read(cls, given: Mapping[str, Any]) -> SimulationOptions:
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
        given = {name: value for name, value in options.items() if value is not None}
        return cls(**{name: fitting(name, value, known[name]) for name, value in given.items()})

    @property
    def longest_s(self) -> float | None:
        return None if self.longest is None else duration(self.longest, what="longest")

    def scene(self) -> QueueScene:
        """The machine and other people's jobs."""
        check_number("poll_s", self.poll_s, 0, above=True)
        made = make_scene(
            SimulatedMachine(self.nodes, self.cores, self.memory, self.gpus),
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

    def settings(self, scene: QueueScene) -> MachineSettings:
        return MachineSettings(
            placement=self.placement, priority=scene.priority, predictor=self.predictor, keep_nodes=False
        )

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
