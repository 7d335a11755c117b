"""Tasks of many processes: which launcher starts them, how many, and how large each is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

from asa.core.errors import InvalidInput, UnknownName

LAUNCHERS = ("mpiexec", "mpirun", "srun")

_OURS = re.compile(
    r"-[nNcwH]\d*|--?(np|ntasks|nodes|ntasks-per-node|cpus-per-task|nodelist|hosts?|hostfile|machinefile|ppn)(=.*)?"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """How the ranks of one task are started.

    Parameters
    ----------
    words
        The launcher and its options, as `launcher` takes them apart.
    ranks
        How many processes; >= 1.
    cores
        Cores of each; >= 1.
    program
        True when the task's function starts a program itself and is given how (`Program`); False when the function is
        to be called in every rank.
    """

    words: tuple[str, ...]
    ranks: int
    cores: int
    program: bool = False

    @property
    def kind(self) -> str:
        """Which of `LAUNCHERS` it is."""
        return PurePath(self.words[0]).name


@runtime_checkable
class Program(Protocol):
    """A stage's function that starts a program."""

    def launched(self, prefix: Sequence[str], environment: Mapping[str, str]) -> Callable[..., Any]:
        """The same function, its program started through the words of `prefix`, in this environment."""


def launcher(text: Any) -> tuple[str, ...]:
    """Take apart what a user wrote for ``launcher=``.

    Raises
    ------
    UnknownName
        When it is none of `LAUNCHERS`.
    InvalidInput
        When it is no command line, or has an option that follows from the stage's needs.

    Examples
    --------
    >>> launcher("srun --mpi=pmix")
    ('srun', '--mpi=pmix')
    """
    try:
        words = tuple(shlex.split(text)) if isinstance(text, str) else ()
    except ValueError as error:
        raise InvalidInput(f"launcher {text!r} cannot be split into words: {error}") from None
    if not words:
        raise InvalidInput(f"launcher must be like 'srun' or 'mpirun --mca btl tcp,self', not {text!r}")
    if PurePath(words[0]).name not in LAUNCHERS:
        raise UnknownName("launcher", words[0], LAUNCHERS)
    for word in words[1:]:
        if _OURS.fullmatch(word):
            raise InvalidInput(
                f"launcher option {word!r} follows from the stage: give nodes= with tasks_per_node=, or cores=, and "
                "task_cores="
            )
    return words
