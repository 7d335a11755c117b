"""Quotas by scopes of the user's own systemd, which passes on to its user what it was given: version 2 only.

A scope is a group of processes that systemd did not start itself. It lies below the user's manager, not below the group
that the agent runs in: so inside a batch job, which must hold all that runs for it, scopes are not to be used.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.errors import StateError
from executors.cgroup import kernel
from executors.cgroup.group import GroupUsage, unbounded
from executors.cgroup.kernel import V2Group

log = logging.getLogger(__name__)

_ANSWER_S = 10.0
_JOINED_S = 5.0
_BATCH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "_CONDOR_JOB_AD", "OAR_JOB_ID", "COBALT_JOBID")
_LOGIN = re.compile(r"/user\.slice(/|$)")


def percent(cores: float) -> str:
    """A value of ``CPUQuota=``, which takes two decimals and must not be none at all.

    >>> percent(0.25), percent(1.5), percent(0.3333), percent(0.00001)
    ('25%', '150%', '33.33%', '1%')
    """
    return f"{max(1.0, 100 * cores):.2f}".rstrip("0").rstrip(".") + "%"


def properties(weight: float, cores: float | None, memory: int | None) -> tuple[str, ...]:
    """What a scope is started with.

    >>> properties(1, 0.5, None)
    ('CPUWeight=39', 'CPUQuota=50%')
    >>> properties(2, None, None)
    ('CPUWeight=79',)
    """
    found = [_weight(weight)]
    if cores is not None:
        found.append(f"CPUQuota={percent(cores)}")
    if memory is not None:
        found += [f"MemoryMax={memory}", "MemorySwapMax=0"]
    return tuple(found)


def _weight(weight: float) -> str:
    return f"CPUWeight={kernel.weight_of(kernel.shares(weight))}"


def unit_of(space: str, name: str) -> str:
    """The scope's name; a colon cannot be part of either.

    >>> unit_of("pool", "c1")
    'asa:pool:c1.scope'
    """
    return f"{kernel.TOP}:{space}:{name}.scope"


def names_in(listing: str, space: str) -> list[str]:
    """The containers among the units that ``systemctl list-units --plain --no-legend`` prints.

    >>> names_in("asa:p:a.b.scope loaded active running /bin/sh\\ninit.scope loaded active running x\\n", "p")
    ['a.b']
    """
    units = (line.split()[0] for line in listing.splitlines() if line.strip())
    start = f"{kernel.TOP}:{space}:"
    return [unit[len(start) : -len(".scope")] for unit in units if unit.startswith(start) and unit.endswith(".scope")]


class SystemdGroup:
    """The processes of one container, in a scope that exists while any of them does.

    Parameters
    ----------
    unit
        The scope.
    given
        Its properties at its start.
    pid
        Its first process, where that has been started.
    """

    gates: tuple[str, ...] | None = None

    def __init__(self, unit: str, given: Sequence[str], pid: int | None = None) -> None:
        self._unit, self._given = unit, list(given)
        self._directory: Path | None = None
        self._first = pid
        self._changed: dict[str, str] = {}
        self._last: GroupUsage | None = None

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that asks for the scope and then becomes `argv`, in the same process."""
        options = ("--user", "--scope", "--quiet", "--collect", f"--unit={self._unit}")
        return ("systemd-run", *options, *(f"--property={each}" for each in self._given), "--", *argv)

    def adopt(self, pid: int) -> None:
        """As `Group.adopt`; what was changed since `wrap` is set as soon as the scope is there."""
        self._first = pid
        if self._changed:
            self._set_properties()

    def limit(self, cores: float | None) -> None:
        self._change("CPUQuota=" if cores is None else f"CPUQuota={percent(cores)}")

    def weigh(self, weight: float) -> None:
        self._change(_weight(weight))

    def hold_memory(self, memory: int | None) -> None:
        self._change(f"MemoryHigh={'infinity' if memory is None else memory}")

    def _change(self, assignment: str) -> None:
        name, _, value = assignment.partition("=")
        self._given = [each for each in self._given if not each.startswith(f"{name}=")]
        if value:
            self._given.append(assignment)
        self._changed[name] = assignment
        if self._first is not None:
            self._set_properties()

    def _set_properties(self) -> None:
        if self._joined():
            control("set-property", "--runtime", self._unit, *self._changed.values())
        self._changed.clear()

    def _joined(self) -> Path | None:
        """The scope's directory, once its first process has entered it; None when that has ended before."""
        deadline = time.monotonic() + _JOINED_S
        while self._directory is None and self._first is not None and time.monotonic() < deadline:
            self._directory = group_of(self._first, self._unit)
            if self._directory is None:
                if not Path(f"/proc/{self._first}").exists():
                    break
                time.sleep(0.002)
        return self._directory

    def usage(self) -> GroupUsage:
        """As `Group.usage`; once the scope has ended with its last process, the last figures."""
        directory = self._joined()
        if directory and directory.is_dir():
            seen = V2Group(directory).usage()
            if directory.is_dir() or self._last is None:  # else it went while we read it
                self._last = seen
        return self._last or GroupUsage(0.0, 0.0, None, None, None, None, None, 0, None)

    def starved(self) -> bool:
        """As `Group.starved`; False once its scope has ended."""
        return self._directory is not None and V2Group(self._directory).starved()

    def pids(self) -> list[int]:
        directory = self._joined()
        return kernel.members([directory]) if directory else []

    def kill(self) -> None:
        if directory := self._joined():
            V2Group(directory).kill()
        elif self._first is not None:
            with suppress(StateError):
                control("kill", "--signal=SIGKILL", self._unit)

    def close(self) -> None:
        """Nothing: a scope goes with its last process, and ``--collect`` forgets failed ones as well."""


