from __future__ import annotations

from pathlib import Path

import pytest

import asa
from asa.log.rundir import RunDirectory
from asa.workflows import run
from asa.workflows.settings import Settings, save_settings


@asa.stage
def one() -> int:
    return 1


@pytest.mark.parametrize("state", ["~/x", "x", Path("x")])
def test_the_state_directory_is_the_same_for_all_who_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    met: list[Path] = []
    monkeypatch.setattr(run, "_go", lambda directory, *_: met.append(directory.path))
    run.submit(one(), state=state, name="mine")
    save_settings(RunDirectory(met[0]), Settings(one(), "mine"))
    run.resume("mine", state=state)
    met.append(run.open_run("mine", state=state).directory.path)
    assert met == [next(tmp_path.glob("x/runs/mine-*"))] * 3
