"""Where instances come from: the views of a machine, and files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.table import TableView
from asa.core.view import QueueView
from asa.dispatchers.planning.instance import LEAST_S, Instance
from asa.dispatchers.room import amounts_of


def from_view(view: QueueView | TableView) -> Instance:
    """The problem that a machine has now. One whose nodes do not matter is a single node.

    Who is late is expected to run `LEAST_S` more; a job that asks for no time is expected to run as long.
    """
    if isinstance(view, QueueView):
        return _from_queue(view)
    rows = view.waiting
    units = np.asarray(view.column("units"), dtype=np.int64)
    duration = np.maximum(np.nan_to_num(np.asarray(view.column("estimate"), dtype=np.float64), posinf=1e9), LEAST_S)
    waited = view.now - np.asarray(view.column("submit"), dtype=np.float64)
    none = np.zeros(len(rows), dtype=np.int64)
    if view.slots >= 0:
        held = np.asarray(view.jobs["units"][view.active], dtype=np.int64)
        release = np.column_stack([0 * held, 0 * held, held, 0 * held]).astype(np.int64).reshape(-1, 4)
        return Instance(
            np.array([[view.slots + int(held.sum())]]), ("units",), np.array([[1]]), np.ones((1, 1), dtype=np.int64),
            tuple(rows.tolist()), units, none, none, none, duration, waited,
            np.maximum(view.ends - view.now, LEAST_S), release,
        )  # fmt: skip
    capacity = view.free.copy()  # of nodes that are down, nothing
    for first, last, count, kind in view.release.tolist():
        capacity[first : last + 1] += count * view.demands[kind]
    return Instance(
        capacity, view.cluster.resources, view.demands, view.allowed, tuple(rows.tolist()), units,
        np.asarray(view.column("kind"), dtype=np.int64), np.asarray(view.column("per_node"), dtype=np.int64),
        np.maximum(np.asarray(view.column("partition"), dtype=np.int64), 0), duration, waited,
        np.maximum(view.release_at - view.now, LEAST_S), view.release,
    )  # fmt: skip


def _from_queue(view: QueueView) -> Instance:
    needs = [*(job.resources for job in view.queue), *(job.resources for job in view.running)]
    amounts = [amounts_of(need, view.capacity) for need in needs]
    demands, kinds = np.unique(np.array(amounts, dtype=np.int64).reshape(len(amounts), -1), axis=0, return_inverse=True)
    kinds, count = kinds.reshape(-1), len(view.queue)
    ends = np.maximum(np.array([job.ends for job in view.running]) - view.now, LEAST_S)
    order = np.argsort(ends, kind="stable")
    held = kinds[count:][order]
    none, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    return Instance(
        np.array([amounts_of(view.capacity, view.capacity)], dtype=np.int64),
        ("cores", "gpus", "memory")[: demands.shape[1]], demands, np.ones((1, 1), dtype=np.int64),
        tuple(job.key for job in view.queue), ones, kinds[:count], none, none,
        np.maximum(np.array([job.walltime_s for job in view.queue]), LEAST_S),
        view.now - np.array([job.submitted for job in view.queue]), ends[order],
        np.column_stack([0 * held, 0 * held, 0 * held + 1, held]).reshape(-1, 4),
    )  # fmt: skip


def read_instance(path: str | Path) -> Instance:
    """An instance from a JSON file, gzipped or not.

    ``cap``: what each node has. ``running``: for each job ``req``, what a unit needs, ``rn``, how many units it has,
    ``end`` [s] and ``alloc``, pairs of node and units. ``queue``: for each job ``req``, ``rn``, ``d``, its duration
    [s], and ``q``, when it was submitted [s], at most 0. Optional: ``resources``, their names, and ``id`` of a job.

    Raises
    ------
    InvalidInput
        When it is no such file, a job can never run on this machine, a demand is negative or nothing, a duration is not
        above 0, a running job should be over, or more runs than there is; names the job.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path}: {error}. Expected a JSON file with 'cap', 'running' and 'queue'") from error
    try:
        made = _made(found)
        made.check()
        return made
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path}: {error!r}. Expected cap, running, queue as docs/dispatch.md has them") from error


def _made(found: Mapping[str, Any]) -> Instance:
    capacity = np.array(found["cap"], dtype=np.int64)
    width = capacity.shape[1]
    names = tuple(found.get("resources", ("cores", "memory", *(f"resource {k}" for k in range(2, width)))[:width]))
    kinds: dict[tuple[int, ...], int] = {}
    ends, release = [], []
    for number, job in enumerate(found["running"]):
        kind = kinds.setdefault(_need(job, width), len(kinds))
        held = sum(units for _, units in job["alloc"])
        if held != job["rn"]:
            raise InvalidInput(f"running job {job.get('id', number)!r} has {job['rn']} units, and {held} on its nodes")
        for node, units in job["alloc"]:
            if not 0 <= node < len(capacity) or units < 1:
                raise InvalidInput(
                    f"running job {job.get('id', number)!r} has {units} units on node {node}: at least 1, and a node "
                    f"from 0 to {len(capacity) - 1} expected"
                )
            ends.append(float(job["end"]))
            release.append((node, node, units, kind))
    queue: Sequence[Mapping[str, Any]] = found["queue"]
    order = np.argsort(np.array(ends), kind="stable")
    none = np.zeros(len(queue), dtype=np.int64)
    kind_of = [kinds.setdefault(_need(job, width), len(kinds)) for job in queue]
    late = [job.get("id", number) for number, job in enumerate(queue) if not job["q"] <= 0]
    if late:
        raise InvalidInput(f"job {late[0]!r} is submitted after now: q must be at most 0")
    return Instance(
        capacity, names, np.array(list(kinds), dtype=np.int64).reshape(-1, width),
        np.ones((1, len(capacity)), dtype=np.int64),
        tuple(job.get("id", number) for number, job in enumerate(queue)),
        np.array([job["rn"] for job in queue], dtype=np.int64), np.array(kind_of, dtype=np.int64), none, none,
        np.array([job["d"] for job in queue], dtype=np.float64),
        -np.array([job["q"] for job in queue], dtype=np.float64),
        np.array(ends)[order], np.array(release, dtype=np.int64).reshape(-1, 4)[order],
    )  # fmt: skip


def _need(job: Mapping[str, Any], width: int) -> tuple[int, ...]:
    need = tuple(job["req"])
    if len(need) != width or not all(isinstance(amount, int) for amount in need):
        raise InvalidInput(f"job {job.get('id', job)!r} has req {list(need)}: {width} whole numbers expected")
    return need
