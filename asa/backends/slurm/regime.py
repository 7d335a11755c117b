"""What a site's configuration means for planning: a dependent job's place in the queue, and the largest job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from asa.backends.slurm import parse
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.record import NodeGroup
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.core.units import clock

_LIMITS = frozenset({"LIMITS", "SAFE", "ALL"})
_UNSTATED_MEMORY = 2**20  # what Slurm shows of a node whose RealMemory nobody configured [bytes]
_SHOWN = (
    "PriorityType", "PriorityFlags", "PriorityWeightAge", "PriorityMaxAge", "AccountingStorageType",
    "AccountingStorageEnforce", "EnforcePartLimits", "SchedulerType", "SchedulerParameters", "SelectType",
    "SelectTypeParameters", "PreemptMode", "JobRequeue", "MaxArraySize", "MaxJobCount", "MinJobAge", "MessageTimeout",
)  # fmt: skip


def queue_regime(configuration: Mapping[str, str]) -> QueueRegime:
    """What becomes of the place of a job that waits for another; the strictest when the site does not tell.

    Measured on Slurm 22.05: with limits enforced, a job's age is reset whenever it gets a dependency; otherwise a
    dependency at submission costs the age and a later one does not; ``ACCRUE_ALWAYS`` counts the age from submission in
    any case, and ``priority/basic`` knows no age.
    """
    kind = configuration.get("PriorityType", "").rpartition("/")[2].lower()
    if kind == "basic":
        return QueueRegime.FIFO
    if kind != "multifactor":
        return QueueRegime.LIMITS
    if "ACCRUE_ALWAYS" in _words(configuration.get("PriorityFlags", "")):
        return QueueRegime.ACCRUE_ALWAYS
    if "AccountingStorageEnforce" not in configuration:
        return QueueRegime.LIMITS
    enforced = _words(configuration["AccountingStorageEnforce"])
    return QueueRegime.LIMITS if enforced & _LIMITS else QueueRegime.MULTIFACTOR


def _words(text: str) -> set[str]:
    return {word.strip().upper() for word in text.split(",")}


def capabilities(
    configuration: Mapping[str, str],
    partitions: Sequence[Mapping[str, str]],
    nodes: Sequence[NodeGroup],
    *,
    version: tuple[int, ...],
    partition: str,
    poll_s: float,
) -> Capabilities:
    """What planning needs to know of a site.

    Parameters
    ----------
    configuration
        The controller's settings; empty when the user may not read them.
    partitions
        Those that jobs may go to.
    nodes
        Groups of nodes of these partitions.
    partition
        The partitions' names as jobs are given them.
    """
    largest = [size for item in partitions if (size := _largest(item, nodes)) is not None]
    limits = [parse.limit(item.get("MaxTime", "UNLIMITED")) for item in partitions]
    finite = [limit for limit in limits if limit is not None]
    shown = {name: configuration[name] for name in _SHOWN if configuration.get(name)}
    for item in partitions:
        words = ("State", "TotalNodes", "TotalCPUs", "MaxNodes", "MaxTime", "DefaultTime", "OverSubscribe", "QoS")
        shown[f"partition {item['PartitionName']}"] = " ".join(f"{word}={item[word]}" for word in words if word in item)
    for group in nodes:
        name = f"nodes of {group.partition}, {group.state}"
        shape = f"{group.count} x {group.cores} cores, {group.memory >> 20} MiB, {group.gpus} GPUs"
        shown[name] = f"{shown[name]}; {shape}" if name in shown else shape
    return Capabilities(
        site=configuration.get("ClusterName", "slurm"),
        partition=partition,
        regime=queue_regime(configuration),
        largest=max(largest, key=lambda size: size.cores, default=None),
        cores_per_node=max((group.cores for group in nodes), default=None),
        longest_s=max(finite) if limits and len(finite) == len(limits) else None,
        poll_s=poll_interval(configuration, poll_s),
        details={"Slurm": parse.version_text(version), **shown},
    )


def poll_interval(configuration: Mapping[str, str], wanted_s: float) -> float:
    """Seconds between status queries [s]: without accounting, short enough to see how each job ends."""
    kept_s = configuration.get("MinJobAge", "").split()
    if not configuration.get("AccountingStorageType", "").endswith("/none") or not kept_s or not kept_s[0].isdigit():
        return wanted_s
    return min(wanted_s, max(1.0, int(kept_s[0]) / 2))


def default_partition(partitions: Sequence[Mapping[str, str]]) -> str:
    """Name of the partition that jobs go to unless told otherwise; "" when there is none."""
    return next((item["PartitionName"] for item in partitions if item.get("Default") == "YES"), "")


def chosen(partitions: Sequence[Mapping[str, str]], names: str) -> list[Mapping[str, str]]:
    """The partitions of these names (commas between).

    Raises
    ------
    SiteRefusal
        When none of them exists.
    """
    found = [item for item in partitions if item["PartitionName"] in names.split(",")]
    if not found:
        known = ", ".join(sorted(item["PartitionName"] for item in partitions))
        raise SiteRefusal(f"Slurm has no partition {names!r}: choose one of {known}")
    return found


def _largest(partition: Mapping[str, str], nodes: Iterable[NodeGroup]) -> Resources | None:
    """The largest job of one partition: its biggest nodes, as many as a job may have."""
    groups = sorted((g for g in nodes if g.partition == partition["PartitionName"]), key=lambda g: -g.cores)
    left = int(limit) if (limit := partition.get("MaxNodes", "")).isdigit() else sum(g.count for g in groups)
    per_node = int(limit) if (limit := partition.get("MaxCPUsPerNode", "")).isdigit() else None
    cores = memory = gpus = used = 0
    for group in groups:
        taken = min(left, group.count)
        cores += taken * min(group.cores, per_node or group.cores)
        memory += taken * group.memory
        gpus += taken * group.gpus
        used += taken
        left -= taken
    if cores == 0:
        return None
    stated = memory if memory > used * _UNSTATED_MEMORY else None
    return Resources(cores, nodes=used if cores % used == 0 else None, memory=stated, gpus=gpus)


def misfit(request: JobRequest, site: Capabilities) -> str | None:
    """Why this job could never start here, or None.

    Slurm accepts such a job by default (``EnforcePartLimits=NO``) and lets it wait for ever.
    """
    wanted, largest = request.resources, site.largest
    where = f"partition {site.partition!r} of {site.site!r}"
    if largest is not None and not wanted.fits(largest):
        return f"{where} has room for {_size(largest)} at most, and the job asks for {_size(wanted)}"
    if largest is not None and largest.nodes is not None and (wanted.nodes or 1) > largest.nodes:
        return f"a job in {where} may have {largest.nodes} nodes, and this one asks for {wanted.nodes}"
    each = wanted.cores // wanted.nodes if wanted.nodes else 1
    if site.cores_per_node is not None and each > site.cores_per_node:
        return f"nodes of {where} have {site.cores_per_node} cores at most, and the job asks for {each} on each"
    if site.longest_s is not None and request.walltime_s > site.longest_s:
        allowed, asked = clock(site.longest_s), clock(request.walltime_s)
        return f"{where} allows a wall time of {allowed}, and the job asks for {asked}"
    return None


def _size(resources: Resources) -> str:
    parts = [f"{resources.cores} cores"]
    if resources.nodes is not None:
        parts.append(f"{resources.nodes} nodes")
    if resources.memory is not None:
        parts.append(f"{resources.memory >> 20} MiB")
    if resources.gpus:
        parts.append(f"{resources.gpus} GPUs")
    return ", ".join(parts)
