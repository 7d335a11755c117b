"""A job request as options of qsub and as a job script. Pure."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from asa.core.errors import InvalidInput
from asa.core.job import Dependency, JobChanges, JobRequest, Resources
from asa.core.units import MIB

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}")
_OURS = ("-N", "-l", "-W", "-o", "-e", "-j", "-a", "-h", "-J", "-I", "-X", "-r", "-z")


@dataclass(frozen=True, slots=True)
class Options:
    """What a user wants of every job.

    Parameters
    ----------
    queue, account
        qsub's ``-q`` and ``-A``, or None.
    chunk
        More resources of each chunk, such as ``model=bro:ngpus=1``.
    setup
        Shell lines before the program.
    extra
        Other options of qsub, as they are written on a command line.

    Raises
    ------
    InvalidInput
        When an extra option is one that ASA gives itself.
    """

    queue: str | None = None
    account: str | None = None
    chunk: str = ""
    setup: tuple[str, ...] = ()
    extra: str = ""

    def __post_init__(self) -> None:
        for word in self.words:
            if word[:2] in _OURS:
                raise InvalidInput(f"qsub's {word[:2]} cannot be passed through: it follows from the stage, or the run")

    @property
    def words(self) -> list[str]:
        """The extra options, one by one."""
        return shlex.split(self.extra)


def options(request: JobRequest, wanted: Options) -> list[str]:
    """Options of qsub.

    Raises
    ------
    InvalidInput
        When the token can be no name of a job.
    """
    if not _NAME.fullmatch(request.token):
        raise InvalidInput(f"token {request.token!r}: a letter expected first, then letters, digits and _ . + - only")
    found = ["-N", request.token, *size(request.resources, wanted.chunk), *limit(request.walltime_s)]
    found += ["-j", "oe", "-o", "/dev/null", "-r", "n"]  # the script says where its output goes, at once
    if request.dependencies:
        found += ["-W", f"depend={dependency_list(request.dependencies)}"]
    if request.begin is not None:
        found += ["-a", local_time(request.begin)]
    found += ["-q", wanted.queue] if wanted.queue else []
    found += ["-A", wanted.account] if wanted.account else []
    return [*found, *wanted.words]


def size(resources: Resources, chunk: str = "") -> list[str]:
    """As many equal chunks as nodes, each on a host of its own; one chunk where the number of nodes is left open."""
    each, nodes = resources.on_each(resources.nodes or 1), resources.nodes or 1
    words = [str(nodes), f"ncpus={each.cores}"]
    if each.memory is not None:
        words.append(f"mem={-(-each.memory // MIB)}mb")
    if each.gpus:
        words.append(f"ngpus={each.gpus}")
    place = "scatter" if nodes > 1 else "pack"
    return ["-l", "select=" + ":".join([*words, *filter(None, [chunk])]), "-l", f"place={place}"]


def limit(walltime_s: float) -> list[str]:
    """A wall time in whole seconds, rounded up, at least one."""
    minutes, seconds = divmod(max(1, math.ceil(walltime_s)), 60)
    return ["-l", f"walltime={minutes // 60:02}:{minutes % 60:02}:{seconds:02}"]


def script(request: JobRequest, wanted: Options) -> str:
    """The job script: the program once on each node."""
    lines = ["#!/bin/sh", f"cd {shlex.quote(request.workdir)} || exit 1"]
    target = "/dev/null" if request.output is None else shlex.quote(request.output)
    lines += [f"exec </dev/null >>{target} 2>&1", *wanted.setup]
    program = shlex.join(request.argv)
    if (request.resources.nodes or 1) == 1:
        return "\n".join([*lines, f"exec {program}", ""])
    # pbsdsh starts it with the environment of the node's daemon, not with ours
    there = f'cd {shlex.quote(request.workdir)} && exec "$0" "$@"'
    variables = '"PATH=$PATH" "HOME=$HOME" "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" "PBS_JOBID=$PBS_JOBID"'
    launch = f"exec pbsdsh -- /usr/bin/env {variables} /bin/sh -c {shlex.quote(there)} {program}"
    return "\n".join([*lines, launch, ""])


def changes(wanted: JobChanges, now: float, chunk: str = "") -> list[str]:
    """Options of qalter for changes of a job that waits."""
    found: list[str] = []
    if wanted.resources is not None:
        found += size(wanted.resources, chunk)
    if wanted.walltime_s is not None:
        found += limit(wanted.walltime_s)
    if wanted.dependencies is not None:
        found += ["-W", f"depend={dependency_list(wanted.dependencies)}"]
    if wanted.begin is not None:
        found += ["-a", local_time(max(wanted.begin, now))]
    return found


def dependency_list(dependencies: Sequence[Dependency]) -> str:
    """PBS's words for dependencies that must all be fulfilled.

    >>> from asa.core.job import JobHandle
    >>> dependency_list([Dependency(JobHandle("7.server", "a", 0.0))])
    'afterok:7.server'
    """
    return ",".join(f"{item.kind.value}:{item.on.job_id}" for item in dependencies)


def local_time(at: float) -> str:
    """A time [s since the epoch] as qsub reads it: in this machine's time zone, whole seconds, rounded up."""
    return time.strftime("%Y%m%d%H%M.%S", time.localtime(math.ceil(at)))
