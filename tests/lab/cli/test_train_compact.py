from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

import asa.lab.training.compact as compact
from asa.cli.main import main
from asa.lab.dispatchers.learned.compact_network import read_network
from tests.lab.training.workloads import NODES, busy


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path, jobs = tmp_path / "log.swf", busy(400)
    lines = [
        f"{row + 1} {jobs.submit[row]:.0f} -1 {jobs.run[row]:.0f} {jobs.units[row]} -1 -1 {jobs.units[row]} "
        f"{jobs.walltime[row]:.0f} -1 1 1 -1 -1 -1 -1 -1 -1"
        for row in range(len(jobs))
    ]
    path.write_text("\n".join([f"; MaxNodes: {NODES}", f"; MaxProcs: {NODES}", *lines, ""]))
    return str(path)


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, trace: str) -> None:
    for name, value in {"ENVIRONMENTS": 2, "STEPS": 32, "LESSONS": 60, "PIECES": 1, "EVERY": 1}.items():
        monkeypatch.setattr(compact, name, value)
    out, told, picture = tmp_path / "m.safetensors", tmp_path / "m.json", tmp_path / "m.png"
    spans = ["--trace", trace, "--to-day", "1.2", "--validate", "1.2-2"]
    options = ["--steps", "64", "--window", "8", "--output", str(out), "--json", str(told), "--plot", str(picture)]
    assert main(["train", "compact", *spans, *options]) == 0
    assert f"--dispatcher compact:model={out}" in capsys.readouterr().out
    found = json.loads(told.read_text())
    assert found["window"] == 8 and [point["steps"] for point in found["curve"]] == [0, 64]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert read_network(out).about["steps"] == 64


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: str) -> None:
    cases = {
        "days 0 to 2 to learn from, days 1 to 2 to validate": ["--to-day", "2", "--validate", "1-2"],
        "--output": ["--validate", "1-2", "--output", str(tmp_path / "no" / "m")],
        "-1 steps": ["--validate", "1-2", "--steps", "-1"],
        "threshold 'soon' is not a positive duration": ["--validate", "1-2", "--threshold", "soon"],
        "no job was submitted from day 90": ["--validate", "90-120"],
    }
    for says, options in cases.items():
        where = [] if "--output" in options else ["--output", str(tmp_path / "m")]
        assert main(["train", "compact", "--trace", trace, *where, *options]) == 1
        assert says in capsys.readouterr().err
    for span in ("2-1", "soon", "1"):
        with pytest.raises(SystemExit):
            main(["train", "compact", "--trace", trace, "--validate", span])
        assert f"'{span}': two days expected, the later one second, as in 90-120" in capsys.readouterr().err
