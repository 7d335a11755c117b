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

from asa.core.errors import InvalidInput

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


@dataclass(frozen=True, slots=True)
class Secrets:
    """Variables for the environment of a stage's tasks, as (name, value), that nobody else is to see; not printed.

    >>> Secrets((("LICENSE", "a1b2"),))
    Secrets()
    """

    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False)


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


def last_words(error: BaseException, frames: int = 0) -> tuple[str, str]:
    """An exception in one line, and the last part of its traceback without the outermost `frames`.

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
    return line, "".join(traceback.format_exception(type(error), error, trace))[-TAIL:]
