"""What a user's runs have learned about a site, and what is known of a job and its queue when it would be submitted."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from asa.core.backfill import Profile, planned
from asa.core.context import Context, Geometry, geometry_of
from asa.core.errors import StateError
from asa.core.event import Believed, RunStarted, RunState
from asa.core.job import (
    Capabilities,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    QueueRegime,
    Resources,
    alternatives,
    queue_name,
)
from asa.core.ports import Clock, Estimator, Post, RunTimePredictor
from asa.core.queues import QueueChoice, QueueProspect, QueueTerms, Sized, choose, misfit
from asa.core.registry import ESTIMATORS, Registry, is_pooled, parse_spec
from asa.core.run import FoldedRun, Pool, StageProgress
from asa.core.stage import StageSpec, StageState, kind_of
from asa.core.units import HOUR
from asa.core.view import QueueView
from asa.log.database import Change, LearnedStore, Record
from asa.log.events import EventLog
from asa.log.rundir import list_runs

if TYPE_CHECKING:
    from asa.estimators.waits import Waits
    from asa.log.history import UsageHistory

_T = TypeVar("_T")

PLANNERS = Registry("planner of queues", group="asa.planners")
"""Functions of a queue, cores and a wall time [s] that return the wait [s] which a batch system would plan."""


PLANNED_MOST = 3000
"""Of a real queue with more waiting jobs no plan is made: it would take longer than a second."""


@dataclass
class _Look:
    """A queue as it was seen: what is expected by it, by size [s], and what is left of the machine."""

    queue: QueueView
    planned: dict[tuple[int, float], float] = field(default_factory=dict)
    profile: Profile | None = None

    def plain(self, cores: int, walltime_s: float) -> float:
        if len(self.queue.queue) > PLANNED_MOST:
            return math.inf
        self.profile = self.profile or planned(self.queue)
        return self.profile.earliest(Resources(cores), walltime_s) - self.queue.now


class Contexts:
    """Contexts of jobs, by their size.

    Parameters
    ----------
    pool
        The run's own jobs.
    seen
        The queue as it was when last looked at, where the estimator needs that.
    """

    def __init__(self, pool: Pool, seen: Callable[[Options], QueueView | None]) -> None:
        self._pool, self._seen = pool, seen
        self._looks: dict[Options, _Look] = {}

    def of(self, resources: Resources, walltime_s: float, now: float) -> Context:
        """What is known of a job of this size that would be submitted now; its options leave no choice of queues."""
        options = resources.options
        own = [held for held in self._pool.held.values() if held.handle and held.request.options == options]
        queued = [held for held in own if held.started is None]
        asked = (resources, *(replace(resources, options=held.request.resources.options) for held in queued[:1]))
        alike = [held for held in queued if not held.gated and held.request.resources in asked]
        context = Context(
            now,
            resources.cores,
            walltime_s,
            pending_s=max([0.0, *(now - held.handle.submitted for held in alike if held.handle)]),
            own_queued=len(queued),
            own_cores=sum(held.cores for held in own if held.started is not None),
        )
        if (queue := self._seen(options)) is None:
            return context
        expected = self._planned_s(options, queue, resources.cores, walltime_s)
        work = sum(held.request.resources.cores * held.request.walltime_s for held in queued)
        context = replace(
            context,
            planned_s=expected if math.isfinite(expected) else None,
            own_backlog_s=work / queue.capacity.cores,
        )
        return context.looked(queue)

    def _planned_s(self, options: Options, queue: QueueView, cores: int, walltime_s: float) -> float:
        """The wait that the batch system expects [s]: all of the queue is planned, but once a look and size."""
        look = self._looks.get(options)
        if look is None or queue is not look.queue:
            look = self._looks[options] = _Look(queue)
        if (cores, walltime_s) not in look.planned:
            # What plans a simulated queue is compiled at first, and that takes longer than a run may stand still.
            plan = look.plain if type(queue) is QueueView else partial(self._compiled, queue)
            look.planned[cores, walltime_s] = plan(cores, walltime_s)
        return look.planned[cores, walltime_s]

    @cached_property
    def _compiled(self) -> Callable[[QueueView, int, float], float]:
        plan: Callable[[QueueView, int, float], float] = PLANNERS.load("conservative")
        return plan


class WaitBook(Protocol):
    """What a run needs of the learned waits; keyed by the size of a job and its queue."""

    def predict(
        self, resources: Resources, walltime_s: float, context: Context, quantiles: Sequence[float | None]
    ) -> list[float]:
        """Expected waits [s] of a job of this size, one for each quantile; None for the estimator's own choice."""

    def learn(
        self, job: JobRequest, wait_s: float, predicted_s: float | None = None, context: Context | None = None
    ) -> None:
        """This job waited `wait_s` [s]. Whoever takes a run over may say so again."""

    def known(self, resources: Resources, walltime_s: float) -> int:
        """How many jobs have taught the waits of this size."""

    def survival(self, options: Options) -> tuple[int, float]:
        """How often jobs of a queue were preempted in earlier runs, and how long they ran in all [h]."""


