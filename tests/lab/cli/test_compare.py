from __future__ import annotations

import json
from pathlib import Path

import pytest

from asa.cli.main import main
from tests.lab.asa_paper.test_probes import small_site

FILE = """
import asa

@asa.stage(cores=16, walltime="1h", run_time="20m")
def wide(x): ...

@asa.stage(cores=2, walltime="1h", run_time="10m")
def narrow(xs): ...

def workflow(cores): return narrow(wide.options(cores=cores).map(range(cores)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flow.py").write_text(FILE)
    small_site().write(tmp_path / "small.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_comparison_is_printed_written_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = ["compare", "flow.py", "--system", "small.json", "--cores", "8,16", "--seeds", "2", "--processes", "1"]
    words += ["--strategies", "big-job,per-stage,asa:estimator=last,dependency=predicted", "--regime", "accrue-always"]
    assert main([*words, "--json", "out.json", "--plot", "out.png"]) == 0
    said = capsys.readouterr().out
    assert "small, accrue-always: means of 2 seeds" in said
    data = json.loads((folder / "out.json").read_text())
    assert len(data["rows"]) == 2 * 4 * 2
    assert {row["strategy"] for row in data["rows"]} == {
        "big-job",
        "per-stage",
        "asa:estimator=last,dependency=predicted",
        "oracle",
    }
    assert main([*words[:4], "--set", "cores=8", *words[6:10], "--strategies", "per-stage", "--json", "set.json"]) == 0
    assert {row["cores"] for row in json.loads((folder / "set.json").read_text())["rows"]} == {8}
    assert {"out.png", "out-corehours.png"} <= {path.name for path in folder.iterdir()}

    assert main(["figure", "asa-corehours", "--from", "out.json", "-o", "again.svg", "--json", "again.json"]) == 0
    assert "<svg" in (folder / "again.svg").read_text()
    assert json.loads((folder / "again.json").read_text())["rows"] == data["rows"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["montage", "--cores", "28;56"], "no number of cores"),
        (["montage", "--cores", "0"], "no number of cores"),
        (["montage", "--processes", "0"], "at least 1"),
        (["montage", "--plot", "out.txt"], ".png"),
        (["montage", "--plot", "nowhere/out.png"], "there is no directory"),
        (["montage", "--json", "nowhere/out.json"], "there is no directory"),
        (["montag", "--cores", "28"], "give montage, blast, statistics"),
        (["flow.py", "--system", "small.json"], "--set NAME=VALUE"),
        (["flow.py", "--system", "small.json", "--set", "cores"], "write NAME=VALUE"),
        (["flow.py", "--system", "small.json", "--set", "cores=4", "--cores", "8"], "give one of them"),
        (["montage", "--cores", "28", "--set", "tiles=4"], "montage takes no --set"),
        (["montage", "--cores", "28", "--system", "none.json"], "there is no file 'none.json'"),
        (["montage", "--system", "small.json"], "--cores"),
    ],
)
def test_what_cannot_be_compared_is_said_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["compare", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_misspelt_strategy_ends_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "montage", "--strategies", "bigjob"]) == 2
    assert "did you mean 'big-job'" in capsys.readouterr().err


def test_a_figure_that_is_not_made_from_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "convergence", "--from", "out.json"]) == 1
    assert "not made from such a file" in capsys.readouterr().err