class Systemd:
    """Quotas by scopes of the user's systemd.

    Parameters
    ----------
    own
        This process's group of version 2.
    space
        Whose scopes these are: no two agents of a node may share it.
    environment
        This process's.

    Raises
    ------
    StateError
        Where there is no systemd for this user, or scopes would take processes out of a batch job.
    """

    name = "systemd scopes"

    def __init__(self, own: Path | None, space: str, environment: Mapping[str, str]) -> None:
        self._space = kernel.checked_name(space)
        if not shutil.which("systemd-run") or not shutil.which("systemctl"):
            raise StateError("systemd-run and systemctl are not installed")
        if own is None:
            raise StateError("no hierarchy of version 2 is mounted")
        if job := next((key for key in _BATCH if key in environment), None):
            raise StateError(f"a scope would take processes out of the batch job ({job} is set)")
        if not _LOGIN.search(own.as_posix()):
            raise StateError(f"a scope would take processes out of {own}: that is no login session")
        control("show", "--property=Version")
        self.why = "the user's own systemd passes controllers on"

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> SystemdGroup:
        """As `Quotas.group`; systemd makes the scope when its first process starts."""
        unit = unit_of(self._space, kernel.checked_name(name))
        return SystemdGroup(unit, properties(weight, cores, memory))

    def bound(self, cores: float) -> None:
        """Always raises: scopes lie side by side with everything else that the user's systemd runs."""
        raise unbounded(self.name)

    def recover(self, name: str, pid: int) -> SystemdGroup | None:
        unit = unit_of(self._space, kernel.checked_name(name))
        if group_of(pid, unit):
            return SystemdGroup(unit, (), pid)
        member = process_of(unit)
        return None if member is None else SystemdGroup(unit, (), member)

    def sweep(self, keep: Collection[str]) -> None:
        listing = control("list-units", "--type=scope", "--plain", "--no-legend", f"{unit_of(self._space, '*')}")
        for name in names_in(listing, self._space):
            if name not in keep and (group := self.recover(name, 0)):
                group.kill()


def control(*arguments: str) -> str:
    """What the user's systemd answers.

    Raises
    ------
    StateError
        When it refuses, or is not there.
    """
    began, argv = time.monotonic(), ["systemctl", "--user", "--no-pager", *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"systemctl does not answer: {error}") from error
    log.info("%s: exit code %d after %.3f s", shlex.join(argv), done.returncode, time.monotonic() - began)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["no reason given"]
        raise StateError(f"systemctl --user {arguments[0]}: {words[-1]}")
    return done.stdout


def group_of(pid: int, unit: str) -> Path | None:
    """The directory of a scope that this process is in; None when it is in another group."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return None
    found = kernel.own_groups(Path("/proc/self/mountinfo").read_text(), groups).get("")
    return found if found and found.name == unit else None


def process_of(unit: str) -> int | None:
    """A process of this scope, if there is one."""
    path = control("show", "--property=ControlGroup", "--value", unit).strip()
    mounts = Path("/proc/self/mountinfo").read_text()
    directory = kernel.own_groups(mounts, f"0::{path}").get("") if path else None
    return next(iter(kernel.members([directory])), None) if directory and os.path.isdir(directory) else None
