"""Real Snakemake, in its own environment: where it is, and how tests run it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv/snakemake/bin/python"
PLUGIN = ROOT / "plugins/snakemake"
BESIDE = ROOT / ".venv/snakemake/beside"
"""Snakemake's own executor for Slurm, which each process of Snakemake imports that sees it."""

needs_snakemake = pytest.mark.skipif(
    not (ROOT / ".venv/.snakemake").exists(), reason="needs Snakemake in its environment: make snakemake"
)


def command(*options: object) -> list[str]:
    return [str(PYTHON), "-m", "snakemake", *map(str, options)]


def environment(state: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The plugin as it is here, however old the installed one."""
    here = {"PYTHONPATH": str(PLUGIN), "ASA_STATE_DIR": str(state), "PYTHONWARNINGS": "ignore"}
    return os.environ | here | dict(more or {})


def snakemake(
    folder: Path, *options: object, state: Path, more: Mapping[str, str] | None = None, timeout_s: float = 110.0
) -> subprocess.CompletedProcess[str]:
    """Run it there to its end; what it prints is in `stdout`."""
    return subprocess.run(
        command(*options),
        cwd=folder,
        env=environment(state, more),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
