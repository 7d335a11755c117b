import gzip
import json

import pytest

from asa.core.errors import InvalidInput
from asa.lab.placement.fattree import regular
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.topology import CONVENTIONS

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
