"""When a workflow will be done and what it will be charged, before anything is submitted.

Its own plan is run in many drawn futures (`asa.workflows.drawn`). In each, jobs wait as the estimator's distribution
has it, with errors that belong together, and stages take as they took before. How far the ends of earlier quotes of the
site were off corrects the interval.
"""

from __future__ import annotations

import logging
import math
import random
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, median, stdev
from types import MappingProxyType
from typing import Any, NamedTuple

from asa.allocations.watch import shown
from asa.core.clock import SystemClock
from asa.core.errors import AsaError, BackendError, InvalidInput
from asa.core.event import LEAST_MISS_S, WAITS_UNKNOWN, WALLTIMES_ONLY, Quoted, RunStarted, RunState
from asa.core.job import Capabilities, Options, QueueRegime, Resources
from asa.core.ports import Backend, Strategy, VirtualBackend
from asa.core.queues import QueueTerms
from asa.core.registry import BACKENDS, parse_spec, with_options
from asa.core.run import Pool, StageProgress
from asa.core.stage import StageSpec, kind_of
from asa.core.units import HOUR
from asa.core.view import QueueView
from asa.core.width import are_rounds
from asa.log.history import HISTORY, ROWS_MOST, UsageHistory
from asa.report.words import listed
from asa.workflows.assemble import chosen_strategy, first_event, make_plan, stages_of
from asa.workflows.drawn import DrawnRun, Ended, Endless
from asa.workflows.graph import AskedJob, Graph
from asa.workflows.learned import Contexts, LearnedWaits, Queues, WaitBook
from asa.workflows.plan import Plan
from asa.workflows.settings import Settings
from asa.workflows.virtual_work import Outlines, Times

DRAWS, DRAWS_LEAST = 120, 25
"""Futures of a quote; fewer of a workflow with more tasks than `TASKS_MOST` in all of them, and none where it has
`EXCEEDED_MOST` times as many, however many are taken as one."""
TASKS_MOST, EXCEEDED_MOST = 60_000, 5

SHARE = 0.8
"""Of the cases, that the interval is to cover."""

LEVELS = (0.01, 0.05, *(step / 10 for step in range(1, 10)), 0.95, 0.99)
"""Quantiles of waits that the estimator is asked for; what lies between is interpolated."""

ALIKE = 0.5
"""Correlation of the errors of one future's waits, and of its run times: a busy week is busy for all of its jobs."""

DECLARED_SPREAD, UNKNOWN_SPREAD = 0.3, 0.8
"""Standard deviation of the logarithm of a run time that is only declared, and of a wait whose estimator knows no
distribution."""

HISTORY_MOST, PRIOR_SPREAD, LEAST_TIME_S = 10, 0.15, 1.0
"""Runs of a stage that count; the spread that is thought likely before runs tell; and what is added to times before
their logarithms are compared [s]."""
_STRIDE = 7919

USED_TO = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
USED_LONGER = (0.72, 0.67, 0.63, 0.58, 0.54, 0.5, 0.46, 0.41, 0.36, 0.31, 0.23, 0.0)
"""Which part of the jobs, by cores and wall time, runs for longer than these parts of its wall time: the mean of seven
logs (HPC2N, KTH, CTC, Curie, KIT, Theta, Intrepid)."""
USED_JOBS, USED_LEAST = 10, 0.1
"""How many running jobs what is said of those logs counts for, beside the running jobs of the queue itself; and the
least that jobs are taken to use, as all may have begun just now."""

PLANNED_SHARES = 0.05, 2.1
"""Where nothing was learned, a job waits for what the queue would plan by wall times, times the part of these that its
jobs use, times a number from and to these; no longer than planned. Measured (docs/shape-experiments.md)."""

LESSONS_LEAST = 10
"""How many waits must be known of a queue that can be planned until they count."""

UNKNOWN_SHARES = 0.1, 1.0
"""Where nothing is known of a stage, it runs for this part of its wall time, from and to."""

INSTANT_S = 0.1
"""How long tasks run that no history has, as they took no more than an instant [s]."""

AHEAD_S = (1800.0, 2 * HOUR, 6 * HOUR, 24 * HOUR)
"""How far from now on waits are predicted anew [s]."""

_NORMAL = NormalDist()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageTime:
    """How long the tasks of a stage take.

    Parameters
    ----------
    seconds
        Of a task, by index, in the median [s].
    spread
        Standard deviation of the logarithm of what that is multiplied with.
    source
        What it is known from: ``history``, ``declared`` or ``wall time``.
    """

    seconds: Callable[[int], float]
    spread: float
    source: str


