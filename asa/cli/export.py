"""``asa export``: a run in a format of other people's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from asa.core.command import CommandResult
from asa.report.outputs import check_outputs
from asa.workflows.run import open_run


class Export:
    """Write what a run did in WfFormat, or as a crate that tells its provenance."""

    help = "write a run in WfFormat, or as a Workflow Run RO-Crate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it")
        parser.add_argument("--format", choices=("wfformat", "ro-crate"), default="wfformat", help="(wfformat)")
        parser.add_argument(
            "-o", "--output", metavar="PATH", help="file (RUN.json), or for ro-crate a folder (RUN-crate)"
        )
        parser.add_argument(
            "--license", metavar="WORDS", help="ro-crate: under which its contents may be used: an address, or words"
        )

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Write it."""
        import asa  # the whole package is imported already: only its version is asked for

        run = open_run(options.run)
        events = [event for _, event in run.events()]
        if options.format == "ro-crate":
            from asa.integrations.rocrate import METADATA, write_crate

            terms = {"license_": options.license} if options.license else {}
            folder = write_crate(events, Path(options.output or f"{run.name}-crate"), asa.__version__, **terms)
            return CommandResult(json.loads((folder / METADATA).read_text()), f"wrote {folder}")
        from asa.integrations.wfformat import wfformat

        options.output = options.output or f"{run.name}.json"
        check_outputs(options, "output")
        document = wfformat(events, asa.__version__)
        Path(options.output).write_text(json.dumps(document, indent=1), encoding="utf-8")
        return CommandResult(document, f"wrote {options.output}")
