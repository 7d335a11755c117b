"""``asa doctor``: what works here, and what matters to planning."""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult, fitted, table
from asa.core.errors import AsaError, cause
from asa.core.job import DependencyKind
from asa.core.registry import BACKENDS, DOCTOR
from asa.core.units import brief
from asa.log.database import Database, is_local
from asa.log.rundir import state_directory
from asa.log.salvage import salvage
from asa.report.words import counted
from asa.strategies.places import usable

_BASIS = ("python", "state directory", "file locks", "event log")
_WORKS = {
    "workflows on this machine": (*_BASIS, "sockets", "backend local"),
    "workflows on simulated queues": (*_BASIS, "laboratory"),
    "workflows on Slurm": (*_BASIS, "slurm", "ports", "backend slurm"),
    "CPU limits of containers": ("cpu quotas",),
}
"""What people want to do, and what must be well for that."""
_SHOWN_MOST = 10
"""Lines on what is wrong with a run."""
_ANSWERS = {True: "yes", False: "NO", None: "-"}
_WORDS = {True: "works", False: "DOES NOT WORK", None: "not tried"}


class DoctorCommand:
    """Say what works on this machine, and what the batch system is like."""

    help = "check what works here, and how the batch system treats jobs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--backend", help="look at this backend (local, and slurm where there is one)")
        parser.add_argument(
            "--runs", action="store_true", help="look for damaged runs instead, and save what can be read of them"
        )

    def run(self, options: argparse.Namespace) -> CommandResult:
        if options.runs:
            return runs()
        specs = [options.backend] if options.backend else ["local", *(["slurm"] if shutil.which("sbatch") else [])]
        backends = (found for spec in specs for found in of_backend(spec))
        rows = [*machine(), slurm(), *backends, *_others(), *laboratory(), extras()]
        works = conclusions(rows)
        shown = [each | {"ok": _ANSWERS[each["ok"]]} for each in rows]
        said = "\n".join(f"{_WORDS[well]}: {what}" for what, well in works.items())
        wrong = ", ".join(each["what"] for each in rows if each["ok"] is False)
        text = f"{table(shown, 'nothing to look at')}\n\n{said}"
        return CommandResult(
            {"rows": rows, "works": works}, text, 1 if wrong else 0, f"NO, see above: {wrong}" if wrong else ""
        )


def runs() -> CommandResult:
    """Damaged runs, and what was saved of them."""
    state = state_directory()
    found = list(salvage(state))
    rows = [{"run": name, "problems": wrong, "done": done} for name, wrong, done in found if wrong]
    looked = counted(len(found) - 1, "run")
    lines = [f"{looked} and what was learned, in {state}: {len(rows) or 'none'} damaged"]
    for row in rows:
        lines += [f"{row['run']}:", *(f"  {line}" for line in row["problems"][:_SHOWN_MOST])]
        if more := len(row["problems"]) - _SHOWN_MOST:
            lines += [f"  and {more} more"] if more > 0 else []
        lines.append(f"  -> {row['done']}")
    return CommandResult({"rows": rows}, fitted("\n".join(lines)), 1 if rows else 0)


def conclusions(rows: Sequence[dict[str, Any]]) -> dict[str, bool | None]:
    """What can be done here; None where something that it needs is not here, or was not looked at."""
    well: dict[str, bool] = {}
    for each in rows:
        name = each["what"].partition(":")[0]
        if each["ok"] is not None:
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


def of_backend(spec: str) -> Iterator[dict[str, Any]]:
    """What a batch system is like, or why it does not answer."""
    try:
        backend = BACKENDS.create(spec)
        site = backend.capabilities()
        backend.close()
    except AsaError as error:
        yield row(f"backend {spec}", False, str(error))
        return
    largest = "not known" if site.largest is None else f"{site.largest.cores} cores"
    longest = "no limit" if site.longest_s is None else brief(site.longest_s)
    yield row(f"backend {spec}", True, f"{site.site}; largest job {largest}; longest wall time {longest}")
    place = "keep their place" if site.regime.dependents_age else "lose their place"
    yield row(f"{spec}: queue", True, f"{site.regime.value}: dependent jobs {place}")
    after = DependencyKind.AFTER_OK in site.dependencies
    technique = usable(site.regime, dependencies=after, arrays=site.arrays, parks=site.parks)
    held = "cannot be held: `auto` staggers requests" if technique is None else f"can be held, by {technique!r}"
    if technique is None and site.unordered:
        held += f" ({site.unordered}: the largest element of a job array would start first)"
    elif technique and site.most_jobs is not None:
        held += f", at most {site.most_jobs} at a time"
    yield row(f"{spec}: places", True, f"places in the queue {held}")
    for name, value in site.details.items():
        yield row(f"{spec}: {name}", True, value)


EXTRAS = {
    "lab": "numba",
    "plots": "matplotlib",
    "dask": "distributed",
    "cp": "ortools",
    "learn": "torch",
    "mesos": "kazoo",
    "montage": "MontagePy",
}
"""What may be installed besides, and a module by which it is known."""
SLURM = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
"""Its commands without which there is no Slurm for us; `sacct` is wanted, `srun` on nodes."""

