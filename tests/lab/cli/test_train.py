"""``asa train``, and the pictures of trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.lab.dras_paper import figures as dras_picture
from asa.lab.dras_paper.figures import EpisodePoint as DrasPoint
from asa.lab.nsa_paper import training as picture
from asa.lab.nsa_paper.training import RepairPoint

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("sb3_contrib", reason="needs the extra 'learn'")

from asa.cli.main import main
from tests.lab.dras_paper.workloads import NODES, busy


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


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], trace: str) -> None:
    cases = {
        "days 0 to 2 to learn from, days 1 to 2 to validate": ["--to-day", "2", "--validate", "1-2"],
        "no job was submitted from day 90": ["--validate", "90-120"],
    }
    for says, options in cases.items():
        assert main(["train", "dras", "--trace", trace, "--output", str(tmp_path / "m"), *options]) == 1
        assert says in capsys.readouterr().err
    for span in ("2-1", "soon", "1"):
        with pytest.raises(SystemExit):
            main(["train", "dras", "--trace", trace, "--output", str(tmp_path / "m"), "--validate", span])
        assert f"'{span}': two days expected, the later one second, as in 90-120" in capsys.readouterr().err


pytest.importorskip("matplotlib")


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes of pictures that are drawn; no file is written."""
    found: list[Any] = []
    for module in (picture, dras_picture):
        monkeypatch.setattr(module, "save_figure", lambda figure, path: found.extend(figure.axes))
    return found


def test_costs_are_moving_means_above_exact_insertion(axes: list[Any]) -> None:
    curve = [RepairPoint(steps=100 * k, seconds=1.0, cost=100.0 + 10 * k, exact=100.0) for k in range(1, 8)]
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


def test_names_that_are_no_pictures(tmp_path: Path) -> None:
    curve = [RepairPoint(steps=1, seconds=1.0, cost=2.0, exact=1.0)]
    with pytest.raises(InvalidInput, match="end the name with"):
        picture.draw_curves({"fcn-1": curve}, tmp_path / "x.txt")
