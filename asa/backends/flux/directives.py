"""A job request as options of ``flux submit``. Pure."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass

from asa.core.errors import InvalidInput
from asa.core.job import JobRequest, Resources

_OURS = re.compile(
    r"--(job-name|time-limit|nodes|ntasks|cores|cores-per-task|gpus-per-task|tasks-per-node|output|error|input|cwd"
    r"|dependency|begin-time|exclusive)(=.*)?|-[tNncgx].*"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a user wants of every job.

    Parameters
    ----------
    queue, bank
        ``--queue`` and ``--bank`` of flux, or None.
    setup
        Shell lines before the program.
    extra
        Other options of ``flux submit``, as they are written on a command line.

    Raises
    ------
    InvalidInput
        When an extra option is one that ASA gives itself.
    """

    queue: str | None = None
    bank: str | None = None
    setup: tuple[str, ...] = ()
    extra: str = ""

    def __post_init__(self) -> None:
        for word in self.words:
            if _OURS.fullmatch(word):
                raise InvalidInput(f"flux's {word} cannot be passed through: it follows from the stage, or the run")

    @property
    def words(self) -> list[str]:
        """The extra options, one by one."""
        return shlex.split(self.extra)


def submission(request: JobRequest, wanted: Options, now: float) -> list[str]:
    """The words of ``flux submit``, the program included: a task on each node, with all of the job's cores there.

    Flux knows no memory: what is stated of that is not passed on.
    """
    target = "/dev/null" if request.output is None else request.output
    found = [
        f"--job-name={request.token}",
        *size(request.resources),
        f"--time-limit={seconds(request.walltime_s)}",
        f"--cwd={request.workdir}",
        "--input=/dev/null",
        f"--output={target}",
        f"--error={target}",
        "--setopt=output.mode=append",
    ]
    found += [f"--dependency={item.kind.value}:{item.on.job_id}" for item in request.dependencies]
    if request.begin is not None and request.begin > now:
        found.append(f"--begin-time=+{seconds(request.begin - now)}")
    found += [f"--queue={wanted.queue}"] if wanted.queue else []
    found += [f"--bank={wanted.bank}"] if wanted.bank else []
    program = list(request.argv)
    if wanted.setup:
        program = ["/bin/sh", "-c", "\n".join([*wanted.setup, 'exec "$0" "$@"']), *program]
    return ["flux", "submit", *found, *wanted.words, "--", *program]


def size(resources: Resources) -> list[str]:
    """One task on each node; on any one node where the number of nodes is left open.

    >>> size(Resources(16, nodes=2, gpus=4))
    ['--nodes=2', '--ntasks=2', '--cores-per-task=8', '--gpus-per-task=2']
    """
    nodes = resources.nodes or 1
    each = resources.on_each(nodes)
    found = [f"--nodes={nodes}", f"--ntasks={nodes}", f"--cores-per-task={each.cores}"]
    return [*found, f"--gpus-per-task={each.gpus}"] if each.gpus else found


def seconds(duration: float) -> str:
    """A duration in Flux's words: whole seconds, rounded up, at least one.

    >>> seconds(0.2), seconds(5400)
    ('1s', '5400s')
    """
    return f"{max(1, math.ceil(duration))}s"
