"""What Slurm's accounting allows a user's jobs: limits of associations and QOS, and which of them a job breaks.

A limit of the QOS takes the place of the association's of the same kind. Those of accounts for all their users together
(``Grp...``) count on every level up to the root. Nothing here talks to Slurm but through the transport it is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from asa.backends.batch import whole
from asa.backends.slurm.commands import parse_wall_time
from asa.core.errors import BackendError
from asa.core.job import JobRequest, Resources
from asa.core.units import MIB
from asa.core.units import clock as clock_text

_OWN = {
    "MaxJobs": "MaxJobs", "MaxJobsAccrue": "MaxJobsAccrue", "MaxSubmit": "MaxSubmitJobs", "MaxTRES": "MaxTRESPerJob",
    "MaxWall": "MaxWall",
}  # fmt: skip
_SHARED = {
    "GrpJobs": "GrpJobs", "GrpJobsAccrue": "GrpJobsAccrue", "GrpSubmit": "GrpSubmitJobs", "GrpTRES": "GrpTRES",
}  # fmt: skip
_QOS = {
    "MaxJobsAccruePU": "MaxJobsAccruePerUser", "MaxJobsAccruePA": "MaxJobsAccruePerAccount",
    "MaxJobsPU": "MaxJobsPerUser", "MaxSubmitPU": "MaxSubmitJobsPerUser", "MaxTRESPU": "MaxTRESPerUser",
    "MaxJobsPA": "MaxJobsPerAccount", "MaxSubmitPA": "MaxSubmitJobsPerAccount", "MaxTRESPA": "MaxTRESPerAccount",
    "MaxTRES": "MaxTRESPerJob", "MaxWall": "MaxWall", **_SHARED,
}  # fmt: skip
"""sacctmgr's columns, and what the limits in them are called when they are set."""

_DEFAULT_QOS = "normal"
_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


class Limit(NamedTuple):
    """One limit that holds for jobs: its name, the resource that it counts ("" for jobs and times), how many of it (or
    bytes, or seconds), the number as Slurm writes it, and whose it is."""

    name: str
    tres: str
    most: float
    text: str
    of: str

    def __str__(self) -> str:
        return f"{self.name}={self.tres + '=' if self.tres else ''}{self.text} of {self.of}"


class Accounts(Protocol):
    """What is asked of a transport."""

    @property
    def user(self) -> str: ...
    def accounting_settings(self, what: Sequence[str], fields: Sequence[str]) -> list[dict[str, str]]:
        """These columns of what ``sacctmgr show`` has, one mapping a row."""


class JobAccount(NamedTuple):
    """What decides which limits hold: account and QOS as they are asked for ("" for the defaults), a partition and its
    QOS (or "")."""

    account: str
    qos: str
    partition: str
    partition_qos: str


def read(accounts: Accounts, cluster: str, choices: Sequence[JobAccount]) -> list[list[Limit]]:
    """The limits for each of these choices: three questions to the accounting in all.

    Raises
    ------
    BackendError
        When it does not answer, or shows nothing.
    """
    whose = [f"cluster={cluster}"] if cluster else []
    own = accounts.accounting_settings(
        ["user", f"name={accounts.user}", "withassoc", *whose],
        ["DefaultAccount", "Account", "Partition", "DefaultQOS", *_OWN, *_SHARED],
    )
    if not own:
        raise BackendError(f"the accounting shows no account of user {accounts.user}")
    above = accounts.accounting_settings(["assoc", "user=", *whose], ["Account", "ParentName", *_SHARED])
    rows = [(_association(own, choice), choice) for choice in choices]
    named = {qos for row, choice in rows for qos in (_qos(row, choice), choice.partition_qos) if qos}
    found = accounts.accounting_settings(["qos", f"name={','.join(sorted(named))}"], ["Name", "Flags", *_QOS])
    return [in_force(row, choice, above, found, accounts.user) for row, choice in rows]


def _association(own: Sequence[Mapping[str, str]], choice: JobAccount) -> Mapping[str, str]:
    """The row of the user's that counts; one for the partition wins over one for all."""
    account = choice.account.lower() or own[0]["DefaultAccount"]
    fitting = [row for row in own if row["Account"] == account and row["Partition"] in ("", choice.partition)]
    return max(fitting, key=lambda row: row["Partition"], default={"Account": account})


def _qos(row: Mapping[str, str], choice: JobAccount) -> str:
    return choice.qos.lower() or row.get("DefaultQOS") or _DEFAULT_QOS


