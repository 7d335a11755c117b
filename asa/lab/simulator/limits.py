"""Limits of QOS, accounts and users: which counters a job counts towards, and how much they may have when it starts.

As in Slurm, a limit of a job's QOS takes the place of its association's limit of the same kind, and what bounds a whole
account is looked at in all accounts above as well. There is a counter for each kind of thing that is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.lab.core.cluster import ROOT, Cluster, Qos
from asa.lab.core.workload import UNKNOWN, Workload

JOBS, SUBMITTED_JOBS, CORES, NODES, MEMORY, GPUS = range(6)
CORE_MINUTES, GPU_MINUTES, CORE_RUN_MINUTES, GPU_RUN_MINUTES, WALL_MINUTES = range(GPUS + 1, GPUS + 6)
"""Kinds of what is counted: running jobs, waiting and running jobs, and what running jobs have; from `CORE_MINUTES` on
amounts times minutes: of all jobs there ever were, of what running jobs may still use, and of all jobs' run times."""
KINDS = (
    "jobs", "submit_jobs", "cores", "nodes", "memory", "gpus",
    "core_minutes", "gpu_minutes", "core_run_minutes", "gpu_run_minutes", "wall_minutes",
)  # fmt: skip
"""What these are called in the names of limits."""
WORDS = (
    "running jobs", "submitted jobs", "cores", "nodes", "bytes of memory", "GPUs", "core-minutes", "GPU-minutes",
    "core-minutes of running jobs", "GPU-minutes of running jobs", "minutes",
)  # fmt: skip
KIND, MOST, COUNTER = range(3)
"""Columns of the table of limits: the kind, how much there may be, and the number of the counter."""
NO_LIMIT = 2**62
_NO_QOS = Qos()
USED, SINCE, HALF_LIFE, IN_ALL, LEFT, RATE = range(6)
"""Columns of the table of time: what jobs that have ended had used, when that was right [s], after how long it counts
half [s]; and as of when it was last counted, what all jobs have used, what those that run may still use (all in amounts
times seconds), and the amounts of these."""


class Whose(NamedTuple):
    """The QOS, the account and the user of a job; "" for no QOS, and an unknown user."""

    qos: str
    account: str
    user: str


class Counter(NamedTuple):
    """Whose amounts are counted, in words, and of which kind."""

    words: str
    kind: int
    decays: bool = True


class Bound(NamedTuple):
    """How much of a kind there may be, None for no limit; and why Slurm keeps a job that has more by itself."""

    kind: int
    most: int | None
    reason: str


class LimitTables(NamedTuple):
    """Limits as the compiled loop has them.

    Parameters
    ----------
    spans
        Which rows of `limits` are those of each `Whose`: from ``spans[k]`` until before ``spans[k + 1]``.
    limits
        Shape (rows, 3), with the columns above; `NO_LIMIT` where a job is counted, and not bounded.
    counts
        Shape (counters,): how much there is by now.
    spent
        Shape (counters, 6), with the columns above; no rows where nothing is counted by time.
    """

    spans: Ints
    limits: Ints
    counts: Ints
    spent: Floats


def whose(workload: Workload, service: Ints, cluster: Cluster) -> tuple[Ints, list[Whose]]:
    """The number of each job's `Whose`, shape (n,), and these by number; `service` has the number of each job's QOS.

    Those of jobs that come on the way stand first: with the first QOS, in no account, of an unknown user, of user 0 ...
    """
    workload = with_accounts_of_partitions(workload, cluster)
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


def with_accounts_of_partitions(workload: Workload, cluster: Cluster) -> Workload:
    """The same with jobs in accounts that are for users of theirs in a partition only, where there are such."""
    own = {
        (each.parent, each.partition, user): name
        for name, each in cluster.accounts.items()
        if each.partition
        for user in each.users
    }
    if not own:
        return workload
    names = [workload.text("group", code) for code in range(int(workload.group.max(initial=UNKNOWN)) + 1)]
    names += [name for name, each in cluster.accounts.items() if each.partition]
    asked, which = np.unique([workload.group, workload.partition, workload.user], axis=1, return_inverse=True)
    for place, (group, part, user) in enumerate(asked.T.tolist()):
        partition = [*cluster.partitions][cluster.partition_number(workload.text("partition", part))]
        account = workload.text("group", group) or ROOT
        if name := own.get((account, partition, workload.text("user", user))):
            asked[0, place] = names.index(name)
    return replace(workload, group=asked[0, which.reshape(-1)], labels={**workload.labels, "group": tuple(names)})


_OF_ACCOUNT = (
    "AssocGrpCpuLimit", "AssocGrpNodeLimit", "AssocGrpMemLimit", "AssocGrpGRES", "AssocGrpCPUMinutesLimit",
    "AssocGrpGRESMinutes", "AssocGrpCPURunMinutesLimit", "AssocGrpGRESRunMinutes", "AssocGrpWallLimit",
)  # fmt: skip
REASONS = {
    "QOS": (
        "QOSGrpJobsLimit", "", "QOSGrpCpuLimit", "QOSGrpNodeLimit", "QOSGrpMemLimit", "QOSGrpGRES",
        "QOSGrpCPUMinutesLimit", "QOSGrpGRESMinutes", "QOSGrpCPURunMinutesLimit", "QOSGrpGRESRunMinutes",
        "QOSGrpWallLimit",
    ),
    "user of QOS": (
        "QOSMaxJobsPerUserLimit", "", "QOSMaxCpuPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxMemoryPerUser",
        "QOSMaxGRESPerUser",
    ),
    "job of QOS": (
        "", "", "QOSMaxCpuPerJobLimit", "QOSMaxNodePerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxGRESPerJob",
        "QOSMaxCpuMinutesPerJobLimit", "QOSMaxGRESMinutesPerJob",
    ),
    "account": ("AssocGrpJobsLimit", "", *_OF_ACCOUNT),
    "user of account": ("AssocMaxJobsLimit", "", *_OF_ACCOUNT),
    "job": (
        "", "", "AssocMaxCpuPerJobLimit", "AssocMaxNodePerJobLimit", "AssocMaxMemPerJob", "AssocMaxGRESPerJob",
        "AssocMaxCpuMinutesPerJobLimit", "AssocMaxGRESMinutesPerJob",
    ),
}  # fmt: skip
"""Slurm's words for jobs that may never start, by kind: more submitted jobs are refused on the way."""