class PlanView(Protocol):
    """What is asked of a plan: its allocations and its stages."""

    @property
    def pool(self) -> Pool: ...
    @property
    def stages(self) -> Mapping[str, StageProgress]: ...


class Queues:
    """Chooses among the queues that jobs may go to.

    Parameters
    ----------
    plan
        The run: how long its stages take, and what became of its jobs.
    site
        Its limits, by queue.
    waits, contexts
        What was learned of waits, and what is seen of queues.
    terms, patience
        Prices and risks as the user said them, and what an hour of the user's time is worth [core-hours].
    """

    def __init__(
        self,
        plan: PlanView,
        site: Capabilities,
        waits: WaitBook,
        contexts: Contexts,
        terms: QueueTerms,
        patience: float | None = None,
    ) -> None:
        self._plan, self._site, self._waits, self._contexts = plan, site, waits, contexts
        self.terms, self._patience = terms, patience

    def choose(
        self, job: Sized, stages: Sequence[str], now: float, alike: Sequence[Sized] = (), array: str = ""
    ) -> QueueChoice | None:
        """The queues of a job for these stages; None where its options leave no choice.

        All elements of an `array` go to one queue, which takes those `alike`, too.
        """
        found = alternatives(job.resources.options)
        if len(found) < 2:
            return None
        if array:
            for held in self._plan.pool.held.values():
                if held.request.array == array and held.request.queue is not None:
                    return QueueChoice(
                        (held.request.queue,), f"queue {queue_name(held.request.queue)}, that of its array"
                    )
        run_s, piece_s = self._work(stages)
        prospects = [self._prospect(job, options, now, alike) for options in found]
        choice = choose(prospects, run_s, piece_s, self._patience)
        return choice if choice.ranked else choice._replace(ranked=found[:1])  # it is refused there, with the limit

    def second(self, choice: QueueChoice) -> Options | None:
        """The queue in which the same is asked for, too: where that is wanted, and the first is not there at once."""
        soon = choice.wait_s is not None and choice.wait_s < TWICE_LEAST_S
        return choice.ranked[1] if self.terms.twice and len(choice.ranked) > 1 and not soon else None

    def predict(
        self,
        job: Sized,
        stages: Sequence[str],
        now: float,
        quantiles: Sequence[float | None],
        *,
        by_plan: bool = False,
    ) -> list[float]:
        """Expected waits [s] of a job in the queue that it would go to now, one for each quantile.

        `by_plan` says that a plan of the queue, where that can be seen, counts for more than what was learned.
        """
        choice = self.choose(job, stages, now)
        options = job.resources.options if choice is None else choice.ranked[0]
        there = replace(job.resources, options=options)
        context = self._contexts.of(there, job.walltime_s, now)
        untaught = choice is not None and not self._waits.known(there, job.walltime_s)
        if (by_plan or untaught) and context.planned_s is not None:
            return [context.planned_s] * len(quantiles)
        return self._waits.predict(there, job.walltime_s, context, quantiles)

    def _prospect(self, job: Sized, options: Options, now: float, alike: Sequence[Sized]) -> QueueProspect:
        there = replace(job.resources, options=options)
        site = self._site.for_jobs(options)
        for each in (job, *alike):
            if why := misfit(each, site, "queue", spreads=True):
                return QueueProspect(options, why)
        context = self._contexts.of(there, job.walltime_s, now)
        wait_s, basis = context.planned_s, "by its queue as it is seen"
        if wait_s is None and (jobs := self._waits.known(there, job.walltime_s)):
            (wait_s,) = self._waits.predict(there, job.walltime_s, context, (None,))
            basis = f"not seen, by {jobs} earlier job{'s' * (jobs != 1)}"
        times, hours = self._waits.survival(options)
        for held in self._plan.pool.ever.values():
            if held.request.queue == options:
                times, hours = times + held.preempted, hours + held.ran_s / HOUR
        preempted = self.terms.preempted_in(options, site.preemptible, times, hours)
        return QueueProspect(options, "", wait_s, basis, site.charged(there), self.terms.price_in(options), preempted)

    def _work(self, stages: Sequence[str]) -> tuple[float, float]:
        """How long the work of these stages takes in all, and how much of it is lost when it is preempted [s]."""
        run_s = piece_s = 0.0
        for spec in (self._plan.stages[name].spec for name in stages):
            rounds = max(1, math.ceil((spec.width or 1) * spec.task.cores / spec.resources.cores))
            each_s = spec.run_time_s / rounds
            run_s, piece_s = run_s + spec.run_time_s, max(piece_s, each_s * (_SAVED if spec.checkpoint else 1.0))
        return run_s, piece_s


