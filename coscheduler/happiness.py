"""Happiness: is a job fast enough to end within its wall time?"""

from __future__ import annotations

import math

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import UnknownName

FORMS = ("rate", "literal")

HORIZON_S = 300.0
"""Time constant of the averages that monitoring keeps [s]."""


def happiness(walltime_s: Floats, elapsed_s: Floats, remaining: Floats, rate: Floats, form: str = "rate") -> Floats:
    """Hp(t) of jobs, shape (n,); 1 or more where the wall time will be met if nothing changes.

    Parameters
    ----------
    walltime_s, elapsed_s
        Wall time, and time since the start [s].
    remaining
        Tasks that are left, or any other measure of work, >= 0.
    rate
        Tasks done per second, an average of the last minutes; >= 0.
    form
        ``"rate"``: time left per task left, times the rate; infinite where no task is left, else 0 once the wall time
        is over. ``"literal"``: the paper's equation (1), Hp(t) = abs(t_walltime - t) * remaining tasks / (tasks per
        second). It has the unit s², grows with the work that is left and falls with speed, which is the opposite of
        what the text below it says; here to be compared with.

    References
    ----------
    ASA_X, section 3.1, equation (1).

    Examples
    --------
    >>> one = np.ones(1)
    >>> happiness(100 * one, 50 * one, 20 * one, 0.5 * one).item()  # 50 s left for 20 tasks of 2 s
    1.25
    >>> happiness(100 * one, 50 * one, 20 * one, 0.5 * one, "literal").item()
    2000.0
    """
    if form == "literal":
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.abs(walltime_s - elapsed_s) * remaining / rate
        return np.where(remaining > 0, np.where(rate > 0, found, np.inf), 0.0)
    if form != "rate":
        raise UnknownName("form of happiness", form, FORMS)
    left_s = np.maximum(walltime_s - elapsed_s, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(remaining > 0, left_s / remaining * rate, np.inf)


def smoothed(average: float, value: float, over_s: float, horizon_s: float = HORIZON_S) -> float:
    """The average after a time `over_s` [s] at this `value`: what is `horizon_s` ago counts 1/e.

    An average that is NaN begins with the value.

    >>> smoothed(1.0, 0.0, 300.0) == math.exp(-1)
    True
    """
    return value if math.isnan(average) else value + (average - value) * math.exp(-over_s / horizon_s)
