from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.geometry import geometry_of
from asa.dashboard.beliefs import beliefs
from asa.estimators.waits import Waits
from asa.log.store import LearnedStore

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
