"""Agents of runs that have no driver any more: they get nothing new, and go once nothing runs on them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from asa.core.errors import AsaError
from executors.mesos.codec import BadMessage
from executors.mesos.messages import identity
from executors.mesos.neighbours import look
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory

_EVERY_S = 2.0


class Orphans:
    """Looks after a pool's orphans, in a thread of its own; a context manager.

    A run's own tasks end by themselves when its driver is gone. What other runs have leased of its nodes is not harmed:
    it is told to come to an end by the run that has it. Agents that were started by hand belong to no run, and stay.
    """

    def __init__(self, directory: PoolDirectory) -> None:
        self._operator = Operator(directory)
        self._since: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asa-orphans", daemon=True)

    def __enter__(self) -> Orphans:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._operator.close()

    def step(self, now: float) -> None:
        """Look, and do what is due; raises as `Operator` does."""
        hood = look(self._operator)
        alone = {}
        for node in hood.nodes.values():
            run = hood.runs.get(node.run)
            if not node.run or (run is not None and run.connected):
                continue
            alone[node.agent] = since = self._since.get(node.agent, now)
            if now < since + node.grace_s:
                continue
            if node.used == 0:
                self._operator.call("MARK_AGENT_GONE", agent_id=identity(node.agent))
            elif node.active:
                self._operator.deactivate(node.agent)
        self._since = alone

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            with suppress(AsaError, BadMessage, OSError):  # an agent may just have gone; or the master ends
                self.step(time.time())
