"""Fair Tree: whose jobs come first, as Slurm has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import ROOT, Cluster, ClusterAccount
from asa.lab.core.workload import Workload
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import Multifactor
from tests.lab.simulator.fair_tree import Pair, factors

# What `sshare -alP` of Slurm 22.05.8 printed on 2026-11-28 after five jobs, of two users in five accounts.
ACCOUNTS = {
    ROOT: ClusterAccount(users={"root": 1}),
    "asa": ClusterAccount(users={"ann": 1, "bob": 1}),
    "bio": ClusterAccount(2, users={"ann": 1, "bob": 2}),
    "geo": ClusterAccount(2, users={"ann": 1, "bob": 2}),
    "phys": ClusterAccount(3, users={"bob": 4}),
    "optics": ClusterAccount(2, "phys", {"ann": 5, "bob": 1}),
}
RAW_USAGE = {
    (ROOT, "root"): 0, ("asa", "ann"): 39, ("asa", "bob"): 0, ("bio", "ann"): 9, ("bio", "bob"): 0, ("geo", "ann"): 0,
    ("geo", "bob"): 0, ("phys", "bob"): 74, ("optics", "ann"): 29, ("optics", "bob"): 29,
}  # fmt: skip
FAIR_SHARE = {
    (ROOT, "root"): 1.0, ("asa", "ann"): 0.4, ("asa", "bob"): 0.5, ("bio", "ann"): 0.6, ("bio", "bob"): 0.7,
    ("geo", "ann"): 1.0, ("geo", "bob"): 1.0, ("phys", "bob"): 0.3, ("optics", "ann"): 0.2, ("optics", "bob"): 0.1,
}  # fmt: skip


def test_the_description_gives_what_slurm_gives() -> None:
    assert factors(ACCOUNTS, RAW_USAGE) == FAIR_SHARE


PERIOD_S = 100_000.0
"""When factors are made anew: after all of what was used, and before jobs are compared."""


def order(accounts: Mapping[str, ClusterAccount], used: Mapping[Pair, int], asked: Sequence[Pair]) -> list[Pair]:
    """In which order a machine of one core starts a job of each of these, once others have used so much."""
    pairs = [pair for pair, count in used.items() if count] + list(asked)
    run = [count for count in used.values() if count] + [1] * len(asked)
    submit = [0.0] * (len(pairs) - len(asked)) + [PERIOD_S] * len(asked)
    names = [sorted({pair[column] for pair in used}) for column in (0, 1)]
    work = Workload.of(
        submit=submit,
        run=run,
        cores=[1] * len(pairs),
        walltime=run,
        group=[names[0].index(account) for account, _ in pairs],
        user=[names[1].index(user) for _, user in pairs],
        labels={"group": tuple(names[0]), "user": tuple(names[1])},
    )
    machine = Cluster(np.ones((1, 1)), accounts=accounts)
    priority = Multifactor(age=0, fairshare=1e6, half_life_s=np.inf, tree=True, calc_period_s=PERIOD_S)
    start = simulate(work, machine, "fcfs", priority=priority).start[-len(asked) :]
    return [asked[row] for row in np.argsort(start)]


def by(found: Mapping[Pair, float]) -> Callable[[Pair], float]:
    return lambda pair: -found[pair]


def test_jobs_start_as_slurm_ranks_their_users() -> None:
    for asked in (list(RAW_USAGE), list(reversed(RAW_USAGE))):
        assert order(ACCOUNTS, RAW_USAGE, asked) == sorted(asked, key=by(FAIR_SHARE))


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, ClusterAccount], dict[Pair, int], list[Pair]]:
    """Accounts with users of few different shares and usages, so that many are equal; who asks, in which order.

    Each account has users: see `rank_shares`.
    """
    accounts, used = {}, {}
    names = [f"a{number}" for number in range(draw(st.integers(1, 5)))]
    for number, name in enumerate([ROOT, *names]):
        users = draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2), min_size=name != ROOT, max_size=3))
        parent = draw(st.sampled_from([ROOT, *names[: max(0, number - 1)]]))
        accounts[name] = (
            ClusterAccount(users=users) if name == ROOT else ClusterAccount(draw(st.integers(0, 2)), parent, users)
        )
        used |= {(name, user): draw(st.sampled_from([0, 0, 60, 120])) for user in users}
    return accounts, used, draw(st.permutations(list(used)))


@given(trees())
@settings(max_examples=150, deadline=None)
def test_jobs_start_as_the_description_ranks_their_users(
    drawn: tuple[dict[str, ClusterAccount], dict[Pair, int], list[Pair]],
) -> None:
    accounts, used, asked = drawn
    if asked:
        assert order(accounts, used, asked) == sorted(asked, key=by(factors(accounts, used)))


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize(("days", "first"), [(2.0, "bob"), (3.0, "ann")])
def test_what_running_jobs_use_counts_and_what_was_used_long_ago_counts_less(
    tree: bool, days: float, first: str
) -> None:
    """Ann ran for the first of these days, Bob runs since the second; usage has a half-life of a day. On the second,
    Ann has used (1 - 1/2) / ln 2 / 2 = .36 core-days, and Bob .23; on the third .18 and .84."""
    day, people = 86400.0, ("ann", "bob", "carl")
    work = Workload.of(
        submit=[0, 0, 1.75 * day, days * day - 10, days * day - 10], run=[day, days * day, 9 * day, 60, 60],
        walltime=[day, days * day, 9 * day, 60, 60], cores=[1] * 5, user=[0, 2, 1, 0, 1], labels={"user": people},
    )  # fmt: skip
    priority = Multifactor(age=0, fairshare=1e6, half_life_s=day, tree=tree)
    start = simulate(work, Cluster.of(2), "fcfs", priority=priority).start
    assert start[3:].min() == days * day
    assert people[int(np.argmin(start[3:]))] == first


def test_accounts_that_are_no_tree_are_refused() -> None:
    for accounts, said in (
        ({"a": ClusterAccount(parent="b"), "b": ClusterAccount(parent="a")}, "account 'a' stands above itself"),
        (
            {"a": ClusterAccount(parent="c")},
            "account 'a' has parent 'c', which is not there: 'root', or one of a, expected",
        ),
    ):
        with pytest.raises(InvalidInput, match=said):
            Cluster(np.ones((1, 1)), accounts=accounts)
    deep = {f"a{number}": ClusterAccount(parent=f"a{number - 1}" if number else ROOT) for number in range(101)}
    Cluster(np.ones((1, 1)), accounts=dict(list(deep.items())[:100]))
    with pytest.raises(InvalidInput, match="account 'a100' is below more than 100 others"):
        Cluster(np.ones((1, 1)), accounts=deep)
    with pytest.raises(InvalidInput, match="user 'ann' of an account has shares -1"):
        ClusterAccount(users={"ann": -1})
    with pytest.raises(InvalidInput, match="calc_period_s must be at least 0 s, not -1"):
        Multifactor(calc_period_s=-1.0)
