"""What users request: models of requested times for jobs whose run times are known."""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.traces.modal import modal

MINUTE = 60.0


def requested(model: str, run: Floats, rng: np.random.Generator) -> Floats:
    """Requested times [s] for run times [s], shape (n,); never shorter than the run.

    Parameters
    ----------
    model
        ``exact``: the run time itself (at least 1 s). ``uniform:F``: run time times a number drawn evenly from [1, F],
        rounded up to whole minutes. ``modal`` or ``modal:HOURS``: few round values, as users choose them, with HOURS as
        the longest that may be requested (default: the longest run, rounded up to whole hours).
    run
        Run times [s], shape (n,); >= 0.

    Raises
    ------
    InvalidInput
        When the model is not known or its number not in bounds (F >= 1, HOURS >= 1).

    References
    ----------
    ``uniform`` is the "f-model" of Feitelson and Mu'alem Weil, IPPS/SPDP 1998, drawn evenly as is usual since; whole
    minutes are how people ask. ``modal``: see `asa.lab.traces.modal`.

    Examples
    --------
    >>> requested("uniform:5", np.array([600.0, 10.0]), np.random.default_rng(1)).tolist()
    [1860.0, 60.0]
    """
    name, _, argument = model.partition(":")
    if name == "exact" and not argument:
        return np.maximum(run, 1.0)
    if name == "uniform":
        factor = _number(model, argument)
        asked = run * rng.uniform(1.0, factor, len(run))
        return np.maximum(np.ceil(asked / MINUTE), 1.0) * MINUTE
    if name == "modal":
        longest = _number(model, argument) * 3600 if argument else None
        return modal(run, rng, longest)
    raise UnknownName("model of requested times", model, ("exact", "uniform:F", "modal", "modal:HOURS"))


def _number(model: str, argument: str) -> float:
    try:
        number = float(argument)
    except ValueError:
        number = np.nan
    if not 1 <= number < np.inf:
        raise InvalidInput(
            f"model of requested times {model!r}: a number of at least 1 expected after the colon, as in uniform:5"
        )
    return number
