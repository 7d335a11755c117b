"""Limits of QOS, accounts and users: which counters a job counts towards, and how much they may have when it starts.

As in Slurm, a limit of a job's QOS takes the place of its association's limit of the same kind, and what bounds a whole
account is looked at in all accounts above as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Ints
from asa.lab.core.cluster import ROOT, Cluster, Qos
from asa.lab.core.workload import UNKNOWN, Workload

JOBS, SUBMITTED_JOBS, CORES, COUNTER = range(4)
"""Columns of the tables: running jobs, waiting and running jobs, cores of running jobs, and the counter of a limit."""

Bound = tuple[int, int, int]
"""How much a counter may have, in the order of the columns; 0 for no limit."""


class Whose(NamedTuple):
    """The QOS, the account and the user of a job; "" for no QOS, and an unknown user."""

    qos: str
    account: str
    user: str


class Counter(NamedTuple):
    """What is counted, in words; and why Slurm refuses a job that has more cores than it may have in all."""

    words: str
    reason: str


class LimitTables(NamedTuple):
    """Limits as the compiled loop has them.

    Parameters
    ----------
    spans
        Which rows of `limits` are those of each `Whose`: from ``spans[k]`` until before ``spans[k + 1]``.
    limits
        Shape (rows, 4): what may be, and the number of the counter that it is compared with.
    counts
        Shape (counters, 3): what there is by now.
    """

    spans: Ints
    limits: Ints
    counts: Ints


def whose(workload: Workload, service: Ints, cluster: Cluster) -> tuple[Ints, list[Whose]]:
    """The number of each job's `Whose`, shape (n,), and these by number; `service` has the number of each job's QOS.

    Those of jobs that come on the way stand first: with the first QOS, in no account, of an unknown user, of user 0 ...
    """
    users, groups = (int(codes.max(initial=UNKNOWN)) + 2 for codes in (workload.user, workload.group))
    key = (service * groups + workload.group + 1) * users + workload.user + 1
    keys, number = np.unique(np.concatenate([np.arange(users), key]), return_inverse=True)
    names = [*cluster.qos] or [""]
    found = []
    for each in keys.tolist():
        rest, user = divmod(each, users)
        qos, group = divmod(rest, groups)
        account = workload.text("group", group - 1) or ROOT
        found.append(Whose(names[qos], account, workload.text("user", user - 1)))
    return number[users:], found


def bounds(cluster: Cluster, job: Whose) -> dict[Counter, Bound]:
    """What a job counts towards, with how much each of these may have when it starts."""
    qos, found = cluster.qos.get(job.qos, Qos()), dict[Counter, Bound]()
    found[Counter(f"QOS {job.qos!r}", "QOSGrpCpuLimit")] = 0, 0, qos.grp_cores
    if job.user:
        counter = Counter(f"user {job.user} of QOS {job.qos!r}", "QOSMaxCpuPerUserLimit")
        found[counter] = qos.max_jobs_per_user, qos.max_submit_jobs_per_user, qos.max_cores_per_user
        own = cluster.association(job.account, job.user)
        counter = Counter(f"user {job.user} of account {job.account!r}", "AssocGrpCpuLimit")
        found[counter] = (
            _least(own.grp_jobs, 0 if qos.max_jobs_per_user else own.max_jobs),
            _least(own.grp_submit_jobs, 0 if qos.max_submit_jobs_per_user else own.max_submit_jobs),
            0 if qos.grp_cores else own.grp_cores,
        )
    for name in cluster.levels(job.account):
        each = cluster.account(name)
        cores = 0 if qos.grp_cores else each.grp_cores
        found[Counter(f"account {name!r}", "AssocGrpCpuLimit")] = each.grp_jobs, each.grp_submit_jobs, cores
    return found


def most_cores(cluster: Cluster, job: Whose) -> dict[str, int]:
    """How many cores a job may have, by Slurm's reason for refusing more; 0 for no limit."""
    found = {"AssocMaxCpuPerJobLimit": cluster.association(job.account, job.user).max_cores}
    for counter, (_, _, cores) in bounds(cluster, job).items():
        found[counter.reason] = _least(found.get(counter.reason, 0), cores)
    return found


def _least(*limits: int) -> int:
    """The least of the limits that there are."""
    return min(filter(None, limits), default=0)


def limit_tables(cluster: Cluster, jobs: Sequence[Whose]) -> LimitTables:
    """The tables of a machine without jobs; what nothing bounds is not counted."""
    bounded = [bounds(cluster, job) for job in jobs]
    number = {counter: row for row, counter in enumerate(counters(cluster, jobs))}
    rows = [[(*most, number[counter]) for counter, most in each.items() if counter in number] for each in bounded]
    limits = np.array([row for each in rows for row in each], np.int64).reshape(-1, 4)
    limits[:, :COUNTER][limits[:, :COUNTER] == 0] = 2**62
    spans = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return LimitTables(spans, limits, np.zeros((len(number), 3), np.int64))


def counters(cluster: Cluster, jobs: Sequence[Whose]) -> list[Counter]:
    """What the rows of `LimitTables.counts` count."""
    bounded = (bounds(cluster, job) for job in jobs)
    return [*dict.fromkeys(counter for each in bounded for counter, most in each.items() if any(most))]
