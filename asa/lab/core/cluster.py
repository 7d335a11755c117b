"""Machines: nodes, what each of them has, and the partitions they are grouped in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import InvalidInput

MOST_NODES = 2**24
"""No machine has more nodes; tables of them have room for these."""
RESOURCES = ("cores", "memory", "gpus")
"""Names that `Resources` uses, in the order in which clusters and workloads list amounts; others may follow."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes and what each has.

    Parameters
    ----------
    capacity
        Amounts, shape (nodes, resources); memory in bytes; >= 0.
    partitions
        Name -> numbers of its nodes. Empty: one partition of all nodes.
    shareable
        Resources that running jobs may hold more of than there is, because they share it (co-scheduling).
    names
        Names of the nodes; ``n0``, ``n1`` ... unless given.

    Raises
    ------
    InvalidInput
        When the shapes do not fit together, an amount is negative, or a partition names a node that is not there.

    Examples
    --------
    >>> Cluster.of(nodes=602, cores=28)
    <Cluster of 602 nodes: 16856 cores>
    """

    capacity: Ints
    resources: tuple[str, ...] = RESOURCES[:1]
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shareable: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        capacity = np.ascontiguousarray(self.capacity, dtype=np.int64)
        if capacity.ndim != 2 or capacity.shape[1] != len(self.resources) or not capacity.size:
            raise InvalidInput(
                f"a cluster's capacity must have one row per node and one column for each of {self.resources}, "
                f"not the shape {capacity.shape}"
            )
        if self.resources[0] != "cores" or len(set(self.resources)) < len(self.resources):
            raise InvalidInput(f"resources must be distinct names, 'cores' first, not {self.resources}")
        if (capacity < 0).any():
            raise InvalidInput(f"node {int(np.argwhere(capacity < 0)[0][0])} has a negative amount: expected >= 0")
        for name, nodes in self.partitions.items():
            if not nodes or min(nodes) < 0 or max(nodes) >= len(capacity):
                raise InvalidInput(f"partition {name!r} must name nodes between 0 and {len(capacity) - 1}")
        if unknown := self.shareable - set(self.resources):
            known = ", ".join(self.resources)
            raise InvalidInput(f"{min(unknown)!r} cannot be shareable, for nodes have none: expected some of {known}")
        if self.names and len(self.names) != len(capacity):
            raise InvalidInput(f"{len(self.names)} names for {len(capacity)} nodes: give one for each, or none")
        capacity.setflags(write=False)
        object.__setattr__(self, "capacity", capacity)

    @classmethod
    def of(cls, nodes: int, cores: int = 1, memory: int = 0, gpus: int = 0) -> Cluster:
        """`nodes` equal nodes; memory in bytes, 0 where it is not to be counted."""
        for name, value, least in (("nodes", nodes, 1), ("cores", cores, 1), ("memory", memory, 0), ("gpus", gpus, 0)):
            if value < least:
                raise InvalidInput(f"a cluster of {value} {name}: expected at least {least}")
        if nodes > MOST_NODES or max(cores, memory, gpus) * nodes >= 2**62:
            raise InvalidInput(
                f"a cluster of {nodes} nodes of {cores} cores: at most {MOST_NODES:,} nodes, and less than 2^62 of "
                "anything, expected"
            )
        amounts = (cores, memory, gpus)
        used = [k for k in range(3) if k == 0 or amounts[k]]
        return cls(np.tile([amounts[k] for k in used], (nodes, 1)), tuple(RESOURCES[k] for k in used))

    @property
    def nodes(self) -> int:
        return len(self.capacity)

    @property
    def cores(self) -> int:
        return int(self.capacity[:, 0].sum())

    @property
    def uniform(self) -> bool:
        return bool((self.capacity == self.capacity[0]).all())

    def name(self, node: int) -> str:
        return self.names[node] if self.names else f"n{node}"

    def __repr__(self) -> str:
        amounts = ", ".join(
            f"{int(total)} {name}" for name, total in zip(self.resources, self.capacity.sum(axis=0), strict=True)
        )
        return f"<Cluster of {self.nodes} nodes: {amounts}>"
