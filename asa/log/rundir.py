"""Where runs keep their files: the state directory and, in it, one directory per run."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from asa.core.errors import InvalidInput, RunNotFound, StateError
from asa.log.lock import DriverLock
from asa.security.files import cannot, private_directory

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of everything that outlives a process, mode 0700; made when missing.

    ``$ASA_STATE_DIR``, else ``$XDG_STATE_HOME/asa``, else ``~/.local/state/asa``. On a cluster it must be shared with
    the nodes.

    Raises
    ------
    StateError
        When it cannot be made, belongs to somebody else, or is open to other users.
    """
    if own := environ.get("ASA_STATE_DIR"):
        return private_directory(Path(own).expanduser().absolute())
    base = Path(environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # XDG Base Directory Specification: relative paths are to be ignored
        base = Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return private_directory(base / "asa")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run, all of them private to their owner.

    Parameters
    ----------
    path
        The run's directory; its name is the run's name.
    """

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def events(self) -> Path:
        """The event log, a file."""
        return self.path / "events.db"

    @property
    def functions(self) -> Path:
        """Directory of pickled stage functions."""
        return self.path / "functions"

    @property
    def values(self) -> Path:
        """Directory of arguments and results too large for the event log."""
        return self.path / "values"

    @property
    def jobs(self) -> Path:
        """Directory of what batch jobs print."""
        return self.path / "jobs"

    @property
    def tls(self) -> Path:
        """Directory of the run's certificates."""
        return self.path / "tls"

    @property
    def settings(self) -> Path:
        """File with what the run was started with."""
        return self.path / "settings"

    @property
    def submitted(self) -> float:
        """When the run was submitted [s since the epoch], whatever clock it goes by; 0 if that cannot be told."""
        for kept in (self.settings, self.path):
            with suppress(OSError):
                return kept.stat().st_mtime
        return 0.0

    @property
    def backend(self) -> Path:
        """Directory in which a backend on this machine keeps its own books."""
        return self.path / "backend"

    @property
    def state(self) -> Path:
        """The state directory that the run belongs to."""
        return self.path.parent.parent

    def lock(self) -> DriverLock:
        """The lock that the run's driver holds."""
        return DriverLock(self.path / "driver.lock")

    @classmethod
    def create(cls, state: Path, run: str) -> RunDirectory:
        """Make the directory of a new run.

        Raises
        ------
        InvalidInput
            When `run` is no fit name for a directory.
        StateError
            When there is such a run already, or the directory cannot be made.
        """
        if not _NAME.fullmatch(run):
            raise InvalidInput(
                f"run name {run!r} must start with a letter or digit; up to 99 more, '.', '_' and '-' may follow"
            )
        made = cls(private_directory(state / "runs") / run)
        try:
            made.path.mkdir(0o700)
        except FileExistsError as error:
            raise StateError(f"there is a run {run!r} in {state} already: choose another name, or resume it") from error
        except OSError as error:
            raise cannot("make the directory", made.path, error) from error
        for directory in (made.functions, made.values, made.jobs, made.tls):
            private_directory(directory)
        return made

    @classmethod
    def open(cls, state: Path, run: str) -> RunDirectory:
        """The directory of a run that exists; the first letters of its name are enough when no other begins so.

        Raises
        ------
        RunNotFound
            When there is none, or more than one begins so; the message shows the nearest names.
        StateError
            When the directory is not private.
        """
        runs = {found.name: found for found in list_runs(state)}
        meant = [run] if run in runs else [name for name in runs if run and name.startswith(run)]
        if len(meant) > 1:
            raise RunNotFound(f"{run!r} is the beginning of several runs: {', '.join(meant)}. Give more of the name")
        if meant:
            private_directory(runs[meant[0]].path)
            return runs[meant[0]]
        near = difflib.get_close_matches(run, runs, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else _none_like_it(len(runs))
        raise RunNotFound(f"no run {run!r} in {state}: {hint}")


def _none_like_it(runs: int) -> str:
    if not runs:
        return "there are none yet: start one with asa run, or say with ASA_STATE_DIR where they are"
    return f"there {'is one run' if runs == 1 else f'are {runs} runs'}, none with a name like it: `asa runs` lists them"


def list_runs(state: Path) -> list[RunDirectory]:
    """All runs of a state directory, in the order in which they were submitted.

    Raises
    ------
    StateError
        When the state directory cannot be read.
    """
    try:
        found = [RunDirectory(Path(entry.path)) for entry in os.scandir(state / "runs") if _NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot("list", state / "runs", error) from error
    return sorted(found, key=lambda run: (run.submitted, run.name))
