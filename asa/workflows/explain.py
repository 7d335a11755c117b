"""Why a stage is not running, in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from asa.core.event import RunState
from asa.core.job import explained
from asa.core.ports import Explains
from asa.core.run import FoldedRun, Held, StageProgress
from asa.core.stage import StageState
from asa.core.units import brief, size
from asa.report.words import counted, quote_words
from asa.workflows.plan import Plan


class Reasons(NamedTuple):
    """Why stages are not running.

    Parameters
    ----------
    strategy
        What the strategy does, or "" if it does not say.
    stages
        By name: what it does or what it waits for, and since when.
    trouble
        What the batch system says instead of answering, or "".
    """

    strategy: str
    stages: dict[str, str]
    trouble: str


def explain(plan: Plan, now: float, *, driven: bool = True) -> str:
    """`reasons`, a line for each."""
    found = reasons(plan, now, driven=driven)
    lines = [f"{name}: {words}" for name, words in found.stages.items()]
    for stage in plan.in_order:
        if stage.why_width:
            known = f"; its speed-up is {stage.spec.speedup}" if stage.spec.speedup else ""
            lines.append(f"{stage.spec.name}: {stage.why_width}{known}")
    for held in plan.pool.ever.values():
        said = (held.why, _charged(held))
        lines += [f"{', '.join(held.stages)}: {words}" for words in said if words]
    if plan.on_hold is not None and plan.outcome is RunState.RUNNING:
        lines.insert(0, f"the run is held, nothing new is submitted or launched: asa release {plan.run}")
    lines += failures(plan)
    if words := _quoted(plan, now):
        lines.insert(0, f"quoted: {words}")
    if found.strategy:
        lines.insert(0, f"strategy: {found.strategy}")
    if found.trouble:
        lines.append(f"the batch system does not answer: {found.trouble}")
    return "\n".join(lines)


def _quoted(plan: Plan, now: float) -> str:
    virtual = plan.start is not None and plan.start.is_virtual
    said = quote_words(plan.quoted, plan.outcome, plan.ended, now, virtual=virtual)
    notes = plan.quoted.notes if plan.quoted is not None else ()
    return "; ".join([said, *notes]) if said else ""


FAILED_MOST, TAIL_MOST = 10, 10
"""Failed tasks that are listed, and lines of what each of them printed."""


def failures(run: FoldedRun) -> list[str]:
    """How many tasks are done, failed or were skipped, and the failed ones, in lines; none where all is well."""
    stages = run.stages.values()
    done, failed, skipped = (
        sum(stage.done for stage in stages),
        sum(len(stage.failed) for stage in stages),
        sum(stage.skipped for stage in stages),
    )
    if not failed and not skipped:
        return []
    lines = [f"tasks: {done:,} done, {failed:,} failed, {skipped:,} skipped"]
    tasks = [(stage, each) for stage in stages for _, each in sorted(stage.failed.items())]
    for stage, each in tasks[:FAILED_MOST]:
        facts = [f"on {each.node}"] if each.node else []
        facts.append(f"attempt {each.attempt}")
        facts += [f"exit code {each.exit}"] if each.exit is not None else []
        facts += [f"peak memory {each.peak_memory / 2**20:,.0f} MiB"] if each.peak_memory else []
        lines.append(f"  {each.stage}[{each.index}] failed {', '.join(facts)}: {each.message}")
        if stage.state is not StageState.FAILED or each.tail not in stage.story:  # else it is said there
            lines += [f"    {line}" for line in each.tail.splitlines()[-TAIL_MOST:] if line]
    if len(tasks) > FAILED_MOST:
        lines.append(f"  and {len(tasks) - FAILED_MOST:,} more: `asa logs {run.run} --failed` has what they printed")
    return lines


def reasons(plan: Plan, now: float, *, driven: bool = True) -> Reasons:
    """Why stages are not running, asked at the time `now` [s since the epoch]; `driven`: the run's driver is alive."""
    strategy, underway = plan.strategy, plan.outcome is RunState.RUNNING and driven
    return Reasons(
        strategy.explain(plan.view(now)) if underway and isinstance(strategy, Explains) else "",
        {each.spec.name: _stage(plan, each.spec.name, each, now, underway) for each in plan.in_order},
        "" if plan.closed or not driven else plan.trouble,
    )