def in_force(
    own: Mapping[str, str],
    choice: JobAccount,
    above: Sequence[Mapping[str, str]],
    qos: Sequence[Mapping[str, str]],
    user: str,
) -> list[Limit]:
    """The limits that hold for the jobs of one association.

    Parameters
    ----------
    own
        The user's association; sacctmgr has it inherit the limits of its own (not the shared ones).
    above
        Those of all accounts.
    qos
        Rows of those QOS that may count.

    Examples
    --------
    >>> own = {"Account": "bio", "MaxSubmit": "4", "MaxTRES": "cpu=64"}
    >>> above = [{"Account": "bio", "ParentName": "root", "GrpTRES": "cpu=512"}]
    >>> qos = [{"Name": "long", "Flags": "", "MaxTRES": "cpu=16", "MaxWall": "7-00:00:00"}]
    >>> for limit in in_force(own, JobAccount("", "long", "core", ""), above, qos, "ann"):
    ...     print(limit)
    MaxTRESPerJob=cpu=16 of QOS long
    MaxWall=7-00:00:00 of QOS long
    MaxSubmitJobs=4 of user ann in account bio
    GrpTRES=cpu=512 of account bio
    """
    by_name = {row["Name"]: row for row in qos}
    asked, of_partition = by_name.get(_qos(own, choice)), by_name.get(choice.partition_qos)
    first, second = of_partition, asked
    if asked is not None and "OverPartQOS" in asked.get("Flags", ""):
        first, second = asked, of_partition
    found: list[Limit] = []
    for row in (first, second):
        found += _more(found, _limits(row, _QOS, f"QOS {row['Name']}")) if row else []
    account = own.get("Account", "")
    associations = [*_limits(own, _OWN | _SHARED, f"user {user} in account {account}")]
    parents = {row["Account"]: row for row in above}
    while (row := parents.pop(account, None)) is not None:
        associations += _limits(row, _SHARED, f"account {account}")
        account = row.get("ParentName", "")
    return [*found, *_more(found, associations)]


def _more(there: Sequence[Limit], others: Iterable[Limit]) -> list[Limit]:
    """Those of a kind that is not there yet."""
    kinds = {(limit.name.removesuffix("PerUser"), limit.tres) for limit in there if "TRES" not in limit.name}
    kinds |= {(limit.name, limit.tres) for limit in there}
    return [limit for limit in others if (limit.name, limit.tres) not in kinds]


def _limits(row: Mapping[str, str], names: Mapping[str, str], of: str) -> Iterator[Limit]:
    for column, name in names.items():
        text = row.get(column, "")
        if "TRES" in name:
            for part in filter(None, text.split(",")):
                tres, _, value = part.partition("=")
                yield Limit(name, tres, _amount(value, tres), value, of)
        elif name == "MaxWall":
            if (most := parse_wall_time(text)) is not None:
                yield Limit(name, "", most, text, of)
        elif (number := whole(text)) is not None:
            yield Limit(name, "", float(number), text, of)


def _amount(text: str, tres: str) -> float:
    """A number of Slurm's; memory without a unit is MiB.

    >>> _amount("4", "cpu"), _amount("2G", "mem"), _amount("4000", "mem") / 2**20
    (4.0, 2147483648.0, 4000.0)
    """
    unit = _BYTES.get(text[-1:].upper(), 0)
    try:
        found = float(text[:-1]) * unit if unit else float(text) * (MIB if tres == "mem" else 1)
    except ValueError:
        return math.inf
    return found if found >= 0 else math.inf  # nor is it a number


def most_jobs(limits: Iterable[Limit]) -> int | None:
    """How many jobs of the user may be in the queue at a time, at least 1; elements of arrays count singly.

    Where there may be none, the first one is `broken`.
    """
    return min((max(1, int(limit.most)) for limit in limits if "SubmitJobs" in limit.name), default=None)


def broken(request: JobRequest, limits: Iterable[Limit]) -> Limit | None:
    """The limit that a job could never keep to, however few others there are, or None."""
    need = request.resources
    asked = {"cpu": need.cores, "mem": need.memory or 0, "node": need.nodes or 1, "gres/gpu": need.gpus}
    for limit in limits:
        if limit.name == "MaxWall" and request.walltime_s > limit.most:
            return limit
        if limit.most < 1 and "Jobs" in limit.name and "Accrue" not in limit.name:
            return limit
        if "TRES" in limit.name and asked.get(limit.tres, 0) > limit.most:
            return limit
    return None


def why_broken(request: JobRequest, limit: Limit) -> str:
    """What to say of a job that could never keep to a limit."""
    if "Jobs" in limit.name:
        return f"{limit}: no job may run"
    asked = clock_text(request.walltime_s) if limit.name == "MaxWall" else str(request.resources)
    return f"{limit}: the job asks for {asked}, and would never start"


def bounded(
    largest: Resources | None, longest_s: float | None, limits: Sequence[Limit]
) -> tuple[Resources | None, float | None, str]:
    """The largest job and the longest wall time [s] within these limits, and which of them make them so."""
    by: list[Limit] = []
    for tres, name in (("cpu", "cores"), ("mem", "memory"), ("gres/gpu", "gpus")):
        least = min((limit for limit in limits if limit.tres == tres), key=lambda limit: limit.most, default=None)
        there = getattr(largest, name, None)
        if largest is not None and least is not None and there is not None and least.most < there:
            by.append(least)
            most: dict[str, Any] = {name: max(int(least.most), name != "gpus")}
            largest = replace(largest, **most | ({"nodes": None} if name == "cores" else {}))
    for limit in limits:
        if limit.name == "MaxWall" and (longest_s is None or limit.most < longest_s):
            longest_s = limit.most
            by.append(limit)
    return largest, longest_s, "; ".join(map(str, by))
