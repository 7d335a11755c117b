"""What was learned about queue waits: one estimator per geometry, kept in the store between jobs and between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asa.core.errors import InvalidInput, StateError
from asa.core.geometry import Geometry
from asa.core.ports import Estimator
from asa.core.registry import ESTIMATORS, Registry, parse_spec
from asa.estimators.checks import check_wait
from asa.log.store import LearnedStore, Record

_PREFIX = "waits "


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
    """

    geometry: Geometry
    jobs: int
    last_wait_s: float | None
    predictions: Mapping[str, float | None]


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
        self, store: LearnedStore, estimator: str = "fixed-share", seed: int = 0, *, registry: Registry = ESTIMATORS
    ) -> None:
        self._store, self._seed, self._registry = store, seed, registry
        self._spec = _canonical(estimator)
        self._build(self._spec)

    def predict(self, geometry: Geometry) -> float:
        """The wait to plan with [s]."""
        prediction = 0.0

        def change(record: Record | None) -> Record | None:
            nonlocal prediction
            estimator = self._restored(geometry, self._spec, record)
            before = estimator.state()
            prediction = estimator.predict()
            after = estimator.state()
            return record if after == before else _with_state(record, self._spec, after)

        self._store.update(_PREFIX + str(geometry), change)
        return prediction

    def learn(self, geometry: Geometry, token: str, wait_s: float, predicted_s: float | None = None) -> bool:
        """The job `token` waited `wait_s` [s]; whether that was news: each job teaches once.

        Parameters
        ----------
        predicted_s
            What `predict` had said for it [s], or None when it was not asked.

        Raises
        ------
        InvalidInput
            When the wait is negative or not finite.
        """
        wait_s = check_wait(wait_s)

        def change(record: Record | None) -> Record:
            estimator = self._restored(geometry, self._spec, record)
            estimator.learn(wait_s, predicted_s)
            jobs = (record or {}).get("jobs", 0) + 1
            return _with_state(record, self._spec, estimator.state()) | {"jobs": jobs, "last_wait_s": wait_s}

        return self._store.learn_once(_PREFIX + str(geometry), token, change)

    def table(self) -> list[WaitRow]:
        """All that was learned, by geometry. Asking teaches nothing and draws nothing."""
        rows = []
        for key in self._store.keys(_PREFIX):
            record, geometry = self._store.get(key) or {}, Geometry.parse(key.removeprefix(_PREFIX))
            predictions = {spec: self._peek(geometry, spec, record) for spec in record.get("states", {})}
            rows.append(WaitRow(geometry, record.get("jobs", 0), record.get("last_wait_s"), predictions))
        return sorted(rows, key=lambda row: row.geometry)

    def _peek(self, geometry: Geometry, spec: str, record: Record) -> float | None:
        try:
            return self._restored(geometry, spec, record).predict()
        except (InvalidInput, StateError):
            return None

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


def _with_state(record: Record | None, spec: str, state: dict[str, Any]) -> Record:
    record = record or {}
    return record | {"states": record.get("states", {}) | {spec: state}}