TWICE_LEAST_S = 60.0
"""A job that is expected to start sooner is asked for once [s]."""

_SAVED = 0.1
"""The part of a task with checkpoints that is taken to be lost with its node."""


WAITS = "waits "
"""What keys of geometries in the store begin with, as `asa.estimators.waits` has it."""

FIXED_S = 0.75, 1.25
"""How long an allocation on one node, and one on several, is charged for beside its tasks [s], where no run has
measured it: medians with agents on a test cluster (docs/benchmarks.md), rounded up."""

_LEAST = 1e-3

Look = Callable[[Sequence[JobHandle]], Sequence[JobStatus]]
"""How these jobs stand, or nothing where that cannot be asked."""


BUSY_S = 10.0
"""How long a run waits for others that write into the store [s]."""
open_store: Callable[..., LearnedStore] = LearnedStore
"""Opens the store of lessons."""
_FAILURES_MOST = 3
"""How often a store may fail until a run does without: each time may have taken as long as a lock is waited for."""

_log = logging.getLogger(__name__)


@contextmanager
def _lesson(otherwise: str) -> Iterator[None]:
    """Whatever goes wrong meanwhile is a warning, with what comes of it."""
    try:
        yield
    except Exception as error:  # an estimator may raise anything
        _log.warning("%s: %s: %s", otherwise, type(error).__name__, error)


