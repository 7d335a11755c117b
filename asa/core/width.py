"""How wide a stage is to be whose job may have one of several sizes: a moldable one. Pure.

Notes
-----
Of each size it is known, or taken, how long the stage runs with it, what that is charged, and how long its job would
wait. Taken is the one that costs least, when each second until the stage ends costs the user's patience.

References
----------
W. Cirne and F. Berman, Using moldability to improve the performance of supercomputer jobs, JPDC 62 (2002): the size is
chosen as the job is submitted. There, it is that with the soonest end, whatever it is charged. G. Amdahl, Validity of
the single processor approach to achieving large scale computing capabilities, AFIPS 1967.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from asa.core.errors import InvalidInput
from asa.core.stage import Width
from asa.core.units import HOUR, brief

ASSUMED = 0.9
"""The parallel fraction of a stage of which nothing was declared, until it was measured on two sizes."""
DECLARED, UNKNOWN = "as its speedup= says", f"not measured yet, taken to be parallel to {ASSUMED:.0%}"
"""Where the run times on several sizes are from."""
WIDTHS_MOST = 16
"""Sizes that a stage may have."""
WRONG = 1.25
"""A declared speed-up from the narrowest to the widest that was measured is wrong if it is off by more than this."""
_LEAST_S = 60.0  # no wall time is made shorter than this because a stage is wide [s]

Points = tuple[tuple[int, float], ...]
"""Pairs of cores and how long a stage runs on them [s], by cores."""
Speedup = float | Points
"""Amdahl's parallel fraction, in [0, 1], or measured points."""


class PricedWidth(NamedTuple):
    """A width, the cores that it is charged for, for how long beside its run [s], and how long its job waits [s]."""

    width: Width
    charged: int
    fixed_s: float = 0.0
    wait_s: float = 0.0

    @property
    def core_s(self) -> float:
        """What it is charged [core-s]."""
        return self.charged * (self.fixed_s + self.width.run_time_s)

    def end_s(self, ready_s: float) -> float:
        """When the stage, which is ready in so long [s], ends from now [s]."""
        return max(ready_s, self.wait_s) + self.fixed_s + self.width.run_time_s


def sizes(given: Any, unit: int) -> tuple[int, ...]:
    """Numbers of cores that ``cores=`` allows: a tuple of the least and the most, with what lies between by doubling,
    or a list of all.

    Parameters
    ----------
    unit
        Cores of a task: all are multiples of it.

    Raises
    ------
    InvalidInput
        When it is neither.

    Examples
    --------
    >>> sizes((16, 128), 1), sizes((12, 80), 4), sizes([8, 24], 1)
    ((16, 32, 64, 128), (12, 24, 48, 80), (8, 24))
    """
    known = all(type(cores) is int and cores >= 1 for cores in given)
    if not known or (isinstance(given, tuple) and (len(given) != 2 or given[0] >= given[1])):
        raise InvalidInput(
            f"cores={given!r}: a number, a tuple of the least and the most, such as (16, 128), or a list of all that "
            "it may be, such as [16, 48, 96], expected; whole numbers of at least 1"
        )
    found = sorted(set(given))
    if isinstance(given, tuple):
        least, most = found
        found = [least << step for step in range(most.bit_length()) if least << step < most] + [most]
    if not 2 <= len(found) <= WIDTHS_MOST:
        raise InvalidInput(f"cores={given!r} allows {len(found)} sizes: 2 to {WIDTHS_MOST} expected")
    if wrong := [cores for cores in found if cores % unit]:
        raise InvalidInput(f"cores={given!r}: {wrong[0]} is no multiple of task_cores={unit}, so some would be idle")
    return tuple(found)


def speedup_of(given: Any) -> Speedup:
    """What ``speedup=`` says: Amdahl's parallel fraction, or run times [s] by cores.

    Raises
    ------
    InvalidInput
        When it is neither.

    Examples
    --------
    >>> speedup_of(0.95), speedup_of({64: 160, 16: 600})
    (0.95, ((16, 600.0), (64, 160.0)))
    """
    if type(given) in (int, float) and 0 <= given <= 1:
        return float(given)
    if isinstance(given, Mapping) and len(given) >= 2:
        kinds = all(type(cores) is int and type(seconds) in (int, float) for cores, seconds in given.items())
        if kinds and all(cores >= 1 and 0 < seconds < math.inf for cores, seconds in given.items()):
            return tuple((cores, float(seconds)) for cores, seconds in sorted(given.items()))
    raise InvalidInput(
        f"speedup={given!r}: the part of the work that runs in parallel, from 0 to 1, such as 0.95, or run times in "
        "seconds on at least two numbers of cores, such as {16: 600, 64: 170}, expected"
    )


def time_on(cores: int, speedup: Speedup) -> float:
    """How long a stage runs on so many cores: by Amdahl's law, of what it would on one; by measured points [s].

    Between points the logarithms are linear. On fewer cores than were measured it is as much work, and on more it is no
    faster.

    >>> time_on(10, 0.5), time_on(32, ((16, 600.0), (64, 150.0))), time_on(128, ((16, 600.0), (64, 150.0)))
    (0.55, 300.0, 150.0)
    """
    if not isinstance(speedup, tuple):
        return 1.0 - speedup + speedup / cores
    before, after = [point for point in speedup if point[0] <= cores], [point for point in speedup if point[0] > cores]
    if not before:
        return after[0][1] * after[0][0] / cores
    if not after:
        return before[-1][1]
    (low, slow), (high, fast) = before[-1], after[0]
    return slow * math.exp(math.log(fast / slow) * math.log(cores / low) / math.log(high / low))


