"""What jobs would wait in a simulated queue: probes in copies of the machine, which do not disturb it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.job import Capabilities, DependencyKind, QueueRegime, Resources
from asa.core.ports import Estimator
from asa.core.registry import is_pooled
from asa.core.units import DAY, WEEK
from asa.lab.asa_paper.accuracy import Probe, in_turn, predict_all
from asa.lab.asa_paper.published import SCALES
from asa.lab.asa_paper.queue_history import ObservedWait, QueueHistory, contexts
from asa.lab.backend.scene import SimulationOptions
from asa.lab.backend.simulated import Simulated
from asa.lab.dispatchers.backfill import BackfillRule, rule_of
from asa.lab.forecast.futures import Ahead, visible
from asa.lab.forecast.lookahead import Lookahead
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.state import StopReason
from asa.lab.virtual import MemoryWaits

PROBE_RUN_S = 1.0
"""How long a probe runs [s]: it asks for its wall time and ends at once, so that it delays no job."""


class JobKind(NamedTuple):
    """A kind of job: its cores and its wall time [s]."""

    cores: int
    walltime_s: float


def watch(
    engine: Engine, rule: BackfillRule, kinds: Iterable[JobKind], times: Sequence[float]
) -> dict[JobKind, list[Probe]]:
    """Waits of jobs of each kind, submitted at each of `times` [s]; the machine itself is driven to the last of them.

    All jobs of one time are submitted to the same copy, the smallest first: none has a larger one before it.

    Raises
    ------
    InvalidInput
        When times do not increase, one has passed, or a job never starts.
    """
    found: dict[JobKind, list[Probe]] = {kind: [] for kind in sorted(set(kinds))}
    for at in times:
        if at < engine.now:
            raise InvalidInput(f"nothing can be submitted at {at:g} s: it is {engine.now:g} s already")
        engine.dispatch(rule, until=at)
        copy = engine.copy()
        rows = {kind: submit(copy, kind, PROBE_RUN_S) for kind in found}
        starts = started(copy, rule, list(rows.values()))
        for kind, start in zip(rows, starts, strict=True):
            found[kind].append(Probe(at, start - at))
    return found


def submit(engine: Engine, kind: JobKind, run_time_s: float, at: float | None = None, after: Sequence[int] = ()) -> int:
    """Submit a job of single cores, now or at a later time [s], which waits for the jobs of some rows; its row."""
    return operations.submit(
        engine,
        run=run_time_s,
        walltime=kind.walltime_s,
        units=kind.cores,
        need=(1,) + (0,) * (len(engine.cluster.resources) - 1),
        after=[(row, DependencyKind.AFTER_OK) for row in after],
        at=at,
    )


def started(engine: Engine, rule: BackfillRule, rows: Sequence[int]) -> list[float]:
    """When the jobs of these rows start [s]; lets time pass until all of them have."""
    while math.isnan(max(starts := engine.state.jobs["started"][list(rows)].tolist(), key=math.isnan)):
        if engine.dispatch(rule) is StopReason.OVER:
            raise InvalidInput("a job would never start in this queue: nothing more happens in it")
    return [float(start) for start in starts]


Probes = Mapping[JobKind, Sequence[Probe]]


@dataclass(frozen=True)
class WatchedQueue:
    """Which queue, and since when it is watched.

    Parameters
    ----------
    system
        A site model: its name, a file that holds one, or a `Site`.
    regime
        What becomes of a dependent job's place, as `asa.lab.backend.scene.SimulationOptions` takes it; None for the
        site's own.
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
class QueueSnapshot:
    """A queue at the moment at which runs begin.

    Parameters
    ----------
    engine
        The machine; never let time pass on it, but on copies.
    end
        From when on other people submit nothing any more [s].
    """

    name: str
    engine: Engine
    dispatcher: Any
    rule: BackfillRule
    end: float
    probes: Probes

    @property
    def regime(self) -> str:
        """What becomes of a dependent job's place."""
        return QueueRegime(self.engine.settings.model.regime).value

    def queue(self) -> Simulated:
        """A copy of it, for one run."""
        return Simulated(engine=self.engine.copy(), name=self.name, dispatcher=self.dispatcher)


