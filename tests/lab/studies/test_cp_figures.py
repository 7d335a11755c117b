from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.lab.studies.cp_figures import cp_quality, cp_ratios, cp_times
from asa.lab.studies.cp_saved import SavedRow
from asa.lab.studies.figure import read_rows


def test_a_closed_loop_is_measured_once_and_shown_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, few = str(tmp_path / "loop.json"), ["--to-day", "0.3", "--predictor", "oracle,heuristic"]
    assert main(["figure", "cp-times", "--dispatcher", "easy,listplan", *few, "--json", out]) == 0
    assert "mean [ms]" in capsys.readouterr().out
    rows = json.loads(Path(out).read_text())["rows"]
    assert [row["dispatcher"] for row in rows] == ["easy", "easy", "listplan", "listplan"]
    again, picture = str(tmp_path / "again.json"), tmp_path / "quality.png"
    assert main(["figure", "cp-quality", "--from", out, "--json", again, "-o", str(picture)]) == 0
    assert json.loads(Path(again).read_text())["rows"] == rows
    assert "deviation" in capsys.readouterr().out
    assert picture.stat().st_size > 5000
    cp_times(source=out).draw(tmp_path / "times.svg")
    assert (tmp_path / "times.svg").stat().st_size > 5000


def saved(dispatcher: str, decision: int, **values: Any) -> dict[str, Any]:
    given = {"queue": 2 + decision, "running": 1, "status": "feasible", "seconds": 0.1, "cpu_s": 0.1, "objective": 2.0}
    return {"dispatcher": dispatcher, "decision": decision, "variables": None, "constraints": None} | given | values


@pytest.mark.parametrize("variables", [None, 40])
def test_ratios_are_drawn(tmp_path: Path, variables: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    rows = [saved(name, k, variables=variables) for k in range(4) for name in ("pcp20", "pcp19", "listplan")]
    (tmp_path / "in.json").write_text(json.dumps({"rows": rows}))
    picture = tmp_path / "ratios.pdf"
    assert main(["figure", "cp-ratios", "--from", str(tmp_path / "in.json"), "-o", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "pcp20 / pcp19" in said and "listplan / pcp19" in said
    assert picture.stat().st_size > 3000


def test_ratios_are_measured(tmp_path: Path) -> None:
    found = cp_ratios(
        dispatchers=["listplan", "listplan:scheme=non-delay"], to_day=0.4, decisions=5, time_limit=0.0, seed=1
    )
    assert len(found.rows) == 10
    assert found.table()[0]["variables"] == "-"
    (tmp_path / "rows.json").write_text(json.dumps(found.to_json()))
    assert read_rows(tmp_path / "rows.json", SavedRow) == found.rows


def test_files_that_hold_other_rows(tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text(json.dumps({"rows": [saved("pcp20", 0)]}))
    with pytest.raises(InvalidInput, match="is not what asa figure --json writes of this figure"):
        cp_quality(source=str(tmp_path / "saved.json"))
    with pytest.raises(InvalidInput, match="there is only pcp20"):
        cp_ratios(source=str(tmp_path / "saved.json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convergence", "--decisions", "3"], "--decisions 3: figure 'convergence' takes no such option"),
        (["cp-ratios", "--predictor", "oracle"], "it is for cp-times, cp-quality"),
        (["cp-times", "--seeds", "3"], "--seeds 3: figure 'cp-times' takes no such option"),
        (["cp-times", "--from", "x.json", "--to-day", "3"], "leave out what says how to measure"),
    ],
)
def test_options_that_are_not_for_a_figure(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", *words]) == 1
    assert said in capsys.readouterr().err
