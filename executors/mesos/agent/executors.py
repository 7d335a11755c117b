"""Custom executors: processes that run tasks in their own way; started, told what to do, ended."""

from __future__ import annotations

from executors.mesos.agent import instances, rows, tasks
from executors.mesos.agent.command import seconds
from executors.mesos.agent.core import Core
from executors.mesos.agent.state import Executor, Framework, Instance, Task, Verdict
from executors.mesos.codec import Message
from executors.mesos.messages import identity, message


def launch(core: Core, framework: Framework, executor: Executor, given: list[Task]) -> None:
    """Have these tasks run by an executor, which is started unless it is there."""
    known = executor.id in framework.executors
    executor.tasks |= {task.id: task for task in given}
    for task in given:
        rows.keep_task(core, task)
    if known:
        instances.adjust(core, executor, came=given)
        if executor.stream is not None:
            deliver(core, executor, given)
        return
    framework.executors[executor.id] = executor
    rows.keep_executor(core, executor)
    instances.begin(
        core,
        framework,
        executor.info["command"],
        instances.executor_share(core, executor),
        id=executor.container,
        executor=executor.id,
        grace_s=_grace(core, executor),
    )
    core.timers.at(("register", framework.id, executor.id), core.now + core.options.registration_s)


def deliver(core: Core, executor: Executor, given: list[Task]) -> None:
    """Tell a connected executor to launch these tasks; those of a group are told of at once."""
    told: set[str] = set()
    for task in given:
        task.delivered = True
        if not task.group:
            core.send(executor.stream, message("LAUNCH", task=task.info))
        elif task.id not in told:
            told |= set(task.group)
            members = [other.info for other in given if other.id in task.group]
            core.send(executor.stream, message("LAUNCH_GROUP", task_group={"tasks": members}))


def kill(core: Core, executor: Executor, task: Task, policy: Message | None) -> None:
    """A framework wants a task to end: its executor is told, unless it has never heard of it."""
    if task.delivered:
        task.verdict = Verdict("TASK_KILLED", None, "its executor has ended while it was to be killed")
        rows.keep_updates(core, task)
        more = {} if policy is None else {"kill_policy": policy}
        core.send(executor.stream, message("KILL", task_id=identity(task.id), **more))
        return
    framework = core.state.frameworks[task.framework]
    for name in task.group or (task.id,):
        if (member := framework.tasks.get(name)) is not None and not member.over:
            give_up(core, member)
    if not executor.tasks and not executor.subscribed:
        shutdown(core, executor, Verdict("TASK_KILLED", "REASON_TASK_KILLED_DURING_LAUNCH", "nothing is left to do"))


def give_up(core: Core, task: Task) -> None:
    """A task that was killed has never reached its executor."""
    text = "it was killed before its executor had heard of it"
    tasks.conclude(core, task, "TASK_KILLED", "REASON_TASK_KILLED_DURING_LAUNCH", text)


def shutdown(core: Core, executor: Executor, verdict: Verdict) -> None:
    """End an executor: it is asked to, and ended when it has not after a while.

    Parameters
    ----------
    verdict
        What is said of the tasks that it leaves behind.
    """
    if executor.verdict is not None:
        return
    executor.verdict = verdict
    rows.keep_executor(core, executor)
    for what in ("register", "return"):
        core.timers.cancel(what, executor.framework, executor.id)
    if executor.stream is not None:
        core.send(executor.stream, message("SHUTDOWN"))
        core.timers.at(("shutdown", executor.framework, executor.id), core.now + _grace(core, executor))
    else:
        instances.stop(core, executor.container, _grace(core, executor))


def overdue(core: Core, what: str, framework_id: str, executor_id: str) -> None:
    """An executor has not done in time what it should: ``register``, ``return`` or ``shutdown``."""
    executor = core.state.executor(framework_id, executor_id)
    if executor is None:
        return
    if what == "register":
        text = f"its executor has not subscribed within {core.options.registration_s:g} s"
        executor.verdict = Verdict("TASK_FAILED", "REASON_EXECUTOR_REGISTRATION_TIMEOUT", text)
    elif what == "return":
        text = f"its executor has not come back within {core.options.recovery_s:g} s"
        executor.verdict = Verdict("TASK_FAILED", "REASON_EXECUTOR_REREGISTRATION_TIMEOUT", text)
    rows.keep_executor(core, executor)
    instances.stop(core, executor.container, 0.0)


def exited(core: Core, executor: Executor, instance: Instance, code: int | None, reason: str) -> None:
    """Its process has ended, or could not be started: what it has left behind has failed."""
    framework = core.state.frameworks[executor.framework]
    core.close(executor.stream)
    executor.stream = None
    for what in ("register", "return", "shutdown"):
        core.timers.cancel(what, executor.framework, executor.id)
    verdict = executor.verdict
    if verdict is None:
        verdict = instances.failure(instance, code, reason, "Executor", "REASON_EXECUTOR_TERMINATED")
    for task in list(executor.tasks.values()):
        tasks.conclude(core, task, *(task.verdict or verdict))
    tasks.leave(core, framework, executor, instances.wait_status(code))


def _grace(core: Core, executor: Executor) -> float:
    return seconds(executor.info, "shutdown_grace_period", core.options.grace_s)