class _Notes:
    """The store, as `asa.log.database.LearnedStore` has it; what it cannot keep or give, the run has for itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store: LearnedStore | None = None
        self._failures = 0
        self._own: dict[str, Record | None] = {}
        self._seen: set[tuple[str, str]] = set()

    def get(self, key: str) -> Record | None:
        own = copy.deepcopy(self._own.get(key))
        return own if key in self._own else self._try(lambda store: store.get(key), lambda: None)

    def keys(self, prefix: str = "") -> list[str]:
        kept: list[str] = self._try(lambda store: store.keys(prefix), list)
        return sorted({*kept, *(key for key in self._own if key.startswith(prefix))})

    def update(self, key: str, change: Change) -> Record | None:
        return self._try(lambda store: self._stored(key, store.update(key, change)), lambda: self._note(key, change))

    def learn_once(self, key: str, token: str, change: Change) -> bool:
        def note() -> bool:
            if (key, token) in self._seen:
                return False
            self._note(key, change)
            self._seen.add((key, token))
            return True

        return self._try(lambda store: self._stored(key, store.learn_once(key, token, change)), note)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _stored(self, key: str, found: _T) -> _T:
        """The store has it now, with what others have learned."""
        self._own.pop(key, None)
        return found

    def _note(self, key: str, change: Change) -> Record | None:
        self._own[key] = record = change(self.get(key))
        return record

    def _try(self, call: Callable[[LearnedStore], _T], otherwise: Callable[[], _T]) -> _T:
        if self._failures < _FAILURES_MOST:
            try:
                if self._store is None:
                    self._store = open_store(self._path, busy_s=BUSY_S)
                return call(self._store)
            except StateError as error:
                self._failures += 1
                _log.warning("what this run learns is not kept, and what others have learned not used: %s", error)
        return otherwise()


class LearnedWaits:
    """Waits and run times of a site. Opened when first needed: importing what it takes costs more than a short run.

    No run fails for what was or could be learned: what cannot be kept or used is a warning in the run's log, and the
    estimator goes on with what this run has seen.

    Parameters
    ----------
    path
        The store, shared by all runs.
    estimator
        Spec of what learns the waits.
    site
        The site.
    """

    def __init__(self, path: Path, estimator: str, site: Capabilities) -> None:
        self._path, self._estimator, self._site = path, estimator, site
        self._published: dict[Geometry, Believed] = {}
        self._post: Post | None = None
        self._clock: Clock | None = None

    def report(self, post: Post, clock: Clock) -> None:
        """Post `Believed`, whenever something was learned about a geometry that this run asks for, by whichever run.

        That is one event for each geometry when it is met, and one for each job that teaches.
        """
        self._post, self._clock = post, clock

    def predict(
        self, resources: Resources, walltime_s: float, context: Context, quantiles: Sequence[float | None] = (None,)
    ) -> list[float]:
        geometry = self._geometry(resources, walltime_s)
        try:
            said = self._waits.predict(geometry, context, quantiles)
        except StateError as error:
            _log.warning("nothing that was learned of %s is used: %s", geometry, error)
            fresh: Estimator = ESTIMATORS.create(self._estimator, seed=0)
            said = [float(fresh.predict(context, quantile)) for quantile in quantiles]
        self._tell(geometry, said[-1])
        return said

    def lessons(self, resources: Resources, walltime_s: float) -> int:
        """How many jobs have taught what counts for jobs of this size: those of it, or all of its queue."""
        return self._waits.lessons(self._geometry(resources, walltime_s))

    def learn(
        self, job: JobRequest, wait_s: float, predicted_s: float | None = None, context: Context | None = None
    ) -> None:
        geometry = self._geometry(replace(job.resources, options=job.options), job.walltime_s)
        with _lesson(f"the wait of job {job.token} is not learned"):
            self._waits.learn(geometry, job.token, wait_s, predicted_s, context, job.walltime_s)
        self._tell(geometry)

    def known(self, resources: Resources, walltime_s: float) -> int:
        record = self._store.get(WAITS + str(self._geometry(resources, walltime_s))) or {}
        jobs: int = record.get("jobs", 0)
        return jobs

    def survival(self, options: Options) -> tuple[int, float]:
        record = self._store.get(self._survival_key(options)) or {}
        return record.get("preempted", 0), record.get("ran_s", 0.0) / HOUR

    def learn_survival(self, run: FoldedRun) -> None:
        """Remember which jobs of a run were preempted, where there is a choice of queues; each job counts once."""
        for held in run.pool.ever.values():
            if held.request.queue is not None and held.ended is not None and (ran_s := held.ran_s) > 0:
                with _lesson(f"whether job {held.key} was preempted is not remembered"):
                    add = partial(_survived, preempted=held.preempted, ran_s=ran_s)
                    self._store.learn_once(self._survival_key(held.request.queue), held.key, add)

    def _survival_key(self, options: Options) -> str:
        return f"{self._site.site} {queue_name(options)}: preempted"

    def run_time(self, workflow: str) -> Callable[[str, float], float]:
        """Predicts the run time [s] of a stage of `workflow` from its name and wall time [s]."""
        if self._site.regime is QueueRegime.IMMEDIATE:  # nothing is planned with run times where nothing waits
            return lambda _stage, walltime_s: walltime_s
        return lambda stage, walltime_s: self._run_times.predict(
            f"{self._site.site} {workflow} {kind_of(stage)}", walltime_s
        )

    def expect(self, workflow: str) -> Callable[[StageSpec], StageSpec]:
        """Makes of a stage of `workflow`, of which something is expected that only its run will tell, one of which what
        came in earlier runs is: the median of the last ones."""

        def learned(spec: StageSpec) -> StageSpec:
            if spec.expect is None or self._site.regime is QueueRegime.IMMEDIATE:
                return spec
            record = self._store.get(self._came_key(workflow, spec.name)) or {}
            if not record.get("came"):
                return spec
            came = round(median(record["came"]))
            return replace(spec, expect=came).holding(came)

        return learned

    def measured(self, spec: StageSpec) -> StageSpec:
        """A stage that may have several widths with its run times on them as they were measured, where they were."""
        if not spec.widths or not spec.speedup:
            return spec
        from asa.core.history import about
        from asa.core.width import DECLARED, measured
        from asa.log.history import HISTORY, UsageHistory

        path, times = self._path.parent / HISTORY, dict[int, list[float]]()
        with _lesson(f"what {spec.name} took on other widths is not used"):
            if path.exists():
                with UsageHistory(path, busy_s=BUSY_S) as history:
                    found = history.of(kind_of(spec.name), spec.code or None, self._site.site)
                rows = [row for row in found if row.outcome == "ok" and row.cores]
                if rows and rows[-1].input is not None:
                    rows = about(rows, rows[-1].input)
                for row in rows:
                    times.setdefault(row.cores or 1, []).append(row.run_time_s)
        widths, tried, said = measured(spec.widths, times, spec.speedup == DECLARED)
        if said and spec.speedup == DECLARED:
            _log.warning("stage %s: its speed-up is %s", spec.name, said)
        return replace(spec, widths=widths, tried=tried, speedup=said or spec.speedup)

    def misses(self) -> list[float]:
        """By how much the ends of the site's last runs missed their quotes, the newest last."""
        return list((self._store.get(self._quotes_key) or {}).get("misses", []))

    def learn_quote(self, run: FoldedRun) -> None:
        """Remember by how much the end of a run missed its quote; not of one that did not succeed, or was held, and
        not of a quote that knew no waits, or of run times only that wall times bound them."""
        if run.quoted is None or run.quoted.least or run.quoted.most or run.drivers > 1:
            return
        if run.outcome is not RunState.SUCCEEDED or run.ended is None:
            return
        missed = run.quoted.missed(run.ended)

        def noted(record: Record | None) -> Record:
            return {"misses": [*((record or {}).get("misses") or []), missed][-_MISSES_MOST:]}

        with _lesson("how far its quote was off is not remembered"):
            self._store.update(self._quotes_key, noted)

    def learn_instants(self, run: FoldedRun) -> None:
        """Remember the stages that took no more than an instant, with their code; the history has nothing of them."""
        done = {
            name: stage.spec.code
            for name, stage in run.stages.items()
            if stage.state is StageState.DONE and not stage.is_telling and not stage.reused
        }
        if run.start is not None and done:
            with _lesson("which stages took an instant is not remembered"):
                self._store.update(self._instants_key(run.start.workflow), lambda _: {"codes": done})

    def instants(self, workflow: str, specs: Sequence[StageSpec]) -> set[str]:
        """Stages that took no more than an instant when the workflow ran last, and have the same code now."""
        codes = (self._store.get(self._instants_key(workflow)) or {}).get("codes", {})
        return {spec.name for spec in specs if codes.get(spec.name) == spec.code}

    def _instants_key(self, workflow: str) -> str:
        return f"instants {self._site.site} {workflow}"

    @property
    def _quotes_key(self) -> str:
        return f"quotes {self._site.site} {self._site.partition}"

    def _came_key(self, workflow: str, name: str) -> str:
        return f"{self._site.site} {workflow} {kind_of(name)}: came"

    def fixed_s(self) -> tuple[float, float]:
        """How long an allocation on one node, and one on several, is charged for beside its tasks [s].

        As earlier runs of the user have measured it at the site, else `FIXED_S`; zeros where there is no queue.
        """
        if self._site.regime is QueueRegime.IMMEDIATE:
            return 0.0, 0.0
        one, several = (self._run_times.predict(key, HOUR) for key in self._fixed_keys)
        return FIXED_S[0] if one == HOUR else one, FIXED_S[1] if several == HOUR else several

    def learn_run_times(self, run: FoldedRun, workflow: str, look: Look = lambda _handles: ()) -> None:
        """Remember how long the stages of a run took, and its allocations beside them; not of a resumed run, where they
        seem longer.

        Parameters
        ----------
        look
            Asks about jobs whose ends were not seen: a short run is over before it asks again.
        """
        if self._site.regime is QueueRegime.IMMEDIATE:
            return
        with _lesson("its run times are not remembered"):
            for name, came in run.came():
                self._store.update(self._came_key(workflow, name), partial(_noted, came=came))
            for name, stage in run.stages.items():
                if stage.state is StageState.DONE and stage.started is not None and stage.ended is not None:
                    took_s, cores = stage.ended - stage.started, stage.spec.resources.cores
                    if stage.spec.widths:
                        from asa.core.width import on_narrowest

                        took_s = on_narrowest(took_s, stage.spec.widths, cores, stage.width)
                    self._run_times.learn(f"{self._site.site} {workflow} {kind_of(name)}", took_s)
            held = run.pool.ever.values()
            unseen = [item.handle for item in held if item.released and not item.ended and item.handle]
            seen = {status.handle.token: status for status in look(unseen)} if unseen else {}
            for key, found in zip(self._fixed_keys, fixed_times(run, seen), strict=True):
                if found:
                    self._run_times.learn(key, median(found))

    @property
    def _fixed_keys(self) -> tuple[str, str]:
        return f"{self._site.site}: allocation on one node", f"{self._site.site}: allocation on several nodes"

    def close(self) -> None:
        """Let go of the store, if it was opened."""
        if (store := vars(self).get("_store")) is not None:
            store.close()

    def _tell(self, geometry: Geometry, said: float | None = None) -> None:
        """Post what is believed of a geometry, if more is known of it than when that was last done.

        What was `said` [s] stands for the prediction of a pooled estimator: it depends on the job.
        """
        if self._post is not None and self._clock is not None:
            with _lesson(f"what is believed of {geometry} is not shown"):
                self._report(geometry, said, self._post, self._clock)

    def _report(self, geometry: Geometry, said: float | None, post: Post, clock: Clock) -> None:
        record, before = self._store.get(WAITS + str(geometry)) or {}, self._published.get(geometry)
        jobs, last_wait_s = record.get("jobs", 0), record.get("last_wait_s")
        if before is not None and before.jobs == jobs:
            return
        estimator, weighed = estimator_of(self._estimator, record), list[tuple[float, float]]()
        if estimator is not None:
            said, weighed = estimator.predict(), weights(estimator.state())
        elif said is None and before is not None:
            said = before.predicted_s
        known = Believed(clock.now(), str(geometry), self._estimator, jobs, last_wait_s, finite(said), tuple(weighed))
        self._published[geometry] = known
        post([known])

    def _geometry(self, resources: Resources, walltime_s: float) -> Geometry:
        asked = dict(resources.options)
        queue = "+".join([asked.get("partition", self._site.partition), *filter(None, [asked.get("qos")])])
        return geometry_of(self._site.site, queue, resources.cores, walltime_s)

    @cached_property
    def _store(self) -> _Notes:
        return _Notes(self._path)

    @cached_property
    def _waits(self) -> Waits:
        from asa.estimators.waits import Waits

        return Waits(self._store, self._estimator)

    @cached_property
    def _run_times(self) -> RunTimePredictor:
        from asa.estimators.waits import StageTimes

        return StageTimes(self._store)


