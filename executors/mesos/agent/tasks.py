"""Command tasks: the agent starts their commands itself."""

from __future__ import annotations

from executors.mesos.agent import instances, rows, updates, views
from executors.mesos.agent.command import KILL_GRACE_S, seconds, share
from executors.mesos.agent.core import Core
from executors.mesos.agent.state import Executor, Framework, Instance, Task, Verdict
from executors.mesos.messages import identity


def start(core: Core, framework: Framework, task: Task) -> None:
    """Start a task's command in a container of its own."""
    task.container = core.new_id()
    rows.keep_task(core, task)
    share_of_it = share(task.info, core.options.quotas)
    command, executor_id = task.info["command"], task.executor_id
    instances.begin(core, framework, command, share_of_it, id=task.container, executor=executor_id, task=task)


def started(core: Core, task: Task) -> None:
    """Its command runs."""
    if task.verdict is None and not task.over:
        updates.say(core, task, "TASK_RUNNING")
        time_out(core, task, core.now)


def time_out(core: Core, task: Task, since: float) -> None:
    """End the task when it has run for longer than it wants to."""
    longest = seconds(task.info, "max_completion_time", -1.0)
    if longest >= 0:
        core.timers.at(("complete", task.framework, task.id), since + longest)


def timed_out(core: Core, framework_id: str, task_id: str) -> None:
    """It has."""
    if (task := core.state.task(framework_id, task_id)) is not None:
        verdict = Verdict("TASK_FAILED", "REASON_MAX_COMPLETION_TIME_REACHED", "it took longer than it wanted to")
        end(core, task, verdict)


def exited(core: Core, task: Task, instance: Instance, code: int | None, reason: str) -> None:
    """Its command has ended, or could not be started."""
    if not task.over:
        conclude(core, task, *(task.verdict or _verdict(instance, code, reason)))


def _verdict(instance: Instance, code: int | None, reason: str) -> Verdict:
    if code == 0 and instance.pid is not None:
        return Verdict("TASK_FINISHED", None, instances.how_it_ended(code))
    return instances.failure(instance, code, reason)


def kill(core: Core, task: Task, grace_s: float | None) -> None:
    """A framework wants a task to end."""
    end(core, task, Verdict("TASK_KILLED", None, "the framework has killed it"), grace_s)


def end(core: Core, task: Task, verdict: Verdict, grace_s: float | None = None) -> None:
    """Have a task ended. One that is to end already is stopped again when a grace period is given: it may be shorter.

    Parameters
    ----------
    verdict
        What to say once it has.
    grace_s
        From SIGTERM to SIGKILL [s]; None for what the task says.
    """
    if task.over or task.container is None or (task.verdict is not None and grace_s is None):
        return
    if task.verdict is None:
        task.verdict = verdict
        framework = core.state.frameworks[task.framework]
        if task.state == "TASK_RUNNING" and framework.can("TASK_KILLING_STATE"):
            updates.say(core, task, "TASK_KILLING", None, verdict.text)
        else:
            rows.keep_updates(core, task)
    grace = seconds(task.info, "kill_policy.grace_period", KILL_GRACE_S) if grace_s is None else grace_s
    instances.stop(core, task.container, grace)


def conclude(core: Core, task: Task, state: str, reason: str | None = None, text: str | None = None) -> None:
    """Say that a task is over, and how."""
    updates.say(core, task, state, reason, text)
    settle(core, task)


def settle(core: Core, task: Task) -> None:
    """A task has just ended: what it took is free."""
    core.timers.cancel("complete", task.framework, task.id)
    framework = core.state.frameworks[task.framework]
    executor = framework.executors.get(task.executor or "")
    if executor is not None:
        executor.tasks.pop(task.id, None)
        instances.adjust(core, executor, gone=(task,))
    if framework.over or not task.pending:
        forget(core, framework, task)


def leave(core: Core, framework: Framework, executor: Executor, status: int | None) -> None:
    """An executor is no more; `status` is what ``wait`` said of it, None when nobody knows."""
    del framework.executors[executor.id]
    rows.forget_executor(core, executor)
    core.up(
        "EXITED_EXECUTOR",
        framework_id=identity(framework.id),
        executor_id=identity(executor.id),
        status=-1 if status is None else status,
    )
    tidy(core, framework)


def forget(core: Core, framework: Framework, task: Task) -> None:
    """Nothing of a task that is over needs to be said any more."""
    del framework.tasks[task.id]
    core.timers.cancel("retry", framework.id, task.id)
    rows.forget_task(core, task)
    core.state.completed.append(views.task(task, core.state.id))
    tidy(core, framework)


def tidy(core: Core, framework: Framework) -> None:
    """Forget a framework of which nothing is left here."""
    if not framework.tasks and not framework.executors and core.state.frameworks.pop(framework.id, None) is not None:
        rows.forget_framework(core, framework)
