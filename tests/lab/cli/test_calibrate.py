from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asa.cli.main import main
from asa.lab.core.cluster import Cluster
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.swf import log_of, write_swf


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of a machine that was run by EASY, waits included."""
    jobs = lublin(jobs=3000, cores=64, seed=4, load=0.85, estimates="uniform:5")
    path = tmp_path_factory.mktemp("log") / "mine.swf"
    write_swf(log_of(simulate(jobs, Cluster.of(64), "easy")), path)
    return path


def test_a_model_is_made_and_checked(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "site.json", tmp_path / "out.json"
    words = ["calibrate", str(log), "-o", str(model), "--seeds", "1", "--nodes", "64", "--json", str(out)]
    assert main(words) == 0
    assert "unseen" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["site"] == "mine"
    assert found["rows"][0]["cores"] == "all"
    assert 0.3 < found["model_utilisation"] < 1.1
    assert json.loads(model.read_text())["nodes"] == 64


def test_mistakes_are_named(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(log), "-o", str(tmp_path / "no" / "site.json")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    assert main(["calibrate", str(log), "--share", "2"]) == 1
    assert "a share in (0, 1)" in capsys.readouterr().err


def test_a_log_without_waits_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = np.full((5, 18), -1.0)
    records[:, 0], records[:, 1], records[:, 3], records[:, 4] = np.arange(1, 6), np.arange(5), 10, 1
    path = tmp_path / "waitless.swf"
    path.write_text("; MaxProcs: 4\n" + "\n".join(" ".join(f"{int(v)}" for v in row) for row in records) + "\n")
    assert main(["calibrate", str(path)]) == 1
    assert "no waits" in capsys.readouterr().err
