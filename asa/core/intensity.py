"""How much CO2 a kilowatt-hour of the grid stands for, over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.units import DAY

MOST_G_PER_KWH = 10_000.0
"""No grid emits as much: what is larger has another unit. The worst coal power stations emit some 1,500."""


@dataclass(frozen=True, eq=False)
class Intensity:
    """Intensity of a grid: how much CO2 each kilowatt-hour stands for, constant from one time to the next.

    Parameters
    ----------
    times
        When values begin, and when the last one ends [s on the clock of the workload]; ascending, shape (k + 1,).
    g_per_kwh
        [g/kWh], shape (k,), k >= 1; from 0 to `MOST_G_PER_KWH`.
    repeats
        Whether it begins again after its end, and goes on so for ever, in the past too: a day, or a week.

    Raises
    ------
    InvalidInput
        When shapes do not fit, times do not ascend, or a value is out of its bounds.

    Examples
    --------
    >>> night_and_day = Intensity([0.0, 43200.0, 86400.0], [100.0, 300.0], repeats=True)
    >>> night_and_day.at([0.0, 50000.0, 86400.0]).tolist()
    [100.0, 300.0, 100.0]
    >>> float(np.diff(night_and_day.integral([0.0, 86400.0]))[0] / 86400)
    200.0
    """

    times: Floats
    g_per_kwh: Floats
    repeats: bool = False

    def __post_init__(self) -> None:
        for name in ("times", "g_per_kwh"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        times, values = self.times, self.g_per_kwh
        if times.ndim != 1 or values.shape != (len(times) - 1,) or not len(values):
            raise InvalidInput(f"{len(times)} times and {len(values)} intensities: one time more than values expected")
        if not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise InvalidInput("times of an intensity must be finite and ascend")
        if not ((values >= 0) & (values <= MOST_G_PER_KWH)).all():
            raise InvalidInput(f"an intensity is from 0 to {MOST_G_PER_KWH:g} g/kWh: {values.min()} to {values.max()}")

    @classmethod
    def constant(cls, g_per_kwh: float) -> Intensity:
        return cls(np.array([0.0, DAY]), np.array([g_per_kwh]), repeats=True)

    def at(self, when: npt.ArrayLike) -> Floats:
        """The intensity at these times [s], shape (m,) [g/kWh]; that of the end is the last one.

        Raises
        ------
        InvalidInput
            When it does not tell of one of them.
        """
        found: Floats = self.g_per_kwh[self._places(self._within(when)[1])]
        return found

    def integral(self, when: npt.ArrayLike) -> Floats:
        """Integral from `times[0]` to these times [s], shape (m,) [g/kWh * s]; raises as `at`."""
        turns, within = self._within(when)
        area = np.concatenate([[0.0], np.cumsum(self.g_per_kwh * np.diff(self.times))])
        found: Floats = turns * area[-1] + np.interp(within, self.times, area)
        return found

    def _within(self, when: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Whole turns before each time, and the time less these."""
        at, first, last = np.asarray(when, dtype=np.float64), self.times[0], self.times[-1]
        if self.repeats:
            turns = np.floor((at - first) / (last - first))
            return turns, np.clip(at - turns * (last - first), first, last)
        if len(at) and not (first <= at.min() and at.max() <= last):
            raise InvalidInput(
                f"the trace of intensity is from {first:g} to {last:g} s on the clock of the jobs, which need "
                f"{at.min():g} to {at.max():g} s: give a longer one, or one in seconds, which begins again at its end"
            )
        return np.zeros_like(at), at

    def _places(self, within: Floats) -> npt.NDArray[np.intp]:
        places: npt.NDArray[np.intp] = np.searchsorted(self.times, within, side="right") - 1
        return np.minimum(places, len(self.g_per_kwh) - 1)
