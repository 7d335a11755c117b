"""Machines: nodes, what each of them has, the partitions they are grouped in, and when some are kept from jobs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from asa.core.arrays import Bools, Ints
from asa.core.energy import NodePower
from asa.core.errors import InvalidInput, UnknownName
from asa.core.intensity import Intensity
from asa.core.registry import parse_spec
from asa.core.units import DAY, HOUR, check_number, duration

MOST_NODES = 2**24
"""No machine has more nodes; tables of them have room for these."""
MOST_FAILURES = 1_000_000
"""Of nodes in a simulation, in the mean."""
RESOURCES = ("cores", "memory", "gpus")
"""Names that `Resources` uses, in the order in which clusters and workloads list amounts; others may follow.

Amounts of a type stand beside those of all types: ``gpus:a100`` beside ``gpus``. Jobs that ask for a type ask for
both, others for ``gpus`` only, which are of whichever types are left where a node has several.
"""
MOST_RESOURCES = 64
"""Of a machine, or of the jobs in a log: tables have a column for each."""


def resources_in(amounts: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """What there is anything of in such amounts by name, in the order of columns.

    Raises
    ------
    InvalidInput
        When that are more than `MOST_RESOURCES`.
    """
    there = {name for each in amounts for name, amount in each.items() if amount}
    if len(there) > MOST_RESOURCES:
        raise InvalidInput(f"there are {len(there)} resources: at most {MOST_RESOURCES} expected")
    return *(name for name in RESOURCES if name in there), *sorted(there - {*RESOURCES})


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that jobs are submitted to, with limits; partitions may overlap.

    Parameters
    ----------
    nodes
        Numbers of its nodes; at least one.
    max_time_s
        Longest wall time of a job [s]; > 0, infinite for no limit.
    default_time_s
        Wall time of jobs that ask for none [s]; > 0, at most `max_time_s`, which it is unless given.
    max_nodes
        Most nodes of a job; 0 for no limit.
    tier
        Jobs of a higher tier come before all jobs of lower ones, whatever their priorities; >= 0.
    preempt_mode
        What becomes of its jobs when jobs of a higher tier need their nodes: ``"requeue"``, ``"cancel"``, or ``""``:
        they are not preempted.
    exempt_s
        They are not preempted before they have run for so long [s]; >= 0, finite.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.

    References
    ----------
    SchedMD, "slurm.conf", ``PartitionName``: Nodes, MaxTime, DefaultTime, MaxNodes, PriorityTier, PreemptMode;
    PreemptExemptTime.
    """

    nodes: tuple[int, ...]
    max_time_s: float = math.inf
    default_time_s: float | None = None
    max_nodes: int = 0
    tier: int = 1
    preempt_mode: str = ""
    exempt_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(sorted(set(self.nodes))))
        _check_counts("a partition", self)
        if not self.max_time_s > 0:
            raise InvalidInput(f"a partition has max_time_s {self.max_time_s!r}: above 0 s expected")
        if self.default_time_s is not None and not 0 < self.default_time_s <= self.max_time_s:
            raise InvalidInput(
                f"a partition has default_time_s {self.default_time_s!r}: above 0 s, and at most its max_time_s of "
                f"{self.max_time_s:g} s, expected"
            )
        _check_preemption("partition", self)


def _check_counts(what: str, each: Partition | JobLimits) -> None:
    """Refuse fields of whole numbers that are out of their bounds."""
    for item in fields(each):
        value = getattr(each, item.name)
        if item.type == "int" or (item.type == "int | None" and value is not None):
            large = item.name.endswith(("memory", "memory_per_user", "minutes"))
            _check_count(f"{what} has {item.name}", value, most=62 if large else 31)
    longest_s = getattr(each, "max_time_s", None)
    if longest_s is not None and not isinstance(each, Partition) and not 0 <= longest_s < math.inf:
        raise InvalidInput(f"{what} has max_time_s {longest_s!r}: a finite time from 0 s on expected")


