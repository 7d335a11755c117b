"""Queues for dispatchers to decide on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.table import JOB, TableView


@dataclass(frozen=True)
class Job:
    """A waiting job of `units` units; its key is its place in the list."""

    units: int
    submit: float = 0.0
    estimate: float = 60.0
    kind: int = 0
    per_node: int = 0
    partition: int = -1


def queue_view(jobs: Sequence[Job], free: int, total: int, now: float = 100.0) -> QueueView:
    """Jobs of single cores as objects; what is not free is held by one job."""
    queue = tuple(QueuedJob(key, Resources(cores=job.units), job.estimate, job.submit) for key, job in enumerate(jobs))
    running = (RunningJob("R", Resources(cores=total - free), now + 1.0),) if free < total else ()
    return QueueView(now, Resources(cores=total), queue, running)


def slot_view(jobs: Sequence[Job], free: int, total: int, now: float = 100.0) -> TableView:
    """The same as a table, on a machine of equal nodes."""
    one = np.array([[1]])
    return _table(jobs, Cluster.of(nodes=total), one, np.ones((total, 1)), now=now, slots=free, all_slots=total)


def node_view(
    jobs: Sequence[Job],
    free: Sequence[Sequence[int]],
    demands: Sequence[Sequence[int]] = ((1,),),
    *,
    cluster: Cluster | None = None,
    placement: int = 0,
    now: float = 100.0,
) -> TableView:
    """A table on a machine where it depends on the nodes what fits; its nodes have 8 of everything unless given."""
    left = np.array(free)
    cluster = cluster or Cluster(np.full(left.shape, 8), ("cores", "memory", "gpus")[: left.shape[1]])
    return _table(jobs, cluster, np.array(demands), left, now=now, slots=-1, all_slots=-1, placement=placement)


def _table(
    jobs: Sequence[Job],
    cluster: Cluster,
    demands: np.ndarray,
    free: np.ndarray,
    *,
    now: float,
    slots: int,
    all_slots: int,
    placement: int = 0,
) -> TableView:
    table = np.zeros(len(jobs), JOB)
    for row, job in enumerate(jobs):
        for name in ("submit", "estimate", "units", "kind", "per_node"):
            table[row][name] = getattr(job, name)
        table[row]["predicted"] = job.estimate
        table[row]["partition"] = table[row]["allowed"] = max(job.partition, 0)
        table[row]["cores"] = job.units * demands[job.kind][0]
    members = [partition.nodes for partition in cluster.partitions.values()]
    allowed = np.array([[node in nodes for node in range(cluster.nodes)] for nodes in members])
    return TableView(
        now=now,
        cluster=cluster,
        jobs=table,
        waiting=np.arange(len(jobs)),
        active=np.arange(0),
        ends=np.zeros(0),
        free=free.astype(np.int64),
        demands=demands.astype(np.int64),
        slots=slots,
        all_slots=all_slots,
        placement=placement,
        release_at=np.zeros(0),
        holder=np.zeros(0, dtype=np.int64),
        release=np.zeros((0, 4), np.int64),
        allowed=allowed.astype(np.int64) if cluster.partitions else np.ones((1, cluster.nodes), np.int64),
    )
