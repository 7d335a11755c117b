"""What the master wants launched and killed: who is to do it, or why it cannot be done."""

from __future__ import annotations

from executors.mesos.agent import executors, rows, tasks
from executors.mesos.agent.command import identifier, objection, seconds, share
from executors.mesos.agent.core import Core
from executors.mesos.agent.state import Executor, Framework, Task
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import field, value_of


def run(core: Core, item: Message) -> None:
    """RUN: launch tasks, as one if they are a group. Tasks that are known are; raises `BadMessage`."""
    framework_info = field(item, "framework_info", dict)
    framework_id = identifier(framework_info, "id")
    info: Message | None = field(item, "executor_info", dict, None)
    executor_id = None if info is None else identifier(info, "executor_id")
    grouped = field(item, "group", bool, False)
    framework = core.state.frameworks.get(framework_id)
    found = _new(field(item, "tasks", list), framework)
    if not found or (grouped and len(found) < len(item["tasks"])) or (framework is not None and framework.over):
        return
    if framework is None or framework.info != framework_info:
        framework = framework or Framework(framework_id, framework_info)
        framework.info = framework_info
        core.state.frameworks[framework_id] = framework
        rows.keep_framework(core, framework)
    group = tuple(found) if grouped else ()
    new = [Task(id, framework_id, executor_id, info, core.now, group=group) for id, info in found.items()]
    framework.tasks |= {task.id: task for task in new}
    if core.state.departure is not None:
        _refuse(core, framework, new, "REASON_AGENT_DRAINING", core.state.departure.reason, dropped=True)
        return
    new = _accepted(core, framework, info, new)
    if not new:
        return
    if info is None:
        for task in new:
            tasks.start(core, framework, task)
        return
    _launch(core, framework, info, new)


def _new(items: list[Message], framework: Framework | None) -> dict[str, Message]:
    """Those that are not known, by id."""
    found = {identifier(item, "task_id"): item for item in items}
    return {id: info for id, info in found.items() if framework is None or id not in framework.tasks}


def _accepted(core: Core, framework: Framework, info: Message | None, new: list[Task]) -> list[Task]:
    """Those that can run here; the framework is told of the others. Of a group, all or none can."""
    common = _common_objection(core, framework, info)
    objections = {task.id: common or _objection(core, info, task.info) for task in new}
    wrong = [task for task in new if objections[task.id] is not None]
    if wrong and new[0].group:
        text = "; ".join(f"task {task.id!r}: {objections[task.id]}" for task in wrong[:3])
        _refuse(core, framework, new, "REASON_TASK_GROUP_INVALID", text)
        return []
    for task in wrong:
        _refuse(core, framework, [task], "REASON_TASK_INVALID", objections[task.id] or "")
    return [task for task in new if objections[task.id] is None]


def _common_objection(core: Core, framework: Framework, info: Message | None) -> str | None:
    user = core.options.user
    try:
        asked = field(framework.info, "user", str, "")
        if user is not None and asked not in ("", user):
            return f"tasks run as {user!r} here, not as {asked!r:.80}"
        if info is None:
            return None
        if field(info, "type", str, "CUSTOM") == "DEFAULT":
            return "default executors are not supported: launch tasks without an executor, each by itself"
        return objection(info, core.options)
    except BadMessage as error:
        return str(error)


def _objection(core: Core, info: Message | None, task: Message) -> str | None:
    return objection(task, core.options) if info is None else _share_objection(core, task)


def _share_objection(core: Core, info: Message) -> str | None:
    try:
        share(info, core.options.quotas)
    except BadMessage as error:
        return str(error)
    return None


def _refuse(
    core: Core, framework: Framework, refused: list[Task], reason: str, text: str, *, dropped: bool = False
) -> None:
    state = "TASK_ERROR"
    if dropped:
        state = "TASK_DROPPED" if framework.can("PARTITION_AWARE") else "TASK_LOST"
    for task in refused:
        if _share_objection(core, task.info) is not None:
            task.info = {"task_id": task.info["task_id"]}  # what is wrong in it must not go on to the master
        rows.keep_task(core, task)
        tasks.conclude(core, task, state, reason, text)


def _launch(core: Core, framework: Framework, info: Message, new: list[Task]) -> None:
    executor_id = identifier(info, "executor_id")
    executor = framework.executors.get(executor_id)
    if executor is not None and executor.verdict is not None:
        _refuse(core, framework, new, "REASON_EXECUTOR_TERMINATED", "its executor is about to end", dropped=True)
        return
    if executor is None:
        executor = Executor(executor_id, framework.id, info, core.new_id(), core.now)
    executors.launch(core, framework, executor, new)


def kill(core: Core, item: Message) -> None:
    """KILL: end a task; nothing to do when it has ended."""
    task = core.state.task(value_of(item, "framework_id"), value_of(item, "task_id"))
    if task is None or task.over:
        return
    policy: Message | None = field(item, "kill_policy", dict, None)
    if task.container is not None:
        grace = seconds(item, "kill_policy.grace_period", -1.0)
        tasks.kill(core, task, None if grace < 0 else grace)
    elif (executor := core.state.executor(task.framework, task.executor_id)) is not None:
        executors.kill(core, executor, task, policy)


def update_framework(core: Core, info: Message) -> None:
    """FRAMEWORK: what is known of a framework has changed."""
    framework = core.state.frameworks.get(value_of(info, "id"))
    if framework is not None and framework.info != info:
        framework.info = info
        rows.keep_framework(core, framework)
