from __future__ import annotations

import json
from pathlib import Path

import pytest

from asa.cli.main import main
from asa.lab.studies.compare_row import Row, StageSpan
from asa.lab.studies.figures_asa import corehours_figure, makespan_figure


def row(strategy: str, seed: int = 0, cores: int = 28, wait: float = 60.0, early: float = 0.0) -> Row:
    stages = (StageSpan("first", wait, 600.0), StageSpan("second", 2 * wait, 300.0))
    return Row(
        "here", "fifo", "montage", cores, strategy, seed, 900.0 + 3 * wait, 3 * wait, 5.0 + early, early, 0, stages
    )


def test_a_makespan_is_its_waits_and_run_times() -> None:
    rows = [row("asa", seed=seed, wait=wait) for seed, wait in enumerate((60.0, 180.0))]
    figure = makespan_figure(rows)
    panel = figure.panel("montage", "here", rows)
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
    panel = makespan_figure(rows).panel("montage", "here", rows)
    assert panel.unit == "makespan [h]"
    assert panel.bars[0].parts[0].height == 2.0


def test_core_hours_held_too_early_are_on_top() -> None:
    panel = corehours_figure([]).panel("montage", "here", [row("asa-naive", early=0.5), row("big-job")])
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
