"""What the tasks and stages of a run took, as rows for the history; without arrays, which short runs do not load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from asa.core.event import RunStarted
from asa.core.history import StageUsage, Usage
from asa.core.run import ATTEMPT, TAKEN, FoldedRun, StageProgress, TaskOutcome
from asa.core.stage import StageSpec, kind_of
from asa.core.task import SOURCES
from asa.core.units import HOUR

SAMPLED = 1000
"""Of a stage with more attempts about so many are looked at one by one, and those that took most."""

_NO_BOUND = 1 << 62

_Attempt = tuple[int, int, float, float, float, int, int, int, bool, bool]


def run_id(start: RunStarted) -> str:
    """A name for a run that no later one has."""
    return f"{start.run}@{start.at:.0f}"


@dataclass(slots=True)
class _Tally:
    """Attempts at the tasks of one stage."""

    step: int
    count: int = 0
    run_s: float = 0.0
    given: int = 0
    last: float = 0.0
    failures: int = 0
    kept: list[_Attempt] = field(default_factory=list)
    largest: _Attempt | None = None
    longest: _Attempt | None = None
    allocations: set[int] = field(default_factory=set)


def usage(run: FoldedRun) -> Iterator[tuple[str, StageUsage, int, Callable[[int], Sequence[Usage]]]]:
    """Of each stage that took more than an instant: its name, what it took as a whole, its attempts, and rows of these.

    Rows are made of the attempts from a place on: none of those that were lost with their node, and none at tasks that
    went on from a checkpoint, which have run for longer. A stage whose tasks were not measured has none.
    """
    log = run.attempts
    names, allocations = list(log.stages), list(log.allocations)
    for number, tally in enumerate(_tallies(run)):
        stage = run.stages.get(names[number])
        if tally is None or stage is None or run.start is None or not any(each[7] for each in tally.kept):
            continue
        spec = stage.spec
        held = [run.pool.ever[name] for each in tally.allocations if (name := allocations[each]) in run.pool.ever]
        most = sum(max((cores for _, _, cores in each.runs), default=each.cores) for each in held)
        width = max(spec.task.cores, min(_width(tally, stage), most or _NO_BOUND))
        whole = StageUsage(
            stage=kind_of(spec.name),
            code=spec.code,
            machine=run.start.site,
            workflow=run.start.workflow,
            run=run_id(run.start),
            tasks=max(1, stage.width or stage.done),
            done=max(0, stage.done - stage.reused),
            cores=spec.task.cores,
            width=width,
            input=tally.given,
            run_time_s=stage.active_s + (max(0.0, tally.last - stage.since) if stage.since is not None else 0.0),
            wait_s=_waited(run, spec.name),
            perceived_wait_s=_perceived(stage),
            core_hours=spec.task.cores * tally.run_s / HOUR,
            failures=tally.failures,
            ended=stage.ended or tally.last,
        )
        yield spec.name, whole, tally.count, partial(_rows, tally, stage, run.start.site, width)


def _tallies(run: FoldedRun) -> list[_Tally | None]:
    log = run.attempts
    stages = [run.stages.get(name) for name in log.stages]
    tallies = [_Tally(max(1, stage.launched // SAMPLED)) if stage and stage.is_telling else None for stage in stages]
    done, failed, paused = TaskOutcome.DONE.value, TaskOutcome.FAILED.value, TaskOutcome.PAUSED.value
    goes_on: set[tuple[int, int]] = set()
    for attempt, took in zip(ATTEMPT.iter_unpack(log.records), TAKEN.iter_unpack(log.taken), strict=True):
        number, index, allocation, _, outcome, started, ended = attempt
        if (tally := tallies[number]) is None:
            continue
        tally.run_s += ended - started
        if ended > tally.last:
            tally.last = ended
        if outcome == done:
            tally.given += took[2]
        elif outcome == failed:
            tally.failures += 1
        else:
            if outcome == paused:
                goes_on.add((number, index))
            continue
        tally.allocations.add(allocation)
        place, tally.count = tally.count, tally.count + 1
        if goes_on and (number, index) in goes_on:
            continue
        row: _Attempt | None = None
        if not place % tally.step:
            row = (place, outcome, started, ended, *took)
            tally.kept.append(row)
        if tally.largest is None or took[1] > tally.largest[5]:
            tally.largest = row or (place, outcome, started, ended, *took)
        if tally.longest is None or ended - started > tally.longest[3] - tally.longest[2]:
            tally.longest = row or (place, outcome, started, ended, *took)
    return tallies


def _rows(tally: _Tally, stage: StageProgress, machine: str, width: int, first: int) -> list[Usage]:
    """The attempts from this one on."""
    attempts = {each[0]: each for each in (*tally.kept, tally.largest, tally.longest) if each is not None}
    found = []
    for place, outcome, started, ended, cpu_s, peak, given, source, memory, time in attempts.values():
        if place >= first:
            spec = next((spec for until, spec in stage.outgrown if started < until), stage.spec)
            lacked = "memory" if memory else "time" if time else "failed"
            found.append(
                Usage(
                    stage=kind_of(spec.name),
                    code=spec.code,
                    machine=machine,
                    input=given if source else None,
                    cores=spec.task.cores,
                    width=width,
                    run_time_s=ended - started,
                    cpu_s=cpu_s or None,
                    memory=peak or None,
                    asked_memory=_memory(spec),
                    asked_s=spec.timeout_s or spec.walltime_s,
                    outcome="ok" if outcome == TaskOutcome.DONE else lacked,
                    ended=ended,
                    source=SOURCES[source],
                    tasks=1 if place % tally.step else tally.step,
                )
            )
    return found


def _memory(spec: StageSpec) -> int | None:
    """What is asked for a task on each of its nodes [bytes]."""
    return spec.task.on_each(spec.task.nodes or 1).memory


def _width(tally: _Tally, stage: StageProgress) -> int:
    """Cores that its tasks held at once: at most, or, where not each was looked at, on average."""
    if tally.step > 1:
        return max(1, round(tally.run_s / max(stage.active_s, 1e-3))) * stage.spec.task.cores
    steps = sorted(step for each in tally.kept for step in ((each[2], 1), (each[3], -1)))
    return max(1, max(accumulate((change for _, change in steps), initial=0))) * stage.spec.task.cores


def _waited(run: FoldedRun, name: str) -> float | None:
    """The queue wait of the last job that was meant for a stage and has started [s]."""
    for held in reversed(run.pool.ever.values()):
        started = held.runs[0][0] if held.runs else held.started
        if name in held.stages and started is not None and not held.lender:
            return max(0.0, started - held.submitted)
    return None


def _perceived(stage: StageProgress) -> float | None:
    if stage.ready is None or stage.started is None:
        return None
    return max(0.0, stage.started - stage.ready)