@dataclass(frozen=True)
class Quote:
    """A prediction of one way to run a workflow.

    Parameters
    ----------
    strategy, scale
        The way: the strategy, and by how much allocations are wider than their stages ask for.
    at
        When it was made [s since the epoch].
    done, low, high
        When the run is expected to be done, in the median, and the interval [s since the epoch].
    drawn
        The interval before it was corrected by the errors of earlier quotes [s since the epoch].
    core_hours
        Charged, in the median.
    draws, failed
        Futures that were drawn, and in how many of them the run failed.
    notes
        What was not known, in plain words.
    virtual
        Whether times are of a simulated queue.
    """

    strategy: str
    scale: float
    at: float
    done: float
    low: float
    high: float
    drawn: tuple[float, float]
    core_hours: float
    draws: int
    failed: int
    notes: tuple[str, ...]
    virtual: bool = False

    def event(self) -> Quoted:
        """As the run's log has it."""
        return Quoted(self.at, self.done, self.low, self.high, self.core_hours, self.drawn, self.draws, self.notes)

    def to_json(self) -> dict[str, Any]:
        """A row; durations from now on [s] beside times [s since the epoch]."""
        times = {name: getattr(self, name) for name in ("at", "done", "low", "high")}
        spans = {f"{name}_s": getattr(self, name) - self.at for name in ("done", "low", "high")}
        more = {name: getattr(self, name) for name in ("core_hours", "draws", "failed")}
        return {"strategy": self.strategy, "width": self.scale, **times, **spans, **more, "notes": list(self.notes)}


Seen = Callable[[Options], QueueView | None]
"""The queue of jobs with these options as it is visible, or None."""


def part_used(queue: QueueView) -> float:
    """Which part of their wall times the jobs of a queue use, in the mean.

    That follows from how much of theirs the running jobs have used by now: each is seen at any moment of its time
    alike, so that at a place of the wall time as many are seen as get there. Where none are seen, it is as in logs.

    References
    ----------
    U. Grenander, On the theory of mortality measurement II, Skandinavisk Aktuarietidskrift 39 (1956): the estimator of
    a density that falls; here a histogram, made to fall by pooling neighbours.

    Examples
    --------
    Of jobs that have used between none and a tenth, none is likely to use much more.

    >>> from asa.core.view import RunningJob
    >>> jobs = [RunningJob(key, Resources(1), 3600.0 - 3.6 * key, 3600.0) for key in range(100)]
    >>> round(part_used(QueueView(0.0, Resources(100), (), tuple(jobs))), 2)
    0.11
    """
    edges = (0.0, *USED_TO)
    longer = pairwise((1.0, *USED_LONGER))
    prior = [(to - since) * sum(each) / 2 for (since, to), each in zip(pairwise(edges), longer, strict=True)]
    counts = [USED_JOBS * part / sum(prior) for part in prior]
    for job in queue.running:
        if job.walltime_s and math.isfinite(job.walltime_s) and math.isfinite(job.ends):
            used = min(max(1.0 - (job.ends - queue.now) / job.walltime_s, 0.0), 1.0)
            counts[bisect_left(USED_TO, used)] += 1
    pooled: list[tuple[float, float]] = []  # jobs, and the width that they are spread over
    for count, (since, to) in zip(counts, pairwise(edges), strict=True):
        jobs, width = count, to - since
        while pooled and pooled[-1][0] * width < jobs * pooled[-1][1]:
            jobs, width = jobs + pooled[-1][0], width + pooled.pop()[1]
        pooled.append((jobs, width))
    return max(USED_LEAST, sum(jobs for jobs, _ in pooled) * pooled[0][1] / pooled[0][0])


