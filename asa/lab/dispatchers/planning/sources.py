"""Where instances come from: the views of a machine, and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.lab.core.jsonfile import read_json
from asa.lab.core.table import TableView
from asa.lab.dispatchers.planning.instance import LEAST_S, Instance, amounts, held
from asa.lab.dispatchers.room import amounts_of


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
    if view.slots >= 0:
        none, running = np.zeros(len(rows), dtype=np.int64), np.asarray(view.jobs["units"][view.active], dtype=np.int64)
        return Instance(
            np.array([[view.slots + int(running.sum())]]), ("units",), np.array([[1]]),
            np.ones((1, 1), dtype=np.int64), tuple(rows.tolist()), units, none, none, none, duration, waited,
            np.maximum(view.ends - view.now, LEAST_S), _on_one_node(running, np.zeros_like(running)),
        )  # fmt: skip
    shared = np.array([name in view.cluster.shareable for name in view.cluster.resources])
    demands = np.where(shared, 0, view.demands)  # of what jobs share, nobody takes anything away
    capacity = view.free + held(view.release, demands, len(view.free))  # of nodes that are down, nothing
    return Instance(
        capacity, view.cluster.resources, demands, view.allowed, tuple(rows.tolist()), units,
        np.asarray(view.column("kind"), dtype=np.int64), np.asarray(view.column("per_node"), dtype=np.int64),
        np.maximum(np.asarray(view.column("partition"), dtype=np.int64), 0), duration, waited,
        np.maximum(view.release_at - view.now, LEAST_S), view.release,
    )  # fmt: skip


def _from_queue(view: QueueView) -> Instance:
    needs = [*(job.resources for job in view.queue), *(job.resources for job in view.running)]
    demands, kinds = np.unique([amounts_of(need, view.capacity) for need in needs], axis=0, return_inverse=True)
    kinds, count = kinds.reshape(-1), len(view.queue)
    ends = np.maximum(np.array([job.ends for job in view.running]) - view.now, LEAST_S)
    order = np.argsort(ends, kind="stable")
    running = kinds[count:][order]
    none, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    return Instance(
        np.array([amounts_of(view.capacity, view.capacity)], dtype=np.int64),
        ("cores", "gpus", "memory")[: demands.shape[1]], demands, np.ones((1, 1), dtype=np.int64),
        tuple(job.key for job in view.queue), ones, kinds[:count], none, none,
        np.maximum(np.array([job.walltime_s for job in view.queue]), LEAST_S),
        view.now - np.array([job.submitted for job in view.queue]), ends[order],
        _on_one_node(np.ones_like(running), running),
    )  # fmt: skip


def _on_one_node(units: Ints, kind: Ints) -> Ints:
    """What runs, of a machine that is a single node."""
    none = np.zeros_like(units)
    return np.column_stack([none, none, units, kind])


def read_instance(path: str | Path) -> Instance:
    """An instance from a JSON file, gzipped or not.

    ``cap``: what each node has. ``running``: for each job ``req``, what a unit needs, ``rn``, how many units it has,
    ``end`` [s] and ``alloc``, pairs of node and units. ``queue``: for each job ``req``, ``rn``, ``d``, its duration
    [s], and ``q``, when it was submitted [s], at most 0. Optional: ``resources``, their names, and ``id`` of a job;
    ``shared``, what the machine has as a whole, by name, and of a job what each of its units draws of that.

    Raises
    ------
    InvalidInput
        When it is no such file, a job can never run on this machine, a demand is negative or nothing, a duration is not
        above 0, a running job should be over, draws what the machine does not have, or more runs than there is; names
        the job.
    """
    path = Path(path)
    found = read_json(path, "'cap', 'running' and 'queue'")
    try:
        made = _made(found)
        made.check()
        return made
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path}: {error!r}. Expected cap, running, queue as docs/dispatch.md has them") from error


def _made(found: Mapping[str, Any]) -> Instance:
    capacity = np.array(found["cap"], dtype=np.int64)
    width = capacity.shape[1]
    _check_numbers(found["running"], ("rn", "end"), "running job")
    _check_numbers(found["queue"], ("rn", "d", "q"), "job")
    names = tuple(found.get("resources", ("cores", "memory", *(f"resource {k}" for k in range(2, width)))[:width]))
    shared = _whole(found.get("shared", {}), "the machine")
    kinds: dict[tuple[int, ...], int] = {}
    ends, release, left, pool = [], [], capacity.copy(), np.array(list(shared.values()), dtype=np.int64)
    for number, job in enumerate(found["running"]):
        name, need, draws = job.get("id", number), _need(job, number, names), _draws(job, number, shared)
        pool -= job["rn"] * np.array(draws, dtype=np.int64)
        _refuse_if_too_much(name, "the machine", list(shared), list(shared.values()), pool.tolist())
        for first, last, units in _places(job, name, len(capacity)):
            left[first : last + 1] -= units * np.array(need)
            for node in range(first, last + 1):
                _refuse_if_too_much(name, f"node {node}", names, capacity[node].tolist(), left[node].tolist())
            ends.append(float(job["end"]))
            release.append((first, last, units, kinds.setdefault((*need, *draws), len(kinds))))
    queue: Sequence[Mapping[str, Any]] = found["queue"]
    order = np.argsort(np.array(ends), kind="stable")
    none = np.zeros(len(queue), dtype=np.int64)
    wants = [(*_need(job, number, names), *_draws(job, number, shared)) for number, job in enumerate(queue)]
    kind_of = [kinds.setdefault(each, len(kinds)) for each in wants]
    for number, job in enumerate(queue):
        if not job["q"] <= 0:
            raise InvalidInput(f"job {job.get('id', number)!r} is submitted after now: q must be at most 0")
    demands = np.array(list(kinds), dtype=np.int64).reshape(-1, width + len(shared))
    return Instance(
        capacity, names, demands[:, :width],
        np.ones((1, len(capacity)), dtype=np.int64),
        tuple(job.get("id", number) for number, job in enumerate(queue)),
        np.array([job["rn"] for job in queue], dtype=np.int64), np.array(kind_of, dtype=np.int64), none, none,
        np.array([job["d"] for job in queue], dtype=np.float64),
        -np.array([job["q"] for job in queue], dtype=np.float64),
        np.array(ends)[order], np.array(release, dtype=np.int64).reshape(-1, 4)[order],
        np.array(list(shared.values()), dtype=np.int64), tuple(shared), demands[:, width:],
    )  # fmt: skip


def _check_numbers(jobs: Sequence[Mapping[str, Any]], keys: Sequence[str], who: str) -> None:
    for number, job in enumerate(jobs):
        for key in keys:
            if isinstance(value := job.get(key), bool) or not isinstance(value, int | float):
                raise InvalidInput(f"{who} {job.get('id', number)!r} has {key} {value!r}: a number expected")


def _whole(shared: Mapping[str, Any], who: str) -> Mapping[str, int]:
    """What the machine has as a whole, or what a unit of a job draws of that."""
    for name, amount in shared.items():
        if not isinstance(amount, int) or amount < 0:
            raise InvalidInput(
                f"{who} has {amount!r} of the shared resource {name!r}: a whole number, at least 0, expected"
            )
    return shared


def _draws(job: Mapping[str, Any], number: int, shared: Mapping[str, int]) -> tuple[int, ...]:
    """What a unit of a job draws of what the machine has as a whole."""
    name = job.get("id", number)
    draws = _whole(job.get("shared", {}), f"a unit of job {name!r}")
    if unknown := [each for each in draws if each not in shared]:
        raise InvalidInput(f"job {name!r} draws {unknown[0]!r}, which the machine does not have: expected {[*shared]}")
    return tuple(draws.get(each, 0) for each in shared)


def _refuse_if_too_much(
    job: str | int, who: str, names: Sequence[str], has: Sequence[int], left: Sequence[int]
) -> None:
    if any(amount < 0 for amount in left):
        raise InvalidInput(
            f"running job {job!r} needs more than {who} has: with those before it, of {amounts(names, has)} are left "
            f"{amounts(names, left)}"
        )


def _need(job: Mapping[str, Any], number: int, names: Sequence[str]) -> tuple[int, ...]:
    """What a unit of a job needs."""
    need, name = tuple(job["req"]), job.get("id", number)
    if len(need) != len(names) or not all(isinstance(amount, int) for amount in need):
        raise InvalidInput(f"job {name!r} has req {list(need)}: {len(names)} whole numbers expected")
    if min(need) < 0 or not any(need):
        raise InvalidInput(
            f"a unit of job {name!r} needs {amounts(names, need)}: no amount below 0, and one above it, expected"
        )
    return need


def _places(job: Mapping[str, Any], name: str | int, nodes: int) -> list[tuple[int, int, int]]:
    """Nodes of a running job, as runs: first, last, and units on each."""
    if not job["end"] > 0:
        raise InvalidInput(
            f"running job {name!r} is expected to end at {job['end']} s, which is not after now (0 s): give one that "
            f"is late {LEAST_S:g} s more"
        )
    places = [(node, units) for node, units in job["alloc"]]
    for node, units in places:
        if not 0 <= node < nodes or units < 1:
            raise InvalidInput(
                f"running job {name!r} has {units} units on node {node}: at least 1, and a node from 0 to {nodes - 1} "
                "expected"
            )
    if (there := sum(units for _, units in places)) != job["rn"]:
        raise InvalidInput(f"running job {name!r} has {job['rn']} units, and {there} on its nodes")
    runs: list[tuple[int, int, int]] = []
    for node, units in places:
        if runs and runs[-1][1:] == (node - 1, units):
            runs[-1] = (runs[-1][0], node, units)
        else:
            runs.append((node, node, units))
    return runs
