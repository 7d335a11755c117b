from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from asa.metrics.workflow import summarise
from asa.report.chart import chart
from asa.report.svg import LABEL_LETTERS, ZOOMS, Pictures, draw, unit_names
from asa.testing.runlogs import MadeStage, montage, run_log


def drawn(*stages: MadeStage) -> Pictures:
    return draw(chart(summarise(run_log(stages))))


def test_both_pictures_are_well_formed_and_of_one_height() -> None:
    pictures = drawn(*montage())
    labels, plot = (ElementTree.fromstring(picture) for picture in (pictures.labels, pictures.plot))
    assert labels.get("height") == plot.get("height") == str(pictures.height)


def test_everything_lies_inside_the_plot() -> None:
    pictures = drawn(*montage())
    rectangles = re.findall(r'<rect x="([\d.e-]+)%" y="([\d.]+)" width="([\d.e-]+)%" height="([\d.]+)"', pictures.plot)
    assert len(rectangles) > 50
    for x, y, width, height in (map(float, each) for each in rectangles):
        assert 0 <= x <= x + width <= 100
        assert 0 <= y <= y + height <= pictures.height


def test_each_zoom_has_its_own_ticks() -> None:
    plot = ElementTree.fromstring(drawn(*montage()).plot)
    grids = {group.get("class", ""): len(group) for group in plot.findall("g") if "grid" in group.get("class", "")}
    counts = [grids[f"grid z{zoom}"] for zoom in ZOOMS]
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_unit_of_time_follows_the_zoom() -> None:
    units = dict(unit_names(chart(summarise(run_log(montage())))))
    assert units[1] == "min" and units[16] == "min:s"


@pytest.mark.parametrize("name", ["short", "a name that is much too long to stand beside a plot"])
def test_names_fit_beside_the_plot(name: str) -> None:
    root = ElementTree.fromstring(drawn(MadeStage(name, 4)).labels)
    for text in root.findall("text"):
        title = text.find("title")
        shown = "".join(text.itertext()).removeprefix((title.text or "") if title is not None else "")
        assert len(shown) <= LABEL_LETTERS + 1
