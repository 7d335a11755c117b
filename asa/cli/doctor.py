"""``asa doctor``: what works here, and what matters to planning."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from asa.core.command import CommandResult, table
from asa.core.errors import AsaError
from asa.core.job import DependencyKind
from asa.core.registry import BACKENDS, DOCTOR
from asa.core.units import brief
from asa.log.filesystem import is_local
from asa.log.rundir import state_directory
from asa.strategies.places import usable


class Doctor:
    """Say what works on this machine, and what the batch system is like."""

    help = "say what works here, and what matters to planning"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", help="look at this backend (local, and slurm where there is one)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Look."""
        specs = [options.backend] if options.backend else ["local", *(["slurm"] if shutil.which("sbatch") else [])]
        rows = [*_machine(), *(row for spec in specs for row in _backend(spec))]
        rows += [row for name in DOCTOR for row in DOCTOR.load(name)()]
        bad = any(not row["ok"] for row in rows)
        shown = [row | {"ok": "yes" if row["ok"] else "NO"} for row in rows]
        return CommandResult({"rows": rows}, table(shown, "nothing to look at"), 1 if bad else 0)


def _row(what: str, ok: bool, found: str) -> dict[str, Any]:
    return {"what": what, "ok": ok, "found": found}


def _machine() -> Iterator[dict[str, Any]]:
    yield _row("python", sys.version_info >= (3, 11), f"{platform.python_version()} at {sys.executable}")
    try:
        state = state_directory()
    except AsaError as error:
        yield _row("state directory", False, str(error))
        return
    journal = "write-ahead log" if is_local(state) else "rollback journal, one writer: the file system is not local"
    yield _row("state directory", True, f"{state} ({journal})")


def _backend(spec: str) -> Iterator[dict[str, Any]]:
    try:
        backend = BACKENDS.create(spec)
        site = backend.capabilities()
        backend.close()
    except AsaError as error:
        yield _row(f"backend {spec}", False, str(error))
        return
    largest = "not told" if site.largest is None else f"{site.largest.cores} cores"
    longest = "no limit" if site.longest_s is None else brief(site.longest_s)
    yield _row(f"backend {spec}", True, f"{site.site}; largest job {largest}; longest wall time {longest}")
    place = "keep their place" if site.regime.dependents_age else "lose their place"
    yield _row(f"{spec}: queue", True, f"{site.regime.value}: dependent jobs {place}")
    after = DependencyKind.AFTER_OK in site.dependencies
    technique = usable(site.regime, dependencies=after, arrays=site.arrays, parks=site.parks)
    held = "cannot be held: `auto` staggers requests" if technique is None else f"can be held, by {technique!r}"
    yield _row(f"{spec}: places", True, f"places in the queue {held}")
    for name, value in site.details.items():
        yield _row(f"{spec}: {name}", True, value)
