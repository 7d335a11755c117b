"""Commands that end, hold, summarise and remove runs: ``asa cancel``, ``hold``, ``release``, ``status``, ``rm``."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import filterfalse
from typing import Any

from asa.core.command import CommandResult, duration, fitted, memory, positive
from asa.core.errors import AsaError, InvalidInput, RunNotFound, StateError, cause
from asa.core.event import RunStarted, RunState
from asa.core.units import brief, size
from asa.log.events import EventLog
from asa.log.messages import notify
from asa.log.rundir import RunDirectory, RunLimits, list_runs, state_directory
from asa.report.words import core_hours, counted
from asa.workflows.clean import cancel_run, hold_run, jobs_left, next_drivers
from asa.workflows.run import IN_VIRTUAL_TIME, open_run

RUN = "name of the run, a beginning of it (the newest is meant), or @last, @last~1 ..."


class CancelCommand:
    """End a run: pending jobs are cancelled, running ones released. What is done stays done."""

    help = "cancel a run, whichever process drives it; asa resume continues it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help=RUN)
        parser.add_argument("--wait", type=duration, default=60.0, help="how long to wait until it has ended (60s)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        directory = RunDirectory.open(state_directory(), options.run)
        jobs = cancel_run(directory, options.wait)
        text = f"run {directory.name} is cancelled" + (
            f", with {counted(jobs, 'job')} that it had left" if jobs else ""
        )
        with EventLog(directory.events) as log:
            start = log.latest(RunStarted)
        if not isinstance(start, RunStarted):
            text += ": it had not begun"
        else:
            text += f"; {IN_VIRTUAL_TIME}" if start.is_virtual else f"; to go on with it: asa resume {directory.name}"
        return CommandResult({"run": directory.name, "state": RunState.CANCELLED.value, "jobs": jobs}, text)


class HoldCommand:
    """Have nothing new submitted or launched for a run. What runs goes on; what is in the queue stays there."""

    help = "pause a run: nothing new is submitted or launched, what runs continues"
    held = True

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help=RUN)
        parser.add_argument("--wait", type=duration, default=60.0, help="how long to wait for its driver (60s)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        directory = RunDirectory.open(state_directory(), options.run)
        changed = hold_run(directory, self.held, options.wait)
        text = f"run {directory.name} is {'' if changed else 'already '}held"
        if not self.held:
            text = f"run {directory.name} goes on" if changed else f"run {directory.name} is not held"
        elif jobs := self._jobs(directory.name):
            text += f"; {counted(jobs, 'job')} that it has asked for may start, or run on, and be charged for"
        text += f"; to go on: asa release {directory.name}" if self.held else ""
        return CommandResult({"run": directory.name, "held": self.held, "changed": changed}, text)

    def _jobs(self, name: str) -> int:
        try:
            return sum(job.ended is None and not job.lender for job in open_run(name).summary.jobs)
        except RunNotFound:
            return 0  # it has not begun


class ReleaseCommand(HoldCommand):
    """Go on with a run that is held."""

    help = "continue a run that is held"
    held = False


class StatusCommand:
    """Say in a few lines how a run stands."""

    help = "show the state of a run in a few lines"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", nargs="?", default="@last", help=f"{RUN} (@last)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        run = open_run(options.run)
        holder, summary = run.directory.lock().holder(), run.summary
        driver = f"process {holder.pid} on {holder.host}" if holder else None
        energy = summary.energy
        stages = Counter(stage.state.value for stage in summary.stages)
        jobs = Counter(job.state.value for job in summary.jobs if not job.lender)
        done = sum(stage.done for stage in summary.stages)
        running = sum(stage.running for stage in summary.stages) if holder else 0
        known = all(stage.tasks is not None for stage in summary.stages)
        total = sum(stage.tasks or 0 for stage in summary.stages)
        state = summary.state.value
        failed, skipped = (sum(getattr(stage, name) for stage in summary.stages) for name in ("failed", "skipped"))
        lost = f", {failed:,} failed, {skipped:,} skipped" if failed or skipped else ""
        lines = [
            f"run {run.name}: {state}, {brief(summary.makespan_s)}" + (f", driven by {driver}" if driver else ""),
            f"stages: {_counts(stages if summary.state is RunState.RUNNING else _standing(stages))}",
            f"tasks: {done:,} of {total:,}{'' if known else ' or more'} done, {running:,} running{lost}",
            f"jobs: {_counts(jobs) or 'none'}; {core_hours(summary.core_hours_charged)} core-hours charged",
            *([f"energy: {energy}"] if energy else []),
            *summary.message.splitlines()[:1],
        ]
        if (since := summary.on_hold) is not None:
            held_for = brief(max(0.0, run.now() - since))
            lines.append(f"held for {held_for}, nothing new is submitted or launched: asa release {run.name}")
        if summary.state is RunState.INTERRUPTED and (coming := next_drivers(run.directory)):
            job = next(iter(coming.values()))
            lines.append(f"it has no driver until job {job.job_id} starts")
        elif summary.state is RunState.INTERRUPTED:
            virtual = summary.start.is_virtual
            lines.append(f"its driver is gone: {IN_VIRTUAL_TIME if virtual else f'asa resume {run.name}'}")
        data = {"run": run.name, "state": state, "driver": driver, "stages": dict(stages), "jobs": dict(jobs)}
        counts = {"tasks": total if known else None, "tasks_done": done, "tasks_failed": failed}
        data |= energy.to_json() if energy else {}
        data |= counts | {"tasks_skipped": skipped, "held": summary.on_hold is not None}
        return CommandResult(data, fitted("\n".join(lines)))


def _standing(stages: Counter[str]) -> Counter[str]:
    """Stages of a run without a driver: none of them runs or waits, whatever its log says."""
    words, found = {"running": "stopped", "ready": "not run", "waiting": "not run"}, Counter[str]()
    for state, count in stages.items():
        found[words.get(state, state)] += count
    return found


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in found.items())


class RmCommand:
    """Remove runs: their logs, results and keys. Files that their tasks wrote elsewhere stay."""

    help = "remove runs with their results, logs and keys, after asking"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("runs", metavar="RUN", nargs="*", help=RUN)
        parser.add_argument("--older", type=duration, metavar="AGE", help="those that ended so long ago, such as 30d")
        parser.add_argument("--keep", type=positive, metavar="COUNT", help="all but this many of the newest")
        parser.add_argument("--over", type=memory, metavar="SIZE", help="the oldest, until the others fit into 100G")
        parser.add_argument("--yes", action="store_true", help="remove them without asking")

    def run(self, options: argparse.Namespace) -> CommandResult:
        limits = [math.inf if limit is None else limit for limit in (options.keep, options.older, options.over)]
        if not options.runs and all(math.isinf(limit) for limit in limits):
            raise InvalidInput("which runs? Name them, or say --older, --keep or --over")
        found = {item.name: item for item in (RunDirectory.open(state_directory(), name) for name in options.runs)}
        for directory in found.values():
            _check_removable(directory)
        found |= {item.name: item for item in _beyond(RunLimits(*limits), found)}
        rows, total = list[dict[str, Any]](), 0
        for directory in found.values():
            rows.append(_announced(directory, found))
            total += rows[-1]["bytes"]
        if rows and not options.yes and not _agreed(len(rows), total):
            return CommandResult({"rows": [], "bytes": 0}, "nothing was removed", 1)
        for directory in found.values():
            _remove(directory)
        return CommandResult({"rows": rows, "bytes": total}, f"removed {counted(len(rows), 'run')}, {size(total)}")


def remove_by_policy() -> None:
    """Remove runs beyond the limits that ``ASA_KEEP_RUNS`` sets, and print which."""
    for directory in _beyond(RunLimits.of()):
        _announced(directory)
        _remove(directory)


def _beyond(limits: RunLimits, others: Collection[str] = ()) -> list[RunDirectory]:
    """Runs that these limits exclude; those that go on, have jobs left, or are referred to by runs that stay (all but
    these and `others`) are kept with a message."""
    found = list[RunDirectory]()
    for directory in limits.beyond(list_runs(state_directory()), time.time()):
        try:
            _check_removable(directory)
        except InvalidInput as error:
            notify(str(error))
        else:
            found.append(directory)
    while True:
        gone = {*others, *(each.name for each in found)}
        kept = {each.name: names for each in found if (names := [*filterfalse(gone.__contains__, each.referring())])}
        if not kept:
            return found
        for name, names in kept.items():
            notify(f"run {name} is not removed: {_refer(names)} to results of it; asa rm {name} does it all the same")
        found = [each for each in found if each.name not in kept]


def _refer(names: Sequence[str]) -> str:
    return f"run {names[0]} refers" if len(names) == 1 else f"runs {', '.join(names)} refer"


def _announced(run: RunDirectory, others: Collection[str] = ()) -> dict[str, Any]:
    state, taken = _state(run), run.size
    notify(f"removes run {run.name}, {state}: {size(taken)} with its results, log and keys")
    if needed := [*filterfalse(others.__contains__, run.referring())]:
        notify(f"warning: {_refer(needed)} to results of run {run.name}, which will be gone")
    return {"run": run.name, "state": state, "bytes": taken, "referred_by": needed}


def _state(run: RunDirectory) -> str:
    try:
        with EventLog(run.events) as log:
            return run.standing(log).value
    except AsaError:
        return "damaged"


def _check_removable(run: RunDirectory) -> None:
    """Refuse one that runs, or whose jobs do: these could not be found any more."""
    if run.is_driven():
        raise InvalidInput(f"run {run.name} is running, so it is not removed: asa cancel {run.name} ends it")
    try:
        left = jobs_left(run)
    except StateError as error:  # it is damaged: what can be read of it was looked at
        notify(f"warning: whether run {run.name} has jobs left cannot be read: {error}")
        return
    if left:
        raise InvalidInput(
            f"run {run.name} has no driver, and {counted(left, 'job')} that may still run, so it is not removed: asa "
            f"cancel {run.name} ends them"
        )


def _agreed(runs: int, total: int) -> bool:
    if not sys.stdin.isatty():
        raise InvalidInput("this is no terminal to ask on, so nothing was removed: say --yes")
    print(f"remove {counted(runs, 'run')}, {size(total)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _remove(run: RunDirectory) -> None:
    """Take it out of the list at once, under its lock, then delete it: cut off, nothing of it looks like a run."""
    doomed = run.path.with_name(f".{run.name}.removed")
    try:
        with run.lock():
            os.replace(run.path, doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise StateError(f"run {run.name} cannot be removed: {cause(error)}: {error.filename}") from error
