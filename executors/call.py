"""One task, as a worker runs it: load the function, put the inputs in their places, call, keep the result.

Functions and arguments come from the run's own directory or through an authenticated channel; see `executors.wire`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from asa.core.task import last_words
from asa.log.values import dump, fill, keep, load
from executors.wire import Order, Outcome

if TYPE_CHECKING:
    from asa.core.launch import Program


class Caller:
    """Runs orders in this process.

    Parameters
    ----------
    values
        Directory for results that are too long to travel.
    """

    def __init__(self, values: str) -> None:
        self._values = values
        self._function: Callable[[str], Callable[..., Any]] = cache(load)

    def run(self, order: Order, wanted: bool = True) -> Outcome:
        """Run one order to its end, whatever the end is; only the death of the process prevents an outcome.

        Unless its value is `wanted`, it is not looked at, and reported as no bytes.
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
            value = keep(dump(result), self._values, order.stage, order.number) if wanted else b""
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            line, trace = last_words(error, frames)
            return Outcome(order.ticket, started, time.time(), None, f"{doing}: {line}" if doing else line, trace)
        return Outcome(order.ticket, started, time.time(), value)
