"""``asa doctor``: what works here, and what matters to planning."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from asa.cli.doctor_machine import extras, machine, row, slurm
from asa.core.command import CommandResult, table
from asa.core.errors import AsaError
from asa.core.job import DependencyKind
from asa.core.registry import BACKENDS, DOCTOR
from asa.core.units import brief
from asa.strategies.places import usable

_BASIS = ("python", "state directory", "file locks", "event log")
_WORKS = {
    "workflows on this machine": (*_BASIS, "sockets", "backend local"),
    "workflows on simulated queues": _BASIS,
    "workflows on Slurm": (*_BASIS, "slurm", "ports", "backend slurm"),
    "CPU limits of containers": ("cpu quotas",),
}
"""What people want to do, and what must be well for that."""
_WORDS = {True: "works", False: "DOES NOT WORK", None: "not tried"}


class Doctor:
    """Say what works on this machine, and what the batch system is like."""

    help = "say what works here, and what matters to planning"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", help="look at this backend (local, and slurm where there is one)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Look."""
        specs = [options.backend] if options.backend else ["local", *(["slurm"] if shutil.which("sbatch") else [])]
        rows = [*machine(), slurm(), *(found for spec in specs for found in _backend(spec)), *_others(), extras()]
        works = conclusions(rows)
        shown = [each | {"ok": "yes" if each["ok"] else "NO"} for each in rows]
        said = "\n".join(f"{_WORDS[well]}: {what}" for what, well in works.items())
        return CommandResult(
            {"rows": rows, "works": works},
            f"{table(shown, 'nothing to look at')}\n\n{said}",
            0 if all(each["ok"] for each in rows) else 1,
        )


def conclusions(rows: Sequence[dict[str, Any]]) -> dict[str, bool | None]:
    """What can be done here; None where something that it needs is not here, or was not looked at."""
    well: dict[str, bool] = {}
    for each in rows:
        name = each["what"].partition(":")[0]
        well[name] = well.get(name, True) and each["ok"]
    found: dict[str, bool | None] = {}
    for what, needs in _WORKS.items():
        known = [well[name] for name in needs if name in well]
        found[what] = False if not all(known) else True if len(known) == len(needs) else None
    return found


def _others() -> Iterator[dict[str, Any]]:
    """Checks of other packages."""
    for name in DOCTOR:
        try:
            yield from DOCTOR.load(name)()
        except AsaError as error:
            yield row(name, False, str(error))


def _backend(spec: str) -> Iterator[dict[str, Any]]:
    try:
        backend = BACKENDS.create(spec)
        site = backend.capabilities()
        backend.close()
    except AsaError as error:
        yield row(f"backend {spec}", False, str(error))
        return
    largest = "not told" if site.largest is None else f"{site.largest.cores} cores"
    longest = "no limit" if site.longest_s is None else brief(site.longest_s)
    yield row(f"backend {spec}", True, f"{site.site}; largest job {largest}; longest wall time {longest}")
    place = "keep their place" if site.regime.dependents_age else "lose their place"
    yield row(f"{spec}: queue", True, f"{site.regime.value}: dependent jobs {place}")
    after = DependencyKind.AFTER_OK in site.dependencies
    technique = usable(site.regime, dependencies=after, arrays=site.arrays, parks=site.parks)
    held = "cannot be held: `auto` staggers requests" if technique is None else f"can be held, by {technique!r}"
    yield row(f"{spec}: places", True, f"places in the queue {held}")
    for name, value in site.details.items():
        yield row(f"{spec}: {name}", True, value)
