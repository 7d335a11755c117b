from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.report.stacked import GROUND, Bar, Panel, Part, places, save_stacked, stacked_figure
from asa.report.palette import stage_colour

BARS = (
    Bar("28 cores", "big-job", (Part(3.0, "wait 1", 0), Part(20.0, "running")), (20.0, 30.0)),
    Bar("28 cores", "asa", (Part(1.0, "wait 1", 0), Part(12.0, "running"), Part(2.0, "wait 2", 1))),
    Bar("56 cores", "asa", (Part(0.0, "wait 1", 0),)),
)


def test_parts_are_stacked_in_their_order() -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("montage", "[min]", BARS)]])
    patches = figure.axes[0].patches
    assert [(patch.get_y(), patch.get_height()) for patch in patches[2:5]] == [(0, 1), (1, 12), (13, 2)]
    assert {patch.get_x() for patch in patches[:2]} != {patch.get_x() for patch in patches[2:5]}
    assert figure.axes[0].get_ylim()[1] > 30


def test_one_legend_names_every_part_once_and_what_has_no_colour_last() -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("a", "", BARS), Panel("b", "", BARS[:1])]], "title")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["wait 1", "wait 2", "running"]
    assert legend.get_title().get_text() == "title"
    from matplotlib.colors import to_hex

    colours = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert colours == [stage_colour(0), stage_colour(1), GROUND]


def test_rows_of_unequal_length_and_empty_charts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = stacked_figure([[Panel("a", "", BARS), Panel("b", "")], [Panel("c", "", BARS)]])
    assert [axes.get_visible() for axes in figure.axes] == [True, False, True, False]
    save_stacked([[Panel("a", "", BARS)]], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing to draw"):
        stacked_figure([[Panel("a", "")]])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_bars_never_overlap_and_groups_stand_apart(groups: list[str]) -> None:
    found = places([Bar(group, "", ()) for group in groups])
    for k in range(1, len(found)):
        assert found[k] - found[k - 1] == pytest.approx(1.0 if groups[k] == groups[k - 1] else 1.9)
