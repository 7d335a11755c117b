"""On real Slurm: results that would silently be wrong are refused, and programs say so by their exit codes."""

from __future__ import annotations

import pytest

from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(200)]


def test_a_line_for_a_shell_runs_and_shared_outputs_do_not(shell: Shell) -> None:
    good = shell.asa("run", f"{FLOWS}:numbered", "--quiet", "--backend", "slurm:poll_s=1")
    assert good.code == 0, good.err
    assert [(shell.folder / f"{name}.txt").read_text() for name in "ab"] == ["A\n", "B\n"]
    words = ("--set", "names=c c", "--quiet", "--backend", "slurm:poll_s=1")
    bad = shell.asa("run", f"{FLOWS}:numbered", *words)
    assert bad.code == 1 and "tasks 0 and 1 of stage 'echo' would both write c.txt" in bad.err
    assert not (shell.folder / "c.txt").exists()


def test_a_stage_that_returns_nodes_fails_and_its_run_is_removed(shell: Shell) -> None:
    failed = shell.asa("run", f"{FLOWS}:nested", "--quiet", "--backend", "slurm:poll_s=1")
    assert failed.code == 1 and "it returned <node work>, a call that has not happened" in failed.err
    assert shell.asa("status").out.startswith(f"run {shell.run}: failed")
    removed = shell.asa("rm", "@last", "--yes")
    assert removed.code == 0 and "removed 1 run" in removed.out, removed.err
