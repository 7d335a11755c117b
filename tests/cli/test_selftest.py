from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.errors import StateError
from asa.log.rundir import list_runs

RUNS = ("a run", "a held place", "a resume after kill -9")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def looked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["selftest", "--backend", "local", *words, "--json", "-"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found | {"rows": {row["what"]: row for row in found["rows"]}}


@pytest.mark.slow
def test_it_runs_holds_and_resumes(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    found = looked(capsys)
    rows = found["rows"]
    assert found["works"] and found["format"] == 1 and found["site"] == "local"
    assert [rows[name]["ok"] for name in RUNS] == [True] * 3
    assert "2 jobs" in rows["a run"]["found"]
    assert "in the queue from the start" in rows["a held place"]["found"]
    assert rows["a resume after kill -9"]["found"] == "no task that was done ran again; the task that ran went on"
    assert list(state.glob("selftest-*")) == []


@pytest.mark.slow
def test_what_is_wrong_is_named_and_its_runs_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    def killed(name: str, **options: Any) -> Any:
        raise StateError(f"run {name} cannot be resumed")

    monkeypatch.setattr("asa.cli.selftest.resume", killed)
    found = looked(capsys, code=1)
    assert not found["works"]
    assert [found["rows"][name]["ok"] for name in RUNS] == [True, True, False]
    assert "cannot be resumed" in found["rows"][RUNS[2]]["found"]
    kept = list(state.glob("selftest-*"))
    assert len(kept) == 1 and len(list_runs(kept[0])) == 3


def test_without_its_backend_nothing_is_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["selftest", "--backend", "slurm", "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not {row["what"] for row in found["rows"]} & set(RUNS)
    assert found["site"] is None and not found["works"]
