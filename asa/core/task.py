"""Tasks: what an executor is given to run, and how what they are called with refers to results of others.

Payloads are opaque bytes here; only workers open them.
"""

from __future__ import annotations

import copy
import operator
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from asa.core.errors import CommandFailed, InvalidInput

if TYPE_CHECKING:  # workers load this module, and a worker that loads little starts sooner
    from asa.core.job import Resources
    from asa.core.launch import Launch

T = TypeVar("T")
Value = bytes | str
"""A pickled value: itself (bytes), or the path (str) of a private file that is written once and never changed."""

TAIL = 4096
"""How much is kept of a traceback [characters], and of what a task printed [bytes]."""

OUTPUT_LIMIT = 10 << 20
"""What is kept of a task's output unless something else was asked for [bytes]."""

_LONGEST_LINE = 500
_STRUCTURES = (list, tuple, set, frozenset, dict)


SOURCES = ("", "rusage", "proc", "sacct", "wfcommons")
"""What measured it: nothing; counters of the kernel, read as the task ended; the same, and looks at its processes while
it ran; the batch system; another workflow system. Their order is part of the event log's format."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Variables for the environment of a stage's tasks, as (name, value), that no other user is to see; not printed.

    >>> Secrets((("LICENSE", "a1b2"),))
    Secrets()
    """

    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a task goes on in one allocation after the other.

    Parameters
    ----------
    directory
        What it saves, and finds again.
    signal
        What its program is sent before an allocation ends; 0 for nothing.
    notice_s
        How long before that [s].
    """

    directory: str
    signal: int = 0
    notice_s: float = 0.0


DEFAULT_SIGNAL = "USR1"
"""What a task with checkpoints is sent where nothing else is declared."""


def default_notice_s(walltime_s: float) -> float:
    """How long before the end of its allocation a task with checkpoints gets its signal by default [s]: a tenth of the
    wall time [s], two minutes at most."""
    return min(120.0, walltime_s / 10)


def signal_name(given: Any) -> str:
    """The name of a signal, without SIG. Raises `InvalidInput` when it is none that a program can handle.

    >>> signal_name("SIGTERM")
    'TERM'
    """
    name = str(given).upper().removeprefix("SIG")
    if not isinstance(given, str) or f"SIG{name}" not in signal.Signals.__members__ or name in ("KILL", "STOP"):
        raise InvalidInput(f"signal must be the name of one that a program can handle, such as 'USR1', not {given!r}")
    return name


@dataclass(frozen=True, slots=True)
class Staging:
    """Files that are copied to a node's own disk before a task, which runs there, and back from it: patterns.

    >>> Staging(("reads/{sample}.fq",), ("*.bam",)).out
    ('*.bam',)
    """

    into: tuple[str, ...] = ()
    out: tuple[str, ...] = ()


PAUSED = "pause"
"""The cause of an attempt's end that is none of the task: it goes on elsewhere, from its last checkpoint."""


