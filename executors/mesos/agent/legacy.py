"""The older GETs of agents, which command-line clients still use.

References
----------
Apache Mesos, ``docs/endpoints/slave``.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from asa.web.errors import HTTPError
from executors.mesos.agent import sandbox
from executors.mesos.agent.options import Options
from executors.mesos.agent.state import Framework, Instance, State, Task
from executors.mesos.amounts import amounts
from executors.mesos.codec import Message
from executors.mesos.messages import VERSION, field
from executors.mesos.resources import parse


def state(found: State, options: Options) -> Message:
    """``/state``: the agent, and what it runs. A command task is its own executor."""
    attributes = {item["name"]: field(item, "text.value", str, "") for item in options.attributes}
    return {
        "version": VERSION,
        "id": found.id or "",
        "pid": f"slave(1)@{options.hostname}:{options.port}",
        "hostname": options.hostname,
        "start_time": found.started,
        "resources": amounts(options.resources),
        "attributes": attributes,
        "frameworks": [_framework(framework, found) for framework in found.frameworks.values()],
        "completed_frameworks": [],
        "flags": {},
    }


def statistics(containers: Message) -> list[Message]:
    """``/monitor/statistics``, from the answer to GET_CONTAINERS."""
    return [
        {
            "framework_id": item["framework_id"]["value"],
            "executor_id": item["executor_id"]["value"],
            "executor_name": item["executor_name"],
            "container_id": item["container_id"]["value"],
            "source": item["executor_id"]["value"],
            "statistics": item["resource_statistics"],
        }
        for item in containers["get_containers"]["containers"]
    ]


def metrics(found: Message) -> Message:
    """``/metrics/snapshot``, from the answer to GET_METRICS."""
    return {item["name"]: item["value"] for item in found["get_metrics"]["metrics"]}


def browse(root: Path, query: Mapping[str, str]) -> list[Message]:
    """``/files/browse?path=``: a directory of a sandbox."""
    return [
        {name: item[name] for name in ("path", "nlink", "size", "uid", "gid") if name in item}
        | {"mtime": item["mtime"]["nanoseconds"] // 1_000_000_000, "mode": stat.filemode(item["mode"])}
        for item in sandbox.entries(root, query.get("path", ""))
        if "mode" in item
    ]


def read(root: Path, query: Mapping[str, str]) -> Message:
    """``/files/read?path=&offset=&length=``: part of a file as text; an offset of -1 asks for its length only."""
    try:
        offset, length = int(query.get("offset", "-1")), int(query.get("length", "-1"))
    except ValueError:
        raise HTTPError(400, "expected 'offset' and 'length' to be numbers") from None
    piece = sandbox.read(root, query.get("path", ""), None if offset < 0 else offset, None if length < 0 else length)
    return {"offset": piece.offset, "data": piece.data.decode(errors="replace")}


def _framework(framework: Framework, found: State) -> Message:
    instances = [item for item in found.instances.values() if item.framework == framework.id and item.parent is None]
    return {
        "id": framework.id,
        "name": framework.info.get("name", ""),
        "user": framework.info.get("user", ""),
        "executors": [_executor(item, framework, found.id or "") for item in instances],
        "completed_executors": [],
    }


def _executor(instance: Instance, framework: Framework, agent_id: str) -> Message:
    executor = framework.executors.get(instance.executor)
    tasks = [task for task in framework.tasks.values() if task.executor_id == instance.executor]
    return {
        "id": instance.executor,
        "name": "" if executor is None else executor.info.get("name", ""),
        "source": instance.executor,
        "container": instance.id,
        "directory": instance.sandbox,
        "type": "COMMAND" if executor is None else "CUSTOM",
        "tasks": [_task(task, agent_id) for task in tasks if not task.over],
        "completed_tasks": [_task(task, agent_id) for task in tasks if task.over],
        "queued_tasks": [],
    }


def _task(task: Task, agent_id: str) -> Message:
    return {
        "id": task.id,
        "name": task.info.get("name", ""),
        "framework_id": task.framework,
        "executor_id": task.executor or "",
        "slave_id": agent_id,
        "state": task.state,
        "resources": amounts(parse(field(task.info, "resources", list, []))),
        "statuses": [{name: item[name] for name in ("state", "timestamp") if name in item} for item in task.statuses],
    }
