"""One task, as a worker runs it: load the function, put the inputs in their places, call, keep the result.

Functions and arguments come from the run's own directory or through an authenticated channel; see `executors.wire`.
"""

from __future__ import annotations

import pickle
import re
import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from executors.wire import Order, Outcome, Stored, load

if TYPE_CHECKING:
    from asa.core.launch import Program

INLINE = 64 * 1024
"""Longest result that travels with its report [bytes]; longer ones go to a file."""
TAIL = 4096
"""How much of a traceback, or of standard error, a report keeps [bytes]."""

_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_LONGEST_ERROR = 500


class Caller:
    """Runs orders in this process.

    Parameters
    ----------
    values
        Directory for results that are too long to travel.
    """

    def __init__(self, values: str) -> None:
        self._values = values
        self._functions: dict[str, Callable[..., Any]] = {}

    def run(self, order: Order, keep: bool = True) -> Outcome:
        """Run one order to its end, whatever the end is; only the death of the process prevents an outcome.

        Without `keep` its value is not looked at, and is reported as no bytes.
        """
        doing, started, frames = "", time.time(), 0
        try:
            if order.launch is not None and not order.launch.program:
                from executors import launch  # here and below: a worker starts sooner without what it may not need

                return launch.run(order, self._values)
            doing = "loading the function"
            function = self._function(order.function)
            doing = "loading the arguments"
            args, kwargs = load(order.arguments)
            if order.inputs:
                from executors.inputs import fill

                doing = "loading an input"
                args, kwargs = fill((args, kwargs), order.inputs)
            doing, frames = "", 1
            if order.launch is None:
                result = function(*args, **kwargs)
            else:
                from executors import launch

                with launch.how(order, self._values) as how:
                    result = cast("Program", function).launched(*how)(*args, **kwargs)
            doing, frames = f"keeping the result, of type {type(result).__qualname__!r}", 0
            value = self._keep(dump(result), order) if keep else b""
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            what = f"{doing}: " if doing else ""
            return Outcome(
                order.ticket, started, time.time(), None, what + one_line(error), text(error, _below(error, frames))
            )
        return Outcome(order.ticket, started, time.time(), value)

    def _function(self, path: str) -> Callable[..., Any]:
        try:
            return self._functions[path]
        except KeyError:
            function: Callable[..., Any] = load(path)
            return self._functions.setdefault(path, function)

    def _keep(self, data: bytes, order: Order) -> Stored:
        if len(data) <= INLINE:
            return data
        from pathlib import Path

        from asa.security.files import write_private

        stage = re.sub(r"[^\w.-]", "_", order.stage, flags=re.ASCII)[:100]
        path = Path(self._values) / f"{stage}-{order.number}-{secrets.token_hex(8)}.pkl"
        write_private(path, data, durable=True)
        return str(path)


def dump(value: Any) -> bytes:
    """`value`, pickled; functions and classes of the user's own file by value.

    Raises
    ------
    Exception
        Whatever the value's own pickling raises.
    """
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5)
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data


def one_line(error: BaseException) -> str:
    """An exception in one line: its type and the first line of what it says.

    >>> one_line(ValueError("no such band: 7"))
    'ValueError: no such band: 7'
    """
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}"[:_LONGEST_ERROR] if said else type(error).__name__


def text(error: BaseException, trace: TracebackType | None) -> str:
    """The last part of an exception's traceback."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, trace))[-TAIL:]


def _below(error: BaseException, frames: int) -> TracebackType | None:
    trace = error.__traceback__
    for _ in range(frames):
        trace = trace.tb_next if trace else None
    return trace
