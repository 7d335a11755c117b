"""Fair Tree as Slurm's page describes it, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asa.lab.core.cluster import ROOT, Account

Pair = tuple[str, str]


def factors(accounts: Mapping[str, Account], used: Mapping[Pair, int]) -> dict[Pair, float]:
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
        users = {user: accounts.get(name, Account()).users.get(user, 1) for account, user in used if account == name}
        below = {other: each.shares for other, each in accounts.items() if each.parent == name and other != ROOT}
        beside = [*users.values(), *below.values()]
        found = [
            Node(name, user, level(n, beside, used[name, user], usage(name))) for user, n in users.items()
        ]  # fmt: skip
        return found + [Node(other, "", level(n, beside, usage(other), usage(name))) for other, n in below.items()]

    found: dict[Pair, float] = {}
    last = rank = len(used)

    def descend(nodes: list[Node], tied_with_user: bool) -> None:
        nonlocal last, rank
        before = float("nan")
        for each in sorted(nodes, key=lambda node: (-node.level, not node.user)):
            tied, before = tied_with_user or each.level == before, each.level
            tied_with_user = False
            if each.user:
                rank = rank if tied else last
                found[each.name, each.user] = rank / len(used)
                last -= 1
            elif each in nodes:
                equal = [other for other in nodes if not other.user and other.level == each.level]
                if each == equal[0]:
                    descend([child for other in equal for child in children(other.name)], tied)

    descend(children(ROOT), False)
    return found