class DrawnWaits:
    """Waits of jobs as the estimator's distribution has them; each is asked for once, for a size and a while.

    Parameters
    ----------
    book
        What was learned.
    now
        When the quote is made [s since the epoch].
    seen
        The queue of jobs with these options as it is visible, or None.
    there
        The queues that a job of a size and a wall time [s] is asked for in, as that job with their options: it starts
        in the one with the shortest waits.
    lessons
        How many jobs have taught the waits of those of a size and a wall time [s]. Fewer than `LESSONS_LEAST` do not
        show how long waits may be: a plan of the queue, where that can be seen, counts for more.
    queues
        False where there is no queue: no job waits.

    Attributes
    ----------
    untaught
        Whether it was asked for a wait of which nothing was learned.
    few
        Whether it was asked for one of which too little was learned.
    blind
        Whether that was in a queue that cannot be seen: no job waits there.
    long
        Whether that was in one that cannot be planned, as it is too long: all of its work is taken to come first.
    """

    def __init__(
        self,
        book: WaitBook,
        now: float,
        seen: Seen,
        *,
        there: Callable[[Resources, float], Sequence[Resources]] = lambda resources, _walltime_s: [resources],
        lessons: Callable[[Resources, float], float] = lambda _resources, _walltime_s: math.inf,
        queues: bool = True,
    ) -> None:
        self._book, self._now, self._there, self._lessons, self._queues = book, now, there, lessons, queues
        self._contexts = Contexts(Pool(), seen)
        self._known: dict[tuple[Any, ...], Sequence[float]] = {}
        self.untaught = self.few = self.blind = self.long = False

    def predicted(
        self, resources: Resources, walltime_s: float, at: float, quantiles: Sequence[float | None]
    ) -> Sequence[float]:
        """What the estimator says of such a job that is submitted `at` then [s since the epoch]: waits [s]."""
        if not self._queues:
            return [0.0] * len(quantiles)
        step = bisect_left(AHEAD_S, at - self._now)
        key = resources, walltime_s, step, tuple(quantiles)
        if key not in self._known:
            ahead_s = (0.0, *AHEAD_S)[step]
            some = [self._ask(each, walltime_s, ahead_s, quantiles) for each in self._there(resources, walltime_s)]
            self._known[key] = min(some, key=sum)
        return self._known[key]

    def _ask(
        self, resources: Resources, walltime_s: float, ahead_s: float, quantiles: Sequence[float | None]
    ) -> Sequence[float]:
        context = self._contexts.of(resources, walltime_s, self._now)
        lessons = self._lessons(resources, walltime_s)
        queue, (low, high) = context.queue, PLANNED_SHARES
        if not lessons or (lessons < LESSONS_LEAST and queue is not None):
            self.untaught, self.few = self.untaught or not lessons, self.few or lessons > 0
            if queue is None:
                self.blind = True
                return [0.0] * len(quantiles)
            if (planned_s := context.planned_s) is None:
                self.long, planned_s = True, (context.backlog_s or 0.0) + (context.left_s or 0.0)
            part, levels = part_used(queue), (0.5 if level is None else level for level in quantiles)
            return [min(1.0, part * (low + level * (high - low))) * planned_s for level in levels]
        context = replace(context, at=self._now + ahead_s)
        found = self._book.predict(resources, walltime_s, context, quantiles)
        return [wait_s if math.isfinite(wait_s) else 0.0 for wait_s in found]

    def drawn(self, resources: Resources, walltime_s: float, at: float, normal: float) -> float:
        """The wait [s] at a place of the distribution: that of a standard normal deviate."""
        levels = self.predicted(resources, walltime_s, at, LEVELS)
        if levels[0] == levels[-1]:
            return levels[0] * math.exp(UNKNOWN_SPREAD * normal)
        share = min(max(_NORMAL.cdf(normal), LEVELS[0]), LEVELS[-1])
        above = max(1, bisect_left(LEVELS, share))
        part = (share - LEVELS[above - 1]) / (LEVELS[above] - LEVELS[above - 1])
        return levels[above - 1] + part * (levels[above] - levels[above - 1])


def share_on(spec: StageSpec, cores: int | None) -> float:
    """How long one task of so many cores runs, as a share of how long it does on the narrowest width of its stage."""
    widths = () if are_rounds(spec.widths) else spec.widths
    found = (width.run_time_s / widths[0].run_time_s for width in widths if width.task.cores == cores)
    return next(found, 1.0)


class Past(NamedTuple):
    """What is known of a stage from earlier runs: how long its tasks took on average in each, the newest last, and each
    by itself [s]; how many there were. Of a stage of several widths, times are those on the narrowest."""

    means: Sequence[float]
    tasks: Sequence[float]
    widths: Sequence[int]


def past_of(state: Path, workflow: str, site: Capabilities, specs: Sequence[StageSpec]) -> dict[str, Past]:
    """What stages took at a site that did the same: in this workflow, or in others where it is new."""
    if not (state / HISTORY).exists():
        return {}
    found: dict[str, Past] = {}
    with closing(UsageHistory(state / HISTORY)) as history:
        for spec in specs:
            name = kind_of(spec.name)
            runs = [run for run in history.runs(name, spec.code or None, site.site) if run.done and run.cores]
            runs = [run for run in runs if run.workflow == workflow] or runs
            rows = [
                row.run_time_s / share_on(spec, row.cores)
                for row in history.of(name, spec.code or None, site.site)
                if row.outcome == "ok"
            ]
            means = [run.core_hours * HOUR / (run.cores or 1) / run.done / share_on(spec, run.cores) for run in runs]
            if means or rows:
                mean_s = sum(rows) / len(rows) if rows else 0.0
                found[spec.name] = Past(means or [mean_s], rows[-ROWS_MOST:], [run.tasks for run in runs])
    return found


