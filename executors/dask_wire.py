"""What the parts of the `dask` executor say to one another, beyond what every executor says (`executors.wire`)."""

from __future__ import annotations

from typing import NamedTuple

SOCKET = "crew.sock"
"""On which a node's workers reach their crew, in the crew's own directory."""


class Scheduler(NamedTuple):
    """Driver to crew: where the scheduler listens, on one of these hosts, and what the workers' names begin with."""

    hosts: tuple[str, ...]
    port: int
    prefix: str


class Place(NamedTuple):
    """Where a worker works.

    `certificates`: directory of the run's. `values`: directory for long results. `scratch`: the crew's own directory,
    on the node's disk. `threads`: variables that tell libraries how many threads to use. `gpus`: the node's.
    """

    scheduler: Scheduler
    certificates: str
    values: str
    scratch: str
    threads: tuple[str, ...]
    gpus: tuple[str, ...]


class Recall(NamedTuple):
    """Driver to crew to worker: if what runs there takes long, hand back those of these orders, ticket by serial
    number, that have not begun."""

    worker: str
    tickets: dict[int, int]


class Retire(NamedTuple):
    """Driver to crew: end this idle worker, and start another in its place."""

    worker: str


class Gone(NamedTuple):
    """Crew to driver: this worker has ended. What became of the order that it ran was told before."""

    worker: str


class Here(NamedTuple):
    """Worker to crew, first of all: which one it is."""

    worker: str


class Ready(NamedTuple):
    """Worker to crew: the scheduler knows it."""


class Begun(NamedTuple):
    """Worker to crew: what it runs now, since when, and how much was on its standard error before."""

    ticket: int
    started: float
    stderr: int


class Returned(NamedTuple):
    """Worker to crew: tickets of recalled orders that it will not run."""

    tickets: list[int]


class Full(NamedTuple):
    """Worker to crew: its standard error has grown long, and it waits until that is emptied."""


class Emptied(NamedTuple):
    """Crew to worker: its standard error is empty."""
