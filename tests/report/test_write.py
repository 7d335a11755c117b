from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.core.event import Event, TaskFailed
from asa.report import write_report
from asa.testing.runlogs import job_asked, montage, run_begins, run_log, stage_spec


def test_suffix_chooses_the_form(tmp_path: Path) -> None:
    events = run_log(montage(8))
    for suffix in (".html", ".json", ".HTML"):
        write_report(iter(events), tmp_path / f"run{suffix}")
    assert (tmp_path / "run.html").read_text("utf-8").startswith("<!doctype html>")
    data = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert data["state"] == "succeeded" and len(data["stages"]) == 9 and len(data["jobs"]) == 10


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_report(run_log(montage(8)), tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["run", "run.txt", "run.html.gz"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.html, \.json"):
        write_report(run_log(montage(8)), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        write_report(run_log(montage(8)), tmp_path / "nowhere" / "run.html")


def test_bytes_that_are_no_text_do_not_stop_a_report(tmp_path: Path) -> None:
    stderr = b"caf\xe9".decode("utf-8", "surrogateescape")
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1)),
        *job_asked(0.0, "j0", 1, "a"),
        TaskFailed(9.0, "a", 0, "j0", "n", 1.0, "it failed", stderr=stderr),
    ]
    write_report(events, tmp_path / "run.html")
    assert "caf" in (tmp_path / "run.html").read_text("utf-8")


def test_reports_need_no_matplotlib_until_a_picture_is_asked_for() -> None:
    code = (
        "import sys, asa.report, asa.report.html, asa.report.progress; print({'matplotlib', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
