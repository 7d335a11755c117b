"""What the agent's state machine wants done, beside `executors.mesos.effects`."""

from __future__ import annotations

from typing import NamedTuple

from executors.mesos import effects
from executors.mesos.codec import Message

OUT_OF_MEMORY = "REASON_CONTAINER_LIMITATION_MEMORY"
"""Why a container has ended, in Mesos' word, when the kernel has killed a process of it for want of memory."""


class Up(NamedTuple):
    """Say this to the master, if it is connected; what must reach it is said again by the machine."""

    item: Message


class File(NamedTuple):
    """What to copy into a sandbox before anything runs in it: an absolute path, a name there, and whether to run it."""

    source: str
    name: str
    executable: bool = False


class Container(NamedTuple):
    """What to start, and within what limits.

    Parameters
    ----------
    id
        Nobody else's, ever: names the cgroup and is part of the sandbox's path.
    framework, executor
        Whose it is; for a command task, the executor has the task's id.
    argv
        Program and arguments; a shell command is ``("/bin/sh", "-c", TEXT)``.
    environment
        All of it: the agent's own, less its secrets, then Mesos' variables, then what the task asked for.
    sandbox
        Directory that it runs in; made before, with mode 0700. Standard output and error go to the files ``stdout`` and
        ``stderr`` in it.
    cpus
        What it may always have: its weight among others.
    cpus_limit
        What it may have at most; None for no limit.
    memory
        Limit [bytes]; None for none.
    files
        What to copy into the sandbox first; a container whose files cannot be had does not start.
    """

    id: str
    framework: str
    executor: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    sandbox: str
    cpus: float
    cpus_limit: float | None
    memory: int | None
    files: tuple[File, ...] = ()


class Start(NamedTuple):
    """Start a container; the machine is told by `started`, or by `exited` when it cannot be."""

    container: Container


class Stop(NamedTuple):
    """End a container: SIGTERM to its processes, SIGKILL after `grace_s` [s]; at once when that is 0."""

    id: str
    grace_s: float


class Limit(NamedTuple):
    """Change how much CPU a container may have at most; None for no limit."""

    id: str
    cpus: float | None


class Weigh(NamedTuple):
    """Change how many cores a container should have when others want theirs too."""

    id: str
    cpus: float


class Remove(NamedTuple):
    """Nothing of this container is needed any more, its cgroup least of all; its sandbox stays for people to read."""

    id: str


class Exit(NamedTuple):
    """The agent's work is over: end the process with this code, once everything before is done."""

    code: int


Own = Up | Start | Stop | Limit | Weigh | Remove | Exit
Effect = effects.Effect | Own
