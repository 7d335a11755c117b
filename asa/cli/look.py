"""Commands that look at runs, ``asa runs``, ``explain``, ``report``, ``export``, ``waits``; and ``asa clean``, which
ends the jobs of drivers that are gone."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult, fitted, table
from asa.core.errors import AsaError, RunNotFound
from asa.core.event import Event, RunStarted, RunState, TasksDone
from asa.core.registry import CLEAN, EXPLAIN
from asa.core.units import brief, size
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs, state_directory
from asa.report.outputs import check_outputs
from asa.workflows.clean import cancel, leftovers
from asa.workflows.run import Run, open_run
from asa.workflows.settings import never_began

RESUMES_MOST = 5
"""Interrupted runs, the latest, that `asa runs` says how to go on with."""


class RunsCommand:
    """List runs."""

    help = "list all runs, the latest last"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--size", action="store_true", help="also say what each takes on disk; asa rm removes some")

    def run(self, options: argparse.Namespace) -> CommandResult:
        found = list_runs(state_directory())
        rows = [_row(directory) for directory in found]
        if options.size:
            rows = [row | {"bytes": directory.size} for row, directory in zip(rows, found, strict=True)]
        commands = [row["resume"] for row in rows if row["resume"]]
        shown = [{name: value for name, value in row.items() if name not in ("resume", "problem")} for row in rows]
        if options.size:
            shown = [row | {"bytes": size(row["bytes"])} for row in shown]
        text = table(shown, "there are no runs")
        if options.size and rows:
            text += f"\nall together: {size(sum(row['bytes'] for row in rows))}"
        if commands:
            text += "\nto go on with runs whose driver is gone:\n" + "\n".join(commands[-RESUMES_MOST:])
        if damaged := [row for row in rows if row["problem"]]:
            text += "\ndamaged, see 'asa doctor --runs':\n"
            text += "\n".join(f"{row['run']}: {row['problem']}" for row in damaged)
        return CommandResult({"rows": rows}, text)


def _row(directory: RunDirectory) -> dict[str, Any]:
    row: dict[str, Any] = {"run": directory.name, "state": "damaged", "started": None, "backend": None}
    row |= {"strategy": None, "resume": None, "problem": None}
    try:
        with EventLog(directory.events) as log:
            started, state = log.latest(RunStarted), directory.standing(log)
    except AsaError as error:
        return row | {"problem": str(error)}
    row["state"] = state.value
    if isinstance(started, RunStarted):
        row["started"] = datetime.datetime.fromtimestamp(directory.submitted).isoformat(" ", "seconds")
        row["backend"], row["strategy"] = started.backend, started.strategy
        if state is RunState.INTERRUPTED and not started.is_virtual:
            row["resume"] = f"asa resume {directory.name}"
    return row


def _add_run(parser: argparse.ArgumentParser, more: str = "") -> None:
    """What only reads takes the newest run unless another one is named."""
    words = f"name of the run, or a beginning of it{more} (@last)"
    parser.add_argument("run", metavar="RUN", nargs="?", default="@last", help=words)


class ExplainCommand:
    """Say of every stage of a run what it does or waits for; or of a job of a co-scheduled queue, why it ran there."""

    help = "show what each stage of a run does, or waits for"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        _add_run(parser, "; or a job of a queue")

    def run(self, options: argparse.Namespace) -> CommandResult:
        try:
            run = open_run(options.run)
        except RunNotFound:
            for name in EXPLAIN:
                found: CommandResult | None = EXPLAIN.load(name)(options.run)
                if found is not None:
                    return found
            raise
        text = run.explain()
        stages = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line and line[0] != " ")
        quoted = stages.pop("quoted", None)
        data = {"run": run.name, "state": run.status.value, "quoted": quoted, "stages": stages}
        return CommandResult(data, fitted(text))


class ReportCommand:
    """Write a report of a run."""

    help = "write a report of a run: .html, .png, .pdf, .svg or .json"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        _add_run(parser)
        parser.add_argument("-o", "--output", metavar="PATH", default="run.html", help="file to write (run.html)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.report.write import check_report, write_summary

        check_report(options.output)  # before what may take long
        summary = open_run(options.run).summary
        write_summary(summary, options.output)
        return CommandResult(summary.to_json(), f"wrote {options.output}")


class ExportCommand:
    """Write what a run did in WfFormat, or as a crate with its provenance."""

    help = "write a run in WfFormat, or as a Workflow Run RO-Crate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        _add_run(parser)
        parser.add_argument("--format", choices=("wfformat", "ro-crate"), default="wfformat", help="(wfformat)")
        parser.add_argument(
            "-o", "--output", metavar="PATH", help="file (RUN.json), or for ro-crate a folder (RUN-crate)"
        )
        parser.add_argument(
            "--license", metavar="WORDS", help="ro-crate: under which its contents may be used: an address, or words"
        )

    def run(self, options: argparse.Namespace) -> CommandResult:
        import asa  # the whole package is imported already: only its version is asked for

        run = open_run(options.run)
        events = _Events(run)
        if options.format == "ro-crate":
            from asa.integrations.rocrate import METADATA, write_crate

            terms = {"license_": options.license} if options.license else {}
            written = write_crate(events, Path(options.output or f"{run.name}-crate"), asa.__version__, **terms)
            document = written / METADATA
        else:
            from asa.integrations.wfformat import wfformat_text

            options.output = options.output or f"{run.name}.json"
            check_outputs(options, "output")
            written = document = Path(options.output)
            text = wfformat_text(events, asa.__version__)
            with open(document, "w", encoding="utf-8") as file:
                file.writelines(text)
        return CommandResult(json.loads(document.read_text()) if options.json else None, f"wrote {written}")


class _Events:
    """The events of a run, read from its log each time."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __iter__(self) -> Iterator[Event | TasksDone]:
        events = (item for _, item in self._run.packed())
        if not isinstance(first := next(events, None), RunStarted):
            raise never_began(self._run.name)
        yield first
        yield from events


