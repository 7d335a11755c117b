"""How a run gets on, while it does: bars in a terminal, lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from asa.core.event import Event, RunState, TasksDone, Trouble
from asa.core.job import JobState
from asa.core.ports import Clock
from asa.core.run import FoldedRun
from asa.core.stage import StageState
from asa.core.units import brief
from asa.metrics.workflow import JobSummary, RunSummary, StageSummary, summary
from asa.report.words import counted, expected, lost_words, purpose, stage_state

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

EVERY_S = 0.5
"""How often a display looks for news [s]."""

ROWS_MOST = 40
"""Stages shown at once; of more, those that have begun and not ended come first."""

_QUARTERS, _WIDE = 4, 80


@dataclass(frozen=True, slots=True)
class StageLine:
    """What a display says of a stage: tasks done and under way, its state, how long it waits, and what for."""

    name: str
    state: str
    done: int
    running: int
    tasks: int | None
    wait_s: float | None
    note: str


def stage_lines(run: RunSummary) -> tuple[StageLine, ...]:
    """One line per stage, in the order of the workflow."""
    jobs = {job.token: job for job in run.jobs}
    return tuple(
        StageLine(
            name=stage.name,
            state=stage_state(stage, run),
            done=stage.done,
            running=stage.running,
            tasks=stage.tasks,
            wait_s=stage.perceived_wait_s,
            note=_note(stage, _open_job(stage, run) or jobs.get(stage.job or ""), run),
        )
        for stage in run.stages
    )


def _open_job(stage: StageSummary, run: RunSummary) -> JobSummary | None:
    """The newest job meant for a stage that has not ended."""
    return next((job for job in reversed(run.jobs) if stage.name in job.stages and job.ended is None), None)


def _note(stage: StageSummary, job: JobSummary | None, run: RunSummary) -> str:
    """What a stage is doing, or why it is not doing anything."""
    if stage.state is StageState.DONE:
        ran = [] if stage.run_time_s is None else [f"ran {brief(stage.run_time_s)}"]
        return ", ".join([*([f"{stage.reused} reused"] if stage.reused else []), *ran])
    if stage.state is StageState.PARTIAL:
        return lost_words(stage)
    if stage.state.final or run.ended is not None:
        return stage.error.splitlines()[0] if stage.error else ""
    if job is None:
        return "no job asked for yet"
    name = f"job {job.job_id or job.token}"
    if job.ended is not None:
        return f"{name} ended: {job.state.value.replace('_', ' ')}"
    if job.state is JobState.PENDING:
        expected = "" if job.predicted_wait_s is None else f", {brief(job.predicted_wait_s)} predicted"
        return f"{name} in the queue for {brief(max(0.0, run.now - job.submitted))}{expected}"
    if stage.state is StageState.WAITING:
        return f"{name} holds {counted(job.cores, 'core')} already"
    return f"{name}, {counted(job.cores, 'core')}" + (f" on {job.nodes[0]}" if len(job.nodes) == 1 else "")


def changes(before: RunSummary | None, after: RunSummary) -> list[str]:
    """What is new, as lines for a log file: stages and jobs that changed, and every quarter of a stage's tasks."""
    lines = [] if before is not None else [f"run {after.start.run}: {counted(len(after.stages), 'stage')}"]
    if after.quoted is not None and (before is None or before.quoted is None):
        lines += [f"expected: done {_expected(after)}", *after.quoted.notes]
    known = {} if before is None else {job.token: job.state for job in before.jobs}
    for job in after.jobs:
        if known.get(job.token) is not job.state:
            name = f"lease {purpose(job)}" if job.lender else f"job {job.job_id or job.token} for {purpose(job)}"
            reason = f" ({job.reason})" if job.reason and job.state.final else ""
            waited = f", waited {brief(job.wait_s)}" if job.wait_s is not None and job.state is JobState.RUNNING else ""
            lines.append(f"{name}: {job.state.value.replace('_', ' ')}{waited}{reason}")
    earlier = {} if before is None else {stage.name: stage for stage in before.stages}
    for line, stage in zip(stage_lines(after), after.stages, strict=True):
        old = earlier.get(stage.name)
        if stage.state is StageState.WAITING and old is None:
            continue
        if old is None or old.state is not stage.state or _quarter(old) != _quarter(stage):
            tasks = "" if stage.tasks is None else f", {stage.done} of {counted(stage.tasks, 'task')} done"
            note = f" ({line.note})" if line.note else ""
            lines.append(f"stage {stage.name}: {line.state}{tasks}{note}")
    if before is not None and (before.on_hold is None) is not (after.on_hold is None):
        held = "held: nothing new is started" if after.on_hold is not None else "goes on"
        lines.append(f"run {after.start.run}: {held}")
    if after.state is not RunState.RUNNING and (before is None or before.state is not after.state):
        lines.append(f"run {after.start.run}: {after.state.value} after {brief(after.makespan_s)}")
    return [f"[{brief(max(0.0, after.now - after.start.at))}] {line}" for line in lines]


