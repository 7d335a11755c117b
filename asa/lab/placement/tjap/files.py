"""Windows from files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.hostlist import expand
from asa.lab.core.files import check_keys, read_json, shortened
from asa.lab.placement.tjap.instance import PRICE, Window, grouped
from asa.lab.placement.topology import CONVENTIONS, Convention, Topology

_SHARED = {"leafsize": "leaf", "podsize": "pod", "w": "w", "c": "c"}
"""What windows of a file may have in common, and what it is called in one of them."""
_WINDOW = ("idle", "sizes", "leaf", "pod", "w", "c", "name", "note", "epoch", "period", "queue_left", "ub", "lb")
_FILE = ("instances", *_SHARED, "cap", "name", "note")
"""Published files have more than is read here: where a window comes from, and what others found for it."""


def read_windows(
    path: str | Path, topology: Topology | None = None, convention: Convention | None = None
) -> list[Window]:
    """Windows from a JSON file, gzipped or not.

    An object with ``instances``, each of them with ``idle``, numbers of idle nodes, and ``sizes``, how many nodes each
    job asks for; and with what they have in common: ``leafsize`` and ``podsize``, nodes below a leaf switch and in a
    pod; ``w``, hops between two nodes below the same leaf switch, in the same pod, and in different ones; ``c``, the
    price of a hop. Or a list of windows that each say all of it, as ``leaf``, ``pod``, ``w`` and ``c``.

    Parameters
    ----------
    topology
        Where nodes are called by names: then ``idle`` has names or host lists, and the file says nothing of switches.

    Raises
    ------
    InvalidInput
        When it is no such file; when a window asks for more nodes than are idle, has a node twice, or one that the
        topology has not; says which window.
    """
    path = Path(path)
    found = read_json(path, "'instances'")
    shared: dict[str, Any] = {}
    if isinstance(found, Mapping):
        try:
            check_keys(found, _FILE if "instances" in found else found, "the file")
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error
        shared = {short: found[long] for long, short in _SHARED.items() if long in found}
        found = found.get("instances")
    if not isinstance(found, list):
        raise InvalidInput(f"{path}: an object with 'instances', or a list of windows, expected")
    windows = []
    for number, one in enumerate(found):
        try:
            check_keys(one, _WINDOW, "it")
            one = shared | one
            windows.append(_at_numbers(one) if topology is None else _at_names(one, topology, convention))
        except KeyError as error:
            raise InvalidInput(
                f"{path}: window {number} has no {error.args[0]!r}: see docs/lab/placement.md"
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"{path}: window {number}: {error}") from error
    return windows


def _at_numbers(one: Mapping[str, Any]) -> Window:
    _check_whole(one, "idle")
    _check_whole(one, "sizes")
    _check_whole({"leaf and pod": [one["leaf"], one["pod"]]}, "leaf and pod")
    hops = one["w"]
    if not isinstance(hops, list) or not all(type(each) in (int, float) for each in hops):
        raise InvalidInput(f"'w' is {shortened(hops)}: a list of numbers, hops, expected")
    return grouped(one["idle"], one["sizes"], below=[one["leaf"], one["pod"]], hops=hops, price=_price(one))


def _price(one: Mapping[str, Any]) -> float:
    if type(found := one.get("c", PRICE)) not in (int, float):
        raise InvalidInput(f"'c' is {shortened(found)}: a number, the price of a hop, expected")
    return float(found)


def _at_names(one: Mapping[str, Any], topology: Topology, convention: Convention | None) -> Window:
    _check_whole(one, "sizes")
    idle = [one["idle"]] if isinstance(one["idle"], str) else one["idle"]
    if not isinstance(idle, list) or not all(type(each) in (str, int) for each in idle):
        raise InvalidInput(f"'idle' is {shortened(idle)}: names of nodes expected")
    names = [name for each in idle for name in expand(str(each))]
    return topology.window(names, one["sizes"], convention or CONVENTIONS["code"], price=_price(one))


def _check_whole(one: Mapping[str, Any], what: str) -> None:
    """JSON has no whole numbers of its own: 2.5 nodes would become 2."""
    if not isinstance(one[what], list) or not all(type(each) is int for each in one[what]):
        raise InvalidInput(f"{what!r} must be a list of whole numbers")