def _survived(record: Record | None, preempted: int, ran_s: float) -> Record:
    """How often jobs were preempted and how long they ran, with one more."""
    before = record or {}
    return {"preempted": before.get("preempted", 0) + preempted, "ran_s": before.get("ran_s", 0.0) + ran_s}


def keep_usage(state: Path, run: FoldedRun, log: EventLog) -> None:
    """Keep in the history of a state directory what tasks of a run took so far; no run fails for that."""
    if run.start is None or not any(stage.is_telling for stage in run.stages.values()):
        return
    with _lesson("what its tasks took is not kept"):
        from asa.log.history import HISTORY, UsageHistory  # here: a run of an instant does without

        with UsageHistory(state / HISTORY, busy_s=BUSY_S) as history:
            _record(history, run, log.last)


def catch_up(state: Path, history: UsageHistory) -> None:
    """Add to the history what tasks of runs took whose driver has died without doing so."""
    from asa.metrics.usage import run_id

    for directory in list_runs(state):
        with _lesson(f"what tasks of run {directory.name} took is not in the history"):
            if not directory.events.exists() or directory.is_driven():
                continue
            with EventLog(directory.events) as log:
                start, last = next((event for _, event in log.packed()), None), log.last
                if isinstance(start, RunStarted) and history.marked(run_id(start)) < last:
                    run = FoldedRun()
                    for _, item in log.packed():
                        run.on(item)
                    _record(history, run, last)


