"""One call, as a worker makes it: an exception is an answer like any other, and travels back whole."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

from asa.log.values import dump

Answer = tuple[bool, Any, str]
"""Whether the call returned; what it returned or raised; the traceback, or ""."""


class RemoteTraceback(Exception):
    """Where an exception was raised, on another machine: the cause of what ``Future.result()`` raises."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def call(function: Callable[..., Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    """Call a function; without one, nothing.

    >>> call(int, ("7",), {})
    (True, 7, '')
    """
    if function is None:
        return True, None, ""
    try:
        return True, function(*args, **kwargs), ""
    except BaseException as error:  # as in `concurrent.futures`, where sys.exit() in a call is its outcome
        frames = error.__traceback__ and error.__traceback__.tb_next  # without ours
        trace = "".join(traceback.format_exception(type(error), error, frames))
        return False, _portable(error), trace


def _portable(error: BaseException) -> BaseException:
    """The exception, or what stands for one that would not survive the journey."""
    try:
        pickle.loads(dump(error))
    except Exception:  # its class is the user's own, and may need what pickle does not give it
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def raised(answer: Answer) -> BaseException:
    """What a call raised, with its traceback there as the cause."""
    _, error, trace = answer
    assert isinstance(error, BaseException), "the call did not return"
    error.__cause__ = RemoteTraceback(trace)
    return error
