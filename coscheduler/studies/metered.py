"""How much CPU jobs use on average, but for the time after they were looked at last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from coscheduler.real.machine import Machine, News, Node, Program, Used


class Metered:
    """A machine that keeps what containers had used when they were looked at last, and when that was.

    Of one that has ended nobody can ask any more what it has used. Over its whole run time, its use would come out too
    small by half a period of the monitor, which counts for short jobs.

    Parameters
    ----------
    machine
        The nodes.
    clock
        Returns a time [s] that only grows.
    """

    def __init__(self, machine: Machine, clock: Callable[[], float] = time.monotonic) -> None:
        self._machine, self._clock = machine, clock
        self._speeds = {node.name: node.speed for node in machine.nodes}
        self._nodes: dict[str, str] = {}
        self._started: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._used_s: dict[str, float] = {}

    def cpu(self, job: str, cores: int) -> float:
        """Mean use, in [0, 1], of as many cores as a job has, which was called ``JOB.NUMBER.RANK`` on each node.

        From its first start until any of it was looked at last; 0 where none was.
        """
        mine = [container for container in self._nodes if container.rsplit(".", 2)[0] == job]
        seen = [container for container in mine if container in self._looked]
        if not seen:
            return 0.0
        over_s = max(self._looked[each] for each in seen) - min(self._started[each] for each in mine)
        used_s = sum(self._used_s[each] / self._speeds[self._nodes[each]] for each in seen)
        return min(1.0, used_s / (cores * over_s)) if over_s > 0 else 0.0

    # ------------------------------------------------------- the machine

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes that are there now."""
        return self._machine.nodes

    def start(self, container: str, node: str, program: Program, request: float, limit: float) -> None:
        """Start a container."""
        self._nodes[container], self._started[container] = node, self._clock()
        self._machine.start(container, node, program, request, limit)

    def stop(self, container: str) -> None:
        """End a container."""
        self._machine.stop(container)

    def share(self, container: str, request: float, limit: float, lease_s: float | None) -> None:
        """Change what a container may have."""
        self._machine.share(container, request, limit, lease_s)

    def used(self) -> Mapping[str, Used]:
        """What the containers that run have used."""
        found, now = self._machine.used(), self._clock()
        for container, used in found.items():
            self._looked[container], self._used_s[container] = now, used.cpu_s
        return found

    def news(self, timeout_s: float) -> list[News]:
        """What has happened since this was asked last."""
        return self._machine.news(timeout_s)

    def close(self) -> None:
        """End all containers."""
        self._machine.close()
