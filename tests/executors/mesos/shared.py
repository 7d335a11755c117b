"""A pool that runs share, without a wire: a real master, what runs and nodes tell it, and an operator that asks it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from executors.mesos.codec import Message, decode, encode
from executors.mesos.framework import RUN
from executors.mesos.messages import identity, message
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.sharing import ALLOCATION, GRACE, framework_labels, framework_name
from tests.executors.mesos.master.world import AWARE, MULTI, World, task_info


class Asking(Operator):
    """Asks a master that is in this process, and notes what it has changed."""

    def __init__(self, world: World) -> None:
        super().__init__(PoolDirectory(Path("nowhere")))
        self._world = world
        self.changes: list[str] = []

    def call(self, name: str, **payload: Any) -> Message:
        if not name.startswith("GET_"):
            self.changes.append(name)
        answer, effects = self._world.master.operate(message(name, **payload), self._world.now)
        self._world.do(effects)
        found: Message = {} if answer is None else decode(encode(answer))[name.lower()]
        return found


class Pool:
    """Runs, which subscribe as ours do, and the agents of their allocations, with 4 cores each."""

    def __init__(self) -> None:
        self.world = World()
        self.operator = Asking(self.world)
        self._frameworks: dict[str, str] = {}
        self._hosts = itertools.count()

    def run(self, name: str, *, waits: bool = False) -> None:
        """A run's driver comes, or comes again."""
        self._frameworks[name] = self.world.subscribe(self._frameworks.get(name), **_info(name, waits=waits))
        self._refuse(name)

    def tell(self, run: str, *, waits: bool) -> None:
        """What a run says to its neighbours has changed."""
        framework = self._frameworks[run]
        info = {"id": identity(framework), "user": "me", "failover_timeout": 100} | _info(run, waits=waits)
        self.world.call(framework, "UPDATE_FRAMEWORK", {"framework_info": info})

    def leave(self, run: str) -> None:
        """A run's driver is gone."""
        self.world.cut(self._frameworks[run])

    def node(self, allocation: str, run: str, grace: str = "60") -> str:
        """An agent of an allocation; its id."""
        told = {ALLOCATION: allocation, RUN: run, GRACE: grace}
        return self.agent(*({"name": key, "type": "TEXT", "text": {"value": value}} for key, value in told.items()))

    def agent(self, *attributes: Message) -> str:
        """An agent with these attributes; its id."""
        info = {"hostname": f"n{next(self._hosts)}", "port": 5051, "attributes": list(attributes)}
        info["resources"] = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 4}}]
        return self.world.agent(agent_info=info)

    def work(self, run: str, task: str, agent: str, cpus: float = 1.0) -> None:
        """A run has a task on an agent."""
        framework = self._frameworks[run]
        self.world.call(framework, "REVIVE")
        self.world.sleep(5.0)
        self.world.start(framework, task_info(task, agent, cpus), refuse_s=0)
        self._refuse(run)
        self.world.update(agent, framework, task, "TASK_RUNNING")

    def end(self, run: str, task: str, agent: str) -> None:
        """A task has ended, and its run knows."""
        text = self.world.update(agent, self._frameworks[run], task, "TASK_FINISHED")
        self.world.acknowledge(self._frameworks[run], agent, task, text)

    def _refuse(self, run: str) -> None:
        """Leave everything to the others."""
        framework = self._frameworks[run]
        self.world.call(framework, "SUPPRESS")
        if names := [offer.id for offer in self.world.state.offers.values() if offer.framework == framework]:
            self.world.accept(framework, names, refuse_s=0)


def _info(run: str, *, waits: bool) -> Message:
    return {
        "name": framework_name(run),
        "roles": ["asa"],
        "capabilities": [AWARE, MULTI],
        "labels": framework_labels(waits=waits),
    }
