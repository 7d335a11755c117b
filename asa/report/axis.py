"""Time axes: round steps in units that people read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from asa.core.units import DAY, HOUR

_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Where an axis has its ticks [s], what is written there, and in what unit."""

    at: tuple[float, ...]
    labels: tuple[str, ...]
    unit: str


def ticks(span_s: float, about: int) -> Ticks:
    """Ticks of an axis from 0 to `span_s` [s], `about` that many, never many more.

    >>> ticks(3000, 6)
    Ticks(at=(0.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0), labels=('0', '10', '20', '30', '40', '50'), unit='min')
    >>> ticks(5400, 3).labels, ticks(5400, 3).unit
    (('0:00', '0:30', '1:00', '1:30'), 'h:min')
    """
    step = _step(max(span_s, 1e-9) / about)
    at = tuple(step * position for position in range(math.floor(span_s / step + 1e-9) + 1))
    unit = _unit(step, span_s)
    return Ticks(at, tuple(_write(time, unit) for time in at), unit)


def _step(least_s: float) -> float:
    """The next round step [s] not below `least_s`: decimal below a second and above a day, clock-like in between."""
    for step in _STEPS_S:
        if 0.5 < least_s <= step:
            return float(step)
    base = DAY if least_s > 0.5 else 1.0
    power = 10.0 ** math.floor(math.log10(least_s / base))
    return next(base * power * digit for digit in (1, 2, 5, 10) if least_s <= base * power * digit * (1 + 1e-9))


def _unit(step: float, span_s: float) -> str:
    if step < 60:
        return "s" if span_s < 180 else "min:s" if span_s < 7200 else "h:min:s"
    if step < 3600:
        return "min" if span_s < 5400 else "h:min"
    return "h" if step < DAY else "d"


def _write(time: float, unit: str) -> str:
    whole = round(time)
    match unit:
        case "min:s":
            return f"{whole // 60}:{whole % 60:02d}"
        case "h:min:s":
            return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        case "h:min":
            return f"{whole // 3600}:{whole // 60 % 60:02d}"
    return f"{time / {'s': 1, 'min': 60, 'h': HOUR, 'd': DAY}[unit]:g}"
