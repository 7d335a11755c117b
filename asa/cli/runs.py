"""``asa runs``: all runs of the state directory."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from asa.core.command import CommandResult, table
from asa.core.event import RunStarted, RunState
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs, state_directory
from asa.workflows.run import Run


class Runs:
    """List runs."""

    help = "list all runs, the latest last"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options."""

    def run(self, options: argparse.Namespace) -> CommandResult:
        """List them."""
        rows = [_row(directory) for directory in list_runs(state_directory())]
        return CommandResult({"rows": rows}, table(rows, "there are no runs"))


def _row(directory: RunDirectory) -> dict[str, Any]:
    run = Run(directory, None, None)
    started = EventLog(directory.events).latest(RunStarted)
    state = run.status.value
    if run.status is RunState.RUNNING and directory.lock().holder() is None:
        state = "interrupted"
    row: dict[str, Any] = {"run": directory.name, "state": state, "started": None, "backend": None, "strategy": None}
    if isinstance(started, RunStarted):
        row["started"] = datetime.datetime.fromtimestamp(directory.submitted).isoformat(" ", "seconds")
        row["backend"], row["strategy"] = started.backend, started.strategy
    return row
