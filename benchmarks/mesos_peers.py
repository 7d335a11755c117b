"""The other side of benchmarks/mesos.py, in processes of its own: an executor that only says so, and nodes that do.

python benchmarks/mesos_peers.py executor
python benchmarks/mesos_peers.py nodes DIRECTORY AGENTS SCHEDULERS
"""

from __future__ import annotations

import getpass
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any

from asa.web.server import raise_file_limit
from executors.mesos.agent_protocol import PATH, STREAM_HEADER
from executors.mesos.client import ClientConnection, of_pool
from executors.mesos.codec import Message, Records, encode
from executors.mesos.messages import base64_of, message
from executors.mesos.pool_directory import AGENT, FRAMEWORK, PoolDirectory
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.simple_executor import SimpleExecutor


def finish(executor: SimpleExecutor, task: Message) -> None:
    """What the executor does with a task: it is over as soon as it has begun."""
    executor.send(task, "TASK_RUNNING")
    executor.send(task, "TASK_FINISHED")


class Peer:
    """An open stream to the master, and what comes on it."""

    def __init__(self, connection: ClientConnection, first: Message, path: str) -> None:
        self.connection, self.records, self.stream = connection, Records(), ""
        connection.post(path, encode(first), {})
        connection.flush()

    def heard(self) -> list[Message]:
        self.connection.receive()
        if not self.connection.answers:
            return []
        answer = self.connection.answers[0]
        assert answer.status == 200, bytes(answer.body)
        self.stream = answer.headers.get(STREAM_HEADER.lower(), "")
        data = bytes(answer.body)
        answer.body.clear()
        return list(self.records.feed(data))


class Nodes:
    """Agents that run nothing (what is launched on them runs until it is killed), and schedulers that want nothing."""

    def __init__(self, directory: PoolDirectory, agents: int, schedulers: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.callers: dict[Peer, ClientConnection] = {}
        self.agent, self.framework = of_pool(directory, AGENT), of_pool(directory, FRAMEWORK)
        for number in range(agents):
            self.add(self.agent, PATH, {"type": "REGISTER", "register": _registration(number)})
        info = {"user": getpass.getuser(), "name": "idle", "roles": ["idle"]}
        for _ in range(schedulers):
            call = message("SUBSCRIBE", framework_info=info, suppressed_roles=["idle"])
            self.add(self.framework, "/api/v1/scheduler", call)

    def add(self, find: Any, path: str, first: Message) -> None:
        peer = Peer(ClientConnection(find()), first, path)
        self.selector.register(peer.connection, selectors.EVENT_READ, peer)
        while not peer.stream:
            self.hear(peer)

    def hear(self, peer: Peer) -> None:
        said = [item for event in peer.heard() for item in self.answers(event)]
        if said:
            if peer not in self.callers:
                self.callers[peer] = ClientConnection(self.agent())
                self.selector.register(self.callers[peer], selectors.EVENT_READ, None)
            caller = self.callers[peer]
            caller.post(PATH, encode(message("BATCH", items=said)), {STREAM_HEADER: peer.stream})
            caller.flush()

    def answers(self, event: Message) -> list[Message]:
        kind = event["type"]
        if kind == "PING":
            return [message("PONG")]
        if kind == "RUN":
            framework = event["run"]["framework_info"]["id"]
            return [_update(framework, task["task_id"], "TASK_RUNNING") for task in event["run"]["tasks"]]
        if kind == "KILL":
            return [_update(event["kill"]["framework_id"], event["kill"]["task_id"], "TASK_KILLED")]
        return []

    def serve(self) -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            for key, _ in self.selector.select(1.0):
                if key.data is not None:
                    self.hear(key.data)
                else:
                    assert isinstance(key.fileobj, ClientConnection)
                    key.fileobj.receive()
                    key.fileobj.answers.clear()


def _registration(number: int) -> Message:
    name = f"node{number}"
    text = {"name": "allocation", "type": "TEXT", "text": {"value": f"job-{number // 64}"}}
    resources = to_json(scalars(cpus=64, mem=256_000))
    info = {"hostname": name, "port": 5051, "resources": resources, "attributes": [text]}
    return {"agent_info": info, "version": "1.11.0", "frameworks": [], "executors": [], "tasks": []}


def _update(framework: Message, task: Message, state: str) -> Message:
    said = {"task_id": task, "state": state, "source": "SOURCE_AGENT", "timestamp": time.time()}
    status = said | {"uuid": base64_of(os.urandom(16)), "executor_id": task}
    return message("UPDATE", framework_id=framework, status=status, latest_state=state)


def main() -> None:
    if sys.argv[1] == "executor":
        SimpleExecutor(finish).run()
        return
    raise_file_limit()
    nodes = Nodes(PoolDirectory(Path(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4]))
    print(f"{getpass.getuser()}: connected", flush=True)
    nodes.serve()


if __name__ == "__main__":
    main()
