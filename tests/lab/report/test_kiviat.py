from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.metrics.schedule import summarise
from asa.lab.report.kiviat import AXES, DISPATCHERS_MOST, comparison_figure, kiviat, save_comparison
from tests.metrics.schedules import made, random_schedule

numbers = st.lists(st.floats(1.0, 1e6), min_size=len(AXES), max_size=len(AXES))


def rows_of(names: list[str]) -> list[dict[str, Any]]:
    return [{"dispatcher": name} | summarise(random_schedule(60, 16, seed=k)) for k, name in enumerate(names)]


@given(st.lists(numbers, min_size=1, max_size=5))
def test_the_best_is_1_and_the_worst_0(table: list[list[float]]) -> None:
    rows = [dict(zip(AXES, values, strict=True)) | {"dispatcher": "x"} for values in table]
    good = kiviat(rows)
    assert ((good >= 0) & (good <= 1)).all()
    for column, name in enumerate(AXES):
        values = [row[name] for row in rows]
        best, worst = (max, min) if name == "utilisation" else (min, max)
        assert good[values.index(best(values)), column] == 1
        if len(set(values)) > 1:
            assert good[values.index(worst(values)), column] in (0, 1)  # 1 where the reciprocals are the same float
    assert (kiviat(rows[::-1]) == good[::-1]).all()


def test_no_wait_is_no_division_by_zero() -> None:
    rows = [dict.fromkeys(AXES, 0.0) | {"dispatcher": "x"}, dict.fromkeys(AXES, 2.0) | {"dispatcher": "y"}]
    assert kiviat(rows)[:, 0].tolist() == [1.0, 0.0]


def test_a_dispatcher_that_ran_nothing_is_named() -> None:
    nothing = made([0], [np.nan], [np.nan], [1], Cluster.of(1), outcome=[JobState.PENDING])
    with pytest.raises(InvalidInput, match="dispatcher 'lazy' has no mean_wait_s"):
        kiviat([*rows_of(["easy"]), {"dispatcher": "lazy"} | summarise(nothing)])


@pytest.mark.parametrize("count", [1, DISPATCHERS_MOST + 1])
def test_too_few_or_too_many(count: int) -> None:
    with pytest.raises(InvalidInput, match="2 to 9 dispatchers"):
        comparison_figure([{"dispatcher": str(k)} for k in range(count)])


def test_everything_is_in_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = rows_of(["fcfs", "easy", "backfill:depth=10,order=sjf"])
    made = comparison_figure(rows, title="three of them")
    polar, *bars, lower = made.axes
    assert [label.get_text() for label in polar.get_xticklabels()] == list(AXES.values())
    assert len(bars) == len(AXES)
    assert all(len(axes.patches) == 3 for axes in bars)
    assert len(lower.lines) == 3
    (legend,) = made.legends
    assert [text.get_text() for text in legend.get_texts()] == [row["dispatcher"] for row in rows]
    save_comparison(rows, tmp_path / "three.png", dpi=60)
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")


def test_dispatchers_that_are_all_alike_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    idle = made([0, 0], [0, 0], [10, 10], [1, 1], Cluster.of(2))
    rows = [{"dispatcher": name} | summarise(replace(idle)) for name in ("a", "b")]
    assert (kiviat(rows) == 1).all()
    save_comparison(rows, tmp_path / "alike.svg")
    assert (tmp_path / "alike.svg").stat().st_size > 0
