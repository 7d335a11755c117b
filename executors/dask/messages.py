"""What the parts of the `dask` executor send to one another, beyond the messages of `executors.wire`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from executors.wire import TaskOrder

SOCKET = "crew.sock"
"""On which a node's workers reach their crew, in the crew's own directory."""


class SchedulerAddress(NamedTuple):
    """Driver to crew: where the scheduler listens, on one of these hosts, and what the workers' names begin with."""

    hosts: tuple[str, ...]
    port: int
    prefix: str


class WorkerPlace(NamedTuple):
    """Where a worker works.

    `certificates`: directory of the run's. `values`: directory for long results. `scratch`: the crew's own directory,
    on the node's disk. `threads`: variables that tell libraries how many threads to use. `gpus`: the node's.
    """

    scheduler: SchedulerAddress
    certificates: str
    values: str
    scratch: str
    threads: tuple[str, ...]
    gpus: tuple[str, ...]


class RecallOrders(NamedTuple):
    """Driver to crew to worker: if what runs there takes long, hand back those of these orders, ticket by serial
    number, that have not begun."""

    worker: str
    tickets: dict[int, int]


class RetireWorker(NamedTuple):
    """Driver to crew: end this idle worker, and start another in its place."""

    worker: str


class WorkerGone(NamedTuple):
    """Crew to driver: this worker has ended. What became of the order that it ran was told before."""

    worker: str


class WorkerHello(NamedTuple):
    """Worker to crew, first of all: which one it is."""

    worker: str


class WorkerReady(NamedTuple):
    """Worker to crew: the scheduler knows it."""


class TaskBegun(NamedTuple):
    """Worker to crew: what it runs now, since when, and how much was on its standard error before."""

    ticket: int
    started: float
    stderr: int


class OrdersReturned(NamedTuple):
    """Worker to crew: tickets of recalled orders that it will not run."""

    tickets: list[int]


class StderrFull(NamedTuple):
    """Worker to crew: its standard error has grown long, and it waits until that is emptied."""


class StderrEmptied(NamedTuple):
    """Crew to worker: its standard error is empty."""


@dataclass(frozen=True, slots=True)
class AssignedOrder:
    """An order that a worker is to run, under a number that no other giving has, with these GPUs of its node."""

    serial: int
    order: TaskOrder
    address: str
    gpus: tuple[int, ...]
