"""What the parts of the `dask` executor send to one another, beyond the messages of `executors.wire`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from executors.wire import TaskOrder

SOCKET = "pool.sock"
"""Socket on which a node's workers reach their pool, in the pool's own directory."""


class SchedulerAddress(NamedTuple):
    """Driver to worker pool: one of these hosts has the scheduler; workers' names begin with `prefix`."""

    hosts: tuple[str, ...]
    port: int
    prefix: str


class WorkerPlace(NamedTuple):
    """Where a worker works.

    `certificates`: directory of the run's. `values`: directory for long results. `scratch`: the pool's own directory,
    on the node's disk. `threads`: variables by which libraries know how many threads to use. `gpus`: the node's.
    `output_limit`: how much is kept of what a task prints [bytes].
    """

    scheduler: SchedulerAddress
    certificates: str
    values: str
    scratch: str
    threads: tuple[str, ...]
    gpus: tuple[str, ...]
    output_limit: int


class RecallOrders(NamedTuple):
    """Driver to pool to worker: if what runs there takes long, return those of these orders, ticket by serial number,
    that have not begun."""

    worker: str
    tickets: dict[int, int]


class RetireWorker(NamedTuple):
    """Driver to pool: end this idle worker, and start another in its place."""

    worker: str


class WorkerGone(NamedTuple):
    """Pool to driver: this worker has ended. The outcome of the order that it ran was reported before."""

    worker: str


class WorkerHello(NamedTuple):
    """Worker to pool, first of all: which one it is."""

    worker: str


class WorkerReady(NamedTuple):
    """Worker to pool: the scheduler knows it."""


class TaskBegun(NamedTuple):
    """Worker to pool: what it runs now, since when, and how much it had printed before."""

    ticket: int
    started: float
    printed: int


class OrdersReturned(NamedTuple):
    """Worker to pool: tickets of recalled orders that it will not run."""

    tickets: list[int]


@dataclass(frozen=True, slots=True)
class AssignedOrder:
    """An order that a worker is to run, under a serial number of its own, with these GPUs of its node."""

    serial: int
    order: TaskOrder
    address: str
    gpus: tuple[int, ...]
