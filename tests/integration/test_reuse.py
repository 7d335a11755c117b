"""Reuse on a real cluster: what runs again after an edit, and which jobs are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.shell import Outcome, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(300)]

FLOW = """
import asa
from pathlib import Path

@asa.stage(cores=2, walltime="10m")
def clean(path): return path.read_text().strip()

@asa.stage(cores=2, walltime="10m")
def align(text):
    if text == "b": raise ValueError("a bug")
    return text.upper()

@asa.stage(walltime="10m")
def report(texts):
    Path("report.txt").write_text(" ".join(texts))
    return Path("report.txt")

def workflow(samples="a,b,c"):
    return report(align.map(clean.map([Path(f"{name}.txt") for name in samples.split(",")])))
"""


def reused(done: Outcome) -> dict[str, Any]:
    assert done.code == 0, done.err
    return {stage["name"]: (stage["reused"], stage["launched"]) for stage in done.data["stages"]}


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "asa"])
def test_after_a_bug_is_mended_only_what_has_changed_runs(shell: Shell, strategy: str) -> None:
    flow = shell.folder / "flow.py"
    flow.write_text(FLOW)
    for name in "abcd":
        (shell.folder / f"{name}.txt").write_text(name)
    options = ("--backend", "slurm", "--strategy", strategy)
    failed = shell.asa("run", "flow.py", *options)
    assert failed.code == 1 and "a bug" in failed.err
    flow.write_text(FLOW.replace('raise ValueError("a bug")', "pass"))
    mended = shell.asa("resume", failed.data["run"], "--code", "flow.py")
    assert reused(mended) == {"clean": (3, 0), "align": (0, 3), "report": (0, 1)}
    assert (shell.folder / "report.txt").read_text() == "A B C"
    assert not [job for job in mended.data["jobs"] if job["stages"] == ["clean"]], "nothing is asked for it"
    same = shell.asa("run", "flow.py", "--reuse", *options)
    assert reused(same) == {"clean": (3, 0), "align": (3, 0), "report": (1, 0)}
    assert same.data["jobs"] == []
    more = shell.asa("run", "flow.py", "--reuse", "--set", "samples=a,d,b,c", *options)
    assert reused(more) == {"clean": (3, 1), "align": (3, 1), "report": (0, 1)}
    assert (shell.folder / "report.txt").read_text() == "A D B C"
    said = shell.asa("why", more.data["run"], "align[1]").out
    assert "argument 1 of task 1, the result of clean, is not what it was" in said
