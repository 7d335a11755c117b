import contextlib
import io
import json
from itertools import chain

import numpy as np
import pytest

from asa.cli.main import main
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.instance import Placed

WINDOWS = {
    "podsize": 8, "leafsize": 4, "w": [1, 3, 5], "c": 1000,
    "instances": [
        {"idle": [0, 1, 2, 4, 5, 6, 7, 9, 12, 13], "sizes": [3, 4]},
        {"idle": list(range(24)), "sizes": [5, 2, 7]},
    ],
}  # fmt: skip
TREE = "SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\nSwitchName=top Switches=a,b\n"
OWN = ["seq", "scas", "sa:iterations=50", "sa:as-published", "dcas-alns:iterations=50", "free:iterations=50"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "windows.json"
    path.write_text(json.dumps(WINDOWS))
    return str(path)


def result(*words):
    """What `asa place` says as JSON, after it has succeeded."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["place", *words, "--json", "-"]) == 0
    return json.loads(out.getvalue())


def paid(nodes):
    """Pair by pair, of node numbers: 1 hop below one switch, 3 in a pod, 5 beyond."""
    pairs = [(one, other) for k, one in enumerate(nodes) for other in nodes[:k]]
    return sum(1000 * (1 + 2 * (a // 4 != b // 4) + 2 * (a // 8 != b // 8)) for a, b in pairs) / len(nodes)


@pytest.mark.parametrize("method", OWN)
def test_what_comes_out(path, method):
    found = result(path, "--method", method)
    assert found["method"] == method and [row["window"] for row in found["rows"]] == [0, 1]
    for row, window in zip(found["rows"], WINDOWS["instances"], strict=True):
        nodes = [job["nodes"] for job in row["jobs"]]
        assert [len(each) for each in nodes] == window["sizes"] and row["violations"] == []
        taken = set(chain.from_iterable(nodes))
        assert len(taken) == sum(window["sizes"]) and taken <= set(window["idle"])
        assert row["cost"] == pytest.approx(sum(map(paid, nodes)))
        assert row["bound"] <= row["cost"] and row["gap"] == pytest.approx(row["cost"] / row["bound"] - 1)
        assert row["seconds"] > 0
    costs, times = ([row[what] for row in found["rows"]] for what in ("cost", "seconds"))
    assert found["mean_cost"] == pytest.approx(np.mean(costs))
    assert found["mean_seconds"] == pytest.approx(np.mean(times)) and found["max_seconds"] == max(times)


def test_what_people_see(path, capsys):
    assert main(["place", path]) == 0
    shown = capsys.readouterr().out
    assert "free: 2 windows" in shown and "none is below" in shown and "gap [%]" in shown


def test_bounds(path):
    best = result(path, "--method", "free")["rows"]
    bounds = {}
    for name in ("lagrangian", "dantzig-wolfe"):
        if name == "dantzig-wolfe":
            pytest.importorskip("ortools")
        bounds[name] = [row["bound"] for row in result(path, "--method", "seq", "--bound", name)["rows"]]
        assert all(bound <= row["cost"] for bound, row in zip(bounds[name], best, strict=True))
    for weak, strong in zip(bounds["lagrangian"], bounds["dantzig-wolfe"], strict=True):
        assert strong >= weak * (1 - 1e-9)
    none = result(path, "--method", "seq", "--bound", "none")
    assert none["mean_bound"] is None and [row["gap"] for row in none["rows"]] == [None, None]


def test_a_potential(path):
    found = result(path, "--method", "free", "--potential", "0.5,0.1")
    for row, window in zip(found["rows"], WINDOWS["instances"], strict=True):
        left = set(window["idle"]) - {node for job in row["jobs"] for node in job["nodes"]}
        pairs = [(one, other) for one in left for other in left if one < other]
        worth = sum(0.5 * (one // 4 == other // 4) + 0.1 * (one // 8 == other // 8) for one, other in pairs)
        assert row["potential"] == pytest.approx(1000 * worth)


def test_one_window(path, capsys):
    assert [row["window"] for row in result(path, "--window", "1")["rows"]] == [1]
    assert main(["place", path, "--window", "2"]) == 1
    assert "has 2 windows, counted from 0" in capsys.readouterr().err


def test_names(tmp_path):
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "names.json").write_text(json.dumps([{"idle": "n[0-2,5,7]", "sizes": [3, 2], "c": 1}]))
    words = [str(tmp_path / "names.json"), "--topology", str(tmp_path / "topology.conf")]
    (row,) = result(*words)["rows"]
    assert [job["nodes"] for job in row["jobs"]] == [["n0", "n1", "n2"], ["n5", "n7"]]
    assert row["cost"] == pytest.approx(3 * 1 / 3 + 1 / 2)
    assert result(*words, "--hops", "paper")["rows"][0]["cost"] == pytest.approx(2 * (3 * 2 / 3 + 2 / 2))


def test_no_windows(tmp_path, capsys):
    path = tmp_path / "none.json"
    path.write_text(json.dumps(WINDOWS | {"instances": []}))
    assert result(str(path))["mean_cost"] is None
    assert main(["place", str(path), "--plot", str(tmp_path / "x.png")]) == 1
    assert "there is no window to draw" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(path, tmp_path, ending):
    pytest.importorskip("matplotlib")
    out = tmp_path / f"x.{ending}"
    assert main(["place", path, "--plot", str(out)]) == 0
    assert out.stat().st_size > 3000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "free:iterations=-1"], "at least 0"),
        (["--hops", "paper"], "--hops is for a --topology"),
        (["--topology", "none.conf"], "none.conf"),
        (["--potential", "1,2,3"], "at most 2 numbers"),
        (["--plot", "x.txt"], "--plot"),
    ],
)
def test_mistakes(path, capsys, options, words):
    assert main(["place", path, *options]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("method", "words"), [("scass", "did you mean 'scas'"), ("free:speed=1", "'speed'")])
def test_unknown_names(path, capsys, method, words):
    assert main(["place", path, "--method", method]) == 2
    assert words in capsys.readouterr().err


def test_more_nodes_than_are_idle(tmp_path, capsys):
    path = tmp_path / "windows.json"
    path.write_text(json.dumps(WINDOWS | {"instances": [{"idle": [1, 2], "sizes": [2, 1]}]}))
    assert main(["place", str(path)]) == 1
    assert "window 0: 2 jobs ask for 3 nodes together: 2 are idle" in capsys.readouterr().err


class Wrong:
    """A method whose jobs share a node, or that claims too much."""

    def __init__(self, places, bound):
        self.places, self.bound = places, bound

    def place(self, window):
        return Placed(tuple(map(np.array, self.places)), "optimal", self.bound)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Wrong([[0, 1, 2], [2, 3, 4, 5]], None), "window 0: node 2 has jobs 0 and 1"),
        (Wrong([[0, 1, 2], [3, 4, 5, 6]], 1e9), "window 0: it costs 2500, less than the bound of 1e+09"),
    ],
)
def test_what_breaks_laws_is_told(path, capsys, monkeypatch, method, words):
    monkeypatch.setattr(type(PLACEMENT_METHODS), "create", lambda *_: method)
    assert main(["place", path, "--window", "0", "--method", "wrong"]) == 1
    shown = capsys.readouterr()
    assert words in shown.err + shown.out
