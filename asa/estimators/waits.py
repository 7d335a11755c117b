"""What was learned about queue waits, kept in the store between jobs and between runs.

There is one estimator for each geometry or, of pooled ones, for each queue: site and partition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asa.core.context import WALLTIME_CLASSES, Context, Geometry
from asa.core.errors import InvalidInput, StateError
from asa.core.ports import Estimator, RecordStore
from asa.core.registry import ESTIMATORS, Registry, parse_spec
from asa.estimators.checks import check_positive, check_wait
from asa.log.database import Record

_PREFIX, _POOLED = "waits ", "pooled waits "
_LONGER_S = 2 * WALLTIME_CLASSES["3d"]  # what stands for wall times of the class that has no longest one


@dataclass(frozen=True, slots=True)
class WaitRow:
    """What is known of one geometry.

    Parameters
    ----------
    geometry
        Which.
    jobs
        How many jobs taught it.
    last_wait_s
        Wait of the last of them [s], or None.
    predictions
        What each estimator that was taught says now [s], by its spec; None for one that is not installed any more.
    asked_s
        The shortest and the longest wall time that these jobs asked for [s]; None where that was not noted.
    """

    geometry: Geometry
    jobs: int
    last_wait_s: float | None
    predictions: Mapping[str, float | None]
    asked_s: tuple[float, float] | None = None


class Waits:
    """Predicts a job's wait from its like, and learns from each job that started.

    Parameters
    ----------
    store
        Where states are kept, shared by all runs.
    estimator
        Spec of the estimator, ``fixed-share`` or ``algorithm1:sampling=tuned``; each set of options learns for itself.
    seed
        Seed of estimators that sample. A generator's state is kept with the rest, so no draw is repeated.
    registry
        Where the estimator's name is looked up.

    Raises
    ------
    UnknownName
        When there is no such estimator, or it has no such option.
    """

    def __init__(
        self, store: RecordStore, estimator: str = "fixed-share", seed: int = 0, *, registry: Registry = ESTIMATORS
    ) -> None:
        self._store, self._seed, self._registry = store, seed, registry
        self._spec = _canonical(estimator)
        self._pooled = bool(getattr(self._build(self._spec), "pooled", False))
        self._kept: dict[str, tuple[dict[str, Any] | None, Estimator]] = {}  # by key: a state, and what has it

    def predict(
        self, geometry: Geometry, context: Context | None = None, quantiles: Sequence[float | None] = (None,)
    ) -> list[float]:
        """Waits to plan with [s], one for each quantile. Nobody is kept waiting, unless the estimator draws.

        Parameters
        ----------
        geometry
            Of the job.
        context
            What is known of the job and its queue; all by which pooled estimators tell jobs apart.
        quantiles
            Of the wait, in (0, 1); None for the estimator's own choice.
        """
        said: list[float] = []
        key = self._key(geometry)

        def ask(record: Record | None) -> Record | None:
            estimator = self._at_hand(geometry, record)
            before, known, now = estimator.state(), (record or {}).get("known_at", -math.inf), context
            if now is not None and now.at < known:  # virtual time begins anew with each run; what was learned is known
                now = replace(now, at=known)
            said[:] = [float(estimator.predict(now, quantile)) for quantile in quantiles]
            after = estimator.state()
            if after != before:
                return _with_state(record, self._spec, after)
            self._kept[key] = self._state(record), estimator
            return record

        record = self._store.get(key)
        if ask(record) is not record:  # it draws: once more, where no other process can draw the same
            self._store.update(key, ask)
        return said

    def lessons(self, geometry: Geometry) -> int:
        """How many jobs have taught it of this geometry or, where it is pooled, of this queue."""
        if self._spec not in (self._store.get(self._key(geometry)) or {}).get("states", {}):
            return 0
        keys = [_PREFIX + str(geometry)]
        if self._pooled:
            names = (key.removeprefix(_PREFIX) for key in self._store.keys(_PREFIX))
            keys = [_PREFIX + name for name in names if _queue(Geometry.parse(name)) == _queue(geometry)]
        return sum((self._store.get(key) or {}).get("jobs", 0) for key in keys)

    def learn(
        self,
        geometry: Geometry,
        token: str,
        wait_s: float,
        predicted_s: float | None = None,
        context: Context | None = None,
        walltime_s: float | None = None,
    ) -> bool:
        """The job `token` waited `wait_s` [s]; whether that was news: each job teaches once.

        Parameters
        ----------
        predicted_s
            What `predict` had said for it [s], or None when it was not asked.
        context
            What was known when the job was submitted.
        walltime_s
            The wall time that it asked for [s], which `table` shows; nothing is learned by it.

        Raises
        ------
        InvalidInput
            When the wait is negative or not finite.
        """
        wait_s = check_wait(wait_s)

        def change(record: Record | None) -> Record:
            estimator = self._at_hand(geometry, record)
            estimator.learn(wait_s, predicted_s, context)
            state = estimator.state()
            self._kept[self._key(geometry)] = state, estimator
            return _with_state(record, self._spec, state)

        def pool(record: Record | None) -> Record:
            known = (record or {}).get("known_at", 0.0)
            return change(record) | {"known_at": known if context is None else max(known, context.at + wait_s)}

        def count(record: Record | None) -> Record:
            record = record or {}
            asked = [*record.get("asked_s", []), *([] if walltime_s is None else [walltime_s])]
            known = {"asked_s": [min(asked), max(asked)]} if asked else {}
            return record | {"jobs": record.get("jobs", 0) + 1, "last_wait_s": wait_s} | known

        key = _PREFIX + str(geometry)
        if not self._pooled:
            return self._store.learn_once(key, token, lambda record: count(change(record)))
        news = self._store.learn_once(self._key(geometry), token, pool)
        self._store.learn_once(key, token, count)
        return news

    def table(self) -> list[WaitRow]:
        """All that was learned, by geometry. Asking teaches nothing and draws nothing.

        Pooled estimators say what they would of a job of the longest wall time that was asked for, or of the class,
        submitted when the last wait became known, knowing nothing of the queue.
        """
        rows = []
        for key in self._store.keys(_PREFIX):
            if (record := self._store.get(key)) is None:  # it is damaged
                continue
            geometry = Geometry.parse(key.removeprefix(_PREFIX))
            predictions = {spec: self._peek(geometry, spec, record) for spec in record.get("states", {})}
            pool = self._store.get(_POOLED + _queue(geometry)) or {}
            asked = (record["asked_s"][0], record["asked_s"][1]) if "asked_s" in record else None
            job = Context(pool.get("known_at", 0.0), geometry.cores, asked[1] if asked else _longest(geometry))
            predictions |= {spec: self._peek(geometry, spec, pool, job) for spec in pool.get("states", {})}
            rows.append(WaitRow(geometry, record.get("jobs", 0), record.get("last_wait_s"), predictions, asked))
        return sorted(rows, key=lambda row: row.geometry)

    def _key(self, geometry: Geometry) -> str:
        return _POOLED + _queue(geometry) if self._pooled else _PREFIX + str(geometry)

    def _peek(self, geometry: Geometry, spec: str, record: Record, context: Context | None = None) -> float | None:
        try:
            return self._restored(geometry, spec, record).predict(context)
        except (InvalidInput, StateError):
            return None

    def _state(self, record: Record | None) -> dict[str, Any] | None:
        found: dict[str, Any] | None = (record or {}).get("states", {}).get(self._spec)
        return found

    def _at_hand(self, geometry: Geometry, record: Record | None) -> Estimator:
        """The stored estimator: the one used last, unless another process has changed the record since.

        One that is not restored need not make anew what follows from its state, such as trees.
        """
        state, estimator = self._kept.pop(self._key(geometry), (None, None))
        if estimator is not None and state == self._state(record):
            return estimator
        return self._restored(geometry, self._spec, record)

    def _restored(self, geometry: Geometry, spec: str, record: Record | None) -> Estimator:
        estimator = self._build(spec)
        if state := (record or {}).get("states", {}).get(spec):
            try:
                estimator.restore(state)
            except InvalidInput as error:
                raise StateError(
                    f"what {spec} learned about {geometry} cannot be used: {error}. Choose other options, so that it "
                    "learns anew beside it"
                ) from error
        return estimator

    def _build(self, spec: str) -> Estimator:
        estimator: Estimator = self._registry.create(spec, seed=self._seed)
        return estimator


def _canonical(spec: str) -> str:
    """The spec with its options in order, so that one set of options has one state."""
    name, options = parse_spec(spec)
    text = ",".join(f"{key}={value}" for key, value in sorted(options.items()))
    return f"{name}:{text}" if text else name


def _queue(geometry: Geometry) -> str:
    return str(geometry).rsplit("/", 2)[0]


def _longest(geometry: Geometry) -> float:
    return min(WALLTIME_CLASSES[geometry.walltime_class], _LONGER_S)


def _with_state(record: Record | None, spec: str, state: dict[str, Any]) -> Record:
    record = record or {}
    return record | {"states": record.get("states", {}) | {spec: state}}


class StageTimes:
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

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def predict(self, key: str, walltime_s: float) -> float:
        walltime_s = check_positive(walltime_s, "walltime_s")
        last: list[float] = (self._store.get(_record(key)) or {}).get("last", [])
        return min(walltime_s, sum(last) / len(last)) if last else walltime_s

    def learn(self, key: str, run_time_s: float) -> None:
        newest = check_wait(run_time_s, "run_time_s")

        def change(record: dict[str, Any] | None) -> dict[str, Any]:
            return {"last": [*(record or {}).get("last", []), newest][-2:]}

        self._store.update(_record(key), change)


def _record(key: str) -> str:
    return f"runtime {key}"
