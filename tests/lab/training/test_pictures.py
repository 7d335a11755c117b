"""Pictures of trainings: what is drawn where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.lab.training import compact_picture, dras_picture, picture
from asa.lab.training.dras_point import Point as DrasPoint
from asa.lab.training.nsa import Point

pytest.importorskip("matplotlib")


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of pictures that are drawn; no file is written."""
    found: list[Any] = []
    for module in (picture, compact_picture, dras_picture):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: found.extend(figure.axes))
    return found


def test_costs_are_moving_means_above_exact_insertion(axes: list[Any]) -> None:
    curve = [Point(steps=100 * k, seconds=1.0, cost=100.0 + 10 * k, exact=100.0) for k in range(1, 8)]
    assert picture.smoothed("all", curve[:2]) == ("all", [200], [pytest.approx(15)])
    assert picture.smoothed("all", curve) == ("all", [500, 600, 700], [pytest.approx(each) for each in (30, 40, 50)])
    picture.draw_curves({"fcn-1": curve}, Path("x.png"))
    assert axes[0].lines[0].get_xdata().tolist() == [500, 600, 700]
    assert axes[0].get_ylabel() == "cost above exact insertion [%]"


def test_rewards_over_episodes(axes: list[Any]) -> None:
    rest = dict.fromkeys(DrasPoint.__dataclass_fields__, 0.0)
    curve = [DrasPoint(**rest | {"episode": k, "validation_reward": -float(k)}) for k in (1, 2, 3)]  # type: ignore[arg-type]
    dras_picture.draw_curves({"pg": curve, "dql": curve[:1]}, Path("x.png"))
    assert [line.get_xydata().tolist() for line in axes[0].lines] == [[[1, -1], [2, -2], [3, -3]], [[1, -1]]]


def test_shares_of_easy_and_what_is_kept(axes: list[Any]) -> None:
    pytest.importorskip("gymnasium")
    from asa.lab.training.compact import Point as CompactPoint

    rest = dict.fromkeys(CompactPoint.__dataclass_fields__, 1.0)
    curve = [CompactPoint(**rest | {"steps": k, "wait": wait}) for k, wait in enumerate((0.9, 0.7, 0.8))]  # type: ignore[arg-type]
    compact_picture.draw_curve(curve, Path("x.png"))
    wait, slowdown, longest, kept = axes[0].lines
    assert wait.get_ydata().tolist() == [0.9, 0.7, 0.8]
    assert slowdown.get_ydata().tolist() == longest.get_ydata().tolist() == [1.0] * 3
    assert set(kept.get_xdata()) == {min(curve, key=lambda point: point.score).steps}


def test_names_that_are_no_pictures(tmp_path: Path) -> None:
    curve = [Point(steps=1, seconds=1.0, cost=2.0, exact=1.0)]
    with pytest.raises(InvalidInput, match="end the name with"):
        picture.draw_curves({"fcn-1": curve}, tmp_path / "x.txt")
