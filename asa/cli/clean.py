"""``asa clean``: jobs whose driver is gone."""

from __future__ import annotations

import argparse

from asa.core.command import CommandResult, table
from asa.log.rundir import state_directory
from asa.workflows.clean import cancel, leftovers


class Clean:
    """List jobs whose driver is gone, and cancel them when told to."""

    help = "list jobs whose driver is gone; cancel them with --cancel"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--cancel", action="store_true", help="cancel those that no resumable run would use")
        parser.add_argument("--force", action="store_true", help="with --cancel: those of resumable runs, too")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """List, and perhaps cancel."""
        found = list(leftovers(state_directory()))
        doomed = [item for item in found if options.cancel and (options.force or not item.resumable)]
        cancel(doomed)
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
        text = table(rows, "no job is left behind")
        kept = {row["run"] for row in rows if not row["cancelled"]}
        if kept and not options.cancel:
            text += "\ncancel them with 'asa clean --cancel'"
        if any(item.resumable and item not in doomed for item in found):
            text += "\na resumable run's jobs are used by 'asa resume RUN'; --cancel --force cancels them, too"
        return CommandResult({"rows": rows}, text)