def _stage(plan: Plan, name: str, stage: StageProgress, now: float, underway: bool) -> str:
    width = "?" if stage.width is None else stage.width
    held = plan.pool.meant_for(name)
    jobs = "; ".join(_job(plan, item, now) for item in held) or _unasked(plan, now, underway)
    if not underway and not stage.state.final:
        begun = f"stopped, {stage.done} of {width} tasks done" if stage.state is StageState.RUNNING else "not run"
        if held and plan.outcome is RunState.RUNNING:
            return f"{begun}; when its driver was last seen, {jobs}"
        return f"{begun}; {jobs}" if held else begun
    match stage.state:
        case StageState.DONE:
            added = sum(len(event.specs) for event in stage.added.values())
            more = f", added {counted(added, 'stage')}" if added else ""
            said = f"{_reused(stage)}{_paused(stage)}{_hosts(stage)}{_took(stage)}{more}{_grown(stage)}"
            return f"done, {counted(stage.done, 'task')}{said}"
        case StageState.PARTIAL:
            counts = [f"{counted(stage.done, 'task')} done"]
            counts += [f"{len(stage.failed):,} failed"] if stage.failed else []
            counts += [f"{stage.skipped:,} skipped"] if stage.skipped else []
            return f"partial, {', '.join(counts)}{_reused(stage)}"
        case StageState.FAILED:
            return f"failed: {stage.story}{_grown(stage)}"
        case StageState.SKIPPED:
            return "left out: what added it runs again" if stage.orphaned else "skipped: a stage before it failed"
        case StageState.RUNNING:
            others = (
                f", waits for more cores of {has}"
                if stage.unlaunched and (has := _others(plan, name, held, now))
                else ""
            )
            failed = f", {len(stage.failed):,} failed" if stage.failed else ""
            failed += f", {stage.skipped:,} skipped" if stage.skipped else ""
            if stage.later:
                failed += f", {len(stage.later)} to be retried, the first in {_span(min(stage.later.values()) - now)}"
            said = f"{_reused(stage)}{failed}{others}{_paused(stage)}{_hosts(stage)}{_grown(stage)}"
            return f"running, {stage.done} of {width} tasks done{said}; {jobs}"
        case StageState.READY:
            others = _others(plan, name, held, now)
            return f"ready, waits for {others or 'an allocation'}{_reused(stage)}{_grown(stage)}; {jobs}"
        case StageState.WAITING:
            before = [other for other in stage.spec.predecessors if not plan.stages[other].state.final]
            wait = stage.predicted_wait_s
            predicted = "" if wait is None else f"; its job is expected to wait {brief(wait)}, so it is not sent yet"
            return f"waits for {', '.join(before)}{_grown(stage)}; {jobs}{predicted if not held else ''}"


def _paused(stage: StageProgress) -> str:
    """How often its tasks went on in another allocation, and how long they had run by then."""
    if not stage.pauses:
        return ""
    so_far = f", after {brief(sum(paused.ran_s for paused in stage.paused.values()))} of work" if stage.paused else ""
    return f", {counted(stage.pauses, 'time')} gone on in another allocation from what was saved{so_far}"


def _hosts(stage: StageProgress) -> str:
    """On whose cores its tasks have run as guests."""
    found = [f"{counted(count, 'task')} as guests on idle cores of {host}" for host, count in stage.hosts.items()]
    return f", {', '.join(found)}" if found else ""


def _took(stage: StageProgress) -> str:
    """What its tasks took, if that was more than an instant's work."""
    if not stage.is_telling or not stage.cpu_s:
        return ""
    memory = f"at most {size(stage.peak)} of memory each, " if stage.peak else ""
    return f"; {memory}{brief(stage.cpu_s)} of processor time in all"


