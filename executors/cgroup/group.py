"""What keeps a container to its share of a node: the seam, and what is measured behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from asa.core.errors import StateError


@dataclass(frozen=True)
class GroupUsage:
    """What a group of processes has used since it was made; None for what is not counted here.

    Parameters
    ----------
    user_s, system_s
        CPU time [s], of processes that have ended too.
    periods, throttled, throttled_s
        Periods in which its quota was looked at, those in which it was used up, and how long it was held back [s].
    memory, memory_limit
        Resident memory and its limit [bytes].
    processes, threads
        How many there are now.
    stalled_s
        For how long some of its processes have waited for memory (pressure stall information) [s].
    waited_s
        For how long its processors ran something else, or nothing, though it had something to run there (pressure stall
        information): the mean over these processors [s].
    available
        What its node can give without swapping [bytes].
    """

    user_s: float
    system_s: float
    periods: int | None
    throttled: int | None
    throttled_s: float | None
    memory: int | None
    memory_limit: int | None
    processes: int
    threads: int | None
    stalled_s: float | None = None
    waited_s: float | None = None
    available: int | None = None


class Group(Protocol):
    """The processes of one container, whatever they start included.

    A process that writes 0 to each of `gates` is in it, as if `wrap` had led it there; None where only `wrap` does.
    """

    gates: tuple[str, ...] | None

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that enters the group and then becomes `argv`, in the same process."""

    def adopt(self, pid: int) -> None:
        """This process, started from what `wrap` returned and leader of its own session, is the group's first."""

    def limit(self, cores: float | None) -> None:
        """At most so many cores from now on; None for as many as there are."""

    def weigh(self, weight: float) -> None:
        """Cores it should have when others want theirs too, from now on; > 0.

        Nothing happens where there are no weights.
        """

    def hold_memory(self, memory: int | None) -> None:
        """Take memory back from it while it has more than this [bytes]; None for no such limit.

        Nobody is killed for it. Version 2 holds up processes that go on growing; version 1 takes back what it can, and
        only when its node is short of memory. Nothing happens where memory cannot be limited.
        """

    def usage(self) -> GroupUsage: ...
    def starved(self) -> bool:
        """Whether the kernel has killed any of its processes for want of memory; to be asked before `close`."""

    def pids(self) -> list[int]:
        """Its living processes."""

    def kill(self) -> None:
        """End all of its processes, those they start meanwhile too, before returning."""

    def close(self) -> None:
        """Remove what is left of it once its processes are gone; it may be gone already."""


class Quotas(Protocol):
    """A way to keep groups of processes to CPU quotas; `name` is printed for users, `why` says why it was chosen."""

    name: str
    why: str

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        """A new group.

        Parameters
        ----------
        name
            Letters, digits, ``-``, ``_`` and ``.``; of no other group.
        weight
            Cores it should have when others want theirs too; > 0.
        cores
            At most so many; None for as many as there are.
        memory
            Limit [bytes]; None for none. Passed over where memory cannot be limited.

        Raises
        ------
        StateError
            When it cannot be made.
        """

    def bound(self, cores: float) -> None:
        """Everything in this name space together has at most so many cores of the processor.

        That holds for groups that are there and for those that are made later, until it is said anew.

        Raises
        ------
        StateError
            When this means has no way to, or the kernel refuses.
        """

    def recover(self, name: str, pid: int) -> Group | None:
        """The group that an earlier agent made, by its name and first process; None when nothing is left of it."""

    def sweep(self, keep: Collection[str]) -> None:
        """End and remove groups that dead agents left behind under this name space, but for those in `keep`."""


def unbounded(name: str) -> StateError:
    """What `Quotas.bound` raises where groups cannot be kept to a number of cores together.

    Parameters
    ----------
    name
        What the means is called.
    """
    return StateError(
        f"a fraction of the processor cannot be kept here by {name!r}: "
        "only 'cgroup v2' and 'cgroup v1' limit all containers together"
    )