def _check_count(what: str, value: object, most: int = 31) -> None:
    if type(value) is not int or not 0 <= value < 2**most:
        raise InvalidInput(f"{what} {value!r}: a whole number from 0 to 2^{most} expected")


PREEMPT_MODES = ("", "requeue", "cancel")
"""What becomes of running jobs whose nodes others need: they are not preempted, wait again, or are cancelled."""


def _check_preemption(what: str, each: Partition | Qos) -> None:
    if each.preempt_mode not in PREEMPT_MODES:
        raise InvalidInput(f"a {what} has preempt_mode {each.preempt_mode!r}: requeue, cancel or '' expected")
    if not 0 <= each.exempt_s < math.inf:
        raise InvalidInput(f"a {what} has exempt_s {each.exempt_s!r}: a finite time from 0 s on expected")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What a QOS, an account or a user may limit, see `Qos` and `Association`; None for no limit."""

    grp_jobs: int | None = None
    grp_submit_jobs: int | None = None
    grp_cores: int | None = None
    grp_nodes: int | None = None
    grp_memory: int | None = None
    grp_gpus: int | None = None
    max_cores: int | None = None
    max_nodes: int | None = None
    max_memory: int | None = None
    max_gpus: int | None = None
    max_time_s: float | None = None
    grp_core_minutes: int | None = None
    grp_gpu_minutes: int | None = None
    grp_core_run_minutes: int | None = None
    grp_gpu_run_minutes: int | None = None
    grp_wall_minutes: int | None = None
    max_core_minutes: int | None = None
    max_gpu_minutes: int | None = None

    @property
    def has_limits(self) -> bool:
        own = (item.name for item in fields(self) if item.name.startswith(("max_", "grp_")))
        return any(getattr(self, name) is not None for name in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos(JobLimits):
    """A quality of service: limits of the jobs that have it, and their priority.

    A limit of 0 means that there may be none, None that there is no limit. A job that a limit keeps from starting
    waits, and is passed over; one beyond `max_submit_jobs_per_user`, or by itself beyond another limit, is refused.
    Jobs of unknown users are under the limits of all jobs and of one only. Memory is in bytes; a job's nodes are the
    fewest that it can be on, and one that jobs share counts for each.

    Parameters
    ----------
    max_jobs_per_user, max_cores_per_user, max_nodes_per_user, max_memory_per_user, max_gpus_per_user
        How many jobs of a user may run at a time, and what they may have in all.
    max_submit_jobs_per_user
        How many jobs of a user may wait or run at a time.
    grp_jobs, grp_cores, grp_nodes, grp_memory, grp_gpus
        The same of all jobs of this QOS.
    grp_submit_jobs
        How many of these may wait or run at a time.
    max_cores, max_nodes, max_memory, max_gpus
        What a job may have.
    max_time_s
        Longest wall time of a job [s]; >= 0.
    grp_core_minutes, grp_gpu_minutes
        What all jobs of this QOS may use in all, in cores times minutes and GPUs times minutes, as long as it counts:
        see `decays`.
    grp_core_run_minutes, grp_gpu_run_minutes
        What its running jobs together may still use until the ends of their wall times.
    grp_wall_minutes
        For how long its jobs may run in all, whatever they have.
    max_core_minutes, max_gpu_minutes
        What a job may use until the end of its wall time.
    decays
        Whether what has been used counts half after each half-life of the machine's priorities.
    priority
        Relative to the highest of the machine's it is the QOS factor of the multifactor priority; >= 0.
    preempts
        Names of the QOS whose running jobs make room for jobs of this one.
    preempt_mode, exempt_s
        What becomes of those of this one, as in `Partition`.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.

    References
    ----------
    SchedMD, "sacctmgr": MaxJobsPerUser, MaxTRESPerUser, MaxSubmitJobsPerUser, GrpJobs, GrpSubmitJobs, GrpTRES, MaxTRES,
    MaxWall, GrpTRESMins, GrpTRESRunMins, GrpWall, MaxTRESMinsPerJob, the flag NoDecay, Priority, Preempt, PreemptMode
    and PreemptExemptTime of a QOS.
    """

    max_jobs_per_user: int | None = None
    max_submit_jobs_per_user: int | None = None
    max_cores_per_user: int | None = None
    max_nodes_per_user: int | None = None
    max_memory_per_user: int | None = None
    max_gpus_per_user: int | None = None
    decays: bool = True
    priority: int = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: str = ""
    exempt_s: float = 0.0

    def __post_init__(self) -> None:
        _check_counts("a QOS", self)
        _check_preemption("QOS", self)


ROOT = "root"
"""The account above all others."""
MOST_LEVELS = 100
"""Of accounts below `ROOT`; sites have some five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Association(JobLimits):
    """Limits of an account, or of a user in an account; None for no limit, and 0 where there may be none.

    A limit of a job's QOS takes the place of that of the same kind here.

    Parameters
    ----------
    grp_jobs, grp_submit_jobs, grp_cores, grp_nodes, grp_memory, grp_gpus
        Of it and all accounts and users below it together: how many jobs may run, how many may wait or run, and what
        those that run may have, at a time; as in `Qos`.
    max_jobs, max_submit_jobs
        How many jobs of a user in an account may run, and may wait or run, at a time.
    grp_core_minutes, grp_gpu_minutes, grp_core_run_minutes, grp_gpu_run_minutes, grp_wall_minutes
        Of the same: what their jobs may use in all, what those that run may still use, and for how long they may run
        in all; as in `Qos`. What has been used always decays.
    max_cores, max_nodes, max_memory, max_gpus, max_time_s, max_core_minutes, max_gpu_minutes
        What a job may have, as in `Qos`. Users and accounts have all that begins with ``max`` from the account above
        unless they have their own.

    Raises
    ------
    InvalidInput
        When a limit is out of its bounds.

    References
    ----------
    SchedMD, "sacctmgr": GrpJobs, GrpSubmitJobs, GrpTRES, GrpTRESMins, GrpTRESRunMins, GrpWall, MaxJobs, MaxSubmitJobs,
    MaxTRES, MaxTRESMinsPerJob and MaxWall of accounts and users; "Resource Limits".
    """

    max_jobs: int | None = None
    max_submit_jobs: int | None = None

    def __post_init__(self) -> None:
        _check_counts("an association", self)

    def under(self, above: Association) -> Association:
        """The same, with the limits of the one above for each user and job where it has none of its own."""
        return replace(self, **{name: getattr(above, name) for name in FROM_ABOVE if getattr(self, name) is None})


