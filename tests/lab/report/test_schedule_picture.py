from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import asa.lab.report.schedule_picture
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.report.schedule_picture import save_schedule, schedule_figure
from tests.metrics.schedules import made, random_schedule

pytest.importorskip("matplotlib")


def titles(schedule: object) -> list[str]:
    return [axes.get_title(loc="left").split(",")[0] for axes in schedule_figure(schedule).axes]  # type: ignore[arg-type]


def test_a_gantt_chart_where_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = random_schedule(40, 8)
    assert titles(schedule) == ["Utilisation", "Queue", "Jobs on nodes", "Wait by job size"]
    assert titles(replace(schedule, placements=None)) == ["Utilisation", "Queue", "Wait by job size"]
    monkeypatch.setattr(asa.lab.report.schedule_picture, "GANTT_JOBS_MOST", 39)
    assert titles(schedule) == ["Utilisation", "Queue", "Wait by job size"]


def test_time_has_a_unit_and_one_scale() -> None:
    schedule = made([1000], [1000], [1000 + 7200], [1], Cluster.of(1), placed=[(0, 0, 0, 1)])
    upper, queue, gantt, _ = schedule_figure(schedule, "a trace").axes
    assert gantt.get_xlabel() == "time since the first submission [h:min]"
    assert upper.get_xlim() == queue.get_xlim() == gantt.get_xlim() == (0, 7200)


def test_file_is_a_picture(tmp_path: Path) -> None:
    save_schedule(random_schedule(2000, 64, cores=4), tmp_path / "many.png", title="costs $5", dpi=50)
    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw() -> None:
    nothing = made([0], [np.nan], [np.nan], [1], Cluster.of(1), outcome=[JobState.PENDING])
    with pytest.raises(InvalidInput, match="no job of this schedule ran"):
        schedule_figure(nothing)