def snapshot(queue: WatchedQueue, kinds: Callable[[Capabilities], Iterable[JobKind]]) -> QueueSnapshot:
    """Fill a queue, watch what jobs of some kinds wait, and stop when runs are to begin."""
    options = SimulationOptions(
        site=queue.system, regime=queue.regime, seed=queue.seed, warmup=queue.begin, days=queue.days
    )
    made = options.scene()
    name = made.name.removeprefix("sim-")
    rule = rule_of(made.dispatcher)
    scene = QueueSnapshot(
        name, Engine(made.workload, made.cluster, options.settings(made)), made.dispatcher, rule, made.end, {}
    )
    chosen = kinds(scene.queue().capabilities())
    times = np.arange(made.start - queue.learning * DAY, made.start, queue.every_s).tolist()
    probes = watch(scene.engine, rule, chosen, times)
    scene.engine.dispatch(rule, until=made.start)
    return replace(scene, probes=probes)


def learned_waits(scene: QueueSnapshot, estimator: str, seed: int) -> MemoryWaits:
    """What an estimator has learned from the probes that had started when runs begin.

    Estimators that are kept for each geometry learn waits alone; pooled ones learn those of all kinds in the order of
    their starts, each with its context at submission, which they also get in a run.
    """
    waits = MemoryWaits(estimator, seed)
    if not is_pooled(estimator):
        together: dict[int, tuple[Estimator, list[Probe]]] = {}  # kinds of one geometry have one estimator
        for kind, found in scene.probes.items():
            each = waits.of(Resources(cores=kind.cores), kind.walltime_s)
            together.setdefault(id(each), (each, []))[1].extend(found)
        for each, found in together.values():
            predict_all(each, sorted(found), until=scene.engine.now)
    elif probes := seen_probes(scene):
        pooled = waits.of(Resources(cores=probes[0].size), probes[0].context.walltime_s)
        in_turn(
            [probe.submitted for probe in probes],
            [probe.started for probe in probes],
            lambda place: pooled.predict(probes[place].context),
            lambda place, said: pooled.learn(probes[place].wait_s, said, probes[place].context),
            until=scene.engine.now,
        )
    return waits


def seen_probes(scene: QueueSnapshot) -> list[ObservedWait]:
    """The probes of a scene in order of submission, the smallest first.

    Each stands for the first job of another user: none of its own waits or runs.
    """
    queue, capacity = QueueHistory.by(scene.engine.schedule(), scene.engine.now), scene.engine.cluster.cores
    found: list[ObservedWait] = []
    for kind, probes in scene.probes.items():
        times, none = np.array([probe.submitted for probe in probes]), np.zeros(len(probes))
        known = contexts(
            queue,
            queue.at(times),
            np.full(len(probes), kind.cores),
            np.full(len(probes), kind.walltime_s),
            capacity,
            epoch=0.0,
            plan=True,
            pending_s=none.tolist(),
            own_queued=none.astype(int).tolist(),
            own_backlog_s=none.tolist(),
            own_cores=none.astype(int).tolist(),
        )
        found += [
            ObservedWait(kind.cores, probe.submitted, probe.wait_s, context)
            for probe, context in zip(probes, known, strict=True)
        ]
    return sorted(found, key=lambda record: (record.submitted, record.size))


WALLTIME_S = 3600.0
"""Wall time of the probes [s]."""

_SHARES = (0.01, 0.03, 0.06)


