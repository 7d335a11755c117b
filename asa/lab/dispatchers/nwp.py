"""Windows: what has come in a window of time is placed at its end, all of it at once, where jobs' nodes are near.

Who waits for most windows comes first, then who asks for fewest nodes; whoever comes next and does not fit ends the
round. A placement method (`asa.lab.placement.tjap`) chooses nodes for all of them together.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.decision import NodeRun, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import with_options
from asa.core.view import QueueView
from asa.lab.core.cluster import Cluster
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.core.table import TableView
from asa.lab.dispatchers.room import columns, room_of
from asa.lab.placement.tjap.instance import Placed, Window
from asa.lab.placement.tjap.together import Prospect
from asa.lab.placement.topology import CONVENTIONS, Topology, network


class Nwp:
    """Window-based scheduling with priorities by the number of waiting periods.

    Jobs get whole nodes, on machines of equal nodes in one partition. A machine that knows of windows (`asa simulate`,
    ``sim:``) asks at multiples of `window` only; others ask whenever something has changed, and windows then only order
    the queue.

    Parameters
    ----------
    method
        A placement method, with options if it takes any; more of them may be given as options of this dispatcher.
    most
        Most jobs of several nodes that start at once; 0 for no limit.
    leaf, pod
        What a pair of nodes that stay idle below the same leaf switch, or the same switch above that, is worth to jobs
        to come, in hops: the potential of `asa.lab.placement.tjap.instance.Window`.

    Raises
    ------
    InvalidInput
        When an option is out of range, or with a machine whose nodes differ or stand in several partitions.
    UnknownName
        When there is no such method, option of it, or convention.

    References
    ----------
    Section III-C of the paper of `asa.lab.placement.tjap.instance.Window`: "number of waiting periods" (NWP). It leaves
    open whether a job that does not fit holds up those behind it; in the authors' code it does, and so it does here.
    That code takes five jobs at most, and places those of one node afterwards, on the first nodes left. With a
    potential, it matters where these are: then they are placed with the others.
    """

    def __init__(
        self,
        *,
        window: float = 60.0,
        method: Any = "free",
        topology: str = "",
        hops: str = "code",
        most: int = 0,
        leaf: float = 0.0,
        pod: float = 0.0,
        **options: Any,
    ) -> None:
        if not 0 < window < math.inf or most < 0 or not (0 <= leaf < math.inf and 0 <= pod < math.inf):
            raise InvalidInput(
                f"window={window:g}, most={most}, leaf={leaf:g}, pod={pod:g}: a time above 0 s, and numbers of at "
                "least 0, expected"
            )
        if hops not in CONVENTIONS:
            raise UnknownName("convention", hops, CONVENTIONS)
        if isinstance(method, str):
            method = with_options(method, **options)
        elif options:
            raise InvalidInput(f"options {', '.join(options)} are for a method that is given by its name")
        self.window, self._most, self._potential = float(window), most or math.inf, (float(leaf), float(pod))
        self._method = PLACEMENT_METHODS.create(method)
        self._convention, self._topology = CONVENTIONS[hops], topology
        self._machine: WindowMachine | None = None
        self._held: dict[int, Ints] = {}  # nodes of what it has started, by row

    @property
    def needs_estimates(self) -> bool:
        """Whether its method looks at when jobs end."""
        return hasattr(self._method, "place_with")

    def decide(self, view: QueueView | TableView) -> list[Start]:
        """What to start now, in order of priority; with its nodes, where these can be seen."""
        since, _, cores = columns(view)
        if not len(since):
            return []
        if isinstance(view, QueueView):
            room = room_of(view)
            chosen, _ = self._chosen(since, cores, room.free)
            return [start for place in chosen if (start := room.start(place))]
        if self._machine is None or self._machine.cluster is not view.cluster:
            self._machine = WindowMachine(view.cluster, self._topology)
        idle, units, nodes = self._machine.look(view)
        chosen, sizes = self._chosen(since, nodes, len(idle))
        if not chosen:
            return []
        rows = view.waiting[chosen].tolist()
        given = self._place(view, idle, rows, sizes)
        running = {*view.active.tolist()}
        self._held = {row: held for row, held in self._held.items() if row in running}
        self._held |= dict(zip(rows, given, strict=True))
        asked = zip(units[chosen].tolist(), view.column("units")[chosen].tolist(), strict=True)
        return [Start(row, runs(nodes, *job)) for row, nodes, job in zip(rows, given, asked, strict=True)]

    def _chosen(self, since: Any, nodes: Ints, idle: int) -> tuple[list[int], Ints]:
        """Places in the queue of what starts, those of several nodes first; and how many nodes each asks for."""
        first = np.ceil(since / self.window)  # the window at whose end a job was first looked at
        some: list[int] = []
        single: list[int] = []
        for place in np.lexsort((nodes, first)).tolist():
            if nodes[place] > idle or (nodes[place] > 1 and len(some) == self._most):
                break
            (some if nodes[place] > 1 else single).append(place)
            idle -= nodes[place]
        return some + single, nodes[some + single]

    def _place(self, view: TableView, idle: Ints, rows: list[int], sizes: Ints) -> list[Ints]:
        """Nodes of the jobs in these rows, which need so many of the idle ones; each rising."""
        assert self._machine is not None
        together = len(sizes) if any(self._potential) else int((sizes > 1).sum())
        tree = self._machine.tree
        window = Window(
            idle,
            tree.groups[:, idle],
            sizes[:together],
            tree.hops(self._convention),
            potential=self._potential[: len(tree.groups) - 1] if any(self._potential) else (),
        )
        found = self._found(view, window, rows[:together])
        given = [idle[places] for places in found.places]
        left = np.setdiff1d(idle, np.concatenate([idle[:0], *given]))
        return given + [left[place : place + 1] for place in range(len(rows) - together)]

    def _found(self, view: TableView, window: Window, rows: list[int]) -> Placed:
        if not self.needs_estimates:
            found: Placed = self._method.place(window)
            return found
        assert self._machine is not None
        ends = dict(zip(view.active.tolist(), (view.ends - view.now).tolist(), strict=True))
        known = [row for row in self._held if row in ends]
        held = np.concatenate([window.idle[:0], *(self._held[row] for row in known)])
        free_in = np.repeat([ends[row] for row in known], [len(self._held[row]) for row in known])
        lasts = np.asarray(view.jobs["estimate"][rows], dtype=np.float64)
        prospect = Prospect(lasts, self._machine.tree.groups[:, held], free_in.astype(np.float64))
        foreseen: Placed = self._method.place_with(window, prospect)
        return foreseen


class WindowMachine:
    """A machine of equal nodes in one partition, and its network.

    Raises
    ------
    InvalidInput
        When nodes differ, stand in several partitions or are kept from jobs, or the network has too few.
    """

    def __init__(self, cluster: Cluster, topology: str) -> None:
        if not cluster.uniform or len(cluster.partitions) > 1 or cluster.windows:
            raise InvalidInput(
                f"nwp gives jobs whole nodes: equal ones in one partition without windows expected, not {cluster!r}"
            )
        self.cluster, self._what = cluster, topology

    @cached_property
    def tree(self) -> Topology:
        return network(self._what, self.cluster.nodes)

    def look(self, view: TableView) -> tuple[Ints, Ints, Ints]:
        """Idle nodes, rising; how many units of each waiting job a node takes; and how many nodes the job needs."""
        capacity = self.cluster.capacity[0]
        per_kind = [int((capacity[need > 0] // need[need > 0]).min(initial=2**40)) for need in view.demands]
        fit = np.array(per_kind, dtype=np.int64)[view.column("kind").astype(np.int64)]
        limit = np.asarray(view.column("per_node"), dtype=np.int64)
        units = np.where(limit > 0, np.minimum(fit, limit), fit)
        idle = np.flatnonzero((view.free == capacity).all(axis=1))
        return idle, units, -(-np.asarray(view.column("units"), dtype=np.int64) // units)


def runs(nodes: Ints, each: int, units: int) -> tuple[NodeRun, ...]:
    """Rising nodes as runs of neighbours with `each` units; the last node has what is left of `units`.

    >>> runs(np.array([0, 1, 4]), 2, 5)
    (NodeRun(first=0, last=1, units=2), NodeRun(first=4, last=4, units=1))
    """
    given = np.full(len(nodes), each)
    given[-1] = units - each * (len(nodes) - 1)
    cuts = np.flatnonzero((np.diff(nodes) > 1) | (np.diff(given) != 0)) + 1
    parts = zip(np.split(nodes, cuts), np.split(given, cuts), strict=True)
    return tuple(NodeRun(int(part[0]), int(part[-1]), int(share[0])) for part, share in parts)
