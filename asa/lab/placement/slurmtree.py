"""Slurm's `topology.conf`: a tree of switches in a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.hostlist import expand
from asa.lab.placement.topology import Topology


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
