"""The limit: a workflow whose jobs are submitted with perfect knowledge of what the queue will do.

Each stage's job is submitted so that it starts as soon as possible once its stage is ready, and no earlier. No real
strategy can know when that is; how far each is from it is what prediction could still gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asa.core.job import QueueRegime
from asa.lab.asa_paper.probes import JobKind, started, submit
from asa.lab.asa_paper.tables import StageSpan
from asa.lab.dispatchers.backfill import BackfillRule
from asa.lab.simulator.engine import Engine

RESOLUTION_S = 10.0
"""To what a time of submission is found [s]."""

_SAME_S = 1e-6


@dataclass(frozen=True)
class StageNeed:
    """A stage as the queue sees it: its job's cores and wall time, how long it runs [s], and what it waits for."""

    name: str
    kind: JobKind
    run_time_s: float
    predecessors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Foreseen:
    """A stage with perfect prediction: when its job is submitted, and when it is ready, starts and ends [s].

    A `gated` job depends on those of the stages before it.
    """

    need: StageNeed
    submitted: float
    ready: float
    started: float
    gated: bool = False

    @property
    def ended(self) -> float:
        return self.started + self.need.run_time_s

    @property
    def span(self) -> StageSpan:
        return StageSpan(self.need.name, self.started - self.ready, self.need.run_time_s)


def oracle(engine: Engine, rule: BackfillRule, needs: Sequence[StageNeed]) -> list[Foreseen]:
    """When to submit the job of each stage of a workflow that begins now, and what comes of it.

    Notes
    -----
    A near-limit, which is reached by what it finds, but need not be the best. Stages are settled one after the other,
    each by trying times of submission in copies of the machine that hold the jobs of the stages before it. The time is
    bisected to `RESOLUTION_S` between the begin of the workflow and the time at which the stage is ready, which finds
    the earliest start if later submissions never start earlier; backfilling breaks that now and then. Where dependent
    jobs keep their place in the queue, a job that is submitted at the begin and depends on those before it is tried as
    well: it cannot come too early. A job that would make an earlier stage's job come too early is not submitted then.
    """
    plan: list[Foreseen] = []
    for need in needs:
        plan = _settle(engine, rule, plan, need)
    return plan


def _settle(engine: Engine, rule: BackfillRule, before: Sequence[Foreseen], need: StageNeed) -> list[Foreseen]:
    """The plan with one stage more."""

    def attempt(at: float, *, gated: bool = False) -> list[Foreseen]:
        return _attempt(engine, rule, [*before, Foreseen(need, at, at, at, gated)])

    low, high = engine.now, _ready(need, before, engine.now)
    best = attempt(high)
    if low == high or _wait(best) <= _SAME_S:
        return best
    if QueueRegime(engine.settings.model.regime).dependents_age:
        best = _better(best, attempt(low, gated=True))
    soonest = attempt(low)
    if not _too_early(soonest):
        return _better(best, soonest)
    while high - low > RESOLUTION_S and _wait(best) > _SAME_S:
        tried = attempt((low + high) / 2)
        if _too_early(tried):
            low = (low + high) / 2
        else:
            high = (low + high) / 2
            best = _better(best, tried)
    return best


def _attempt(engine: Engine, rule: BackfillRule, plan: Sequence[Foreseen]) -> list[Foreseen]:
    """What comes of these times of submission."""
    copy = engine.copy()
    rows: list[int] = []
    places = {stage.need.name: place for place, stage in enumerate(plan)}
    for stage in plan:
        after = [rows[places[name]] for name in stage.need.predecessors] if stage.gated else []
        rows.append(submit(copy, stage.need.kind, stage.need.run_time_s, stage.submitted, after))
    made: list[Foreseen] = []
    for stage, start in zip(plan, started(copy, rule, rows), strict=True):
        made.append(Foreseen(stage.need, stage.submitted, _ready(stage.need, made, engine.now), start, stage.gated))
    return made


def _ready(need: StageNeed, settled: Sequence[Foreseen], begin: float) -> float:
    return max([begin, *(stage.ended for stage in settled if stage.need.name in need.predecessors)])


def _wait(plan: Sequence[Foreseen]) -> float:
    return plan[-1].started - plan[-1].ready


def _better(best: list[Foreseen], tried: list[Foreseen]) -> list[Foreseen]:
    """The one whose last stage starts earlier, the first if neither does."""
    return best if _too_early(tried) or best[-1].started <= tried[-1].started else tried


def _too_early(plan: Sequence[Foreseen]) -> bool:
    return any(stage.started < stage.ready - _SAME_S for stage in plan)