class WaitsCommand:
    """Show the learned waits."""

    help = "show what has been learned about queue waits"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options."""

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.estimators.waits import Waits as Learned
        from asa.log.database import LearnedStore

        with contextlib.closing(LearnedStore(state_directory() / "learned.db")) as store:
            learned, damaged = Learned(store).table(), store.damaged()
        rows: list[dict[str, Any]] = []
        for row in learned:
            geometry = row.geometry
            rows += [
                {
                    "site": geometry.site,
                    "partition": geometry.partition,
                    "cores": geometry.cores,
                    "wall_time": None if row.asked_s is None else " to ".join(dict.fromkeys(map(brief, row.asked_s))),
                    "class": geometry.walltime_class,
                    "jobs": row.jobs,
                    "last_wait_s": row.last_wait_s,
                    "estimator": estimator,
                    "predicted_wait_s": predicted,
                }
                for estimator, predicted in row.predictions.items()
            ]
        empty = "nothing has been learned yet: run a workflow where there is a queue"
        text = "\n".join([table(rows, empty), *(f"damaged, and not used: {key}" for key in damaged)])
        return CommandResult({"rows": rows, "damaged": damaged}, text)


class CleanCommand:
    """List jobs whose driver is gone, and cancel them with --cancel; remove what agents have left here."""

    help = "list jobs whose driver is gone; cancel them with --cancel"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--cancel", action="store_true", help="cancel those that no resumable run would use")
        parser.add_argument("--force", action="store_true", help="with --cancel: those of resumable runs, too")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """List, and perhaps cancel; what is of no use to any agent is removed, as the next one would do."""
        removed = [str(path) for name in CLEAN for path in CLEAN.load(name)()]
        unread: dict[str, str] = {}
        found = list(leftovers(state_directory(), unread))
        doomed = [item for item in found if options.cancel and (options.force or not item.resumable)]
        doomed = cancel(doomed, unread)
        rows = [
            {
                "run": item.run.name,
                "job": item.status.handle.job_id,
                "state": item.status.state.value,
                "resumable": item.resumable,
                "cancelled": item in doomed,
            }
            for item in found
        ]
        text = table(rows, "no other job is left behind" if unread else "no job is left behind")
        kept = {row["run"] for row in rows if not row["cancelled"]}
        if kept and not options.cancel:
            text += "\ncancel them with 'asa clean --cancel'"
        if any(item.resumable and item not in doomed for item in found):
            text += "\na resumable run's jobs are used by 'asa resume RUN'; --cancel --force cancels them, too"
        if removed:
            text += "\nremoved from this machine, left behind by agents that are gone:\n" + "\n".join(removed)
        lines = ["not everything could be looked at or done:", *(f"{name}: {why}" for name, why in unread.items())]
        data = {"rows": rows, "removed": removed, "unread": unread}
        return CommandResult(data, fitted(text), 1 if unread else 0, fitted("\n".join(lines)) if unread else "")