def stage_times(
    graph: Graph,
    specs: Sequence[StageSpec],
    times: Times,
    past: Mapping[str, Past] = MappingProxyType({}),
    instants: Collection[str] = (),
    *,
    virtual: bool,
) -> dict[str, StageTime]:
    """What is known of how long tasks take: from what they took before, else as they declare it.

    Parameters
    ----------
    specs
        The stages, each with the run time that is expected of it as a whole.
    times
        What stages declare, or what an earlier run took that is named.
    past
        What is known of stages from earlier runs.
    instants
        Those that took no more than an instant.
    virtual
        Whether tasks will take just the declared times.
    """
    work = Outlines(graph, times)
    found: dict[str, StageTime] = {}
    for spec in specs:
        declared = _declared(work, spec)
        if declared is not None and virtual:
            found[spec.name] = StageTime(declared, 0.0, "declared")
        elif (known := past.get(spec.name)) is not None:
            found[spec.name] = from_history(known.means, known.tasks)
        elif spec.name in instants:
            found[spec.name] = from_history([INSTANT_S])
        elif spec.run_time_s < spec.walltime_s:
            found[spec.name] = StageTime(_share_of(spec), DECLARED_SPREAD, "history")
        elif declared is not None:
            found[spec.name] = StageTime(declared, DECLARED_SPREAD, "declared")
        else:
            walltime_s = spec.total_s or spec.walltime_s
            found[spec.name] = StageTime(partial(_always, walltime_s), 0.0, "wall time")
    return found


def from_history(means: Sequence[float], tasks: Sequence[float] = ()) -> StageTime:
    """How long tasks of a stage take that took so long on average in earlier runs, the newest last, and each of which
    took about so long [s].

    The more runs there are, the less what is drawn exceeds their own spread.

    Raises
    ------
    InvalidInput
        When nothing is known, or a time is not finite.
    """
    if not means or not all(0 <= mean < math.inf for mean in (*means, *tasks)):
        raise InvalidInput(f"run times {[*means][:5]} and {[*tasks][:5]}: finite ones of at least 0 s expected")
    logs = [math.log(mean + LEAST_TIME_S) for mean in means[-HISTORY_MOST:]]
    middle = median(logs)
    spread = math.hypot(PRIOR_SPREAD / math.sqrt(len(logs)), stdev(logs) if len(logs) > 1 else PRIOR_SPREAD)
    mean_s = max(0.0, math.exp(middle) - LEAST_TIME_S)
    ordered = sorted(tasks) or [1.0]
    scale = mean_s / (sum(ordered) / len(ordered)) if any(ordered) else 0.0

    def seconds(index: int) -> float:  # each part of the distribution comes up as often, in no order
        return scale * ordered[index * _STRIDE % len(ordered)]

    return StageTime(seconds, spread, "history")


def _declared(work: Outlines, spec: StageSpec) -> Callable[[int], float] | None:
    """What a stage declares of its tasks; None where it declares nothing, or that follows from others' results."""

    def seconds(index: int) -> float | None:
        return work.seconds(work.task(spec.name, index, spec.task))

    try:
        first = seconds(0)
    except (AsaError, IndexError):
        return None
    if first is None:
        return None

    def known(index: int) -> float:
        try:
            return seconds(index) or 0.0
        except (AsaError, IndexError):  # of more tasks than were thought of
            return first

    return known


def _always(seconds: float, _index: int) -> float:
    return seconds


