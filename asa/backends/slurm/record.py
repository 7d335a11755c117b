"""What Slurm tells of a job and of a group of nodes, whichever way it was asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the controller's queue, or the accounting, has it.

    Parameters
    ----------
    key
        Job id; ``ID_INDEX`` for an element of a job array.
    name
        Job name: the token, when ASA submitted it.
    word
        State in Slurm's words, such as ``RUNNING`` or ``CANCELLED by 1000``.
    reason
        Slurm's reason, or "".
    submitted
        When it was submitted, or last requeued [s since the epoch].
    eligible
        When it became eligible to start, or None.
    start
        When it started; for a waiting job when Slurm means to start it. None when there is no such time.
    end
        When it ended, or will at the latest; None when there is no such time.
    exit_code
        Exit code of its script (128 + n after signal n), or None.
    restarts
        How often it was requeued.
    nodes
        Names of its nodes; none while it waits.
    ages_since
        Since when its age counts (``AccrueTime``), perhaps in the future; None while Slurm has set no such time.
    """

    key: str
    name: str
    word: str
    reason: str = ""
    submitted: float = 0.0
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    ages_since: float | None = None


@dataclass(frozen=True, slots=True)
class VisibleJob:
    """Anybody's job that waits or runs, as far as Slurm shows it to this user.

    Parameters
    ----------
    key, name, word, reason, submitted, end
        As in `JobRecord`.
    user
        Whose it is.
    partition
        Its partition; several with commas between while it waits for any of them.
    priority
        Slurm's number: the highest starts first.
    cores, nodes
        CPUs and nodes that it holds or, while it waits, asks for at least.
    limit
        Wall time [s], or None for no limit.
    held
        Names of the nodes it runs on.
    """

    key: str
    name: str
    user: str
    partition: str
    word: str
    reason: str
    priority: int
    cores: int
    nodes: int
    limit: float | None
    submitted: float
    end: float | None
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Like nodes of one partition.

    Parameters
    ----------
    partition
        Name of the partition.
    count
        How many there are.
    cores
        CPUs of each, as Slurm counts them.
    memory
        Memory of each [bytes].
    gpus
        GPUs of each.
    state
        Their state, such as ``idle`` or ``down*``.
    """

    partition: str
    count: int
    cores: int
    memory: int
    gpus: int
    state: str
