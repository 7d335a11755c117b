"""``asa waits``: what has been learned about the queue."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from asa.core.command import CommandResult, table
from asa.log.rundir import state_directory


class Waits:
    """Show the learned waits."""

    help = "show what has been learned about queue waits"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options."""

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Show them."""
        from asa.estimators.waits import Waits as Learned
        from asa.log.database import LearnedStore

        with contextlib.closing(LearnedStore(state_directory() / "learned.db")) as store:
            learned = Learned(store).table()
        rows: list[dict[str, Any]] = []
        for row in learned:
            geometry = row.geometry
            rows += [
                {
                    "site": geometry.site,
                    "partition": geometry.partition,
                    "cores": geometry.cores,
                    "wall_time": geometry.walltime_class,
                    "jobs": row.jobs,
                    "last_wait_s": row.last_wait_s,
                    "estimator": estimator,
                    "predicted_wait_s": predicted,
                }
                for estimator, predicted in row.predictions.items()
            ]
        return CommandResult({"rows": rows}, table(rows, "nothing has been learned yet: run a workflow first"))
