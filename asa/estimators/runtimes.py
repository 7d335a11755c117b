"""How long a stage will run, from how long it ran before."""

from __future__ import annotations

from typing import Any

from asa.estimators.checks import check_positive, check_wait
from asa.log.database import LearnedStore


class LastTwo:
    """Mean of a key's last two run times; the wall time while none is known.

    Parameters
    ----------
    store
        Where run times are kept, shared by all runs.

    References
    ----------
    D. Tsafrir, Y. Etsion and D. Feitelson, Backfilling Using System-Generated Predictions Rather Than User Runtime
    Estimates, IEEE TPDS 18 (2007). As there, a prediction is capped at the wall time; unlike there, run times are kept
    per stage instead of per user, and one is enough to predict from.
    """

    def __init__(self, store: LearnedStore) -> None:
        self._store = store

    def predict(self, key: str, walltime_s: float) -> float:
        """Expected run time [s], at most `walltime_s` [s].

        Raises
        ------
        InvalidInput
            When the wall time is not positive.
        """
        walltime_s = check_positive(walltime_s, "walltime_s")
        last: list[float] = (self._store.get(_record(key)) or {}).get("last", [])
        return min(walltime_s, sum(last) / len(last)) if last else walltime_s

    def learn(self, key: str, run_time_s: float) -> None:
        """`key` ran for `run_time_s` [s].

        Raises
        ------
        InvalidInput
            When the run time is negative or not finite.
        """
        newest = check_wait(run_time_s, "run_time_s")

        def change(record: dict[str, Any] | None) -> dict[str, Any]:
            return {"last": [*(record or {}).get("last", []), newest][-2:]}

        self._store.update(_record(key), change)


def _record(key: str) -> str:
    return f"runtime {key}"
