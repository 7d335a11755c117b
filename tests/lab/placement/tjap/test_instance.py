import gzip
import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.tjap.instance import (
    Placed,
    Window,
    cost,
    dense,
    grouped,
    is_dynamic,
    is_static,
    objective,
    placed,
    potential,
    proven,
    violations,
)
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.placement.topology import CONVENTIONS, fat_tree, regular
from tests.lab.placement.tjap.windows import best_free, windows

GOOD = {
    "idle": np.array([3, 4, 8]),
    "groups": np.array([[0, 0, 1], [0, 0, 0]]),
    "sizes": np.array([2]),
    "hops": np.array([1.0, 3.0]),
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"idle": np.array([3, 4])}, "do not go together"),
        ({"hops": np.array([1.0])}, "do not go together"),
        ({"groups": np.array([0, 0, 0])}, "do not go together"),
        ({"idle": np.array([3, 3, 8])}, "node 3 is idle twice"),
        ({"idle": np.array([3, 3, 8]), "names": ("a", "a", "b")}, "node a is idle twice"),
        ({"idle": np.array([3, 9, 8])}, "node 8 comes after node 9"),
        ({"groups": np.array([[0, 1, 0], [0, 0, 0]])}, "rising numbers"),
        ({"groups": np.array([[0, 0, 1], [0, 1, 1]])}, "rising numbers"),
        ({"groups": np.array([[0, 0, 0], [0, 0, 1], [0, 0, 0]]), "hops": np.array([1, 2, 3])}, "below two switches"),
        ({"hops": np.array([3.0, 1.0])}, "rising, at least 0"),
        ({"hops": np.array([-1.0, 1.0])}, "rising, at least 0"),
        ({"price": -1.0}, "price of -1"),
        ({"price": float("nan")}, "price of nan"),
        ({"potential": (1.0, 1.0)}, "at most 1 numbers"),
        ({"potential": (-1.0,)}, "at least 0"),
        ({"potential": (float("nan"),)}, "at least 0"),
        ({"sizes": np.array([2, 0])}, "asks for 0 nodes"),
        ({"sizes": np.array([2, 2])}, "2 jobs ask for 4 nodes together: 3 are idle"),
    ],
)
def test_what_is_no_window(changed, words):
    with pytest.raises(InvalidInput, match=words):
        Window(**(GOOD | changed))


@pytest.mark.parametrize(("idle", "below"), [([0], [0]), ([0], [2, 3]), ([-1, 2], [2])])
def test_no_such_machine(idle, below):
    with pytest.raises(InvalidInput):
        grouped(idle, [1], below=below)


def test_a_machine_of_equal_switches():
    window = grouped([9, 0, 5], [1], below=[2, 4], potential=[0.1])
    assert window.idle.tolist() == [0, 5, 9] and window.groups.tolist() == [[0, 2, 4], [0, 1, 2], [0, 0, 0]]
    assert window.hops.tolist() == [1, 3, 5] and window.tables.kept.tolist() == [100, 0, 0]
    assert window.tables.saved.tolist() == [2000, 2000, 0] and window.tables.far == 5000
    assert window.tables.groups.tolist() == [[0, 1, 2], [0, 1, 2], [0, 0, 0]] == dense(window.groups).tolist()


def test_a_single_switch_is_below_a_root_as_far_away():
    window = grouped([0, 1], [2], below=[])
    assert window.tables.groups.shape == (2, 2) and window.tables.saved.tolist() == [0, 0]


def test_places_of_owners():
    found = placed(np.array([1, -1, 0, 1]), 2)
    assert [places.tolist() for places in found.places] == [[2], [0, 3]]


def at(*places):
    return Placed(tuple(np.array(each, dtype=np.int64) for each in places))


@given(windows())
def test_a_cost_pair_by_pair(window):
    found = Sequential().place(window)
    total = 0.0
    for places in found.places:
        for one, other in combinations(places.tolist(), 2):
            level = next(k for k, row in enumerate(window.groups) if row[one] == row[other])
            total += window.price * window.hops[level] / len(places)
    assert cost(window, found) == pytest.approx(total)
    assert violations(window, found) == []


def test_a_job_of_the_paper_alone():
    """Ten nodes below one switch and one in the same pod: 45 pairs of 2 hops and 10 of 4, in both directions."""
    window = fat_tree(20, 10).window([str(node) for node in range(11)], [11], CONVENTIONS["paper"])
    assert cost(window, at(range(11))) == pytest.approx(1000 * 2 * (45 * 2 + 10 * 4) / 11)


@given(windows(), st.lists(st.floats(0, 2), max_size=2))
def test_a_potential_pair_by_pair(window, worth):
    window = replace(window, potential=tuple(worth))
    found = Sequential().place(window)
    left = range(int(window.sizes.sum()), len(window.idle))
    pairs = [
        each
        for each, row in zip(worth, window.groups, strict=False)
        for one, other in combinations(left, 2)
        if row[one] == row[other]
    ]
    assert potential(window, found) == pytest.approx(window.price * sum(pairs))
    assert objective(window, found) == cost(window, found) - potential(window, found)


