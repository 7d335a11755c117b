import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import grouped
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.report.switches import JOBS_NAMED, NODES_MOST, placement_figure, save_placement
from asa.report.picture import LIGHT

matplotlib = pytest.importorskip("matplotlib")


def drawn(window):
    """Colours of nodes and of bars in the picture, row by row, and the words of its key."""
    made = placement_figure(window, Sequential().place(window), "title")
    from matplotlib.colors import to_hex

    rows = [[(to_hex(each.get_facecolor()), each.get_height()) for each in axes.patches] for axes in made.axes]
    return rows, [text.get_text() for text in made.legends[0].get_texts()]


def test_nodes_have_the_colours_of_their_jobs():
    rows, words = drawn(grouped([0, 1, 5, 6, 7, 12], [2, 3], below=[4, 8]))
    colours = [colour for colour, height in rows[0] if height == rows[0][-1][1]]
    assert colours == [LIGHT[0]] * 2 + [LIGHT[1]] * 3 + ["#ffffff"]
    assert len(rows[0]) - len(colours) == 3 + 2 + 1  # switches: three leaf switches, two pods, the root
    assert words == ["job 0: 2 nodes", "job 1: 3 nodes", "stay idle"]


def test_many_switches_take_several_rows():
    rows, words = drawn(grouped(np.arange(0, 400, 2), [1] * 40, below=[2, 20]))
    assert len(rows) == 4 and len(words) == JOBS_NAMED + 1 and words[0] == "job 0: 1 node"


def test_a_single_switch():
    rows, words = drawn(grouped([0, 1], [2], below=[]))
    assert len(rows) == 1 and words == ["job 0: 2 nodes"]


def test_what_is_no_picture(tmp_path):
    for nodes in (0, NODES_MOST + 1):
        window = grouped(np.arange(nodes), [], below=[10])
        with pytest.raises(InvalidInput, match=f"not {nodes}"):
            save_placement(window, Sequential().place(window), tmp_path / "x.png")


def test_it_is_written(tmp_path):
    window = grouped([0, 1, 5], [2], below=[4])
    save_placement(window, Sequential().place(window), tmp_path / "x.svg", title="cost")
    assert "<svg" in (tmp_path / "x.svg").read_text()
