from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.lab.placement.slurmtree import read_topology
from asa.lab.placement.topology import Topology

REAL = Path(__file__).parents[2] / ".." / "shared" / "data" / "topology"


def read(folder: Path, text: str) -> Topology:
    path = folder / "topology.conf"
    path.write_text(text)
    return read_topology(path)


def test_switches_at_any_level_in_any_order(tmp_path: Path) -> None:
    tree = read(
        tmp_path,
        "SwitchName=root Switches=far,pod  # the top\n"
        "switchname=pod switches=s[0-1] LinkSpeed=100\n\n"
        "SwitchName=far Nodes=x[1-2]\n"
        "SwitchName=s1 \\\n  Nodes=c\n"
        "SwitchName=s0 Nodes=a,b\n",
    )
    assert tree.nodes == ("x1", "x2", "a", "b", "c") and len(tree.groups) == 3
    pairs = {("x1", "x2"): 0, ("a", "b"): 0, ("a", "c"): 1, ("x1", "a"): 2}
    assert {pair: tree.level(*pair) for pair in pairs} == pairs


def test_a_single_switch(tmp_path: Path) -> None:
    assert read(tmp_path, "SwitchName=s Nodes=n[1-3]").groups.tolist() == [[0, 0, 0]]


def test_a_deep_tree(tmp_path: Path) -> None:
    lines = ["SwitchName=s0 Nodes=n"] + [f"SwitchName=s{k} Switches=s{k - 1}" for k in range(1, 1500)]
    assert read(tmp_path, "\n".join(lines)).groups.shape == (1500, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no switch"),
        ("NodeName=a", "line 1: 'NodeName=a' is not SwitchName="),
        ("SwitchName=s Nodes", "line 1: 'Nodes' is not"),
        ("SwitchName=s", "line 1: a SwitchName, and either Nodes or Switches"),
        ("Nodes=a", "line 1: a SwitchName"),
        ("SwitchName=s Nodes=a Switches=b", "either Nodes or Switches"),
        ("SwitchName=s Nodes=a[", "line 1: host list 'a\\[': brackets do not match"),
        ("SwitchName=s Nodes=a\nSwitchName=s Nodes=b", "line 2: switch s \\(line 1\\) is there already"),
        ("SwitchName=t Switches=s", "line 1: 's', below 't', is no switch of this file"),
        ("SwitchName=s Nodes=a\nSwitchName=t Nodes=b", "nothing joins switch s .* SwitchName=root Switches=s,t"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "switches form a cycle: switch . \\(line .\\), switch"),
        (
            "SwitchName=r Switches=s,t\nSwitchName=s Nodes=a\nSwitchName=t Nodes=b,a",
            "node a is on switch s \\(line 2\\) and switch t \\(line 3\\): one only",
        ),
        (
            "SwitchName=s Nodes=a\nSwitchName=r Switches=s\nSwitchName=q Switches=s",
            "switch s \\(line 1\\) is below two: switch r \\(line 2\\) and switch q \\(line 3\\)",
        ),
    ],
)
def test_what_is_no_tree(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as told:
        read(tmp_path, text)
    assert "topology.conf: " in str(told.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"Expected a topology\.conf"):
        read_topology(tmp_path / "none")


@pytest.mark.shared
@pytest.mark.skipif(not REAL.is_dir(), reason="no folder ../shared/data")
def test_real_files() -> None:
    tree = read_topology(REAL / "nstda-tara_topology.conf")
    assert (len(tree.nodes), len(tree.groups), len(set(tree.groups[0].tolist()))) == (10, 2, 4)
    with pytest.raises(InvalidInput, match="node circe-n051 is on switch s2"):
        read_topology(REAL / "nvidia-circe-superpod_topology.conf")
    with pytest.raises(InvalidInput, match="nothing joins switch IB1"):
        read_topology(REAL / "ub-hpc_topology.conf")


def test_a_line_may_go_on_and_the_last_one_may_never_end(tmp_path: Path) -> None:
    whole = read(tmp_path, "SwitchName=s Nodes=a,b")
    assert str(read(tmp_path, "SwitchName=s \\\n  Nodes=a,b  # both\n")) == str(whole)
    assert str(read(tmp_path, "SwitchName=s Nodes=a,b \\")) == str(whole)
    with pytest.raises(InvalidInput, match="line 2: 'Nodes' is not"):
        read(tmp_path, "# switches\nSwitchName=s \\\n Nodes \\")