def test_laws():
    window = grouped(range(5), [2, 3], below=[4])
    assert violations(window, at([0, 1], [2, 3, 4])) == []
    assert violations(window, at([0, 1])) == ["1 jobs have nodes: there are 2"]
    assert violations(window, at([0, 0], [2, 3, 4])) == ["job 0 has 1 nodes: it asked for 2"]
    assert violations(window, at([0, 5], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([-1, 0], [2, 3, 4])) == ["job 0 has nodes that are not idle"]
    assert violations(window, at([0, 2], [2, 3, 4])) == ["node 2 has jobs 0 and 1"]


def test_neighbours():
    """Static: in the ring of idle nodes. Dynamic: in the ring of those that are left."""
    window = grouped(range(6), [2, 2], below=[6])
    assert is_static(window, at([0, 5], [2, 3])) and is_dynamic(window, at([0, 5], [2, 3]))
    assert not is_static(window, at([0, 3], [1, 2])) and is_dynamic(window, at([0, 3], [1, 2]))
    assert not is_dynamic(window, at([0, 2], [1, 3]))


@given(windows(most_idle=8, most_jobs=3), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_the_prices_nothing_costs_less(window, data):
    leaves = len(set(window.groups[0].tolist()))
    prices = np.array(data.draw(st.lists(st.floats(0, 3 * window.price), min_size=leaves, max_size=leaves)))
    assert proven(window, prices) <= best_free(window) * (1 + 1e-9) + 1e-9


def test_prices_below_0_prove_nothing():
    from asa.lab.placement.tjap.instance import grouped

    assert proven(grouped([0, 1], [1], below=[1]), np.array([0.0, -0.1])) == -np.inf


SHARED = {"podsize": 4, "leafsize": 2, "w": [1, 3, 5], "c": 10}
ONE = {"idle": [0, 1, 5], "sizes": [2]}


def written(tmp_path, data):
    path = tmp_path / "windows.json"
    path.write_text(json.dumps(data))
    return path


def test_windows_with_something_in_common(tmp_path):
    (window,) = read_windows(written(tmp_path, SHARED | {"instances": [ONE]}))
    assert window.idle.tolist() == [0, 1, 5] and window.sizes.tolist() == [2] and window.price == 10
    assert window.groups.tolist() == [[0, 0, 2], [0, 0, 1], [0, 0, 0]] and window.hops.tolist() == [1, 3, 5]
    path = tmp_path / "windows.json.gz"
    path.write_bytes(gzip.compress((tmp_path / "windows.json").read_bytes()))
    assert len(read_windows(path)) == 1


def test_windows_that_each_say_all(tmp_path):
    each = ONE | {"leaf": 2, "pod": 6, "w": [2, 4, 6]}
    first, second = read_windows(written(tmp_path, [each, each | {"c": 1}]))
    assert first.groups[1].tolist() == [0, 0, 0] and (first.price, second.price) == (1000, 1)


def test_names(tmp_path):
    tree = regular([3, 2, 2])
    path = written(tmp_path, {"c": 1, "instances": [{"idle": "[8-9],3", "sizes": [2]}, {"idle": ["1"], "sizes": []}]})
    first, second = read_windows(path, tree, CONVENTIONS["paper"])
    assert first.names == ("3", "8", "9") and first.price == 2 and first.hops.tolist() == [2, 4, 6]
    assert second.names == ("1",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (1, "an object with 'instances', or a list"),
        ({"windows": []}, "an object with 'instances', or a list"),
        ([ONE], "window 0 has no 'leaf'"),
        (SHARED | {"instances": [{"idle": [1]}]}, "window 0 has no 'sizes'"),
        (SHARED | {"instances": [ONE, 3]}, "window 1: "),
        (SHARED | {"instances": [ONE, ONE | {"sizes": [4]}]}, "window 1: 1 jobs ask for 4 nodes together: 3 are idle"),
        (SHARED | {"instances": [ONE | {"idle": [1, 1]}]}, "window 0: node 1 is idle twice"),
        (SHARED | {"instances": [ONE | {"idle": [1, 2.5]}]}, "'idle' must be a list of whole numbers"),
        (SHARED | {"instances": [ONE | {"sizes": "2"}]}, "'sizes' must be a list of whole numbers"),
        (SHARED | {"instances": [ONE | {"sizes": [0]}]}, "asks for 0 nodes"),
        (SHARED | {"instances": [ONE | {"idle": [2**80]}]}, "window 0: "),
        (SHARED | {"w": [1, 2], "instances": [ONE]}, "do not go together"),
        (SHARED | {"w": "abc", "instances": [ONE]}, "window 0: "),
    ],
)
def test_what_are_no_windows(tmp_path, data, words):
    with pytest.raises(InvalidInput, match=words):
        read_windows(written(tmp_path, data))


@pytest.mark.parametrize("text", ["{", "\x1f\x8bnothing", "\udcff"])
def test_what_is_no_file_of_windows(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"x\.json"):
        read_windows(path)
    with pytest.raises(InvalidInput, match=r"none\.json"):
        read_windows(tmp_path / "none.json")


def test_names_that_are_not_there(tmp_path):
    path = written(tmp_path, [{"idle": ["x1"], "sizes": [1]}])
    with pytest.raises(InvalidInput, match="node 'x1' is below no switch"):
        read_windows(path, regular([2, 2]))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"none.json: No such file or directory. Expected a JSON file with 'instances'"
    ):
        read_windows(tmp_path / "none.json")
