"""The four workflows of the examples, and how to tell whether what they made is right."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.integration.shell import Outcome, Shell

FOLDER = Path(__file__).parents[2] / "examples" / "workflows"

STRATEGIES = ("big-job", "per-stage", "asa:dependency=upfront", "asa:dependency=predicted", "asa-naive")


@dataclass(frozen=True, slots=True)
class Example:
    """One workflow.

    Parameters
    ----------
    stages
        How many it has.
    made, truth
        What it makes, in its output folder, and what that is compared with, in the folder where it runs. Both are
        empty when its own tasks compare.
    """

    name: str
    stages: int
    made: str = ""
    truth: str = ""

    def run(self, shell: Shell, out: str, strategy: str, *words: object) -> Outcome:
        """Run it on Slurm."""
        file = FOLDER / self.name / "workflow.py"
        choices = ("--backend", "slurm:poll_s=2", "--strategy", strategy, "--quiet")
        return shell.asa("run", file, "--set", f"out={out}", *choices, *words, timeout=600)

    def check(self, shell: Shell, out: str, printed: str, *, golden: bool = True) -> None:
        """Compare what it made with the truth and, for the standard input, with the golden figures.

        Raises
        ------
        AssertionError
            If it is not right.
        """
        expected = FOLDER / self.name / "golden.json"
        if self.made:
            script, made = FOLDER / self.name / "check.py", shell.folder / out / self.made
            words = ["--golden", str(expected)] if golden else []
            argv = [sys.executable, str(script), str(made), str(shell.folder / self.truth), *words]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout + done.stderr
        elif golden:
            total = math.fsum(part["sum"] for part in ast.literal_eval(printed))
            assert total == json.loads(expected.read_text())["sum"]


EXAMPLES = {
    example.name: example
    for example in (
        Example("montage", 9, "mosaic.fits", "montage-data/tiles/truth.json"),
        Example("blast", 4, "hits.tsv", "blast-data/truth.json"),
        Example("statistics", 4, "statistics.csv", "statistics-data/power.txt"),
        Example("synthetic", 2),
    )
}