def _share_of(spec: StageSpec) -> Callable[[int], float]:
    """The time of a task [s] of a stage that runs for so long as a whole."""
    abreast = max(1, spec.resources.cores // spec.task.cores)
    each = spec.run_time_s / math.ceil(max(1, spec.width or abreast) / abreast)
    return partial(_always, each)


class Quoter:
    """Makes quotes of one workflow at one site, for one moment.

    Parameters
    ----------
    graph, settings
        The workflow, and how it is to be run.
    site
        What matters of the backend.
    specs
        The stages at the site.
    waits, times
        What is known of waits, and of run times by stage.
    widths
        How many tasks stages are expected to have where only the run will tell.
    misses
        By how much earlier runs at the site missed their quotes, as `Quoted.missed` has it.
    now
        When [s since the epoch].
    fixed_s
        What an allocation costs beside its tasks, as in `RunStarted`.
    virtual
        Whether its time is virtual.
    tasks_most
        Tasks in all futures of a quote, at most, as far as that leaves enough futures.
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        site: Capabilities,
        specs: Sequence[StageSpec],
        waits: DrawnWaits,
        times: Mapping[str, StageTime],
        *,
        now: float,
        widths: Mapping[str, int] = MappingProxyType({}),
        misses: Sequence[float] = (),
        fixed_s: tuple[float, float] = (0.0, 0.0),
        virtual: bool = False,
        tasks_most: int = TASKS_MOST,
        seed: int = 0,
    ) -> None:
        self._graph, self._settings, self._site, self._specs = graph, settings, site, tuple(specs)
        self._waits, self._times, self._misses = waits, times, misses
        self._virtual, self._widths = virtual, widths
        self._now, self._fixed_s, self._tasks_most, self._seed = now, fixed_s, tasks_most, seed

    def quote(self, strategy: Any, *, scale: float = 1.0, draws: int = DRAWS) -> Quote:
        """What is expected under a strategy, with allocations `scale` times as wide as stages ask for.

        Raises
        ------
        InvalidInput
            When no future of the run ends, or no allocation can be made so wide.
        """
        settings = replace(self._settings, strategy=strategy)
        specs = self._specs if scale == 1.0 else tuple(scaled(spec, scale, self._site) for spec in self._specs)
        if scale != 1.0 and specs == self._specs:
            raise InvalidInput("no stage has more tasks than run at a time, or fewer cores to run them on")
        tasks = sum(self._width(spec) * (1 + spec.rounds) for spec in self._specs)
        draws = max(min(DRAWS_LEAST, draws), min(draws, self._tasks_most // max(1, tasks)))
        most = max(TASKS_LEAST, self._tasks_most // draws // max(1, len(specs)))
        if tasks * draws > self._tasks_most:  # of many tasks, some are taken as one
            of_one = {name: time.seconds(0) for name, time in self._times.items()}
            specs = tuple(coarser(spec, self._width(spec), most, of_one[spec.name], self._site) for spec in specs)
        if (drawn := sum(spec.width or 0 for spec in specs)) * draws > EXCEEDED_MOST * self._tasks_most:
            raise InvalidInput(f"{tasks:,} tasks, {drawn:,} in each of {draws} drawn futures, are too many for a quote")
        chance, ends, failed, last = random.Random(self._seed), list[Ended](), 0, ""
        # Of what a future has in common, each part of the distribution comes up as often: fewer draws tell as much.
        busy = [_NORMAL.inv_cdf((place + chance.random()) / draws) for place in range(draws)]
        slow = [_NORMAL.inv_cdf((place + chance.random()) / draws) for place in range(draws)]
        chance.shuffle(slow)
        for one in zip(busy, slow, strict=True):
            try:
                end = self._future(settings, specs, chance, *one).run()
            except Endless as error:
                failed, last = failed + 1, str(error)
                continue
            failed += end.state is not RunState.SUCCEEDED
            if end.state is RunState.SUCCEEDED:
                ends.append(end)
        if not ends:
            raise InvalidInput(f"no run of {draws} drawn ones ends well{': ' * bool(last)}{last}: see its wall times")
        times = sorted(end.at for end in ends)
        middle, low, high = (quantile(times, share) for share in (0.5, (1 - SHARE) / 2, (1 + SHARE) / 2))
        found = corrected(middle - self._now, low - self._now, high - self._now, self._misses)
        return Quote(
            settings.strategy if isinstance(settings.strategy, str) else repr(settings.strategy),
            scale,
            self._now,
            middle,
            self._now + found[0],
            self._now + found[1],
            (low, high),
            median(end.core_hours for end in ends),
            draws,
            failed,
            self._notes(failed, draws, alike=times[0] == times[-1]),
            self._virtual,
        )

    def _future(
        self, settings: Settings, specs: tuple[StageSpec, ...], chance: random.Random, busy: float, slow: float
    ) -> DrawnRun:
        """One future: `busy` is what its waits, and `slow` what its run times, have in common."""
        plan: Plan = make_plan(settings, self._site)
        start: RunStarted = first_event(
            settings,
            self._site,
            specs,
            run=settings.name,
            strategy=settings.strategy,
            executor=settings.executor,
            shared=plan.shared,
            at=self._now,
            fixed_s=self._fixed_s,
        )
        common, own = math.sqrt(ALIKE), math.sqrt(1 - ALIKE)

        def wait(resources: Resources, walltime_s: float, at: float) -> float:
            return self._waits.drawn(resources, walltime_s, at, common * busy + own * chance.gauss(0.0, 1.0))

        factors = {
            spec.name: self._factor(self._times[spec.name], common * slow + own * chance.gauss(0.0, 1.0))
            for spec in specs
        }
        groups = {  # of tasks that are taken as one, how many are side by side, and one after another
            whole.name: (part.task.cores // whole.task.cores, self._width(whole) / max(1, part.width or 1))
            for whole, part in zip(self._specs, specs, strict=True)
            if part.width is not None
        }

        def takes(spec: StageSpec, index: int) -> float:
            abreast, together = groups.get(spec.name, (1, 1.0))
            factor = factors[spec.name] * share_on(spec, spec.task.cores) * max(1.0, together / abreast)
            longest_s = math.inf if spec.checkpoint else 0.999 * spec.walltime_s
            return min(factor * self._times[spec.name].seconds(int(index * together)), longest_s)

        return DrawnRun(plan, start, wait, takes, self._waits.predicted, self._width_of)

    def _factor(self, time: StageTime, normal: float) -> float:
        if time.source == "wall time":
            low, high = UNKNOWN_SHARES
            return low + (high - low) * _NORMAL.cdf(normal)
        return math.exp(time.spread * normal)

    def _width_of(self, stage: str) -> int:
        return self._width(next(spec for spec in self._specs if spec.name == stage))

    def _width(self, spec: StageSpec) -> int:
        """Tasks of a stage: where only the run will tell, as many as are expected, or fill its cores."""
        if spec.width is not None:
            return spec.width
        if spec.expect is not None and not spec.expands:
            return max(0, spec.expect)
        if spec.name in self._widths:
            return self._widths[spec.name]
        return max(1, spec.resources.cores // spec.task.cores)

    def _notes(self, failed: int, draws: int, *, alike: bool) -> tuple[str, ...]:
        """What was not known, in plain words."""
        by = {
            source: [name for name, time in self._times.items() if time.source == source]
            for source in ("declared", "wall time")
        }
        wide = [spec.name for spec in self._specs if spec.width is None and spec.expect is None]
        wide = [name for name in wide if name not in self._widths]
        grow = [spec.name for spec in self._specs if spec.expands and spec.expect is None]
        reused = [spec.name for spec in self._specs if spec.reuse]
        found = {
            "no history: declared times are used": by["declared"],
            f"{WALLTIMES_ONLY}: tasks are assumed to take 10 to 100 % of their wall time": by["wall time"],
            "how many tasks it has is not known: as many as its cores run at a time": wide,
            "what it adds is not known, and left out (expect= tells)": grow,
            "results of earlier runs may stand for some of it: as if none did": reused,
        }
        said = [f"{words} ({listed(names, 3)})" for words, names in found.items() if names]
        if self._waits.blind:
            said.append(WAITS_UNKNOWN)
        elif self._waits.untaught or self._waits.few:
            count = "no" if self._waits.untaught else "too few"
            how = ", which cannot be planned: as if all of its work came first" if self._waits.long else " as it is now"
            said.append(f"{count} waits of such jobs have been learned here: they are computed from the queue{how}")
        if self._virtual and alike:
            said.append("it has no interval: tasks take just their declared times, and their jobs wait the same time")
        if failed:
            said.append(f"in {failed} of {draws} drawn futures the run does not end well: see its wall times")
        return tuple(said)


def scaled(spec: StageSpec, scale: float, site: Capabilities) -> StageSpec:
    """A stage whose allocation is `scale` times as wide, as far as it has tasks for that and the site has the cores;
    it is expected to run for as much shorter."""
    abreast = spec.resources.cores // spec.task.cores
    wanted = max(1, round(abreast * scale))
    if scale > 1.0:
        wanted = max(abreast, min(wanted, spec.width or abreast))
    if site.largest is not None:
        wanted = max(1, min(wanted, site.largest.cores // spec.task.cores))
    rounds, fewer = (math.ceil((spec.width or abreast) / count) for count in (abreast, wanted))
    if wanted == abreast or spec.resources.gpus or spec.widths:  # of several widths, the plan chooses
        return spec
    cores, nodes, memory = wanted * spec.task.cores, spec.resources.nodes, spec.resources.memory
    if nodes is not None:
        nodes = max(1, round(nodes * wanted / abreast))
        cores = -(-cores // nodes) * nodes
    memory = None if memory is None else -(-memory * wanted // abreast)
    resources = replace(spec.resources, cores=cores, nodes=nodes, memory=memory)
    return replace(spec, resources=resources, run_time_s=min(spec.walltime_s, spec.run_time_s * fewer / rounds))


TASKS_LEAST = 60
"""Tasks that a stage keeps at least where many are taken as one, if it has them, and how many of these then run at a
time."""
_ABREAST = 8


def coarser(spec: StageSpec, width: int, most: int, task_s: float, site: Capabilities) -> StageSpec:
    """A stage with about so many tasks, each of which stands for several that take so long [s], side by side and one
    after another; a good part of a wall time is longer than any."""
    if width <= most or spec.checkpoint or spec.task.gpus or spec.task.nodes is not None:
        return spec
    if spec.widths and not are_rounds(spec.widths):
        return spec
    least = spec.resources.cores
    widest = max([least, *(each.resources.cores for each in spec.widths)])
    room = min(least, widest // _ABREAST, site.cores_per_node or least)
    side = max(1, min(room // spec.task.cores, -(-width // most)))
    task = replace(spec.task, cores=side * spec.task.cores, memory=None)
    longest = max(1, math.floor(spec.walltime_s / (_ABREAST * max(task_s, 1e-3))))
    count = math.ceil(width / (side * min(longest, math.ceil(width / (side * most)))))
    widths = tuple(replace(each, task=task) for each in spec.widths)
    return replace(spec, task=task, width=count, widths=widths, alike=(), parts=(), timeout_s=None)


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of values in order, interpolated.

    >>> quantile([1.0, 2.0, 4.0], 0.5), quantile([1.0, 2.0, 4.0], 0.75)
    (2.0, 3.0)
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


MISSES_LEAST, MISSES_MOST, MISSES_HALF, WIDENED_MOST = 8, 60, 30, 1.5
"""How many earlier quotes it takes until their errors count, of how many they do, and of how many they do half, as
what is drawn is seldom far off; by how much an interval is made wider, or narrower, at most: its ends in logarithms."""


def corrected(middle: float, low: float, high: float, misses: Sequence[float]) -> tuple[float, float]:
    """The ends of an interval [s] around a median [s], made as much wider or narrower as would have covered `SHARE` of
    the last runs, however wrong the waits were.

    Parameters
    ----------
    misses
        By how much earlier runs missed their intervals, as `Quoted.missed` has it, the newest last.

    References
    ----------
    Y. Romano, E. Patterson and E. Candes, Conformalized quantile regression, NeurIPS (2019); here in logarithms, as
    long runs miss by more, and by less where there are few.

    Examples
    --------
    >>> corrected(3600.0, 1800.0, 7200.0, [1.0] * 7), corrected(3600.0, 1740.0, 7140.0, [math.log(4.0)] * 30)
    ((1800.0, 7200.0), (840.0, 14340.0))
    """
    last = sorted(misses[-MISSES_MOST:])
    if len(last) < MISSES_LEAST:
        return low, high
    more = quantile(last, SHARE) * len(last) / (len(last) + MISSES_HALF)
    factor = math.exp(min(max(more, -WIDENED_MOST), WIDENED_MOST))
    below, above = ((low + LEAST_MISS_S) / factor, (high + LEAST_MISS_S) * factor)
    return max(0.0, min(below - LEAST_MISS_S, middle)), max(above - LEAST_MISS_S, middle)


DRAWS_AT_START, TASKS_AT_START = 40, 6_000
"""Futures of the quote of a run that begins, and tasks in all of them: it must not be in the run's way."""


def quoted(
    graph: Graph,
    settings: Settings,
    site: Capabilities,
    start: RunStarted,
    state: Path,
    seen: Seen,
    now: float,
    times: str | Path | None,
) -> Quoted:
    """The quote of a run that has begun, from what is known already: nothing is asked of the batch system.

    Parameters
    ----------
    start
        Its first event.
    state
        The state directory.
    seen
        The queue of jobs with these options as it was last seen, or None.
    times
        In virtual time: an earlier run, whose run times tasks have.
    """
    strategy = chosen_strategy(settings, site)
    asked = make_plan(settings, site).strategy
    past = past_of(state, settings.name, site, start.stages)
    with closing(LearnedWaits(state / "learned.db", asked.estimator, site)) as learned:
        instants = learned.instants(settings.name, start.stages)
        quoter = Quoter(
            graph,
            settings,
            site,
            start.stages,
            _waits_of(learned, asked, settings.terms, site, start.stages, now, seen),
            stage_times(graph, start.stages, Times.of(graph, times, state), past, instants, virtual=start.is_virtual),
            now=now,
            widths=_widths(past),
            misses=learned.misses(),
            fixed_s=start.fixed_s,
            virtual=start.is_virtual,
            tasks_most=TASKS_AT_START,
        )
        return quoter.quote(strategy, draws=DRAWS_AT_START).event()


@contextmanager
def quoter_at(graph: Graph, settings: Settings, state: Path) -> Iterator[tuple[Quoter, Capabilities]]:
    """What makes quotes of a workflow at the backend of these settings, which is asked what it is, and for its queue;
    and the site.

    Raises
    ------
    InvalidInput
        When a name is unknown, or a stage does not fit the site.
    BackendError
        When the batch system does not answer.
    """
    backend: Backend = BACKENDS.create(settings.backend)
    virtual = isinstance(backend, VirtualBackend)
    try:
        site = backend.capabilities()
        graph.check(site)
        settings.terms.check(graph.queues)
        now = backend.enter().now() if isinstance(backend, VirtualBackend) else SystemClock().now()
        seen = seen_of(backend)
        asked = make_plan(settings, site).strategy
        with closing(LearnedWaits(state / "learned.db", asked.estimator, site)) as learned:
            specs = stages_of(graph, settings, site, learned, state)
            times = Times.of(graph, backend.times if isinstance(backend, VirtualBackend) else None, state)
            past = past_of(state, settings.name, site, specs)
            instants = learned.instants(settings.name, specs)
            yield (
                Quoter(
                    graph,
                    settings,
                    site,
                    specs,
                    _waits_of(learned, asked, settings.terms, site, specs, now, seen),
                    stage_times(graph, specs, times, past, instants, virtual=virtual),
                    now=now,
                    widths=_widths(past),
                    misses=learned.misses(),
                    fixed_s=(0.0, 0.0) if virtual else learned.fixed_s(),
                    virtual=virtual,
                ),
                site,
            )
    finally:
        backend.close()


def _widths(past: Mapping[str, Past]) -> dict[str, int]:
    return {name: round(median(known.widths)) for name, known in past.items() if known.widths}


def seen_of(backend: Backend) -> Seen:
    """What a backend shows of its queues, each of which is asked for once."""

    @cache
    def seen(options: Options) -> QueueView | None:
        try:
            (view,) = shown(backend, [options])
        except BackendError as error:
            _log.info("the queue cannot be seen: %s", error)
            return None
        return None if view is None else view.plain()

    return seen


class _Beforehand(NamedTuple):
    """A run that has not begun."""

    pool: Pool
    stages: Mapping[str, StageProgress]


def _waits_of(
    learned: LearnedWaits,
    asked: Strategy,
    terms: QueueTerms,
    site: Capabilities,
    specs: Sequence[StageSpec],
    now: float,
    seen: Seen,
) -> DrawnWaits:
    """Waits of jobs in the queues that the run would choose for them: the first, and the second if both are asked."""
    plan = _Beforehand(Pool(), {spec.name: StageProgress(spec, spec.width) for spec in specs})
    queues = Queues(plan, site, learned, Contexts(plan.pool, seen), terms, getattr(asked, "patience", None))

    def there(resources: Resources, walltime_s: float) -> list[Resources]:
        job = AskedJob(resources, walltime_s)
        alike = [spec.name for spec in specs if spec.resources == resources and spec.walltime_s == walltime_s]
        if (choice := queues.choose(job, alike[:1] or [*plan.stages], now)) is None:  # else it is of several stages
            return [resources]
        chosen = [choice.ranked[0], queues.second(choice) or choice.ranked[0]]
        return [replace(resources, options=options) for options in dict.fromkeys(chosen)]

    waits = site.regime is not QueueRegime.IMMEDIATE
    return DrawnWaits(learned, now, seen, there=there, lessons=learned.lessons, queues=waits)


def quote_ways(graph: Graph, settings: Settings, state: Path, *, others: bool = True) -> list[Quote]:
    """The quote of a workflow as these settings have it; then those of `others`: strategies, and widths of allocations.

    A way that cannot be gone, such as wider allocations for one task, is left out.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or no run would end well.
    BackendError
        When the batch system does not answer.
    """
    with quoter_at(graph, settings, state) as (quoter, site):
        strategy = chosen_strategy(settings, site)
        found = [quoter.quote(strategy)]
        for way, scale in _other_ways(strategy, site) if others else ():
            try:
                found.append(quoter.quote(way, scale=scale, draws=DRAWS_OF_OTHERS))
            except InvalidInput as error:
                _log.info("no quote of %s, %g times as wide: %s", way, scale, error)
        return found


def _other_ways(strategy: Any, site: Capabilities) -> Iterator[tuple[Any, float]]:
    """Other ways to run a workflow: strategies, and how many times as wide allocations are."""
    name, options = parse_spec(strategy) if isinstance(strategy, str) else ("", {})
    if site.regime is not QueueRegime.IMMEDIATE:
        if name == "auto" and "patience" not in options:
            yield with_options(strategy, patience=PATIENCE), 1.0
        yield from ((other, 1.0) for other in ("auto", "per-stage", "big-job") if other != name)
    yield from ((strategy, 0.5), (strategy, 2.0))


DRAWS_OF_OTHERS = 60
"""Futures of a quote that is compared with."""
PATIENCE = 50.0
"""Core-hours that an hour of the user's time is worth, in the quote that is compared with."""