def bounds(cluster: Cluster, job: Whose) -> dict[Counter, Bound]:
    """What a job counts towards, with how much each of these may have when it starts."""
    qos, found = cluster.qos.get(job.qos, _NO_QOS), dict[Counter, Bound]()
    own = cluster.association(job.account, job.user)
    accounts = [(f"account {name!r}", cluster.account(name)) for name in cluster.levels(job.account)]

    def count(what: str, words: str, kind: int, *limits: int | None, decays: bool = True) -> None:
        most = min((each for each in limits if each is not None), default=None)
        found[Counter(words, kind, decays)] = Bound(kind, most, REASONS[what][kind])

    for kind, name in enumerate(KINDS):
        of_qos: int | None = getattr(qos, f"grp_{name}")
        count("QOS", f"QOS {job.qos!r}", kind, of_qos, decays=qos.decays)
        if job.user:
            of_user = None
            if kind < CORE_MINUTES:
                of_user = getattr(qos, f"max_{name}_per_user")
                count("user of QOS", f"user {job.user} of QOS {job.qos!r}", kind, of_user)
            each_user = getattr(own, f"max_{name}") if kind <= SUBMITTED_JOBS and of_user is None else None
            together = getattr(own, f"grp_{name}") if of_qos is None else None
            count("user of account", f"user {job.user} of account {job.account!r}", kind, together, each_user)
        for words, account in accounts:
            count("account", words, kind, getattr(account, f"grp_{name}") if of_qos is None else None)
    return found


def limits_of_one(cluster: Cluster, job: Whose) -> list[tuple[int, int, str]]:
    """What a job may have by itself, as in `Bound`: one that has more never starts.

    Where limits are not safe, a job may use more minutes than are left, if any are.
    """
    own, qos = cluster.association(job.account, job.user), cluster.qos.get(job.qos, _NO_QOS)
    unsafe = () if cluster.safe_limits else (CORE_MINUTES, GPU_MINUTES, WALL_MINUTES)
    found = [each for each in bounds(cluster, job).values() if each.kind not in unsafe or each.most == 0]
    for kind, name in enumerate(KINDS[CORES : GPU_MINUTES + 1], CORES):
        of_qos = getattr(qos, f"max_{name}")
        most, which = (getattr(own, f"max_{name}"), "job") if of_qos is None else (of_qos, "job of QOS")
        found.append(Bound(kind, most, REASONS[which][kind]))
    return [(kind, most, reason) for kind, most, reason in found if most is not None and kind != SUBMITTED_JOBS]


TOO_LONG = "QOSMaxWallDurationPerJobLimit", "AssocMaxWallDurationPerJobLimit"
"""Slurm's words for jobs that ask for more time than their QOS, or their association, allows."""


def longest_s(cluster: Cluster, job: Whose) -> tuple[float, str]:
    """The longest wall time that a job may ask for [s], infinite for no limit; and whose limit it is, of `TOO_LONG`."""
    of_qos = cluster.qos.get(job.qos, _NO_QOS).max_time_s
    own = cluster.association(job.account, job.user).max_time_s
    if of_qos is not None:
        return of_qos, TOO_LONG[0]
    return math.inf if own is None else own, TOO_LONG[1]


def limit_tables(cluster: Cluster, jobs: Sequence[Whose], half_life_s: float) -> LimitTables:
    """The tables of a machine without jobs; what nothing bounds is not counted. What has been used counts half after
    each half-life."""
    bounded = [bounds(cluster, job) for job in jobs]
    number = {counter: row for row, counter in enumerate(_counted(bounded))}
    rows = [
        [
            (limit.kind, NO_LIMIT if limit.most is None else limit.most, number[counter])
            for counter, limit in each.items()
            if counter in number
        ]
        for each in bounded
    ]
    limits = np.array([row for each in rows for row in each], np.int64).reshape(-1, 3)
    spans = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    timed = any(counter.kind >= CORE_MINUTES for counter in number)
    spent = np.zeros((len(number) if timed else 0, RATE + 1))
    spent[:, HALF_LIFE] = [half_life_s if counter.decays else np.inf for counter in number][: len(spent)]
    return LimitTables(spans, limits, np.zeros(len(number), np.int64), spent)


def counters(cluster: Cluster, jobs: Sequence[Whose]) -> list[Counter]:
    """What the rows of `LimitTables.counts` count."""
    return _counted([bounds(cluster, job) for job in jobs])


def _counted(bounded: Sequence[Mapping[Counter, Bound]]) -> list[Counter]:
    return [*dict.fromkeys(counter for each in bounded for counter, limit in each.items() if limit.most is not None)]