def _record(history: UsageHistory, run: FoldedRun, last: int) -> None:
    from asa.log.history import Counted
    from asa.metrics.usage import run_id, usage

    assert run.start, "a run that has tasks has begun"
    history.record([Counted(*each) for each in usage(run)])
    history.mark(run_id(run.start), last)


def _noted(record: Record | None, came: int) -> Record:
    """What came, with what came before."""
    return {"came": [*((record or {}).get("came") or []), came][-_CAME_MOST:]}


_CAME_MOST, _MISSES_MOST = 9, 60


def fixed_times(
    run: FoldedRun, seen: Mapping[str, JobStatus] = MappingProxyType({})
) -> tuple[list[float], list[float]]:
    """How long allocations of a run were charged for beside their tasks [s]: those on one node, and those on several.

    That is from their start, or when their stage was ready if that was later, to their first task, and from their last
    task to the end. Only those count that were released, and ended well.

    Parameters
    ----------
    seen
        What was seen after the run of jobs that it has not seen end, by their tokens.
    """
    found: tuple[list[float], list[float]] = [], []
    for held in run.pool.ever.values():
        state, started, ended, runs = held.job, held.started, held.ended, len(held.runs)
        if (status := seen.get(held.key)) is not None and not status.restarts:
            state, started, ended, runs = status.state, status.started, status.ended, 1
        times = started, held.used, held.idle_since, ended
        if held.lender or state is not JobState.COMPLETED or runs != 1 or None in times:
            continue
        assert started is not None and held.used is not None
        assert held.idle_since is not None and ended is not None
        ready = min((at for name in held.stages if (at := run.stages[name].ready) is not None), default=started)
        joining, ending = held.used - max(started, ready), ended - held.idle_since
        found[len(held.hosts) > 1].append(max(0.0, joining) + max(0.0, ending))
    return found