FROM_ABOVE = tuple(item.name for item in fields(Association) if item.name.startswith("max_"))
"""Limits that users and accounts have from the account above unless they have their own."""


@dataclass(frozen=True, slots=True)
class ClusterAccount(Association):
    """An account: its limits, as of any association, and its shares of what its parent has.

    Parameters
    ----------
    shares
        Relative to those of the accounts and users beside it; >= 0.
    parent
        The account above.
    users
        Shares of its users, by name; >= 0. Users who are not named have one each.
    user_limits
        Limits of its users, by name.
    partition
        It is for jobs in this partition only, of its users in the account above; "" for an ordinary account.

    Raises
    ------
    InvalidInput
        When shares or limits are out of their bounds.

    References
    ----------
    SchedMD, "sacctmgr": Fairshare of an account and of a user, Partition of a user; "Fair Tree Fairshare Algorithm".
    """

    shares: int = 1
    parent: str = ROOT
    users: Mapping[str, int] = field(default_factory=dict)
    user_limits: Mapping[str, Association] = field(default_factory=dict)
    partition: str = ""

    def __post_init__(self) -> None:
        _check_counts("an account", self)
        for name, value in self.users.items():
            _check_count(f"user {name[:40]!r} of an account has shares", value)


_NO_ACCOUNT, _NO_LIMITS = ClusterAccount(), Association()


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """Nodes that are kept from jobs for a time: for maintenance, or for some users.

    A job does not start on them if its wall time would reach into the window, and without a wall time not before the
    window is over.

    Parameters
    ----------
    start, end
        From when until when [s]; finite, `end` after `start`.
    nodes
        Numbers of the nodes; empty: all.
    users
        Names of the users whose jobs may start there during the window; empty: of no user.

    Raises
    ------
    InvalidInput
        When it does not end after it has begun, or a time is not finite.

    References
    ----------
    SchedMD, "Advanced Resource Reservation Guide": reservations with the flag MAINT, and with Users and FLEX.
    """

    start: float
    end: float
    nodes: tuple[int, ...] = ()
    name: str = ""
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(sorted(set(self.nodes))))
        if not -math.inf < self.start < self.end < math.inf:
            raise InvalidInput(
                f"window {self.name[:40]!r} has start {self.start!r} and end {self.end!r}: finite times [s], the "
                "end after the start, expected"
            )


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """How often nodes fail by chance, each by itself, and how long they are down: both times are exponential.

    Parameters
    ----------
    each_s
        Mean time from one failure of a node to its next one, without the repair [s]; > 0, finite.
    repair_s
        Mean time until it is back [s]; > 0, finite.
    seed
        Of what is drawn; >= 0.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.

    References
    ----------
    B. Schroeder and G. Gibson, "A large-scale study of failures in high-performance computing systems", IEEE TDSC 7(4),
    2010: at Los Alamos nodes failed every few months, and were down for six hours in the mean. There failures come more
    in bursts than exponential times do.
    """

    each_s: float
    repair_s: float = 6 * HOUR
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("each_s", self.each_s, 0, above=True)
        check_number("repair_s", self.repair_s, 0, above=True)
        check_number("seed", self.seed, 0, whole=True)

    @classmethod
    def of(cls, text: str) -> NodeFailures:
        """What ``each=60d,repair=6h`` says.

        Raises
        ------
        InvalidInput
            When a value is missing, no duration, or out of its bounds.
        UnknownName
            When there is no such value.

        Examples
        --------
        >>> NodeFailures.of("each=60d,repair=1h")
        NodeFailures(each_s=5184000.0, repair_s=3600.0, seed=0)
        """
        given = parse_spec(f":{text}")[1]
        if unknown := given.keys() - {"each", "repair"}:
            raise UnknownName("value of failures", min(unknown), ("each", "repair"))
        if "each" not in given:
            raise InvalidInput(f"failures {text!r}: each= is missing, as in each=60d,repair=6h")
        times: dict[str, Any] = {f"{name}_s": duration(value, what=name) for name, value in given.items()}
        return cls(**times)

    def drawn(self, nodes: int, begin: float, until: float) -> list[tuple[int, float, float]]:
        """Which node fails when, and when it is back [s], of all that fail in [begin, until); by nodes, then times.

        Raises
        ------
        InvalidInput
            When that would be more than `MOST_FAILURES`, in the mean.
        """
        if (expected := nodes * max(0.0, until - begin) / self.each_s) > MOST_FAILURES:
            raise InvalidInput(
                f"{expected:,.0f} failures of {nodes:,} nodes in {(until - begin) / DAY:,.0f} days: "
                f"at most {MOST_FAILURES:,} expected; let nodes fail less often than every {self.each_s:,.0f} s"
            )
        rng, found = np.random.default_rng(self.seed), []
        for node in range(nodes):
            at = begin + rng.exponential(self.each_s)
            while at < until:
                back = at + rng.exponential(self.repair_s)
                found.append((node, float(at), float(back)))
                at = back + rng.exponential(self.each_s)
        return found


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes and what each has.

    Parameters
    ----------
    capacity
        Amounts, shape (nodes, resources); memory in bytes; >= 0.
    partitions
        By name; the first is the default. Empty: one partition of all nodes, without limits.
    windows
        When nodes are kept from jobs; they may overlap.
    qos
        By name; the first is that of jobs that name none. Empty: no limits.
    accounts
        By name; one named `ROOT` has the users that are in no other, and limits of all.
    safe_limits
        Whether a job waits that could use up what is left of a limit of minutes in all; else only when nothing is left.
    requeue_delay_s
        After how long a job that was requeued may start again [s]; >= 0, finite. Slurm's is a second more than
        ``cred_expire``, 121 s unless a site sets that.
    shareable
        Resources that running jobs may hold more of than there is, because they share it (co-scheduling).
    names
        Names of the nodes; ``n0``, ``n1`` ... unless given.
    power
        What each node draws; None where that is not known. Nodes have as many cores each, and share none.
    intensity
        How much CO2 a kilowatt-hour stands for; None where that is not known.
    failures
        How often nodes fail; None: never.
    features
        Nodes that have a feature, by its name. Empty: what jobs ask for of features does not count.

    Raises
    ------
    InvalidInput
        When the shapes do not fit together, an amount is negative, a partition, a window or a feature names a node that
        is not there, accounts are no tree, QOS preempt each other or ones without a mode, or nodes differ whose power
        is declared.

    Examples
    --------
    >>> Cluster.of(nodes=602, cores=28)
    <Cluster of 602 nodes: 16856 cores>
    """

    capacity: Ints
    resources: tuple[str, ...] = RESOURCES[:1]
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    shareable: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    windows: tuple[NodeWindow, ...] = ()
    qos: Mapping[str, Qos] = field(default_factory=dict)
    accounts: Mapping[str, ClusterAccount] = field(default_factory=dict)
    requeue_delay_s: float = 0.0
    power: NodePower | None = None
    intensity: Intensity | None = None
    failures: NodeFailures | None = None
    features: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    safe_limits: bool = True

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
        for name, partition in self.partitions.items():
            nodes = partition.nodes
            if not nodes or min(nodes) < 0 or max(nodes) >= len(capacity):
                raise InvalidInput(f"partition {name!r} must name nodes between 0 and {len(capacity) - 1}")
        for window in self.windows:
            if window.nodes and not 0 <= window.nodes[0] <= window.nodes[-1] < len(capacity):
                raise InvalidInput(f"window {window.name[:40]!r} must name nodes between 0 and {len(capacity) - 1}")
        for name, nodes in self.features.items():
            if nodes and not 0 <= min(nodes) <= max(nodes) < len(capacity):
                raise InvalidInput(f"feature {name[:40]!r} must name nodes between 0 and {len(capacity) - 1}")
        for name, account in self.accounts.items():
            self.lineage(name)
            if account.partition and (account.partition not in self.partitions or not account.users):
                known = ", ".join(self.partitions) or "none"
                raise InvalidInput(
                    f"account {name[:40]!r} is for {len(account.users)} users in partition "
                    f"{account.partition[:40]!r}: at least one, and one of the partitions, {known}, expected"
                )
        self._check_preemption()
        if unknown := self.shareable - set(self.resources):
            known = ", ".join(self.resources)
            raise InvalidInput(f"{min(unknown)!r} cannot be shareable, for nodes have none: expected some of {known}")
        if self.names and len(self.names) != len(capacity):
            raise InvalidInput(f"{len(self.names)} names for {len(capacity)} nodes: give one for each, or none")
        if self.power is not None and ((capacity[:, 0] != max(capacity[0, 0], 1)).any() or "cores" in self.shareable):
            raise InvalidInput("the power of nodes is declared: nodes of as many cores each, not shared, expected")
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

    def _check_preemption(self) -> None:
        if not 0 <= self.requeue_delay_s < math.inf:
            raise InvalidInput(f"requeue_delay_s={self.requeue_delay_s!r}: a finite time from 0 s on expected")
        if self.preempts_by_qos and any(each.preempt_mode for each in self.partitions.values()):
            raise InvalidInput("both partitions and QOS preempt: one of them expected, as in Slurm's PreemptType")
        for name, each in self.qos.items():
            who = f"QOS {name[:40]!r} preempts"
            for other in each.preempts:
                if other not in self.qos or not self.qos[other].preempt_mode:
                    raise InvalidInput(f"{who} {other[:40]!r}: a QOS that is there, with a preempt_mode, expected")
            if name in self.preempted_by(name):
                raise InvalidInput(f"{who} itself, perhaps by way of others: an order of QOS expected")

    def by_weight(self, weights: Ints) -> Cluster:
        """The same with nodes of lower weight, shape (nodes,), before others, so that first fit takes them first. Nodes
        keep their names, ``n0`` and so on; neighbours are those in the new order."""
        order = np.argsort(weights, kind="stable")
        place = np.argsort(order)

        def placed(nodes: Iterable[int]) -> tuple[int, ...]:
            return tuple(sorted(place[list(nodes)].tolist()))

        return replace(
            self,
            capacity=self.capacity[order],
            names=tuple(map(self.name, order.tolist())),
            partitions={name: replace(each, nodes=placed(each.nodes)) for name, each in self.partitions.items()},
            windows=tuple(replace(each, nodes=placed(each.nodes)) for each in self.windows),
            features={name: placed(nodes) for name, nodes in self.features.items()},
        )

    @property
    def preempts_by_qos(self) -> bool:
        return any(each.preempts for each in self.qos.values())

    def preempted_by(self, name: str) -> set[str]:
        """The QOS that jobs of this one preempt, and those that jobs of these preempt, and so on."""
        found, others = set[str](), [*self.qos[name].preempts]
        while others:
            if (other := others.pop()) not in found:
                found.add(other)
                others += self.qos[other].preempts if other in self.qos else ()
        return found

    @property
    def nodes(self) -> int:
        return len(self.capacity)

    @property
    def cores(self) -> int:
        return int(self.capacity[:, 0].sum())

    @cached_property
    def all_partitions(self) -> tuple[Partition, ...]:
        """Its partitions, by number; where it has none, one of all nodes without limits."""
        return tuple(self.partitions.values()) or (Partition(tuple(range(self.nodes))),)

    def allowed(self, partition: int, constraint: str = "") -> Bools:
        """Nodes for the jobs of the partition of this number that ask for such features, shape (nodes,).

        Parameters
        ----------
        constraint
            Names of features joined by ``&``, of which a node has all, or by ``|``, of which it has one or more; "" for
            none.

        Raises
        ------
        InvalidInput
            When it is anything else, as Slurm has it besides.
        """
        found = np.full(self.nodes, not self.partitions)
        if self.partitions:
            found[list(self.all_partitions[partition].nodes)] = True
        if constraint and self.features:
            every = "|" not in constraint
            names = constraint.split("&" if every else "|")
            if not all(map(_FEATURE.fullmatch, names)):
                raise InvalidInput(
                    f"asks for constraint {constraint[:40]!r}: names of features joined by '&', or by '|', expected"
                )
            having = np.zeros((len(names), self.nodes), dtype=np.bool_)
            for row, name in zip(having, names, strict=True):
                row[list(self.features.get(name, ()))] = True
            found &= having.all(axis=0) if every else having.any(axis=0)
        return found

    def most_units(self, need: Ints, allowed: Bools, per_node: int = 0, max_nodes: int = 0) -> int:
        """How many units a job could have if the machine were empty.

        Parameters
        ----------
        need
            What one takes of each resource.
        allowed
            Nodes that it may have, shape (nodes,).
        per_node, max_nodes
            Most units that may share a node, and most nodes; 0 for no limit.

        Raises
        ------
        InvalidInput
            When it takes nothing.
        """
        return int(self._units(need, allowed, per_node)[: max_nodes or None].sum())

    def fewest_nodes(self, units: Ints, need: Ints, allowed: Bools, per_node: int = 0) -> Ints:
        """On how many nodes jobs of so many units are at least, shape (jobs,); the others as in `most_units`."""
        found: Ints = np.searchsorted(np.cumsum(self._units(need, allowed, per_node)), units) + 1
        return found

    def _units(self, need: Ints, allowed: Bools, per_node: int) -> Ints:
        """How many units nodes have room for, the largest first."""
        needed = need > 0
        if not needed.any():
            raise InvalidInput("units of jobs ask for nothing: at least one resource expected")
        fitting: Ints = (self.capacity[allowed][:, needed] // need[needed]).min(axis=1)
        return np.sort(np.minimum(fitting, per_node) if per_node else fitting)[::-1]

    def partition_number(self, name: str | None) -> int:
        """The number of the partition of this name; 0, the first one, where none is named, or the cluster has none.

        Raises
        ------
        InvalidInput
            When there is no such partition.
        """
        return _number("partition", self.partitions, name)

    def qos_number(self, name: str | None) -> int:
        """As `partition_number`, of a QOS."""
        return _number("QOS", self.qos, name)

    @property
    def has_limits(self) -> bool:
        """Whether a QOS, an account, or a user in an account has a limit."""
        return any(each.has_limits for each in self._limiting())

    @property
    def has_budgets(self) -> bool:
        """Whether one has a limit of what jobs may use in all."""
        budgets = "grp_core_minutes", "grp_gpu_minutes", "grp_wall_minutes"
        return any(getattr(each, name) is not None for each in self._limiting() for name in budgets)

    def _limiting(self) -> list[Qos | Association]:
        accounts = self.accounts.values()
        users = [each for account in accounts for each in account.user_limits.values()]
        return [*self.qos.values(), *accounts, *users]

    def account(self, name: str) -> ClusterAccount:
        """The account of this name; one that is not there has one share of all, and no limits."""
        return self.accounts.get(name, _NO_ACCOUNT)

    def lineage(self, account: str) -> tuple[str, ...]:
        """An account and those above it, but for `ROOT`; one that is not there stands below `ROOT`.

        Raises
        ------
        InvalidInput
            When one above it is not there, or it stands above itself, or below more than `MOST_LEVELS`.
        """
        found = list[str]()
        while account != ROOT:
            if account in found:
                raise InvalidInput(f"account {account[:40]!r} stands above itself: parents that make a tree expected")
            if found and account not in self.accounts:
                raise InvalidInput(
                    f"account {found[-1][:40]!r} has parent {account[:40]!r}, which is not there: {ROOT!r}, or one of "
                    f"{', '.join(self.accounts)}, expected"
                )
            if len(found) == MOST_LEVELS:
                raise InvalidInput(f"account {found[0][:40]!r} is below more than {MOST_LEVELS} others: fewer expected")
            found.append(account)
            account = self.account(account).parent
        return tuple(found)

    def levels(self, account: str) -> tuple[str, ...]:
        """An account and all above it."""
        return *self.lineage(account), ROOT

    def association(self, account: str, user: str) -> Association:
        """The limits of a user in an account; of those for each user his own, else that of the nearest account."""
        found = self.account(account).user_limits.get(user, _NO_LIMITS)
        for name in self.levels(account):
            found = found.under(self.account(name))
        return found

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


_FEATURE = re.compile(r"[^\s&|()\[\]*,!]+")


def _number(what: str, known: Mapping[str, object], name: str | None) -> int:
    if not (name and known):
        return 0
    if name not in known:
        raise InvalidInput(f"names {what} {name!r}, which is not there: choose one of {', '.join(known)}")
    return list(known).index(name)
