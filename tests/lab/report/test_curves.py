from __future__ import annotations

import pytest

from asa.lab.report.curves import Curve, curves_figure

pytest.importorskip("matplotlib")


def test_curves_are_named_above_and_axes_say_what_they_are() -> None:
    curves = [Curve("one", [0, 1000], [2.0, 1.0]), Curve("two", [0, 2000], [3.0, 2.5])]
    made = curves_figure(curves, x="actions", y="cost [%]", from_zero=True, chosen=("kept", 1000))
    (axes,) = made.axes
    assert [line.get_xydata().tolist() for line in axes.lines[:2]] == [[[0, 2], [1000, 1]], [[0, 3], [2000, 2.5]]]
    assert [text.get_text() for text in made.legends[0].get_texts()] == ["one", "two", "kept"]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_ylim()[0]) == ("actions", "cost [%]", 0)
    assert set(axes.lines[2].get_xdata()) == {1000}
    made.draw_without_rendering()
    assert "2,000" in [label.get_text() for label in axes.get_xticklabels()]


@pytest.mark.parametrize("points", [1, 30, 31, 1000])
def test_curves_have_marks_that_tell_them_apart(points: int) -> None:
    at = list(range(points))
    (axes,) = curves_figure([Curve(str(k), at, at) for k in range(3)], x="", y="").axes
    for line in axes.lines:
        first, every = line.get_markevery()
        marked = at[first::every]
        assert len(marked) == points if points <= 30 else 5 <= len(marked) <= 16
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 3
