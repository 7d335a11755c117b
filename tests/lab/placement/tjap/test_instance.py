import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import Window, dense, grouped, placed

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
