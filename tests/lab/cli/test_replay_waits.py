from __future__ import annotations

import json
from pathlib import Path

import pytest

from asa.cli.main import main
from asa.lab.core.cluster import Cluster
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.swf import log_of, write_swf


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of a machine that was run by EASY, waits included."""
    jobs = lublin(jobs=1500, cores=64, seed=4, load=0.85, estimates="uniform:5")
    path = tmp_path_factory.mktemp("log") / "mine.swf"
    write_swf(log_of(simulate(jobs, Cluster.of(64), "easy")), path)
    return path


def test_waits_are_replayed(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "out.svg"
    words = ["replay-waits", str(log), "--estimators", "zero,algorithm1:sampling=tuned,replay=2", "--sizes", "2"]
    words += ["--jobs", "100", "--warmup", "20", "--seeds", "2", "--json", str(out), "--plot", str(picture)]
    assert main(words) == 0
    assert "mine: 160 jobs, means over 2 sizes" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert list(found["overall"]) == ["last", "zero", "algorithm1:sampling=tuned,replay=2"]
    assert found["rows"][0]["trace"] == "mine"
    assert [len(row["seeds"]) for row in found["rows"]] == [1, 1, 2]
    assert "<svg" in picture.read_text()


def test_a_site_model_is_probed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay-waits", "sim:uppmax", "--estimators", "zero", "--jobs", "30", "--warmup", "5", "--json", "-"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["trace"] == "sim:uppmax"
    assert found["rows"][0]["seeds"][0]["jobs"] == 75


def test_mistakes_are_named(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay-waits", str(log), "--plot", str(tmp_path / "no" / "out.png")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert main(["replay-waits", str(log), "--estimators", "medain"]) == 2
    assert "medain" in capsys.readouterr().err
    assert main(["replay-waits", str(log), str(log)]) == 1
    assert "the same name" in capsys.readouterr().err
    assert main(["replay-waits", str(log), "--warmup", "-1"]) == 1
    assert "--warmup -1" in capsys.readouterr().err
