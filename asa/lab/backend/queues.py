"""Several simulated queues under one clock, as the partitions of a site that have no nodes in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    Refused,
)
from asa.core.view import QueueView
from asa.lab.backend.simulated import EngineClock, OneRunAtATime, Simulated
from asa.lab.simulator.state import StopReason


class QueuesClock(EngineClock):
    """Virtual time of several engines: none is ahead of another one when something happens."""

    def __init__(self, parts: Sequence[EngineClock], notice: Callable[[], None]) -> None:
        super().__init__(parts[0].engine, None, notice)
        self._parts = parts

    def _changed(self) -> bool:
        return any(part._changed() for part in self._parts)

    def _advance(self, until: float) -> bool:
        while True:
            now = self.now()
            if self._run(now):  # what was submitted may start at once
                return True
            nearest = min(min(_next_event(part) for part in self._parts), until)
            if now >= until or nearest == math.inf:
                return False
            if self._run(max(now, nearest)):
                return True

    def _run(self, until: float) -> bool:
        why = [part._served.run(until, promise=True) for part in self._parts]
        return StopReason.JOB_CHANGED in why


def _next_event(part: EngineClock) -> float:
    """When the next event of a machine is due, if no job is submitted or changed before [s]."""
    state = part.engine.state
    world = state.world[0]
    at = float(state.heap[0]["at"]) if world["events"] else math.inf
    if world["arrival"] < world["arrivals"]:
        at = min(at, float(state.jobs[world["arrival"]]["submit"]))
    return at


class SimulatedQueues(OneRunAtATime):
    """A site of several partitions, each a `Simulated` queue; satisfies the Backend port. Deterministic.

    Jobs cannot wait for others, be elements of arrays, or be parked: these may be in different partitions.

    Parameters
    ----------
    queues
        By name, each not used yet and at the same time as the others; the first is the default.
    preempted
        How often an hour one's own running jobs are preempted, by name; such jobs are requeued.
    seed
        Of the preemptions.

    Raises
    ------
    InvalidInput
        When there is no queue, or they are at different times.
    """

    compute = False
    times: str | Path | None = None

    def __init__(
        self, queues: Mapping[str, Simulated], *, preempted: Mapping[str, float] | None = None, seed: int = 0
    ) -> None:
        if len({queue.scene.start for queue in queues.values()}) != 1:
            raise InvalidInput("queues of one site are at one time: give them the same warmup=")
        super().__init__()
        self.queues, self._rates = dict(queues), dict(preempted or {})
        self._random = np.random.default_rng(seed)
        self._where: dict[str, str] = {}  # token -> queue
        for queue in self.queues.values():
            queue.watch = self._on_job

    # -- the port --------------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        return self._at(())

    def _at(self, options: Options) -> Capabilities:
        name = self._name(options)
        return replace(
            self.queues[name].capabilities(),
            site="sim-queues",
            partition=name,
            preemptible=name in self._rates,
            dependencies=frozenset(),
            arrays=False,
            parks=False,
            apart=self._at,
        )

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        found: list[JobHandle | Refused] = []
        for request in requests:
            self._where[request.token] = name = self._name(request.options)
            found += self.queues[name].submit([request])
        return found

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        return [self._of(handle.token).query([handle])[0] for handle in handles]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """The latest job of each token."""
        return {token: handle for queue in self.queues.values() for token, handle in queue.find(tokens).items()}

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        self._of(handle.token).update(handle, changes)

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        for handle in handles:
            self._of(handle.token).cancel([handle])

    def look(self) -> QueueView:
        """What the default queue's dispatcher sees."""
        return next(iter(self.queues.values())).look()

    def looks(self, queues: Sequence[Options]) -> list[QueueView | None]:
        """The same of each of these."""
        return [self.queues[self._name(options)].look() for options in queues]

    # -- virtual time ----------------------------------------------------------------------------------------------

    @cached_property
    def clock(self) -> QueuesClock:
        """Virtual time of all queues; begins when they have filled."""
        return QueuesClock([queue.clock for queue in self.queues.values()], self._notice)

    def cores_on(self, token: str) -> tuple[int, ...]:
        return self._of(token).cores_on(token)

    def end(self, token: str, exit_code: int = 0) -> None:
        self._of(token).end(token, exit_code)

    # -- mechanics -------------------------------------------------------------------------------------------------

    def _name(self, options: Options) -> str:
        name = dict(options).get("partition") or next(iter(self.queues))
        if name not in self.queues:
            raise InvalidInput(f"there is no partition {name!r}: choose one of {', '.join(self.queues)}")
        return name

    def _of(self, token: str) -> Simulated:
        return self.queues[self._where[token]]

    def _notice(self) -> None:
        """Something has happened to a job of some queue."""
        self._news()
        for queue in self.queues.values():
            queue.notice()

    def _on_job(self, request: JobRequest, status: JobStatus) -> None:
        rate = self._rates.get(self._where[request.token], 0.0) / 3600.0
        if status.state is JobState.RUNNING and rate:
            at = self.clock.now() + float(self._random.exponential(1.0 / rate))
            queue = self._of(request.token)
            self.clock.call_at(at, lambda: queue.requeue(status.handle, status.restarts))
        self.watch(request, status)
