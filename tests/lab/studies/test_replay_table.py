from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asa.core.context import Context
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.studies.replay_table import SPANS, Table, tabulate
from asa.lab.studies.waits_seen import Record


def log(seed: int, jobs: int = 120, scale: float = 1.0) -> list[Record]:
    """Waits of two sizes that follow a level, submitted so seldom that each is known to the next job."""
    rng = np.random.default_rng(seed)
    level = np.exp(np.cumsum(rng.normal(0.0, 0.3, jobs)) + 6.0)
    return [
        Record(4 if k % 2 else 8, 1e6 * k, scale * float(level[k]), Context(at=1e6 * k, cores=4 if k % 2 else 8))
        for k in range(jobs)
    ]


@pytest.fixture(scope="module")
def found() -> Table:
    logs = {"one": log(0), "two": log(1)}
    return tabulate(logs, ["zero", "median", "fixed-share", "algorithm1"], seeds=2, warmup=10)


def test_there_is_a_row_for_each_log_and_estimator_the_last_wait_first(found: Table) -> None:
    names = ["last", "zero", "median", "fixed-share", "algorithm1"]
    assert [(row.trace, row.estimator) for row in found.rows] == [
        (log, name) for log in ("one", "two") for name in names
    ]
    assert list(found.overall) == names


def test_relative_errors_are_those_of_the_scores(found: Table) -> None:
    last = found.rows[0].mean("mae_h")
    for row in found.rows[:5]:
        assert row.relative.value == pytest.approx(row.mean("mae_h") / last)
        assert row.errors.shape == (SPANS, 2)
    assert found.rows[0].relative.value == found.rows[0].relative.high == 1.0


def test_intervals_hold_the_values(found: Table) -> None:
    for estimate in [row.relative for row in found.rows] + list(found.overall.values()):
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high


def test_the_mean_over_logs_is_geometric(found: Table) -> None:
    ratios = [row.relative.value for row in found.rows if row.estimator == "zero"]
    assert found.overall["zero"].value == pytest.approx(np.sqrt(ratios[0] * ratios[1]))


def test_ratios_do_not_depend_on_the_unit_of_time() -> None:
    once, twice = (tabulate({"log": log(3, scale=scale)}, ["zero"], warmup=10) for scale in (1.0, 2.0))
    assert once.overall["zero"].value == pytest.approx(twice.overall["zero"].value)


def test_only_estimators_that_draw_have_several_seeds(found: Table) -> None:
    assert {row.estimator: len(row.seeds) for row in found.rows} == {
        "last": 1,
        "zero": 1,
        "median": 1,
        "fixed-share": 1,
        "algorithm1": 2,
    }
    drawn = next(row for row in found.rows if row.estimator == "algorithm1")
    assert drawn.seeds[0] != drawn.seeds[1]
    assert drawn.mean("mae_h") == pytest.approx(np.mean([each.mae_h for each in drawn.seeds]))


def test_calibration_is_told_of_those_that_heed_quantiles(found: Table) -> None:
    told = {row.estimator: row.means("calibration") for row in found.rows}
    assert told["last"] is None
    assert told["algorithm1"] is None


def test_in_words_and_as_json(found: Table) -> None:
    text = found.text()
    assert "one: 100 jobs, means over 2 sizes" in text
    assert "geometric mean over 2 logs" in text
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert len(data["rows"]) == 10
    assert data["overall"]["last"]["value"] == 1.0
    assert data["rows"][4]["seeds"][1]["mae_h"] > 0


def test_it_can_be_drawn(found: Table, tmp_path: Path) -> None:
    found.draw(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 10_000
    with pytest.raises(InvalidInput, match=r"cannot be written: end the name with \.png"):
        found.draw(tmp_path / "errors.doc")


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidInput, match="0 logs"):
        tabulate({}, ["last"])
    with pytest.raises(InvalidInput, match="0 seeds"):
        tabulate({"log": log(0)}, ["last"], seeds=0)
    with pytest.raises(UnknownName, match="medain"):
        tabulate({"log": log(0)}, ["medain"])
    with pytest.raises(InvalidInput, match="more than the 200 jobs"):
        tabulate({"log": log(0)}, ["last"])


def test_whoever_waits_is_told_what_comes_next() -> None:
    told: list[tuple[str, str]] = []
    tabulate({"log": log(0)}, ["zero"], warmup=10, progress=lambda trace, name: told.append((trace, name)))
    assert told == [("log", "last"), ("log", "zero")]
