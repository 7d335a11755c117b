"""Fair Tree as Slurm's page describes it, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asa.lab.core.cluster import ROOT, ClusterAccount

Pair = tuple[str, str]


def factors(accounts: Mapping[str, ClusterAccount], used: Mapping[Pair, int]) -> dict[Pair, float]:
    """The fair-share factor of each user in each account, by what these have used."""

    class Node(NamedTuple):
        name: str
        user: str
        level: float

    def usage(name: str) -> int:
        below = sum(usage(other) for other, each in accounts.items() if each.parent == name and other != ROOT)
        return below + sum(count for (account, _), count in used.items() if account == name)

    def level(shares: int, beside: Sequence[int], mine: int, above: int) -> float:
        if not shares:
            return 0.0
        return shares / sum(beside) / (mine / above) if mine else float("inf")

    def children(name: str) -> list[Node]:
        own = accounts.get(name, ClusterAccount()).users
        users = {user: own.get(user, 1) for account, user in used if account == name}
        below = {other: each.shares for other, each in accounts.items() if each.parent == name and other != ROOT}
        beside = [*users.values(), *below.values()]
        found = [Node(name, user, level(n, beside, used[name, user], usage(name))) for user, n in users.items()]
        return found + [Node(other, "", level(n, beside, usage(other), usage(name))) for other, n in below.items()]

    found: dict[Pair, float] = {}
    last = rank = len(used)

    def descend(nodes: list[Node], tied: bool) -> None:
        """`tied`: whether the first of these has the rank of the user before."""
        nonlocal last, rank
        for at in sorted({node.level for node in nodes}, reverse=True):
            equal = [node for node in nodes if node.level == at]
            for node in [node for node in equal if node.user]:
                rank = rank if tied else last
                found[node.name, node.user] = rank / len(used)
                last, tied = last - 1, True
            descend([child for node in equal if not node.user for child in children(node.name)], tied)
            tied = False

    descend(children(ROOT), False)
    return found
