"""Networks that are trees of switches: fat trees, Slurm's `topology.conf`, and what distance costs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.hostlist import expand
from asa.lab.placement.tjap.instance import PRICE, Window


@dataclass(frozen=True)
class Convention:
    """How hops are counted.

    Parameters
    ----------
    per_switch
        The switches on the way between two nodes are counted (1, 3, 5 ...); otherwise its links (2, 4, 6 ...).
    both_ways
        Each pair of nodes counts twice, once in each direction.
    whole
        What a job pays is rounded down, and at least 1.
    """

    per_switch: bool
    both_ways: bool
    whole: bool


CONVENTIONS = {
    "paper": Convention(per_switch=False, both_ways=True, whole=False),
    "code": Convention(per_switch=True, both_ways=False, whole=True),
}
"""Of the paper of `asa.lab.placement.tjap.instance.Window`: as section III-A and equation (1) have it, and as its
authors' code does it."""


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes, from left to right, and the switches above them. The hop distance of two nodes is a matter of the lowest
    switch above both.

    Leaf switches have level 0, any other has one more than the highest below it, as in Slurm. Where a switch hangs
    higher than its neighbours, hops are counted as if switches with one child each stood in between.

    Parameters
    ----------
    groups
        Number of the switch that each node is below, at each level, shape (levels, nodes): leaf switches first, the
        root, 0 everywhere, last. Numbers rise from left to right.

    Examples
    --------
    >>> tree = Topology(("a", "b", "c"), np.array([[0, 0, 1], [0, 0, 0]]))
    >>> tree.hops(CONVENTIONS["paper"]).tolist(), tree.level("a", "b"), tree.level("a", "c")
    ([2.0, 4.0], 0, 1)
    >>> tree.cost(["a", "b", "c"], CONVENTIONS["code"], price=1)
    2.0
    """

    nodes: tuple[str, ...]
    groups: Ints

    def __post_init__(self) -> None:
        if self.groups.ndim != 2 or self.groups.shape[1] != len(self.nodes) or not self.nodes:
            raise InvalidInput(f"groups {self.groups.shape} of {len(self.nodes)} nodes: (levels, nodes) expected")
        if (np.diff(self.groups) < 0).any() or self.groups[-1].any():
            raise InvalidInput("switches must have rising numbers from left to right, and the root the number 0")
        if len(self.place) < len(self.nodes):
            twice = next(name for place, name in enumerate(self.nodes) if self.place[name] != place)
            raise InvalidInput(f"node {twice} is there twice: each name once expected")

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each node stands, from left to right."""
        return {name: place for place, name in enumerate(self.nodes)}

    def hops(self, convention: Convention) -> Floats:
        """Hops between two nodes whose lowest common switch is of each level, shape (levels,)."""
        return np.arange(1.0 if convention.per_switch else 2.0, 2.0 * len(self.groups) + 0.5, 2.0)

    def level(self, one: str, other: str) -> int:
        """Level of the lowest switch above two nodes."""
        column, its = self.groups[:, self.find([one, other])].T
        return int(np.flatnonzero(column == its)[0])

    def find(self, names: Iterable[str]) -> Ints:
        """Where these nodes stand."""
        try:
            return np.array([self.place[name] for name in names], dtype=np.int64)
        except KeyError as error:
            raise InvalidInput(f"node {error.args[0]!r} is below no switch of the topology") from error

    def cost(self, names: Sequence[str], convention: Convention, price: float = PRICE) -> float:
        """What a job on these nodes pays: equation (1) of the paper, in one of its conventions."""
        mine = self.groups[:, self.find(names)]
        hops = self.hops(convention)
        pairs = [sum(math.comb(count, 2) for count in np.unique(row, return_counts=True)[1].tolist()) for row in mine]
        saved = np.append(np.diff(hops), 0.0)  # by a pair below the same switch of each level
        total = price * float(hops[-1] * pairs[-1] - saved @ np.array(pairs, dtype=np.float64))
        paid = total * (2 if convention.both_ways else 1) / len(names)
        return max(float(paid // 1), 1.0) if convention.whole else paid

    def window(
        self,
        idle: Iterable[str],
        sizes: Sequence[int],
        convention: Convention,
        *,
        price: float = PRICE,
        potential: Sequence[float] = (),
    ) -> Window:
        """Idle nodes and jobs; costs are not rounded (`Convention.whole`), so that they can be compared."""
        places = np.sort(self.find(idle))
        names = tuple(self.nodes[place] for place in places)
        paid = price * (2 if convention.both_ways else 1)
        sizes_of = np.array(sizes, dtype=np.int64)
        return Window(places, self.groups[:, places], sizes_of, self.hops(convention), paid, names, tuple(potential))


# -- Fat trees --------------------------------------------------------------------------------------------------------


def fat_tree(k: int, pods: int | None = None) -> Topology:
    """A tree of switches with `k` ports each: k pods of k/2 leaf switches of k/2 nodes.

    Parameters
    ----------
    k
        Ports of a switch; even, at least 2.
    pods
        How many pods there are; all of them, `k`, unless given (a pruned fat tree).

    References
    ----------
    Section III-A of the paper of `asa.lab.placement.tjap.instance.Window`; M. Al-Fares, A. Loukissas and A. Vahdat,
    SIGCOMM 2008.

    Examples
    --------
    >>> len(fat_tree(4).nodes), len(fat_tree(48).nodes), len(fat_tree(20, pods=10).nodes)
    (16, 27648, 1000)
    """
    if k < 2 or k % 2:
        raise InvalidInput(f"a fat tree of switches with {k} ports: an even number, at least 2, expected")
    if pods is not None and not 1 <= pods <= k:
        raise InvalidInput(f"{pods} pods in a fat tree of switches with {k} ports: 1 to {k} expected")
    return regular([k if pods is None else pods, k // 2, k // 2])


def regular(widths: Sequence[int]) -> Topology:
    """A tree in which all switches of a level have equally many below them; nodes are called by their numbers.

    Parameters
    ----------
    widths
        How many there are below the root, below each of those, and so on; the last: nodes of a leaf switch.

    Examples
    --------
    The 25 racks of 4 switches of 10 nodes of the paper's authors' code:

    >>> rack = regular([25, 4, 10])
    >>> len(rack.nodes), rack.level("0", "9"), rack.level("0", "10"), rack.level("0", "40")
    (1000, 0, 1, 2)
    """
    if not widths or min(widths) < 1:
        raise InvalidInput(f"a tree of widths {list(widths)}: at least 1 each expected")
    nodes = np.arange(int(np.prod(widths)))
    below = np.cumprod(list(widths)[::-1])
    return Topology(tuple(map(str, nodes.tolist())), np.array([nodes // size for size in below.tolist()]))


# -- Slurm's topology.conf --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Switch:
    name: str
    line: int
    nodes: tuple[str, ...]
    switches: tuple[str, ...]

    def __str__(self) -> str:
        return f"switch {self.name} (line {self.line})"


def read_topology(path: str | Path) -> Topology:
    """The tree of a `topology.conf`, for Slurm's topology/tree plugin.

    Lines as ``SwitchName=s0 Nodes=cn[01-16]`` and ``SwitchName=top Switches=s[0-3]``; keys in any case, ``#`` begins a
    comment, and a backslash at the end of a line goes on with the next. `LinkSpeed` is passed over, as Slurm does.

    Raises
    ------
    InvalidInput
        With the line: when it cannot be read, names a switch twice or one that there is not; when a node is on two
        switches, a switch below two, switches form a cycle, or several have none above them.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: {error}. Expected a topology.conf") from error
    try:
        return _tree({switch.name: switch for switch in _switches(text)})
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def _switches(text: str) -> Iterator[_Switch]:
    """The switches of a file, each name once."""
    known: dict[str, _Switch] = {}
    for number, line in _lines(text):
        words: dict[str, str] = {}
        for word in line.split():
            key, equals, value = word.partition("=")
            if not equals or key.lower() not in ("switchname", "nodes", "switches", "linkspeed"):
                raise InvalidInput(f"line {number}: {word!r} is not SwitchName=, Nodes=, Switches= or LinkSpeed=")
            words[key.lower()] = value
        if not words.get("switchname") or ("nodes" in words) == ("switches" in words):
            raise InvalidInput(f"line {number}: a SwitchName, and either Nodes or Switches, expected")
        try:
            nodes, below = (expand(words[key]) if key in words else () for key in ("nodes", "switches"))
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}") from error
        switch = _Switch(words["switchname"], number, nodes, below)
        if switch.name in known:
            raise InvalidInput(f"line {number}: {known[switch.name]} is there already")
        known[switch.name] = switch
        yield switch


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """What stands in a file, without comments, each with the number of the line on which it begins."""
    begun, so_far = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"#.*", "", line).rstrip()
        begun = begun or number
        so_far += bare.removesuffix("\\") + " "
        if not bare.endswith("\\"):
            if so_far.strip():
                yield begun, so_far
            begun, so_far = 0, ""
    if so_far.strip():
        yield begun, so_far


def _tree(switches: dict[str, _Switch]) -> Topology:
    above = _above(switches)
    _check_nodes(switches)
    roots = [switch for name, switch in switches.items() if name not in above]
    _check_cycles(switches, above)
    if not roots:
        raise InvalidInput("there is no switch")
    if len(roots) > 1:
        names = ",".join(switch.name for switch in roots)
        raise InvalidInput(
            f"nothing joins {roots[0]} and {roots[1]}{f' and {len(roots) - 2} others' * (len(roots) > 2)}: add a "
            f"switch above them, such as SwitchName=root Switches={names}"
        )
    return _laid_out(switches, roots[0])


def _laid_out(switches: dict[str, _Switch], root: _Switch) -> Topology:
    """Nodes from left to right, as the file has them; without recursion, for trees may be deep."""
    order, level, todo = [], dict.fromkeys(switches, 0), [root]
    while todo:
        switch = todo.pop()
        order.append(switch)
        todo += (switches[name] for name in reversed(switch.switches))
    for switch in reversed(order):
        level[switch.name] = max((level[name] + 1 for name in switch.switches), default=0)
    levels, left = level[root.name] + 1, {root.name: (root,) * (level[root.name] + 1)}
    nodes: list[str] = []
    columns: list[tuple[_Switch, ...]] = []
    for switch in order:
        way = left[switch.name]  # by level, the switch above: from its own level on up
        for name in switch.switches:
            below = switches[name]
            left[name] = (*(below for _ in range(level[switch.name])), *way[level[switch.name] :])
        nodes += switch.nodes
        columns += [way] * len(switch.nodes)
    turn = {switch.name: number for number, switch in enumerate(order)}
    numbers = np.array([[turn[switch.name] for switch in column] for column in columns], dtype=np.int64)
    return Topology(tuple(nodes), numbers.T.reshape(levels, len(nodes)))


def _above(switches: dict[str, _Switch]) -> dict[str, _Switch]:
    """The switch above each."""
    above: dict[str, _Switch] = {}
    for switch in switches.values():
        for name in switch.switches:
            if name not in switches:
                raise InvalidInput(f"line {switch.line}: {name!r}, below {switch.name!r}, is no switch of this file")
            if name in above:
                raise InvalidInput(f"{switches[name]} is below two: {above[name]} and {switch}")
            above[name] = switch
    return above


def _check_nodes(switches: dict[str, _Switch]) -> None:
    where: dict[str, _Switch] = {}
    for switch in switches.values():
        for node in switch.nodes:
            if node in where:
                raise InvalidInput(f"node {node} is on {where[node]} and {switch}: one only expected")
            where[node] = switch


def _check_cycles(switches: dict[str, _Switch], above: dict[str, _Switch]) -> None:
    """Raise when the way up from a switch comes back to a switch."""
    known: set[str] = set()  # the ways up from these end
    for name in above:
        way: dict[str, None] = {}
        while name in above and name not in known:
            if name in way:
                names = list(way)
                cycle = ", ".join(str(switches[each]) for each in names[names.index(name) :])
                raise InvalidInput(f"switches form a cycle: {cycle}")
            way[name] = None
            name = above[name].name
        known.update(way)


# -- Networks by name -------------------------------------------------------------------------------------------------


def network(what: str, nodes: int) -> Topology:
    """The tree of switches above a machine's nodes, which stand in it in their order, from left to right.

    Parameters
    ----------
    what
        Widths as in ``"25x4x10"`` (25 pods of 4 leaf switches of 10 nodes; see `asa.lab.placement.topology.regular`),
        the name of a `topology.conf`, or "" for the smallest fat tree that has enough nodes.

    Raises
    ------
    InvalidInput
        When there is no such file or tree, or it has fewer nodes.

    Examples
    --------
    >>> network("25x4x10", 1000).groups.shape, len(network("", 1000).nodes)
    ((3, 1000), 1024)
    """
    if not what:
        k = 2
        while k**3 // 4 < nodes:
            k += 2
        return fat_tree(k)
    known = re.fullmatch(r"\d+(x\d+)*", what)
    tree = regular([int(width) for width in what.split("x")]) if known else read_topology(what)
    if len(tree.nodes) < nodes:
        raise InvalidInput(f"topology {what} has {len(tree.nodes)} nodes: the machine has {nodes}")
    return tree
