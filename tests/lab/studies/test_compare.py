from __future__ import annotations

import json
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.studies.compare import Comparison, compare
from asa.lab.studies.compare_row import Row
from asa.lab.studies.paper_figures import read_rows
from tests.lab.studies.queues import small_site

pytestmark = pytest.mark.slow

FILE = """
import asa

@asa.stage(cores=16, walltime="1h", run_time="20m")
def wide(x): raise AssertionError("nothing is computed")

@asa.stage(cores=2, walltime="1h", run_time="10m")
def narrow(xs): raise AssertionError("nothing is computed")

def workflow(cores=16): return narrow(wide.options(cores=cores).map(range(cores)))
def chain(): return narrow(narrow(1))
def fork(cores=8): return narrow([wide.options(cores=cores).map(range(cores)), wide.options(cores=2 * cores)(1)])
"""
QUICK = {"warmup": 2.0, "days": 4.0, "learning": 1.0, "every_s": 3600.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("flow") / "flow.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture(scope="module")
def found(file: str) -> Comparison:
    return compare(
        file, systems=[small_site(load=0.95)], cores=[8, 16], seeds=4, regimes=["fifo", "limits"], table2=True, **QUICK
    )


def rows_of(found: Comparison, regime: str, strategy: str) -> dict[tuple[int, int], Row]:
    rows = {(row.cores, row.seed): row for row in found.rows if (row.regime, row.strategy) == (regime, strategy)}
    assert rows, f"no rows of {strategy} under {regime}"
    return rows


def test_there_is_a_row_for_every_combination(found: Comparison) -> None:
    keys = {(row.regime, row.cores, row.strategy, row.seed) for row in found.rows}
    assert len(keys) == len(found.rows) == 2 * 2 * 5 * 4
    assert {row.strategy for row in found.rows} == {"big-job", "per-stage", "asa", "asa-naive", "oracle"}
    assert {(row.system, row.workflow) for row in found.rows} == {("small", "flow")}


def test_a_rows_numbers_fit_together(found: Comparison) -> None:
    for row in found.rows:
        assert row.makespan_s == pytest.approx(sum(stage.wait_s + stage.run_time_s for stage in row.stages))
        assert row.total_wait_s == pytest.approx(sum(stage.wait_s for stage in row.stages))
        assert row.overhead_core_hours <= row.core_hours
        exact = (row.cores * 1200 + 2 * 600) / 3600
        if row.strategy in ("per-stage", "asa", "oracle"):
            assert row.core_hours == pytest.approx(exact)
        elif row.strategy == "big-job":
            assert row.core_hours == pytest.approx(row.cores * 1800 / 3600)
        else:
            assert row.core_hours == pytest.approx(exact + row.overhead_core_hours)


def test_stages_that_wait_together_are_counted_once_for_the_oracle_as_for_others(file: str) -> None:
    asked = {"cores": [8], "strategies": ["per-stage"], "regimes": ["limits"], "seeds": 6, **QUICK}
    found = compare(f"{file}:fork", systems=[small_site(load=0.95)], **asked)
    pairs = {row.seed: row for row in found.rows if row.strategy == "oracle"}
    for row in found.rows:
        assert row.total_wait_s <= sum(stage.wait_s for stage in row.stages)
        assert pairs[row.seed].makespan_s <= row.makespan_s * 1.01
    assert any(row.total_wait_s < sum(stage.wait_s for stage in row.stages) - 1 for row in pairs.values())


def test_jobs_wait_here_and_strategies_differ(found: Comparison) -> None:
    waits = [row.total_wait_s for row in rows_of(found, "fifo", "per-stage").values()]
    assert max(waits) > 600
    where = [place for place, row in rows_of(found, "fifo", "per-stage").items() if row.stages[1].wait_s > 600]
    assert where
    ageing, reference = rows_of(found, "fifo", "asa"), rows_of(found, "fifo", "per-stage")
    assert all(ageing[place].makespan_s < reference[place].makespan_s for place in where)


def test_runs_are_compared_in_pairs(found: Comparison) -> None:
    """The first stage's job is the same under all strategies that ask for it at once."""
    for strategy in ("asa", "asa-naive", "oracle"):
        for place, row in rows_of(found, "limits", strategy).items():
            assert row.stages[0].wait_s == pytest.approx(
                rows_of(found, "limits", "per-stage")[place].stages[0].wait_s, abs=1.0
            )


def test_without_ageing_dependent_jobs_gain_nothing(found: Comparison) -> None:
    for place, row in rows_of(found, "limits", "asa").items():
        assert row.makespan_s >= rows_of(found, "limits", "per-stage")[place].makespan_s * 0.95


def test_nobody_who_holds_no_idle_core_does_much_better_than_the_oracle(found: Comparison) -> None:
    for regime in ("fifo", "limits"):
        for strategy in ("per-stage", "asa"):
            total = sum(row.makespan_s for row in rows_of(found, regime, strategy).values())
            limit = sum(row.makespan_s for row in rows_of(found, regime, "oracle").values())
            assert limit <= total * 1.01


def test_the_number_of_processes_makes_no_difference(file: str) -> None:
    asked = {"systems": [small_site()], "cores": [16], "strategies": ["asa-naive:sampling=tuned"], "seeds": 2, **QUICK}
    steps: list[tuple[int, int]] = []
    one = compare(file, processes=1, **asked)
    two = compare(file, processes=2, progress=lambda done, total: steps.append((done, total)), **asked)
    assert one.rows == two.rows
    assert steps == [(2, 4), (4, 4)]


def test_json_has_rows_ratios_and_tables(found: Comparison) -> None:
    data = json.loads(json.dumps(found.to_json()))
    names = {"system", "workflow", "cores", "strategy", "seed", "makespan_s", "total_wait_s", "core_hours"}
    assert names | {"overhead_core_hours", "misses"} <= set(data["rows"][0])
    one = data["ratios"]["asa"]["per-stage"]["makespan_s"]["ratio_of_sums"]
    assert one["low"] <= one["value"] <= one["high"]
    assert data["ratios"]["per-stage"]["big-job"]["core_hours"]["ratio_of_sums"]["value"] < 1
    assert [section["regime"] for section in data["sections"]] == ["fifo", "limits"]
    judged = data["table2"]["rows"]
    assert {row["protocol"] for row in judged} == {"paper", "days"}
    assert {row["estimator"] for row in judged} == {"algorithm1:sampling=tuned", "fixed-share"}
    assert {row["jobs"] for row in judged} == {60, 24}
    assert {row["cores"] for row in judged} == {8, 16}


def test_the_text_shows_all_tables(found: Comparison) -> None:
    text = found.text()
    for words in ("total wait [s]", "normalised averages", "mean of all", "not over", "oracle", "fifo", "limits"):
        assert words in text


def test_rows_are_read_again_and_drawn(found: Comparison, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "out.json").write_text(json.dumps(found.to_json()))
    assert read_rows(tmp_path / "out.json") == [row for row in found.rows if row.regime == "fifo"]
    found.draw(tmp_path / "made.png")
    assert {path.name for path in tmp_path.glob("*.png")} == {"made.png", "made-corehours.png"}


@pytest.mark.parametrize("text", ["{}", "[]", '{"rows": []}', '{"rows": [{"a": 1}]}', "no json"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.json").write_text(text)
    with pytest.raises(InvalidInput):
        read_rows(tmp_path / "out.json")


def test_a_workflow_of_one_scale(file: str) -> None:
    found = compare(f"{file}:chain", systems=[small_site()], strategies=["per-stage"], seeds=1, oracle=False, **QUICK)
    assert [(row.cores, row.strategy) for row in found.rows] == [(2, "per-stage")]
    assert found.to_json()["ratios"] == {"per-stage": {}}


def test_days_that_are_too_few(file: str) -> None:
    with pytest.raises(InvalidInput, match="give more days"):
        compare(file, systems=[small_site()], seeds=1, **QUICK | {"days": 0.01})


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"strategies": ["asa-naiv"]}, "did you mean 'asa-naive'"),
        ({"strategies": ["asa:sampling=tuned,replay=x"]}, "replay"),
        ({"seeds": 0}, "at least one of each"),
        ({"strategies": [], "oracle": False}, "at least one of each"),
        ({"speed": 3}, "unknown option of a comparison 'speed'"),
    ],
)
def test_what_cannot_be_compared(file: str, asked: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        compare(file, systems=[small_site()], **asked)  # type: ignore[arg-type]


def test_a_misspelt_workflow() -> None:
    with pytest.raises(InvalidInput, match="give montage"):
        compare("montag", systems=[small_site()], cores=[28])


def test_a_misspelt_regime(file: str) -> None:
    with pytest.raises(UnknownName, match="fifo"):
        compare(file, systems=[small_site()], regimes=["fif"], seeds=1, **QUICK)