_LOCKED = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'r+'), 6)\nexcept OSError: sys.exit(75)"
_PATIENCE_S = 10.0


def row(what: str, ok: bool | None, found: str) -> dict[str, Any]:
    """A line of what `asa doctor` says; `ok` is None for what does not work and need not."""
    return {"what": what, "ok": ok, "found": found}


def machine() -> Iterator[dict[str, Any]]:
    """Python, the state directory and what can be done in it, and ports."""
    yield row("python", sys.version_info >= (3, 11), f"{platform.python_version()} at {sys.executable}")
    try:
        state = state_directory()
    except AsaError as error:
        yield row("state directory", False, str(error))
        return
    local = is_local(state)
    where = "a file system of this machine" if local else "a network file system, or one that is not known"
    yield row("state directory", True, f"{state} ({where})")
    try:
        with tempfile.TemporaryDirectory(dir=state, prefix=".doctor-") as folder:
            yield locks(Path(folder))
            yield event_log(Path(folder), local)
            yield unix_socket(Path(folder))
    except OSError as error:
        yield row(
            "event log", False, f"{cause(error)}: nothing can be written in {state}: set ASA_STATE_DIR to another"
        )
    yield ports()


def locks(folder: Path) -> dict[str, Any]:
    """Whether a lock that one process holds keeps another one out, and no longer than it is held."""
    path = folder / "lock"
    path.touch(0o600)
    try:
        with path.open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = _child(path) == 75
        free = _child(path) == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        return row("file locks", False, f"do not work in {folder.parent}: {error}")
    if kept and free:
        return row("file locks", True, "kept between processes: one driver a run")
    what = "do not end with their holder" if kept else "do not exclude other processes"
    return row("file locks", False, f"{what} in {folder.parent}: set ASA_STATE_DIR to a file system whose locks work")


def _child(path: Path) -> int:
    words = [sys.executable, "-I", "-S", "-c", _LOCKED, str(path)]
    return subprocess.run(words, timeout=_PATIENCE_S, check=False, stderr=subprocess.DEVNULL).returncode


def event_log(folder: Path, local: bool) -> dict[str, Any]:
    """Whether a database can be written there, and how it is kept."""
    kind = "write-ahead log" if local else "rollback journal, one writer: the file system is not local"
    try:
        base = Database(folder / "events.db", ("CREATE TABLE t (x)",), 1, busy_s=_PATIENCE_S)
        with base.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
        base.close()
    except AsaError as error:
        return row("event log", False, str(error))
    return row("event log", True, kind)


def unix_socket(folder: Path) -> dict[str, Any]:
    """Whether processes of this machine can talk through that directory."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as served:
            served.bind(f"/proc/self/fd/{descriptor}/socket")  # the path itself may be longer than an address can be
    except OSError as error:
        found = f"cannot be made in {folder.parent}: {error}: set ASA_STATE_DIR to a file system that has sockets"
        return row("sockets", False, found)
    finally:
        os.close(descriptor)
    return row("sockets", True, "can be made in the state directory")


def ports() -> dict[str, Any]:
    """Whether a port can be had, and reached by this machine's name, as nodes reach it."""
    name = socket.gethostname()
    try:
        with socket.create_server(("", 0), backlog=8) as served:
            port = served.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S).close()
            try:
                entries = socket.getaddrinfo(name, port, family=socket.AF_INET, type=socket.SOCK_STREAM)
                address = str(entries[0][4][0])
                socket.create_connection((address, port), timeout=_PATIENCE_S).close()
            except OSError as error:
                found = f"on this machine; its name {name} leads nowhere ({error.strerror or error}): nodes need it"
                return row("ports", True, found)
    except OSError as error:
        return row("ports", False, f"none can be opened: {error}: a firewall or a sandbox forbids it")
    lonely = " (loopback: other machines cannot use that)" if address.startswith("127.") else ""
    return row("ports", True, f"any free one, at {name}, {address}{lonely}")


def slurm() -> dict[str, Any]:
    """Slurm's commands; whether they answer is the backend's to say."""
    missing = [name for name in SLURM if shutil.which(name) is None]
    if len(missing) == len(SLURM):
        return row("slurm", None, "not installed here: log in where it is, or use slurmrestd (slurm:rest=...)")
    if missing:
        return row("slurm", False, f"{', '.join(missing)} not in PATH: load the site's module, or add its directory")
    accounting = "" if shutil.which("sacct") else "; no sacct: how jobs ended is read from the queue alone"
    return row("slurm", True, f"its commands are in PATH{accounting}")


def laboratory() -> Iterator[dict[str, Any]]:
    """What simulated queues need, where it is installed."""
    if find_spec("numba"):
        yield row("laboratory", True, "simulated queues, dispatchers and studies can be compiled")


def extras() -> dict[str, Any]:
    """What is installed besides, and how the rest is had."""
    there = [name for name, module in EXTRAS.items() if find_spec(module)]
    lacking = [name for name in EXTRAS if name not in there]
    how = f"; not: {', '.join(lacking)} (pip install 'asa-hpc[{lacking[0]}]')" if lacking else ""
    return row("extras", True, f"{', '.join(there) or 'none'}{how}")
