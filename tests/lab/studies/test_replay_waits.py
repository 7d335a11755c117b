from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.estimators.baselines import Last
from asa.estimators.fixedshare import FixedShare
from asa.lab.studies.accuracy import Probe, foretell
from asa.lab.studies.replay_waits import replay
from asa.lab.studies.waits_seen import Record


def job(size: int, submitted: float, wait: float) -> Record:
    return Record(size, submitted, wait, Context(at=submitted, cores=size, backlog_s=submitted))


class Spy:
    """Remembers what it was taught, and says how much that was."""

    made: list[Spy]

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.taught: list[tuple[float, float | None, Context | None]] = []
        self.made.append(self)

    def predict(self, context: Context | None = None, quantile: float | None = None) -> float:
        return len(self.taught) + (quantile or 0.0)

    def learn(self, wait_s: float, predicted_s: float | None = None, context: Context | None = None) -> None:
        self.taught.append((wait_s, predicted_s, context))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


@pytest.fixture
def spy() -> type[Spy]:
    return type("Fresh", (Spy,), {"made": []})


jobs = st.lists(st.tuples(st.integers(4, 6), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=30)


@given(jobs)
def test_each_size_is_foretold_as_if_it_were_alone(rows: list[tuple[int, int, int]]) -> None:
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    found = replay(lambda seed: FixedShare(seed=seed), records)
    for size in {record.size for record in records}:
        probes = [Probe(record.submitted, record.wait_s) for record in records if record.size == size]
        assert found.predicted[found.sizes == size].tolist() == foretell(FixedShare(), probes)[0].tolist()


@given(jobs)
def test_nothing_is_learned_before_it_has_happened(rows: list[tuple[int, int, int]]) -> None:
    pooled = type("Pooled", (Spy,), {"made": [], "pooled": True})
    records = [job(*row) for row in sorted(rows, key=lambda row: row[1])]
    made = replay(pooled, records).predicted
    for place, record in enumerate(records):
        assert made[place] == sum(other.started <= record.submitted for other in records[:place])


def test_waits_are_learned_with_their_predictions_and_the_contexts_of_their_submissions(spy: type[Spy]) -> None:
    records = [job(4, 0, 500), job(4, 10, 20), job(4, 40, 7), job(4, 600, 0)]
    replay(spy, records)
    assert spy.made[0].taught == [
        (20, 0.0, records[1].context),
        (7, 1.0, records[2].context),
        (500, 0.0, records[0].context),
    ]


def test_sizes_have_estimators_of_their_own_with_seeds_of_their_own(spy: type[Spy]) -> None:
    records = [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)]
    replay(spy, records, seed=1)
    assert [len(each.taught) for each in spy.made] == [2, 1]
    seeds = [each.seed for each in spy.made]
    assert len(set(seeds)) == 2
    replay(spy, records, seed=1)
    replay(spy, records, seed=2)
    assert [each.seed for each in spy.made[2:4]] == seeds
    assert not {each.seed for each in spy.made[4:]} & set(seeds)


def test_a_pooled_estimator_learns_from_all_sizes(spy: type[Spy]) -> None:
    spy.pooled = True  # type: ignore[attr-defined]
    replay(spy, [job(4, 0, 1), job(8, 10, 1), job(4, 20, 1), job(8, 30, 1)])
    assert [len(each.taught) for each in spy.made] == [3]


def test_quantiles_are_asked_for_beside_the_prediction(spy: type[Spy]) -> None:
    found = replay(spy, [job(4, 0, 5), job(4, 10, 5)], quantiles=(0.25, 0.5))
    assert found.predicted.tolist() == [0.0, 1.0]
    assert found.quantile_predicted.tolist() == [[0.25, 0.5], [1.25, 1.5]]


def test_the_first_jobs_of_each_size_can_be_left_out() -> None:
    records = [job(4, 0, 1), job(8, 1, 2), job(4, 2, 3), job(4, 3, 4), job(8, 4, 5)]
    found = replay(lambda seed: Last(seed=seed), records).later(1)
    assert found.waits.tolist() == [3, 4, 5]
    assert [part.waits.tolist() for part in found.by_size()] == [[3, 4], [5]]
    assert found.later(2).by_size() == []


def test_jobs_must_come_in_order() -> None:
    with pytest.raises(InvalidInput, match="job 1 was submitted before"):
        replay(lambda seed: Last(seed=seed), [job(4, 5, 1), job(4, 4, 1)])


def test_no_jobs_no_predictions() -> None:
    assert len(replay(lambda seed: Last(seed=seed), [], quantiles=(0.5,)).predicted) == 0
