from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.event import Believed, Learned
from asa.core.geometry import geometry_of
from asa.core.registry import ESTIMATORS
from asa.dashboard.beliefs import Beliefs, beliefs
from asa.estimators.waits import Waits
from asa.log.database import LearnedStore

HERE = geometry_of("here", "core", 16, 1800.0)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["fixed-share", "algorithm1:sampling=tuned"])
def test_the_distribution_is_the_estimators(tmp_path: Path, spec: str) -> None:
    tmp_path.chmod(0o700)
    store = LearnedStore(tmp_path / "learned.db")
    waits = Waits(store, spec)
    for number in range(40):
        waits.learn(HERE, f"job-{number}", 600.0)
    waits.learn(geometry_of("there", "core", 16, 1800.0), "other", 5.0)
    (row,) = beliefs(tmp_path / "learned.db", "here", "core")
    store.close()
    assert (row["geometry"], row["jobs"], row["last_wait_s"]) == (str(HERE), 40, 600.0)
    likeliest = max(row["weights"], key=lambda pair: pair[1])
    assert 300 < likeliest[0] < 1200
    assert sum(weight for _, weight in row["weights"]) == pytest.approx(1.0, abs=0.05)
    assert row["predicted_s"] is not None


def test_where_nothing_was_learned_nothing_is_made(tmp_path: Path) -> None:
    assert beliefs(tmp_path / "learned.db", "here", "core") == []
    assert not (tmp_path / "learned.db").exists()


def test_estimators_without_weights_have_their_prediction(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store = LearnedStore(tmp_path / "learned.db")
    Waits(store, "last").learn(HERE, "job", 70.0)
    (row,) = beliefs(tmp_path / "learned.db", "here", "core")
    store.close()
    assert (row["weights"], row["predicted_s"]) == ([], 70.0)


def lesson(number: int, wait_s: float, **more: Any) -> Learned:
    return Learned(float(number), f"job-{number}", "a", wait_s, **more)


def test_what_is_logged_is_believed_until_something_else_is() -> None:
    told = Beliefs("fixed-share")
    assert not told.told and told.table() == {}
    told.believe(Believed(1.0, "s/core/16/1h", "fixed-share", 3, 60.0, 50.0, ((50.0, 0.75), (60.0, 0.25))))
    told.believe(Believed(2.0, "s/core/32/1h", "fixed-share"))
    told.believe(Believed(3.0, "s/core/16/1h", "fixed-share", 4, 90.0, 60.0, ((60.0, 1.0),)))
    assert told.told
    assert told.table()["s/core/16/1h"] == {
        "geometry": "s/core/16/1h",
        "estimator": "fixed-share",
        "jobs": 4,
        "last_wait_s": 90.0,
        "predicted_s": 60.0,
        "weights": [[60.0, 1.0]],
        "at": 3.0,
        "replayed": False,
    }
    assert told.table()["s/core/32/1h"]["jobs"] == 0


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.booleans()), max_size=8))
def test_a_log_that_does_not_tell_is_replayed_with_its_own_waits(waits: list[tuple[float, bool]]) -> None:
    told, alone = Beliefs("fixed-share"), ESTIMATORS.create("fixed-share", seed=0)
    for number, (wait_s, censored) in enumerate(waits):
        told.learn("s/core/16/1h", lesson(number, wait_s, censored=censored), None)
        if not censored:
            alone.learn(wait_s)
    taught = [wait_s for wait_s, censored in waits if not censored]
    assert told.table() == {}
    if not taught:
        assert told.replay() == {}
        return
    (row,) = told.replay().values()
    assert (row["jobs"], row["replayed"]) == (len(taught), True)
    assert row["predicted_s"] == pytest.approx(alone.predict(), abs=1e-3)
    assert row["last_wait_s"] == pytest.approx(taught[-1], abs=1e-3)
    assert sum(weight for _, weight in row["weights"]) == pytest.approx(1.0, abs=0.06)


def test_geometries_are_replayed_apart() -> None:
    told = Beliefs("last")
    told.learn("s/core/16/1h", lesson(1, 60.0), None)
    told.learn("s/core/32/1h", lesson(2, 900.0), None)
    assert {name: row["predicted_s"] for name, row in told.replay().items()} == {
        "s/core/16/1h": 60.0,
        "s/core/32/1h": 900.0,
    }


def test_of_a_pooled_estimator_there_is_what_it_said() -> None:
    told = Beliefs("leader")
    told.learn("s/core/16/1h", lesson(1, 60.0, predicted_s=45.0), Context(0.0, 16))
    (row,) = told.replay().values()
    assert (row["predicted_s"], row["weights"], row["last_wait_s"]) == (45.0, [], 60.0)


def test_where_the_log_does_not_say_which_estimator_nothing_is_made_up() -> None:
    told = Beliefs(None)
    told.learn("s/core/16/1h", lesson(1, 60.0), None)
    assert told.replay() == {}
