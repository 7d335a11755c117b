"""A user's shell on a cluster: the command line in a folder, with a state directory of its own."""

from __future__ import annotations

import functools
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from asa.core.event import Event
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until

FLOWS = Path(__file__).with_name("flows.py")
ASA = Path(sys.executable).with_name("asa")
PATIENCE_S = 180.0
"""Long, for a busy machine: what takes a driver and its nodes 3 s on an idle one has taken 77 s beside 22 others."""


@functools.cache
def python_for(user: str) -> Path | None:
    """A Python of this one's version that another user can run on this checkout; None where there is none."""
    code = f"import sys, asa.cli.main; assert sys.version_info[:2] == {sys.version_info[:2]}"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(
            ["runuser", "-u", user, "--", python, "-c", code], capture_output=True, check=False, cwd="/",
            env=os.environ | {"PYTHONPATH": _python_path()},
        )  # fmt: skip
        if done.returncode == 0:
            return Path(python)
    return None


def _python_path() -> str:
    return ":".join(filter(None, sys.path))


@contextmanager
def _acting_as(user: str | None) -> Iterator[None]:
    """Files are opened as this user does."""
    before = os.geteuid()
    os.seteuid(before if user is None else pwd.getpwnam(user).pw_uid)
    try:
        yield
    finally:
        os.seteuid(before)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left: its exit code, what it printed, and the result that it wrote as JSON (empty if none)."""

    code: int
    out: str
    err: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs ``asa`` as a user of `cluster` would, in `folder`; `suffix` tells its result files from those of others.

    Without `user`, as the user who runs the tests; another must be able to enter the folder, and needs a `python_for`.
    """

    cluster: Cluster
    folder: Path
    suffix: str = ""
    user: str | None = None

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    def asa(self, command: str, *words: object, timeout: float = 300) -> Outcome:
        """Run a command of ``asa`` to its end."""
        with self.started(command, *words) as process:
            return self.ended(process, timeout)

    def beside(self, command: str, *words: object) -> Outcome:
        """Run a command to its end while another one goes on; its result is a file of its own."""
        return replace(self, suffix=".beside").asa(command, *words)

    @contextmanager
    def started(self, command: str, *words: object) -> Iterator[subprocess.Popen[str]]:
        """A command of ``asa`` that goes on; it is killed when left."""
        self._result.unlink(missing_ok=True)
        program = [str(ASA)] if self.user is None else [str(python_for(self.user)), "-m", "asa"]
        argv = [*program, command, *map(str, words), "--json", str(self._result)]
        process = subprocess.Popen(
            argv, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            user=self.user, extra_groups=None if self.user is None else [],
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def ended(self, process: subprocess.Popen[str], timeout: float = PATIENCE_S) -> Outcome:
        """What a started command left in the end.

        Raises
        ------
        subprocess.TimeoutExpired
            If it goes on for longer than `timeout` [s].
        """
        out, err = process.communicate(timeout=timeout)
        data = json.loads(self._result.read_text()) if self._result.exists() else {}
        return Outcome(process.returncode, out, err, data)

    @property
    def env(self) -> dict[str, str]:
        """Of every command; BLAST would tell its maker how it is used."""
        own = {"SLURM_CONF": str(self.cluster.config.slurm_conf), "ASA_STATE_DIR": str(self.state)}
        if self.user is not None:
            own |= {"HOME": str(self.folder), "USER": self.user, "PYTHONPATH": _python_path()}
        return os.environ | own | {"BLAST_USAGE_REPORT": "false"}

    @property
    def run(self) -> str:
        """The name of the run in this folder; there is one."""
        with _acting_as(self.user):
            (directory,) = list_runs(self.state)
        return directory.name

    def events(self, *kinds: type[Event]) -> list[Any]:
        """What the run's log has of these kinds by now."""
        with _acting_as(self.user):
            found = [directory.events for directory in list_runs(self.state) if directory.events.exists()]
            if not found:
                return []
            with EventLog(found[0]) as log:
                return [event for _, event in log.read() if isinstance(event, kinds)]

    def await_events(self, kind: type[Event], count: int = 1, timeout: float = PATIENCE_S) -> list[Any]:
        """Wait until the run's log has as many events of a kind, and return them."""
        assert wait_until(lambda: len(self.events(kind)) >= count, timeout), f"fewer than {count} {kind.__name__}"
        return self.events(kind)

    def await_job(self, job_id: str, *states: str, timeout: float = PATIENCE_S) -> dict[str, str]:
        """Wait until Slurm says that a job is in one of these states, and return its fields."""
        reached = wait_until(lambda: self.cluster.job(job_id).get("JobState") in states, timeout)
        assert reached, f"job {job_id} is {self.cluster.job(job_id).get('JobState')}, expected {states}"
        return self.cluster.job(job_id)

    def queue(self) -> list[str]:
        """Ids of the jobs of all runs that wait or run."""
        return self.cluster.run("squeue", "--noheader", "--format=%A").split()

    @property
    def _result(self) -> Path:
        return self.folder / f"result{self.suffix}.json"