def probed(
    site: Any,
    cores: tuple[int, ...] = (),
    *,
    jobs: int = 2000,
    every_s: float = 600.0,
    warmup: float = 7.0,
    seed: int = 0,
) -> list[ObservedWait]:
    """Probes of several sizes, submitted together every few minutes to copies of a machine, which do not disturb it.

    Parameters
    ----------
    cores
        Sizes of the probes; the scales of the paper on its systems, otherwise 1 %, 3 % and 6 % of the machine.
    warmup
        How long the queue fills first [days].

    Raises
    ------
    InvalidInput
        When there are no probes, there is no such site, or its dispatcher is not a compiled rule.
    """
    if jobs < 1 or not every_s > 0:
        raise InvalidInput(f"jobs={jobs}, every_s={every_s:g}: at least one probe, and time between them, expected")
    options = SimulationOptions(site=site, seed=seed, warmup=warmup, days=jobs * every_s / DAY + 1.0)
    made = options.scene()
    rule = rule_of(made.dispatcher)
    capacity = made.cluster.cores
    sizes = cores or SCALES.get(made.name.removeprefix("sim-"), tuple(max(1, round(s * capacity)) for s in _SHARES))
    engine = Engine(made.workload, made.cluster, options.settings(made))
    times: Floats = made.start + every_s * np.arange(jobs, dtype=np.float64)
    found = watch(engine, rule, [JobKind(size, WALLTIME_S) for size in sizes], times.tolist())
    others = QueueHistory.by(engine.schedule(), float(times[-1]))
    records = []
    for kind, probes in found.items():
        wait = np.array([probe.wait_s for probe in probes])
        own = _own_history(times, wait, kind)
        mine = own.submissions(np.arange(jobs))
        seen = contexts(
            others,
            others.at(times),
            own.cores,
            own.walltime,
            capacity,
            epoch=0.0,
            pending_s=own.oldest(mine).tolist(),
            alike_queued=own.queued(mine).tolist(),
            own_queued=own.queued(mine).tolist(),
            own_backlog_s=(own.backlog(mine) / capacity).tolist(),
            own_cores=own.busy(mine).tolist(),
            plan=True,
        )
        records += [
            ObservedWait(kind.cores, context.at, waited, context)
            for context, waited in zip(seen, wait.tolist(), strict=True)
        ]
    return sorted(records, key=lambda record: (record.submitted, record.size))


def _own_history(times: Floats, wait: Floats, kind: JobKind) -> QueueHistory:
    """The probes of one kind as a queue of their own."""
    count: Ints = np.full(len(times), kind.cores, dtype=np.int64)
    start = times + wait
    walltime = np.full(len(times), kind.walltime_s)
    return QueueHistory(times, start, start, count, walltime, np.zeros(len(times), dtype=np.int64))


class ForecastWait(NamedTuple):
    """A job, and the wait [s] predicted with known run times of all jobs, but not of those that will come."""

    record: ObservedWait
    runs_known_s: float


def forecast_waits(
    engine: Engine, rule: BackfillRule, kinds: Iterable[JobKind], times: Sequence[float]
) -> list[ForecastWait]:
    """Waits of jobs of each kind at each of `times` [s], with their contexts, in order of submission.

    Every job has a copy of the machine for itself, so that it delays no other; the machine itself is driven to the
    last of the times. A context's `pending_s` is that of the earlier jobs of its kind.
    """
    mine: dict[JobKind, list[ObservedWait]] = {kind: [] for kind in sorted(set(kinds))}
    found: list[ForecastWait] = []
    for at in times:
        engine.dispatch(rule, until=at)
        view, (left_s, run_s) = engine.view().plain(), _runs(engine)
        for kind, before in mine.items():
            copy = engine.copy()
            (start,) = started(copy, rule, [submit(copy, kind, PROBE_RUN_S)])
            pending = next((at - each.submitted for each in before if each.started > at), 0.0)
            context = Context(at, kind.cores, kind.walltime_s, pending_s=pending).looked(view)
            ahead = Ahead.of(visible(view), kind.cores, kind.walltime_s)
            before.append(ObservedWait(kind.cores, at, start - at, replace(context, planned_s=ahead.planned())))
            found.append(ForecastWait(before[-1], ahead.wait(rule, left_s, run_s)))
    return found


def _runs(engine: Engine) -> tuple[Floats, Floats]:
    """What running jobs will go on for, and what waiting ones will run [s]: what no user sees."""
    view, fates = engine.view(), engine.state.job_states
    runs = np.minimum(fates["run"], fates["stop"])
    left: Floats = view.jobs["started"][view.active] + runs[view.active] - view.now
    return left, runs[view.waiting]


class PollingForecast(Lookahead):
    """A forecast that looks at the queue whenever it is asked, as a run does that polls its jobs anyway."""

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        """The wait [s]; the queue of the context has been looked at before."""
        if context is not None and context.queue is not None:
            self.see(context.queue)
        return super().predict(context, quantile)
