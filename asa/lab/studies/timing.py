"""How long a call takes, and each decision of a dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from asa.core.decision import DispatchDecision

Made = TypeVar("Made")


def clocked(call: Callable[..., Made], *given: Any) -> tuple[Made, float, float]:
    """What a call returns, how long it takes [s], and the processor time of all threads meanwhile [s].

    >>> found, seconds, cpu_s = clocked(max, 2, 3)
    >>> found, seconds > 0, cpu_s >= 0
    (3, True, True)
    """
    cpu, began = time.process_time(), time.perf_counter()
    found = call(*given)
    seconds = time.perf_counter() - began
    return found, seconds, time.process_time() - cpu


class Timing(NamedTuple):
    """A decision of a dispatcher.

    Parameters
    ----------
    waiting
        How many jobs waited.
    decided
        What it came to: how many starts and promises.
    seconds, cpu_s
        What it took [s], and the processor time of all threads meanwhile [s].
    """

    waiting: int
    decided: int
    seconds: float
    cpu_s: float


class TimedDispatcher:
    """A dispatcher whose decisions are timed. Simulators ask it at the same instants as the one inside.

    Parameters
    ----------
    rule
        The dispatcher.

    Attributes
    ----------
    timings
        Of each decision, in order.
    """

    def __init__(self, rule: Any) -> None:
        self._rule, self.timings = rule, list[Timing]()
        self.needs_estimates = getattr(rule, "needs_estimates", False)
        self.window = getattr(rule, "window", 0.0)

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        """What it decides."""
        found: Sequence[DispatchDecision]
        found, seconds, cpu_s = clocked(self._rule.decide, view)
        self.timings.append(Timing(len(view.waiting), len(found), seconds, cpu_s))
        return found
