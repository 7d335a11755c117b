"""What a run is started with, and the directory in which that is kept."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError, InvalidInput, RunNotFound, StateError
from asa.core.event import VERSION, RunStarted
from asa.core.units import duration
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, state_directory
from asa.security.files import write_private
from asa.workflows.payload import pack, unpack

POOLS = ("shared", "per-stage")
_NAMED = "shared:"


@dataclass(frozen=True)
class Settings:
    """What a run was started with; kept in the run's directory (0600), so that it can be resumed.

    Parameters
    ----------
    result
        The workflow.
    name
        What it is called.
    backend, strategy, executor
        Specs or objects; None for the default of the site.
    pool
        ``"shared"``, ``"per-stage"``, or ``"shared:NAME"`` for a pool that several runs share.
    workdir
        Directory that tasks run in.
    orphan_grace_s
        How long allocations outlive their driver [s].
    sys_path
        The driver's import path.

    Raises
    ------
    InvalidInput
        When the pool is none of these.
    """

    result: Any
    name: str
    backend: Any = "local"
    strategy: Any = None
    executor: Any = None
    pool: str = "shared"
    workdir: str = "."
    orphan_grace_s: float = 60.0
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def __post_init__(self) -> None:
        name = self.pool_name
        if self.pool not in POOLS and (name is None or not re.fullmatch(r"\w[\w.-]{0,63}", name, re.ASCII)):
            raise InvalidInput(
                f"pool must be one of {', '.join(POOLS)}, or shared:NAME with a name of letters, digits, '.', '_' and "
                f"'-', not {self.pool!r}"
            )

    @property
    def pool_name(self) -> str | None:
        """Of the pool that several runs share; None without one."""
        return self.pool.removeprefix(_NAMED) if self.pool.startswith(_NAMED) else None

    def unshareable(self, problem: str, remedy: str) -> InvalidInput:
        """The error to raise when a run of this kind cannot be in a pool with others."""
        return InvalidInput(f"pool={self.pool!r} cannot be used: {problem}; {remedy}")


def make_settings(
    result: Any, name: str, *, workdir: str | Path = ".", orphan_grace: float | str = 60.0, **options: Any
) -> Settings:
    """Settings as people give them.

    Parameters
    ----------
    result, name
        The workflow, and what it is called.
    workdir
        Directory that tasks run in, which must be there.
    orphan_grace
        How long allocations outlive their driver: seconds, or like ``"10m"``.
    options
        The other parameters of `Settings`.

    Raises
    ------
    InvalidInput
        When one cannot be used.
    """
    place = Path(workdir).resolve()
    if not place.is_dir():  # said at once: jobs that wait for hours would fail one by one
        raise InvalidInput(f"workdir {str(workdir)!r}: there is no such directory: make it, or name the one to run in")
    if not os.access(place, os.X_OK, effective_ids=True):
        raise InvalidInput(f"workdir {str(workdir)!r} cannot be entered: change its mode, or name another to run in")
    grace_s = duration(orphan_grace, what="orphan_grace")
    return Settings(result, name, workdir=str(place), orphan_grace_s=grace_s, **options)


def save_settings(directory: RunDirectory, settings: Settings) -> None:
    """Keep `settings` in the run's directory."""
    write_private(directory.settings, pack(settings, settings.sys_path))


def load_settings(directory: RunDirectory) -> Settings:
    """What `save_settings` kept.

    Raises
    ------
    RunNotFound
        When the run's driver died before it had kept anything.
    StateError
        When another version of ASA started it.
    """
    try:
        kept = directory.settings.read_bytes()
    except FileNotFoundError as error:
        raise RunNotFound(
            f"run {directory.name} never began, its driver died too early: run the workflow again"
        ) from error
    with EventLog(directory.events) as log:
        start = log.latest(RunStarted)
    if isinstance(start, RunStarted) and start.version != VERSION:
        raise StateError(
            f"run {directory.name} was started by another version of ASA (its log is of version {start.version}, not "
            f"{VERSION}): report, explain and export read it, but nothing goes on with it; run the workflow again"
        )
    settings: Settings = unpack(kept)
    return settings


@contextlib.contextmanager
def new_directory(name: str, state: str | Path | None) -> Iterator[RunDirectory]:
    """The directory of a new run, whose name begins like this; it goes again if it never comes to be a run.

    Parameters
    ----------
    state
        As for `state_path`.
    """
    directory = RunDirectory.create(state_path(state), f"{_clean(name)}-{secrets.token_hex(3)}")
    try:
        yield directory
    except AsaError:
        if not directory.settings.exists():
            shutil.rmtree(directory.path)
        raise


def state_path(state: str | Path | None) -> Path:
    """The state directory that is meant; None for the user's own."""
    return state_directory() if state is None else Path(state).expanduser().absolute()


def _clean(name: str) -> str:
    """A run's name as a part of job and file names."""
    return re.sub(r"[^\w-]", "-", name, flags=re.ASCII)[:40].strip("-_") or "run"
