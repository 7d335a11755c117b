"""After a restart: what still runs goes on, what was about to end is ended, and what cannot be known has failed."""

from __future__ import annotations

from executors.mesos.agent import departure, executors, instances, leases, tasks
from executors.mesos.agent.core import Core
from executors.mesos.agent.effects import Stop
from executors.mesos.agent.state import State, Task


def running(state: State) -> list[tuple[str, int, int]]:
    """Containers that are known to have started: id, process, and when that had started [clock ticks]."""
    return [(item.id, item.pid, item.birth) for item in state.instances.values() if item.pid is not None]


def ended(core: Core, container_id: str, code: int | None, reason: str) -> None:
    """A container has ended: say so for its task, or for the tasks of its executor."""
    instance = core.state.instances.get(container_id)
    if instance is None:
        return
    framework = core.state.frameworks.get(instance.framework)
    if instance.task is not None:
        task = None if framework is None else framework.tasks.get(instance.task)
        if task is not None:
            tasks.exited(core, task, instance, code, reason)
        instances.drop(core, instance)
        return
    instances.drop(core, instance)
    executor = None if framework is None else framework.executors.get(instance.executor)
    if executor is not None and executor.container == container_id:
        executors.exited(core, executor, instance, code, reason)


def resume(core: Core) -> None:
    """Set going again what was kept; what is to be done is among the effects of the next call."""
    for framework in list(core.state.frameworks.values()):
        for executor in framework.executors.values():
            ids = (framework.id, executor.id)
            if executor.verdict is not None:
                core.do(Stop(executor.container, core.options.grace_s))
            elif executor.subscribed:
                core.timers.at(("return", *ids), core.now + core.options.recovery_s)
            else:
                core.timers.at(("register", *ids), core.now + core.options.registration_s)
            instances.readjust(core, executor)
            for task in executor.tasks.values():
                task.delivered = executor.subscribed
        for task in framework.tasks.values():
            _resume_task(core, task)
        if framework.over:
            departure.abandon(core, framework)
    for instance in list(core.state.instances.values()):
        if instance.pid is None:  # nobody knows whether it started: nothing that was left behind may go on
            ended(core, instance.id, None, "the agent ended while it was being started")
        else:
            leases.resume(core, instance)
    if core.effects:
        core.timers.at(("resume",), core.now)


def _resume_task(core: Core, task: Task) -> None:
    if task.container is None or task.over:
        return
    if task.verdict is not None:
        tasks.end(core, task, task.verdict, core.options.grace_s)
        return
    for status in task.statuses:
        if status["state"] == "TASK_RUNNING":
            tasks.time_out(core, task, status["timestamp"])
