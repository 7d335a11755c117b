from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

import asa.lab.training.compact as compact
from asa.core.errors import InvalidInput
from asa.lab.dispatchers.learned.compact import Compact
from asa.lab.simulator.run import simulate
from asa.lab.training.compact import Options, Point, Trained, train
from tests.lab.training.workloads import MACHINE, busy


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is small."""
    for name, value in {
        "ENVIRONMENTS": 2, "STEPS": 32, "BATCH": 32, "PIECES": 2, "LESSONS": 60, "LESSON_PASSES": 2, "VALIDATIONS": 2,
        "EVERY": 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(compact, name, value)


def trained(**options: float) -> Trained:
    return train(busy(120), busy(60, 1), MACHINE, Options(window=6, **options))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_a_seed_gives_a_network(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    options = Options(steps=128, seed=1, window=6)
    first = train(busy(120), busy(60, 1), MACHINE, options, progress=lambda *done: told.append(done))
    second, other = trained(steps=128, seed=1), trained(steps=128, seed=2)
    assert [point.steps for point in first.curve] == [0, 64, 128] and told == [(0, 128), (64, 128), (128, 128)]
    best = min(first.curve, key=lambda point: point.score)
    for name, values in first.network.tensors.items():
        assert np.array_equal(values, second.network.tensors[name])
    assert not np.array_equal(first.network.tensors["first.weight"], other.network.tensors["first.weight"])
    first.network.save(tmp_path / "m")
    judge = compact.Validation(busy(60, 1), MACHINE, options)
    again = judge.point(first.network.tensors, best.steps, best.seconds)
    assert again == best
    assert np.isfinite(simulate(busy(60), MACHINE, Compact(str(tmp_path / "m"))).start).all()
    told_of = first.to_json()
    assert told_of["seed"] == 1 and len(told_of["curve"]) == 3 and 0 <= told_of["agreement"] <= 1


@pytest.mark.usefixtures("short")
def test_imitation_alone() -> None:
    found = trained(steps=0)
    assert [point.steps for point in found.curve] == [0]
    assert np.isfinite(simulate(busy(60), MACHINE, Compact(found.network)).start).all()


def test_long_waits_count_against_a_network() -> None:
    assert Point(0, 0.0, 0.8, 0.6, 1.0).score == pytest.approx(0.7)
    assert Point(0, 0.0, 0.8, 0.6, 1.3).score == pytest.approx(0.9)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="-1 steps"):
        Options(steps=-1)
    with pytest.raises(InvalidInput, match="late=-1"):
        Options(late=-1)
    with pytest.raises(InvalidInput, match="no job of the log waits"):
        train(busy(120), busy(2), MACHINE, Options(steps=0))