def estimator_of(spec: str, record: Mapping[str, Any]) -> Estimator | None:
    """The estimator of a geometry as the store has it, or one that has learned nothing; None for a pooled one."""
    if is_pooled(spec):
        return None
    made: Estimator = ESTIMATORS.create(spec, seed=0)
    for name, state in record.get("states", {}).items():
        if parse_spec(name) == parse_spec(spec):
            made.restore(state)
    return made


def weights(state: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Pairs of alternative [s] and weight in what an estimator has learned, if it is made of such; those of 0.1 % or
    less are left out.

    >>> weights({"grid": [0.0, 10.0, 20.0], "weights": [0.5, 1.5, 0.0]}), weights({"waits": [1.0]})
    ([(0.0, 0.25), (10.0, 0.75)], [])
    """
    grid, found = state.get("grid"), state.get("weights")
    if found is None and (logs := state.get("log_weights")):
        found = [math.exp(value - max(logs)) for value in logs]
    if not isinstance(grid, list) or not isinstance(found, list) or len(grid) != len(found):
        return []
    total = sum(found)
    return [
        (round(wait, 3), round(weight / total, 4))
        for wait, weight in zip(grid, found, strict=True)
        if weight > _LEAST * total
    ]


def finite(value: float | None) -> float | None:
    """A number of seconds as logs have it: to milliseconds, None for one that is not finite.

    >>> finite(1.23456), finite(math.inf), finite(None)
    (1.235, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(value, 3)