def scaled(width: Width, share: float) -> tuple[float, float]:
    """Wall time, and expected run time [s], of a stage that takes so much of what it takes with this width."""
    walltime_s = width.walltime_s * share
    if share < 1:
        walltime_s = min(width.walltime_s, max(_LEAST_S, math.ceil(walltime_s)))
    return walltime_s, min(walltime_s, width.run_time_s * share)


def stretched(widths: Sequence[Width], times: Sequence[float]) -> tuple[Width, ...]:
    """The same with run times and wall times in the proportions of `times`; those of the first stay as they are."""
    made = []
    for width, time in zip(widths, times, strict=True):
        walltime_s, run_time_s = scaled(widths[0], time / times[0])
        made.append(replace(width, walltime_s=walltime_s, run_time_s=run_time_s))
    return tuple(made)


def are_rounds(widths: Sequence[Width]) -> bool:
    """Whether tasks are the same whatever the width, so that it says how many of them run at a time."""
    return len({width.task for width in widths}) == 1


def for_tasks(widths: Sequence[Width], tasks: int) -> tuple[Width, ...]:
    """Those that are of use for so many tasks, which run in rounds, the narrowest always; with the times of that."""
    rounds = [-(-tasks // max(1, width.resources.cores // width.task.cores)) for width in widths]
    made = stretched(widths, [max(1, count) for count in rounds])
    return tuple(width for place, width in enumerate(made) if not place or rounds[place] < rounds[place - 1])


def on_narrowest(run_time_s: float, widths: Sequence[Width], cores: int, tasks: int | None) -> float:
    """How long a stage of so many tasks, which took so long [s] with a width of so many cores, takes with the narrowest
    one; the same where there are no several."""
    for width in for_tasks(widths, tasks) if tasks and are_rounds(widths) else widths:
        if width.resources.cores == cores:
            return run_time_s * widths[0].run_time_s / width.run_time_s
    return run_time_s


def measured(
    widths: Sequence[Width], times: Mapping[int, Sequence[float]], declared: bool
) -> tuple[tuple[Width, ...], int | None, str]:
    """Widths with what was measured of them taken into account; the cores of one that is not to be taken, or None; what
    is to be said of it all, or "".

    As long as they were measured on one size only, that one is not to be taken: the next run measures another. What was
    declared counts as long as it fits what was measured.

    Parameters
    ----------
    times
        Cores -> run times [s] of the stage's tasks there.
    declared
        Whether times of the widths are as the user says.
    """
    points = tuple(sorted((cores, median(found)) for cores, found in times.items() if found))
    count = sum(map(len, times.values()))
    if len(points) < 2:
        return tuple(widths), points[0][0] if points else None, ""
    (few, slow), (many, fast) = points[0], points[-1]
    said = tuple((width.resources.cores, width.run_time_s) for width in widths)
    expected, came = time_on(few, said) / time_on(many, said), slow / fast
    if declared and expected / WRONG <= came <= expected * WRONG:
        return tuple(widths), None, ""
    times_on = [time_on(width.resources.cores, points) for width in widths]
    note = f"measured in {count} runs on {', '.join(str(cores) for cores, _ in points)} cores"
    if declared:
        note += (
            f": {many} cores are {came:.2g} times as fast as {few}, not {expected:.2g} times as its speedup= says, "
            "which is not used any more"
        )
    return stretched(widths, times_on), None, note


def patience_for(widths: Sequence[Width]) -> float:
    """What a second is worth where the user does not say [core-s]: as many cores as lie in the middle of the range."""
    cores = [width.resources.cores for width in widths]
    return math.sqrt(min(cores) * max(cores))


def choose(options: Sequence[PricedWidth], ready_s: float, patience: float) -> tuple[PricedWidth, str]:
    """The option that costs least, and why, in plain words; the narrowest of those that cost as much.

    The more patience, the sooner the chosen one ends, and the more it is charged.

    Parameters
    ----------
    options
        From the narrowest on; at least one.
    ready_s
        When the stage is ready, from now [s].
    patience
        Core-seconds that a second until the stage ends is worth; > 0.

    Raises
    ------
    InvalidInput
        When a number is negative, or not finite but for waits.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> widths = [Width(Resources(n), Resources(n), 7200.0, 3600.0 * (0.1 + 0.9 * 8 / n)) for n in (8, 32)]
    >>> print(choose([PricedWidth(widths[0], 8), PricedWidth(widths[1], 32, wait_s=9000.0)], 0.0, 16.0)[1])
    8 of 8 to 32 cores: to end in 1 h for 8 core-hours; on 32 in 2 h 49 min for 10.4
    """
    for option in options:
        numbers = option.charged, option.fixed_s, option.width.run_time_s, option.width.walltime_s, ready_s, patience
        if not all(0 <= number < math.inf for number in numbers) or not option.wait_s >= 0:
            raise InvalidInput(f"{option}, ready in {ready_s!r} s, patience {patience!r}: finite numbers expected")
    costs = [option.core_s + patience * option.end_s(ready_s) for option in options]
    best = options[costs.index(min(costs))]
    cores = [option.width.resources.cores for option in options]
    others = sorted((cost, place) for place, cost in enumerate(costs) if options[place] is not best)
    said = f"{best.width.resources.cores} of {cores[0]} to {cores[-1]} cores: to end in {_said(best, ready_s, True)}"
    for _, place in others[:1]:
        said += f"; on {cores[place]} in {_said(options[place], ready_s)}"
    return best, said


def _said(option: PricedWidth, ready_s: float, whole: bool = False) -> str:
    end_s = option.end_s(ready_s)
    when = brief(end_s) if end_s < math.inf else "a time that is not known"
    return f"{when} for {option.core_s / HOUR:.3g}{' core-hours' * whole}"
