"""What a simulated queue is made of: a machine, other people's jobs, and how they are served."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.core.units import memory as size
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload

_FEW = 1000


@dataclass(frozen=True, eq=False)
class Scene:
    """A machine and what goes on there besides one's own jobs.

    Parameters
    ----------
    name
        What it is called.
    cluster, workload
        The machine, and other people's jobs.
    dispatcher, priority
        What starts jobs, and in which order they stand.
    start
        When one's own jobs come [s on the workload's clock]; before it, the queue fills.
    end
        From when on other people submit nothing any more [s]; infinite when nobody else is there at all.
    """

    name: str
    cluster: Cluster
    workload: Workload
    dispatcher: Any = "easy"
    priority: Any = "fifo"
    start: float = 0.0
    end: float = math.inf


@dataclass(frozen=True)
class Machine:
    """A machine of equal nodes, as far as it was said; 0 where it was not. `memory` in bytes or like ``"64G"``."""

    nodes: int = 0
    cores: int = 0
    memory: int | str = 0
    gpus: int = 0

    def cluster(self) -> Cluster:
        """The machine; one node of one core unless told otherwise."""
        return Cluster.of(self.nodes or 1, self.cores or 1, self.bytes, self.gpus)

    @property
    def bytes(self) -> int:
        """Its memory [bytes]; 0 where it was not said."""
        return size(self.memory) if self.memory else 0

    def refuse(self, source: str) -> None:
        """Raise when anything was said, because `source` says it all."""
        if self != Machine():
            raise InvalidInput(f"{source} has a machine of its own: leave nodes=, cores=, memory= and gpus= out")


def make_scene(
    machine: Machine,
    *,
    site: Any = "",
    trace: str | Path = "",
    load: float = 0.0,
    seed: int = 0,
    warmup: float,
    days: float,
) -> Scene:
    """The scene that these options describe: a site model, a trace, a load, or an empty machine.

    Parameters
    ----------
    machine
        The machine, where the source does not tell.
    site
        A `Site`, the name of one, or a file that holds one.
    trace
        A log of jobs; see `asa.lab.traces.load`.
    load
        Offered load of the Lublin-Feitelson model's jobs; 0 for none.
    seed
        Of the model.
    warmup, days
        How long the queue fills before `Scene.start`, and how long others go on to submit from then on [days].

    Raises
    ------
    InvalidInput
        When two sources are named, one cannot be read, or a trace is shorter than the warm-up.
    """
    if sum(map(bool, (site, trace, load))) > 1:
        raise InvalidInput(
            f"site={site!r}, trace={str(trace)!r}, load={load!r}: other people's jobs have one source, give one of them"
        )
    if not (0 <= warmup < math.inf and 0 < days < math.inf):
        raise InvalidInput(f"warmup={warmup!r}, days={days!r}: days of at least 0, and above 0, expected")
    start, end = warmup * DAY, (warmup + days) * DAY
    if site:
        machine.refuse("a site model")
        return _of_site(site, start, end, seed)
    if trace:
        return _of_trace(Path(trace), machine, start, end)
    cluster = machine.cluster()
    name = f"sim-{cluster.nodes}x{int(cluster.capacity[0, 0])}"
    if load:
        return Scene(f"{name}-load{load:g}", cluster, at_load(cluster, load, end, seed), start=start, end=end)
    return Scene(name, cluster, Workload.of(submit=[], run=[], cores=[]), start=start)


def at_load(cluster: Cluster, load: float, span_s: float, seed: int) -> Workload:
    """Jobs of the Lublin-Feitelson model that offer `load` to a machine from midnight on, for `span_s` [s] at least.

    Users ask for round wall times, as they do (`modal`): exact ones would make backfilling look better than it is.
    """
    from asa.lab.traces.lublin import lublin
    from asa.lab.traces.offered import span, work

    if not 0 < load < math.inf:
        raise InvalidInput(f"load={load!r}: a number above 0 expected, such as 0.7")
    jobs = _FEW
    while True:
        made = lublin(jobs, cluster.cores, seed=seed, load=load, estimates="modal")
        if span(made) >= span_s:
            return made.between(-math.inf, span_s)
        mean = work(made) / jobs
        jobs = max(2 * jobs, math.ceil(1.1 * load * cluster.cores * span_s / mean))


def _of_site(given: Any, start: float, end: float, seed: int) -> Scene:
    from asa.lab.traces.site import Site
    from asa.lab.traces.sites import site as known

    model: Site = known(given) if isinstance(given, str) else given
    return Scene(
        f"sim-{model.name}", model.cluster(), model.workload(end, seed), model.dispatcher, model.priority, start, end
    )


def _of_trace(path: Path, machine: Machine, start: float, end: float) -> Scene:
    from asa.lab.traces.load import load_trace

    trace = load_trace(path)
    cluster = trace.machine(machine.nodes, machine.cores, machine.bytes, machine.gpus)
    first = float(trace.workload.submit[0]) if len(trace.workload) else 0.0
    last = float(trace.workload.submit[-1]) if len(trace.workload) else 0.0
    if last <= first + start:
        raise InvalidInput(
            f"the jobs of {path} were submitted within {(last - first) / DAY:.3g} days, which is not more than the "
            f"warm-up of {start / DAY:g} days: give a smaller warmup="
        )
    workload = trace.workload.between(first, first + end)
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    return Scene(f"sim-{stem}", cluster, workload, start=first + start, end=min(last, first + end))
