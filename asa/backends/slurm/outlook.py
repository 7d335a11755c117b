"""What a user can see of a partition's queue: everybody's jobs and the nodes, as a `QueueView`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from asa.backends.slurm import states
from asa.backends.slurm.hostlist import expand
from asa.backends.slurm.parse import NOTHING
from asa.backends.slurm.record import NodeGroup, VisibleJob
from asa.core.job import JobState, Resources
from asa.core.reason import Reason
from asa.core.view import QueuedJob, QueueView, RunningJob

NOT_ELIGIBLE = frozenset(
    {
        Reason.DEPENDENCY, Reason.NEVER, Reason.BEGIN, Reason.HELD, "JobHeldAdmin", Reason.THROTTLED, Reason.BARRED,
    }
)  # fmt: skip
"""Reasons of jobs that could not start if all nodes were free: they are in nobody's way."""

_GONE = re.compile(r"(down|drain|drained|fail|futr|future|inval|unk|unknown|error)\b|idle\S*\+drain")


def node_names(partitions: Iterable[Mapping[str, str]]) -> str:
    """Slurm's list of all nodes of these partitions; "" when it is not told."""
    return ",".join(nodes for item in partitions if (nodes := item.get("Nodes", "")) not in NOTHING)


def rivals(partitions: Iterable[Mapping[str, str]], chosen: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of the partitions whose jobs compete with those of the chosen ones: they have nodes in common.

    >>> core = {"PartitionName": "core", "Nodes": "n[1-4]"}
    >>> rivals([core, {"PartitionName": "short", "Nodes": "n[4-5]"}, {"PartitionName": "gpu", "Nodes": "g1"}], [core])
    ['core', 'short']
    """
    own, nodes = {item["PartitionName"] for item in chosen}, _nodes(chosen)
    return [
        item["PartitionName"]
        for item in partitions
        if item["PartitionName"] in own or not nodes.isdisjoint(_nodes([item]))
    ]


def view(
    now: float, jobs: Iterable[VisibleJob], groups: Sequence[NodeGroup], chosen: Sequence[Mapping[str, str]]
) -> QueueView | None:
    """The queue before the chosen partitions; None when they have no node that works.

    Jobs that wait are in order of priority, the highest first, and then of submission; those that could not start on
    an empty machine are left out. Running jobs are those on the partitions' nodes, whichever partition they came
    through, and end when their wall time does. Memory and GPUs are left out.

    Parameters
    ----------
    now
        The time [s since the epoch].
    jobs
        Those of the `rivals`.
    groups
        Nodes of the chosen partitions.
    """
    capacity, nodes = _capacity(groups, chosen), _nodes(chosen)
    if capacity is None:
        return None
    waiting: list[VisibleJob] = []
    running: list[RunningJob] = []
    for job in jobs:
        state = states.meaning(job.word, holds_nodes=bool(job.held))
        if state is JobState.PENDING and job.reason not in NOT_ELIGIBLE and job.priority > 0:
            waiting.append(job)
        elif job.held and not nodes.isdisjoint(job.held):
            ends = math.inf if job.end is None else max(job.end, now)
            running.append(RunningJob(job.key, Resources(job.cores), ends))
    waiting.sort(key=lambda job: (-job.priority, job.submitted, _number(job.key)))
    queue = (
        QueuedJob(job.key, _asked(job), math.inf if job.limit is None else job.limit, job.submitted, job.user, job.name)
        for job in waiting
    )
    return QueueView(now, capacity, tuple(queue), tuple(running))


def _nodes(partitions: Iterable[Mapping[str, str]]) -> set[str]:
    names = node_names(partitions)
    return set(expand(names)) if names else set()


def _capacity(groups: Sequence[NodeGroup], chosen: Sequence[Mapping[str, str]]) -> Resources | None:
    """Cores of all nodes that work; a partition whose nodes were counted with another one's is passed over."""
    counted: set[str] = set()
    cores = nodes = 0
    for item in chosen:
        own = _nodes([item])
        if counted.isdisjoint(own):
            counted |= own
            working = [g for g in groups if g.partition == item["PartitionName"] and not _GONE.match(g.state)]
            cores += sum(group.count * group.cores for group in working)
            nodes += sum(group.count for group in working)
    return Resources(cores, nodes=_divides(cores, nodes)) if cores else None


def _asked(job: VisibleJob) -> Resources:
    """What a job that waits asks for. One node may mean that the number of nodes is open."""
    return Resources(job.cores, nodes=_divides(job.cores, job.nodes) if job.nodes > 1 else None)


def _divides(cores: int, nodes: int) -> int | None:
    return nodes if nodes > 0 and cores % nodes == 0 else None


def _number(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split("_") if part.isdigit())
