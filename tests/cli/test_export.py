from __future__ import annotations

import json
from pathlib import Path

import pytest

import asa
from asa.cli.main import main
from asa.lab.traces.wfformat import read_workflow


@asa.stage
def double(x: int) -> int:
    return 2 * x


@asa.stage
def add(numbers: list[int]) -> int:
    return sum(numbers)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> asa.Run:
    state = tmp_path_factory.mktemp("export")
    run = asa.run(add(double.map(range(3))), backend="local:cores=2", state=state, name="sums")
    assert run.result() == 6 and run.wait(60)
    return run


@pytest.fixture
def here(run: asa.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(run.directory.state))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_in_wfformat(run: asa.Run, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sums"]) == 0
    assert capsys.readouterr().out == f"wrote {run.name}.json\n"
    instance = read_workflow(here / f"{run.name}.json")
    assert [(stage.name, len(stage.tasks), stage.after) for stage in instance.stages()] == [
        ("double", 3, ()),
        ("add", 1, ("double",)),
    ]


def test_a_run_as_a_crate(run: asa.Run, here: Path) -> None:
    words = ["--format", "ro-crate", "--license", "CC0-1.0", "--json", "out.json"]
    assert main(["export", run.name, *words]) == 0
    told = json.loads((here / f"{run.name}-crate" / "ro-crate-metadata.json").read_text())
    assert told == json.loads((here / "out.json").read_text())
    assert main(["export", run.name, *words, "--output", "mine"]) == 0
    assert (here / "mine" / "events.jsonl").is_file()


def test_outputs_that_cannot_be_written_are_refused_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sums", "-o", "nowhere/run.json"]) == 1
    assert "there is no directory 'nowhere'" in capsys.readouterr().err
    (here / "run.txt").touch()
    assert main(["export", "sums", "--format", "ro-crate", "-o", "run.txt"]) == 1
    assert main(["export", "nobody"]) == 1
