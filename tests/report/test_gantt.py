from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.event import AllocationStarted
from asa.metrics.workflow import summarise
from asa.report.gantt import figure, save
from asa.testing.runlogs import job_asked, montage, run_begins, run_log, stage_spec

pytest.importorskip("matplotlib")


def test_rows_have_names_and_time_a_unit() -> None:
    made = figure(summarise(run_log(montage())))
    stages, jobs, pool = made.axes
    assert [label.get_text() for label in stages.get_yticklabels()][:2] == ["mProject · 112 cores", "mImgtbl · 1 core"]
    assert "810003 mDiff · 84 cores" in [label.get_text() for label in jobs.get_yticklabels()]
    assert pool.get_xlabel() == "time since the start [min]"
    assert "node fail" in [text.get_text().strip() for text in jobs.texts]


def test_file_is_a_picture(tmp_path: Path) -> None:
    save(summarise(run_log(montage(8))), tmp_path / "run.png", dpi=60)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["costs $5 or $6", "Größe", "<&>"])
def test_names_are_no_formulas(tmp_path: Path, name: str) -> None:
    events = [*run_begins(stage_spec(name, 1, 1)), *job_asked(0.0, "j0", 1, name), AllocationStarted(5.0, "j0", 5.0)]
    save(summarise(events, now=9.0), tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 0


def test_run_that_has_hardly_begun(tmp_path: Path) -> None:
    save(summarise(run_begins(stage_spec("a", 1, 1))), tmp_path / "run.png", dpi=40)
    assert (tmp_path / "run.png").stat().st_size > 0
