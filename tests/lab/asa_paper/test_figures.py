"""Figures of comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.lab.asa_paper.figures import STAGGERED, Pareto, ParetoPoint, asa_pareto, front, points
from asa.lab.asa_paper.tables import RunRow, StageSpan, core_hours_panel, makespan_figure, makespan_panel


def row(strategy: str, seed: int = 0, cores: int = 28, wait: float = 60.0, early: float = 0.0) -> RunRow:
    stages = (StageSpan("first", wait, 600.0), StageSpan("second", 2 * wait, 300.0))
    return RunRow(
        "here", "fifo", "montage", cores, strategy, seed, 900.0 + 3 * wait, 3 * wait, 5.0 + early, early, 0, stages
    )


def test_a_makespan_is_its_waits_and_run_times() -> None:
    rows = [row("asa", seed=seed, wait=wait) for seed, wait in enumerate((60.0, 180.0))]
    panel = makespan_panel((), "montage", "here", rows)
    (bar,) = panel.bars
    assert [(part.name, part.height) for part in bar.parts] == [
        ("wait 1", 2.0),
        ("running", 10.0),
        ("wait 2", 4.0),
        ("running", 5.0),
    ]
    assert bar.height == pytest.approx(sum(each.makespan_s for each in rows) / 2 / 60)
    assert bar.interval is not None
    assert bar.interval[0] < bar.height < bar.interval[1]
    assert (bar.group, bar.label) == ("28 cores", "asa")
    assert panel.unit == "makespan [min]"


def test_long_makespans_are_in_hours() -> None:
    rows = [row("asa", wait=7200.0)]
    panel = makespan_panel(("here",), "montage", "here", rows)
    assert panel.unit == "makespan [h]"
    assert panel.bars[0].parts[0].height == 2.0


def test_core_hours_held_too_early_are_on_top() -> None:
    panel = core_hours_panel("montage", "here", [row("asa-naive", early=0.5), row("big-job")])
    assert [part.height for part in panel.bars[0].parts] == [5.0, 0.5]
    assert [bar.label for bar in panel.bars] == ["asa-naive", "big-job"]


def test_it_is_drawn_and_its_rows_are_there(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = makespan_figure([row("asa"), row("big-job"), row("asa", cores=56), row("big-job", cores=56)])
    figure.draw(tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 1000
    assert len(figure.to_json()["rows"]) == 4


@pytest.mark.parametrize("name", ["asa-makespan", "asa-corehours"])
def test_it_is_drawn_again_from_its_rows(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"rows": [row("asa").to_json(), row("big-job").to_json()]}
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    assert main(["figure", name, "--from", str(tmp_path / "rows.json"), "--json", str(tmp_path / "again.json")]) == 0
    assert "big-job" in capsys.readouterr().out
    assert json.loads((tmp_path / "again.json").read_text())["rows"] == json.loads(json.dumps(rows["rows"]))


def pareto_row(
    strategy: str, makespan: float, core_hours: float, system: str = "a", seed: int = 0, *, outstanding: int = 1
) -> RunRow:
    return RunRow(system, "limits", "w", 28, strategy, seed, makespan, 0.0, core_hours, 0.0, 0, (), outstanding)


def of(found: list[ParetoPoint]) -> dict[str, ParetoPoint]:
    return {point.strategy: point for point in found}


REFERENCES = [pareto_row("big-job", 100.0, 20.0), pareto_row("per-stage", 200.0, 10.0)]


def test_points_are_makespans_over_big_jobs_and_core_hours_beyond_per_stage() -> None:
    found = of(points([*REFERENCES, pareto_row("stagger", 120.0, 10.5, outstanding=3)]))
    assert (found["big-job"].makespan.value, found["big-job"].extra.value) == (1.0, 1.0)
    assert (found["per-stage"].makespan.value, found["per-stage"].extra.value) == (2.0, 0.0)
    assert found["stagger"].makespan.value == 1.2
    assert found["stagger"].extra.value == pytest.approx(0.05)
    assert found["stagger"].outstanding == 3


def test_systems_together_are_ratios_of_sums() -> None:
    other = [replace(each, system="b", makespan_s=9 * each.makespan_s) for each in REFERENCES]
    slow, fast = pareto_row("x", 150.0, 10.0), pareto_row("x", 900.0, 11.0, system="b")
    found = Pareto([*REFERENCES, slow, *other, fast]).points
    assert [(point.system, point.strategy) for point in found[2::3]] == [(None, "x"), ("a", "x"), ("b", "x")]
    together, a, b = found[2::3]
    assert together.makespan.value == pytest.approx((150 + 900) / (100 + 900))
    assert (a.makespan.value, b.makespan.value) == (1.5, 1.0)
    assert together.extra.value == pytest.approx(21 / 20 - 1)


def test_intervals_are_over_seeds() -> None:
    rows = [replace(each, seed=seed) for each in REFERENCES for seed in range(5)]
    rows += [pareto_row("x", 100.0 + 10 * seed, 10.0, seed=seed) for seed in range(5)]
    found = of(points(rows))["x"]
    assert found.makespan.value == pytest.approx(1.2)
    assert found.makespan.low is not None
    assert found.makespan.high is not None
    assert 1.0 < found.makespan.low < 1.2 < found.makespan.high < 1.4
    assert (found.extra.low, found.extra.high) == (0.0, 0.0)


def test_the_oracle_and_who_holds_places_are_not_on_the_front_and_keep_nobody_off_it() -> None:
    aside = [
        pareto_row("oracle", 90.0, 10.0),
        pareto_row("hold:lead_s=60", 91.0, 10.0),
        pareto_row("auto", 91.0, 10.0),
    ]
    found = of(points([*REFERENCES, *aside, pareto_row("x", 95.0, 10.0), pareto_row("y", 96.0, 10.0)]))
    assert {name for name, point in found.items() if point.efficient} == {"x"}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_front_by_brute_force(values: list[tuple[int, int]]) -> None:
    def beats(one: tuple[int, int], two: tuple[int, int]) -> bool:
        return one != two and one[0] <= two[0] and one[1] <= two[1]

    expected = [k for k, own in enumerate(values) if not any(beats(other, own) for other in values)]
    assert front(np.array(values, dtype=float)) == expected
    assert expected


@pytest.mark.parametrize("kept", [0, 1])
def test_both_references_are_needed(kept: int) -> None:
    with pytest.raises(InvalidInput, match="to measure the others by"):
        Pareto([REFERENCES[kept], replace(REFERENCES[kept], strategy="x")])


def test_regimes_are_not_mixed() -> None:
    with pytest.raises(InvalidInput, match="fifo, limits: those of one"):
        Pareto([*REFERENCES, replace(REFERENCES[0], regime="fifo")])


def test_it_is_read_written_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [*REFERENCES, pareto_row("stagger:late=0.3", 120.0, 10.5), pareto_row("stagger:late=0.5", 110.0, 11.5)]
    (tmp_path / "rows.json").write_text(json.dumps({"rows": [each.to_json() for each in rows]}))
    found = asa_pareto(source=str(tmp_path / "rows.json"))
    assert list(found.rows) == rows
    assert next(line["strategy"] for line in found.table()) == "big-job"
    assert [line["core-hours beyond Per-Stage"] for line in found.table()] == [
        "+100.0 %",
        "+15.0 %",
        "+5.0 %",
        "+0.0 %",
    ]
    data = json.loads(json.dumps(found.to_json()))
    assert [point["efficient"] for point in data["points"]] == [True] * 4
    found.draw(tmp_path / "made.svg")
    assert "late" in (tmp_path / "made.svg").read_text()
    with pytest.raises(InvalidInput, match=r"end the name with"):
        found.draw(tmp_path / "made.txt")


def test_the_command_shows_points_not_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "rows.json"
    source.write_text(json.dumps({"rows": [each.to_json() for each in REFERENCES]}))
    assert main(["figure", "asa-pareto", "--from", str(source), "--json", str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[:2] == ["system", "strategy"]
    assert [line.split()[1] for line in said[1:3]] == ["big-job", "per-stage"]
    assert len(json.loads((tmp_path / "out.json").read_text())["points"]) == 2


def test_all_variants_are_strategies_that_there_are() -> None:
    from asa.core.registry import STRATEGIES

    made = [STRATEGIES.create(spec) for spec in STAGGERED]
    assert len(made) == len(STAGGERED) == len(set(STAGGERED)) >= 25