def _expected(run: RunSummary) -> str:
    assert run.quoted is not None, "it is asked for"
    return expected(run.quoted, virtual=run.start.is_virtual)


def _quarter(stage: StageSummary) -> int:
    return 0 if not stage.tasks else _QUARTERS * stage.done // stage.tasks


class Display(Protocol):
    """Shows how a run gets on."""

    def update(self, events: Iterable[Event | TasksDone], now: float) -> None:
        """Take in the run's next events and show how it stands at the time `now` [s since the epoch]."""


class ProgressDisplay:
    """Shows a run's stages, fed with its events as they come. Use it in a ``with`` block.

    Parameters
    ----------
    console
        Where to; standard error when not given, so that standard output stays the program's own.

    Notes
    -----
    Where the console is no terminal, what changes is written line by line.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console

        self.console = Console(stderr=True) if console is None else console
        self._run = FoldedRun()
        self._shown: RunSummary | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self.console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, events: Iterable[Event | TasksDone], now: float) -> None:
        """Take in the run's next events and show how it stands at the time `now` [s since the epoch]."""
        for event in events:
            self._run.on(event)
            if isinstance(event, Trouble):
                self._say(f"the batch system does not answer: {event.error}" if event.error else "it answers again")
        if self._run.start is not None:
            self.show(summary(self._run, now))

    def show(self, run: RunSummary) -> None:
        if self._live is not None:
            self._live.update(table(run, self.console.width), refresh=True)
        else:
            for line in changes(self._shown, run):
                self._say(line)
        self._shown = run

    def _say(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def follow(
    read: Callable[[int], Iterable[tuple[int, Event | TasksDone]]],
    display: Display,
    clock: Clock,
    stop: threading.Event,
    *,
    every_s: float = EVERY_S,
    now: Callable[[], float] | None = None,
) -> None:
    """Show a run until `stop` is set, then once more.

    Parameters
    ----------
    read
        The run's events above a sequence number, with their numbers: an event log's ``read``, or ``packed``.
    every_s
        How often to look for news [s].
    now
        The run's own time [s since the epoch], where that is not the clock's.
    """
    last, over = 0, False
    while not over:
        over = clock.wait(stop, until=clock.now() + every_s)
        news = list(read(last))
        last = news[-1][0] if news else last
        display.update((event for _, event in news), (now or clock.now)())


def table(run: RunSummary, width: int = 80) -> RenderableType:
    """How a run stands, for a terminal of this width: a line with a bar for each stage, and one about the whole.

    Below 80 columns bars are short, and what runs and why is left out.
    """
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    lines = stage_lines(run)
    shown = stages_shown(lines)
    narrow = width < _WIDE
    for line in shown:
        look = _LOOKS.get(line.state, "default")
        total = "?" if line.tasks is None else str(line.tasks)
        underway = Text(f"{line.running} under way" if line.running else "", style="dim")
        note = Text(line.note, style="dim", no_wrap=True, overflow="ellipsis")
        grid.add_row(
            Text(line.name, no_wrap=True, overflow="ellipsis"),
            ProgressBar(
                total=max(1, line.tasks or 1),
                completed=line.done if line.tasks else 0,
                width=8 if narrow else 24,
                complete_style="cyan",
                finished_style="green",
            ),
            Text(f"{line.done}/{total}", justify="right", no_wrap=narrow),
            *([] if narrow else [underway]),
            Text(line.state, style=look, no_wrap=True),
            Text("" if line.wait_s is None else f"waited {brief(line.wait_s)}", style="dim", no_wrap=narrow),
            *([] if narrow else [note]),
        )
    return Group(grid, Text(standing(run, len(lines) - len(shown)), style="bold"))


def standing(run: RunSummary, left_out: int = 0) -> str:
    """How a run stands, in a line; so many stages are `left_out` above it."""
    hidden = f" · {counted(left_out, 'more stage')}" if left_out else ""
    elapsed = run.now - run.start.at if run.ended is None else run.makespan_s
    cores = sum(job.cores for job in run.jobs if job.state is JobState.RUNNING)
    state = run.state.value + (", held" if run.on_hold is not None else "")
    done = f" · done {_expected(run)}" if run.quoted is not None and run.ended is None else ""
    return f"{run.start.run}: {state} · {brief(max(0.0, elapsed))} · {counted(cores, 'core')} held{done}{hidden}"


_LOOKS = {"running": "cyan", "ready": "yellow", "done": "green", "partial": "bold red", "failed": "bold red"}
_LOOKS |= {"skipped": "red"}


def stages_shown(lines: tuple[StageLine, ...]) -> tuple[StageLine, ...]:
    """Of many, stages under way first, then those to come, then those that are over; in the order of the workflow."""
    if len(lines) <= ROWS_MOST:
        return lines
    order = {"failed": 0, "partial": 0, "running": 0, "ready": 1, "waiting": 2}
    ranked = sorted(range(len(lines)), key=lambda number: order.get(lines[number].state, 3))[:ROWS_MOST]
    return tuple(lines[number] for number in sorted(ranked))