def _grown(stage: StageProgress) -> str:
    """What it asks for by what was learned, and since a task of it had too little."""
    if not stage.grown:
        learned = stage.spec.learned
        return f"; asks for {learned.reason}" if learned is not None else ""
    bounded = f" ({stage.bounded})" if stage.bounded else ""
    return f"; asks for {stage.spec.resources} and {brief(stage.spec.walltime_s)} by now{bounded}"


OTHERS_MOST = 3
"""Tasks of other stages in an allocation that are named."""


def _others(plan: Plan, name: str, meant: Iterable[Held], now: float) -> str:
    """Its allocation, and which tasks of other stages have it until when, or "" where none are in its way."""
    found = [
        (launched + (plan.stages[stage].mean_s or math.inf), launched, f"{stage}[{index}]")
        for held in meant
        for (stage, index), (_, launched) in held.running.items()
        if name != stage
    ]
    words = []
    for end, launched, task in sorted(found)[:OTHERS_MOST]:
        so_far = f"for {_span(now - launched)} so far"
        words.append(f"{task} {so_far if not now < end < math.inf else f'for about {brief(end - now)} more'}")
    more = f" and {counted(len(found) - OTHERS_MOST, 'more task')}" if len(found) > OTHERS_MOST else ""
    return f"its allocation, whose cores run {', '.join(words)}{more}" if words else ""


def _reused(stage: StageProgress) -> str:
    """Which tasks did not run, as earlier runs had their results."""
    runs = dict.fromkeys(run for run, _ in stage.sources)
    words = f", {stage.reused} of them reused from {' and '.join(runs)}" if stage.reused else ""
    return words + (f"; not all could be looked for in earlier runs: {stage.unused}" if stage.unused else "")


def _charged(held: Held) -> str:
    """What a job got where that is not what it asked for, else ""."""
    asked = held.request.resources.cores
    if held.handle is None or held.cores == asked:
        return ""
    return f"job {held.handle.job_id} asked for {counted(asked, 'core')} and got {held.cores}, which are charged"


def _unasked(plan: Plan, now: float, underway: bool) -> str:
    if underway and plan.on_hold is not None:
        return "no job was asked for yet: the run is held"
    if underway and plan.full is not None and now < plan.full.again:
        again, why = _span(plan.full.again - now), plan.full.reason.partition("\n")[0]
        return f"the batch system takes no more jobs for now, asked again in {again}: {explained(why)}"
    if underway and plan.start is not None and not plan.room(now):
        return f"no job was asked for yet: you may have {counted(plan.start.most_jobs or 0, 'job')} in the queue"
    return "no job was asked for yet"


def _job(plan: Plan, held: Held, now: float) -> str:
    if held.handle is None:
        return "its job is being submitted"
    name, needs = f"job {held.handle.job_id}", held.request.resources
    because = f": {held.dismissed}" if held.dismissed else ""
    if held.cancelled is not None:
        return f"{name} is being cancelled{because}"
    if held.released is not None:
        return f"{name} is being released{because}"
    if held.started is None:
        after = f", after {', '.join(held.after)}" if held.after else ""
        why = f" ({explained(held.reason)})" if held.reason else ""
        asked = f", asks for {needs} (charged {plan.site.charged(needs)})"
        return f"{name} has been in the queue for {_span(now - held.handle.submitted)}{after}{why}{asked}"
    if not held.nodes:
        return f"{name} started {_span(now - held.started)} ago, its nodes have not joined yet"
    assert held.ends is not None
    busy, left = counted(held.cores_busy, "core"), _span(held.ends - now)
    return f"{name} runs on {', '.join(held.nodes)} with {busy} busy, {left} of wall time left"


def _span(seconds: float) -> str:
    """A time that has passed, or is left; 0 where clocks that differ would make it negative."""
    return brief(max(0.0, seconds))