@dataclass(frozen=True, slots=True)
class Task:
    """One call of a stage's function.

    Parameters
    ----------
    stage, index
        Which task it is: stage name and position in the stage, counted from 0.
    function
        File with the stage's pickled function; a worker loads it once.
    arguments
        Pickled ``(args, kwargs)``, in which an ``Input(n)`` stands for ``inputs[n]``.
    inputs
        Results of other tasks that the arguments refer to.
    resources
        What it needs while it runs.
    launch
        How its ranks are started, or None for a plain call.
    identity
        The same, from one driver of a run to the next, exactly when what it is called with is the same.
    secrets
        For its environment, or None. They are no part of its identity.
    timeout_s
        How long it may run [s], or None.
    checkpoints
        How it goes on when its allocation ends, or None where it does not.
    ends
        When it is ended with its allocation [s since the epoch], or None.
    staging
        What is copied to where it runs, and back, or None where it runs in the working directory.
    shares, guest
        Whether guests may use what it leaves idle; whether it is one itself, and holds nothing of its own.
    """

    stage: str
    index: int
    function: str
    arguments: Value
    inputs: tuple[Value, ...]
    resources: Resources
    launch: Launch | None = None
    identity: str = ""
    secrets: Secrets | None = None
    timeout_s: float | None = None
    checkpoints: Checkpoints | None = None
    ends: float | None = None
    staging: Staging | None = None
    shares: bool = False
    guest: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Stands for the result of a task that failed for good, or was skipped because one before it had.

    Parameters
    ----------
    stage, index
        Which task.
    message
        Why, in one line.
    attempt
        Which attempt was the last, counted from 1; 0 where it was never tried.
    node
        Where that was, or "".
    exit
        Exit code of its process or program, negative for a signal; None where there was none.
    tail
        The last part of its traceback, and of what it printed.
    peak_memory
        Most memory that the worker process it ran in has had, until then [bytes]; 0 where it is not known, and in what
        stages are called with.

    Examples
    --------
    >>> Failed("align", 3, "ValueError: no reads", attempt=1, node="n1")
    Failed('align', 3, 'ValueError: no reads')
    """

    stage: str
    index: int
    message: str
    attempt: int = 0
    node: str = ""
    exit: int | None = None
    tail: str = ""
    peak_memory: int = 0

    def __repr__(self) -> str:
        return f"Failed({self.stage!r}, {self.index}, {self.message!r})"


@dataclass(frozen=True, slots=True)
class Input:
    """In pickled arguments: the place of an input value.

    Parameters
    ----------
    first
        Position in ``Task.inputs``.
    count
        None for that one value; otherwise the list of this many values from `first` on.
    """

    first: int
    count: int | None = None


def substitute(value: Any, kind: type[T], replace: Callable[[T], Any]) -> Any:
    """`value` with everything of this kind replaced, at any depth of lists, tuples, sets and dicts, keys included.

    Structures in which there is none are returned as they are. The others are made anew, each as what it was: a named
    tuple, say, or whatever else inherits from list, set or dict.

    Raises
    ------
    InvalidInput
        When a structure cannot be made anew.

    Examples
    --------
    >>> substitute({"x": [Input(0), "rest"]}, Input, lambda place: 7 + place.first)
    {'x': [7, 'rest']}
    """
    if isinstance(value, kind):
        return replace(value)
    if not isinstance(value, _STRUCTURES):
        return value
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if not any(issubclass(each, (kind, *_STRUCTURES)) for each in set(map(type, items))):
        return value
    replaced = [substitute(item, kind, replace) for item in items]
    return value if all(map(operator.is_, replaced, items)) else _made_anew(value, replaced)


def _made_anew(value: Any, items: Sequence[Any]) -> Any:
    """A structure like `value` with these items; those of a dict are its keys, then its values."""
    kind = type(value)
    try:
        if kind in (tuple, frozenset):
            return kind(items)
        if isinstance(value, tuple | frozenset):
            return kind._make(items)  # a named tuple
        made = copy.copy(value)
        made.clear()
        if isinstance(value, dict):
            for key, item in zip(items[: len(value)], items[len(value) :], strict=True):
                made[key] = item
        else:
            (made.extend if isinstance(value, list) else made.update)(items)
        return made
    except Exception as error:  # classes may be the user's own
        raise InvalidInput(
            f"a {kind.__name__} cannot be made anew with a result in it ({type(error).__name__}: {error}): pass a "
            "plain list, tuple or dict"
        ) from error


def ending(code: int) -> str:
    """How a process ended, whose exit code is the negative number of the signal that killed it, if one did.

    >>> ending(2), ending(-9)
    ('ended with exit code 2', 'was killed by signal 9 (Killed)')
    """
    return f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"


def lacks(error: str, exit: int | None) -> str:
    """What a task had too little of that ended like this, "memory" or "".

    >>> lacks("MemoryError", None), lacks("the worker process was killed", -9), lacks("ValueError: 7", None)
    ('memory', 'memory', '')
    """
    killed = exit in (-signal.SIGKILL, 128 + signal.SIGKILL)  # the second one is what a shell makes of it
    return "memory" if killed or error.partition(":")[0].endswith("MemoryError") else ""


def last_words(error: BaseException, frames: int = 0) -> tuple[str, str]:
    """An exception in one line, and the last part of its traceback without the outermost `frames`.

    The traceback of a program that ended badly is "": all of it would be ours.

    >>> last_words(ValueError("no such band: 7\\nthere are 3"))[0]
    'ValueError: no such band: 7'
    """
    import traceback  # here: few tasks fail

    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace else None
    try:
        said = str(error).strip().splitlines()
    except Exception:  # the user's own class
        said = []
    line = f"{type(error).__name__}: {said[0]}"[:_LONGEST_LINE] if said else type(error).__name__
    if isinstance(error, CommandFailed) and trace and trace.tb_frame.f_globals.get("__name__", "").startswith("asa."):
        return line, ""
    return line, "".join(traceback.format_exception(type(error), error, trace))[-TAIL:]
