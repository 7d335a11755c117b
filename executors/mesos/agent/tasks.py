"""What the master wants launched and killed, and what becomes of it: tasks, executors, containers, status updates."""

from __future__ import annotations

import logging
import math
import os.path
import signal
from collections import Counter
from collections.abc import Iterable

from asa.core.units import MIB
from executors.mesos.agent.records import (
    container_status,
    forget_executor,
    forget_framework,
    forget_instance,
    forget_task,
    keep_executor,
    keep_framework,
    keep_instance,
    keep_task,
    keep_updates,
    task_message,
)
from executors.mesos.agent.state import (
    OUT_OF_MEMORY,
    TASK_TRANSITIONS,
    AgentCore,
    AgentExecutor,
    AgentFramework,
    AgentTask,
    ContainerSpec,
    ContainerState,
    LimitCpu,
    RemoveContainer,
    StartContainer,
    StopContainer,
    TaskEnd,
    TaskShare,
    WeighCpu,
)
from executors.mesos.agent.task_info import (
    KILL_GRACE_S,
    argv,
    environment,
    files,
    path_id,
    role,
    seconds,
    share,
    unsupported,
)
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import TERMINAL, base64_of, field, identity, message, task_status, value_of
from executors.mesos.resources import LEAST_CPUS, THOUSAND

_log = logging.getLogger(__name__)


def run_tasks(core: AgentCore, item: Message) -> None:
    """RUN: launch tasks, as one if they are a group. Tasks that are known are; raises `BadMessage`."""
    framework_info = field(item, "framework_info", dict)
    framework_id = path_id(framework_info, "id")
    info: Message | None = field(item, "executor_info", dict, None)
    executor_id = None if info is None else path_id(info, "executor_id")
    grouped = field(item, "group", bool, False)
    framework = core.state.frameworks.get(framework_id)
    found = _unknown_tasks(field(item, "tasks", list), framework)
    if not found or (grouped and len(found) < len(item["tasks"])) or (framework is not None and framework.over):
        return
    if framework is None or framework.info != framework_info:
        framework = framework or AgentFramework(framework_id, framework_info)
        framework.info = framework_info
        core.state.frameworks[framework_id] = framework
        keep_framework(core, framework)
    group = tuple(found) if grouped else ()
    new = [AgentTask(id, framework_id, executor_id, info, core.now, group=group) for id, info in found.items()]
    framework.tasks |= {task.id: task for task in new}
    if core.state.departure is not None:
        _refuse(core, framework, new, "REASON_AGENT_DRAINING", core.state.departure.reason, dropped=True)
        return
    new = _accepted(core, framework, info, new)
    if not new:
        return
    if info is None:
        for task in new:
            start_task(core, framework, task)
        return
    _launch_custom(core, framework, info, new)


def _unknown_tasks(items: list[Message], framework: AgentFramework | None) -> dict[str, Message]:
    """Those that are not known, by id."""
    found = {path_id(item, "task_id"): item for item in items}
    return {id: info for id, info in found.items() if framework is None or id not in framework.tasks}


def _accepted(
    core: AgentCore, framework: AgentFramework, info: Message | None, new: list[AgentTask]
) -> list[AgentTask]:
    """Those that can run here; the others are refused. Of a group, all or none can."""
    common = _common_objection(core, framework, info)
    objections = {task.id: common or _task_objection(core, info, task.info) for task in new}
    wrong = [task for task in new if objections[task.id] is not None]
    if wrong and new[0].group:
        text = "; ".join(f"task {task.id!r}: {objections[task.id]}" for task in wrong[:3])
        _refuse(core, framework, new, "REASON_TASK_GROUP_INVALID", text)
        return []
    for task in wrong:
        _refuse(core, framework, [task], "REASON_TASK_INVALID", objections[task.id] or "")
    return [task for task in new if objections[task.id] is None]


def _common_objection(core: AgentCore, framework: AgentFramework, info: Message | None) -> str | None:
    user = core.options.user
    try:
        asked = field(framework.info, "user", str, "")
        if user is not None and asked not in ("", user):
            return f"tasks run as {user!r} here, not as {asked!r:.80}"
        if info is None:
            return None
        if field(info, "type", str, "CUSTOM") == "DEFAULT":
            return "default executors are not supported: launch tasks without an executor, each by itself"
        return unsupported(info, core.options)
    except BadMessage as error:
        return str(error)


def _task_objection(core: AgentCore, info: Message | None, task: Message) -> str | None:
    return unsupported(task, core.options) if info is None else _share_objection(core, task)


def _share_objection(core: AgentCore, info: Message) -> str | None:
    try:
        share(info, core.options.quotas)
    except BadMessage as error:
        return str(error)
    return None


def _refuse(
    core: AgentCore,
    framework: AgentFramework,
    refused: list[AgentTask],
    reason: str,
    text: str,
    *,
    dropped: bool = False,
) -> None:
    event = "refused"
    if dropped:
        event = "dropped" if framework.can("PARTITION_AWARE") else "lost"
    for task in refused:
        if _share_objection(core, task.info) is not None:
            task.info = {"task_id": task.info["task_id"]}  # what is wrong in it must not go on to the master
        keep_task(core, task)
        _log.info("task %s of %s is refused: %s", task.id, framework.id, text)
        conclude_task(core, task, event, reason, text)


def _launch_custom(core: AgentCore, framework: AgentFramework, info: Message, new: list[AgentTask]) -> None:
    executor_id = path_id(info, "executor_id")
    executor = framework.executors.get(executor_id)
    if executor is not None and executor.verdict is not None:
        _refuse(core, framework, new, "REASON_EXECUTOR_TERMINATED", "its executor is about to end", dropped=True)
        return
    if executor is None:
        executor = AgentExecutor(executor_id, framework.id, info, core.new_id(), core.now)
    launch_on_executor(core, framework, executor, new)


def kill_for_master(core: AgentCore, item: Message) -> None:
    """KILL: end a task; nothing to do when it has ended."""
    task = core.state.task(value_of(item, "framework_id"), value_of(item, "task_id"))
    if task is None or task.over:
        return
    policy: Message | None = field(item, "kill_policy", dict, None)
    if task.container is not None:
        grace = seconds(item, "kill_policy.grace_period", -1.0)
        kill_task(core, task, None if grace < 0 else grace)
    elif (executor := core.state.executor(task.framework, task.executor_id)) is not None:
        kill_on_executor(core, executor, task, policy)


def update_framework(core: AgentCore, info: Message) -> None:
    """FRAMEWORK: what is known of a framework has changed."""
    framework = core.state.frameworks.get(value_of(info, "id"))
    if framework is not None and framework.info != info:
        framework.info = info
        keep_framework(core, framework)


def start_task(core: AgentCore, framework: AgentFramework, task: AgentTask) -> None:
    """Start a task's command in a container of its own."""
    task.container = core.new_id()
    keep_task(core, task)
    share_of_it = share(task.info, core.options.quotas)
    command, executor_id = task.info["command"], task.executor_id
    start_container(core, framework, command, share_of_it, id=task.container, executor=executor_id, task=task)


def task_started(core: AgentCore, task: AgentTask) -> None:
    """Its command runs."""
    if task.verdict is None and not task.over:
        report_event(core, task, "started")
        arm_time_limit(core, task, core.now)


def arm_time_limit(core: AgentCore, task: AgentTask, since: float) -> None:
    """End the task when it has run for longer than its ``max_completion_time``."""
    longest = seconds(task.info, "max_completion_time", -1.0)
    if longest >= 0:
        core.timers.at(("complete", task.framework, task.id), since + longest)


def task_timed_out(core: AgentCore, framework_id: str, task_id: str) -> None:
    """It has."""
    if (task := core.state.task(framework_id, task_id)) is not None:
        verdict = TaskEnd("failed", "REASON_MAX_COMPLETION_TIME_REACHED", "it took longer than its max_completion_time")
        end_task(core, task, verdict)


def task_exited(core: AgentCore, task: AgentTask, instance: ContainerState, code: int | None, reason: str) -> None:
    """Its command has ended, or could not be started."""
    if not task.over:
        conclude_task(core, task, *(task.verdict or _command_end(instance, code, reason)))


def _command_end(instance: ContainerState, code: int | None, reason: str) -> TaskEnd:
    if code == 0 and instance.pid is not None:
        return TaskEnd("finished", None, exit_text(code))
    return failed_end(instance, code, reason)


def kill_task(core: AgentCore, task: AgentTask, grace_s: float | None) -> None:
    """A framework wants a task to end."""
    end_task(core, task, TaskEnd("killed", None, "the framework has killed it"), grace_s)


def end_task(core: AgentCore, task: AgentTask, verdict: TaskEnd, grace_s: float | None = None) -> None:
    """Have a task ended. One that is to end already is stopped again when a grace period is given: it may be shorter.

    Parameters
    ----------
    verdict
        What to say once it has.
    grace_s
        From SIGTERM to SIGKILL [s]; None for that of the task.
    """
    if task.over or task.container is None or (task.verdict is not None and grace_s is None):
        return
    if task.verdict is None:
        task.verdict = verdict
        framework = core.state.frameworks[task.framework]
        if task.state == "TASK_RUNNING" and framework.can("TASK_KILLING_STATE"):
            report_event(core, task, "asked to end", None, verdict.text)
        else:
            keep_updates(core, task)
    grace = seconds(task.info, "kill_policy.grace_period", KILL_GRACE_S) if grace_s is None else grace_s
    stop_container(core, task.container, grace)


def conclude_task(
    core: AgentCore, task: AgentTask, event: str, reason: str | None = None, text: str | None = None
) -> None:
    """A task is over by this event of `TASK_TRANSITIONS`."""
    report_event(core, task, event, reason, text)
    settle_task(core, task)


def settle_task(core: AgentCore, task: AgentTask) -> None:
    """A task has just ended: what it took is free."""
    core.timers.cancel("complete", task.framework, task.id)
    framework = core.state.frameworks[task.framework]
    executor = framework.executors.get(task.executor or "")
    if executor is not None:
        executor.tasks.pop(task.id, None)
        adjust_limit(core, executor, gone=(task,))
    if framework.over or not task.pending:
        remove_task(core, framework, task)


def remove_executor(core: AgentCore, framework: AgentFramework, executor: AgentExecutor, status: int | None) -> None:
    """An executor is no more; `status` as ``wait`` has it, None when it is not known."""
    del framework.executors[executor.id]
    forget_executor(core, executor)
    core.send_to_master(
        "EXITED_EXECUTOR",
        framework_id=identity(framework.id),
        executor_id=identity(executor.id),
        status=-1 if status is None else status,
    )
    remove_if_empty(core, framework)


def remove_task(core: AgentCore, framework: AgentFramework, task: AgentTask) -> None:
    """All updates of a task that is over are acknowledged: forget it."""
    del framework.tasks[task.id]
    core.timers.cancel("retry", framework.id, task.id)
    forget_task(core, task)
    core.state.completed.append(task_message(task, core.state.id))
    remove_if_empty(core, framework)


def remove_if_empty(core: AgentCore, framework: AgentFramework) -> None:
    """Forget a framework of which nothing is left here."""
    if not framework.tasks and not framework.executors and core.state.frameworks.pop(framework.id, None) is not None:
        forget_framework(core, framework)


def launch_on_executor(
    core: AgentCore, framework: AgentFramework, executor: AgentExecutor, given: list[AgentTask]
) -> None:
    """Have these tasks run by an executor, which is started unless it is there."""
    known = executor.id in framework.executors
    executor.tasks |= {task.id: task for task in given}
    for task in given:
        keep_task(core, task)
    if known:
        adjust_limit(core, executor, came=given)
        if executor.stream is not None:
            deliver_tasks(core, executor, given)
        return
    framework.executors[executor.id] = executor
    keep_executor(core, executor)
    start_container(
        core,
        framework,
        executor.info["command"],
        executor_share(core, executor),
        id=executor.container,
        executor=executor.id,
        grace_s=_shutdown_grace(core, executor),
    )
    core.timers.at(("register", framework.id, executor.id), core.now + core.options.registration_s)


def deliver_tasks(core: AgentCore, executor: AgentExecutor, given: list[AgentTask]) -> None:
    """Tell a connected executor to launch these tasks; those of a group in one event."""
    sent: set[str] = set()
    for task in given:
        task.delivered = True
        if not task.group:
            core.send(executor.stream, message("LAUNCH", task=task.info))
        elif task.id not in sent:
            sent |= set(task.group)
            members = [other.info for other in given if other.id in task.group]
            core.send(executor.stream, message("LAUNCH_GROUP", task_group={"tasks": members}))


def kill_on_executor(core: AgentCore, executor: AgentExecutor, task: AgentTask, policy: Message | None) -> None:
    """A framework wants a task to end: its executor has to end it, unless it has not received it yet."""
    if task.delivered:
        task.verdict = TaskEnd("killed", None, "its executor has ended while it was to be killed")
        keep_updates(core, task)
        more = {} if policy is None else {"kill_policy": policy}
        core.send(executor.stream, message("KILL", task_id=identity(task.id), **more))
        return
    framework = core.state.frameworks[task.framework]
    for name in task.group or (task.id,):
        if (member := framework.tasks.get(name)) is not None and not member.over:
            kill_undelivered(core, member)
    if not executor.tasks and not executor.subscribed:
        shut_down_executor(
            core, executor, TaskEnd("killed", "REASON_TASK_KILLED_DURING_LAUNCH", "nothing is left to do")
        )


def kill_undelivered(core: AgentCore, task: AgentTask) -> None:
    """A task that was killed was never sent to its executor."""
    text = "it was killed before its executor had received it"
    conclude_task(core, task, "killed", "REASON_TASK_KILLED_DURING_LAUNCH", text)


def shut_down_executor(core: AgentCore, executor: AgentExecutor, verdict: TaskEnd) -> None:
    """End an executor: it is asked to, and ended when it has not after a while.

    Parameters
    ----------
    verdict
        What is reported of the tasks that it leaves behind.
    """
    if executor.verdict is not None:
        return
    executor.verdict = verdict
    _log.info("executor %s of %s is asked to end: %s", executor.id, executor.framework, verdict.text)
    keep_executor(core, executor)
    for what in ("register", "return"):
        core.timers.cancel(what, executor.framework, executor.id)
    if executor.stream is not None:
        core.send(executor.stream, message("SHUTDOWN"))
        core.timers.at(("shutdown", executor.framework, executor.id), core.now + _shutdown_grace(core, executor))
    else:
        stop_container(core, executor.container, _shutdown_grace(core, executor))


def executor_overdue(core: AgentCore, what: str, framework_id: str, executor_id: str) -> None:
    """An executor has not done in time what it should: ``register``, ``return`` or ``shut_down_executor``."""
    executor = core.state.executor(framework_id, executor_id)
    if executor is None:
        return
    _log.warning("executor %s of %s is ended: it was too late (%s)", executor_id, framework_id, what)
    if what == "register":
        text = f"its executor has not subscribed within {core.options.registration_s:g} s"
        executor.verdict = TaskEnd("failed", "REASON_EXECUTOR_REGISTRATION_TIMEOUT", text)
    elif what == "return":
        text = f"its executor has not come back within {core.options.recovery_s:g} s"
        executor.verdict = TaskEnd("failed", "REASON_EXECUTOR_REREGISTRATION_TIMEOUT", text)
    keep_executor(core, executor)
    stop_container(core, executor.container, 0.0)


def executor_exited(
    core: AgentCore, executor: AgentExecutor, instance: ContainerState, code: int | None, reason: str
) -> None:
    """Its process has ended, or could not be started: what it has left behind has failed."""
    framework = core.state.frameworks[executor.framework]
    core.close(executor.stream)
    executor.stream = None
    for what in ("register", "return", "shutdown"):
        core.timers.cancel(what, executor.framework, executor.id)
    verdict = executor.verdict
    if verdict is None:
        verdict = failed_end(instance, code, reason, "Executor", "REASON_EXECUTOR_TERMINATED")
    for task in list(executor.tasks.values()):
        conclude_task(core, task, *(task.verdict or verdict))
    remove_executor(core, framework, executor, wait_status(code))


def _shutdown_grace(core: AgentCore, executor: AgentExecutor) -> float:
    return seconds(executor.info, "shutdown_grace_period", core.options.grace_s)


def sandbox_path(core: AgentCore, framework: str, executor: str, container: str) -> str:
    """The directory of a container, where Mesos has it too."""
    path = ("slaves", core.state.id or "", "frameworks", framework, "executors", executor, "runs", container)
    return os.path.join(core.options.directory, *path)


def start_container(
    core: AgentCore,
    framework: AgentFramework,
    command: Message,
    share: TaskShare,
    *,
    id: str,
    executor: str,
    task: AgentTask | None = None,
    grace_s: float | None = None,
) -> None:
    """Have a container started.

    Parameters
    ----------
    command
        The CommandInfo, which was looked at before.
    share
        What it takes.
    executor, task
        Whose it is; see `ContainerState`.
    grace_s
        How long an executor may take to end [s]; None for the default.
    """
    path = sandbox_path(core, framework.id, executor, id)
    cpus, memory = _limit_cores(share.limit), None if math.isinf(share.memory) else max(1, round(share.memory))
    request, task_id = max(share.cpus, LEAST_CPUS), None if task is None else task.id
    instance = ContainerState(id, framework.id, executor, task_id, path, request, cpus, memory)
    instance.gpus = _free_gpus(core, share.gpus)
    core.state.instances[id] = instance
    keep_instance(core, instance)
    allocated_to = None if task is None else role(task.info)
    variables = environment(
        core.options, core.state.id or "", framework.info, executor, path,
        command=command, role=allocated_to, grace_s=grace_s, gpus=instance.gpus,
    )  # fmt: skip
    core.add(
        StartContainer(
            ContainerSpec(
                id, framework.id, executor, argv(command), variables, path, request, cpus, memory, files(command)
            )
        )
    )


def _free_gpus(core: AgentCore, count: int) -> tuple[str, ...]:
    """The GPUs that the fewest containers see.

    That is none, unless an executor has been given more than it holds now: what it saw at its start, it sees to its
    end, while the GPUs of its tasks are offered again as soon as these have ended.
    """
    seen = Counter(gpu for instance in core.state.instances.values() for gpu in instance.gpus)
    return tuple(sorted(core.options.gpus, key=lambda gpu: seen[gpu])[:count])


def container_started(core: AgentCore, container_id: str, pid: int, birth: int) -> ContainerState | None:
    """It runs; None for one that is not known, or that was known to."""
    instance = core.state.instances.get(container_id)
    if instance is None or instance.pid is not None:
        return None
    instance.pid, instance.birth = pid, birth
    keep_instance(core, instance)
    return instance


def drop_container(core: AgentCore, instance: ContainerState) -> None:
    """It has ended, and nothing of it is needed any more."""
    del core.state.instances[instance.id]
    for what in ("lease", "request"):
        core.timers.cancel(what, instance.id)
    forget_instance(core, instance)
    core.add(RemoveContainer(instance.id))


def stop_container(core: AgentCore, container_id: str, grace_s: float) -> None:
    """Have it ended; nothing to do when it has."""
    if container_id in core.state.instances:
        core.add(StopContainer(container_id, grace_s))


def executor_share(core: AgentCore, executor: AgentExecutor) -> TaskShare:
    """What a custom executor's container takes: what the executor itself does, and its tasks.

    Its memory may be all that the agent has: it cannot be raised later, when more tasks come.
    """
    shares = [share(executor.info, core.options.quotas)]
    for task in executor.tasks.values():
        task.share = task.share or share(task.info, core.options.quotas)
        shares.append(task.share)
    memory = core.options.resources.scalar("mem") * MIB or math.inf
    cpus, limit, gpus = (sum(amounts) for amounts in zip(*((s.cpus, s.limit, s.gpus) for s in shares), strict=True))
    return TaskShare(cpus, limit, memory, int(gpus))


def adjust_limit(
    core: AgentCore, executor: AgentExecutor, *, came: Iterable[AgentTask] = (), gone: Iterable[AgentTask] = ()
) -> None:
    """A custom executor's tasks have come or gone, and so may its CPU limit. It is not kept: see `recount_limit`."""
    instance = core.state.instances.get(executor.container)
    if instance is None:
        executor.capped = None
    elif _recount(core, executor, instance, came, gone) and instance.lease is None:
        core.add(LimitCpu(instance.id, instance.cpus))


def recount_limit(core: AgentCore, executor: AgentExecutor) -> None:
    """After a restart: the executor's container gets the limit that follows from its tasks."""
    instance = core.state.instances.get(executor.container)
    if instance is not None and instance.pid is not None:
        _recount(core, executor, instance)


def _recount(
    core: AgentCore,
    executor: AgentExecutor,
    instance: ContainerState,
    came: Iterable[AgentTask] = (),
    gone: Iterable[AgentTask] = (),
) -> bool:
    """Whether that has changed the container's limit."""
    if executor.capped is None:  # count all of them once, and from then on what changes
        executor.capped, executor.uncapped = 0, 0
        _count_share(executor, share(executor.info, core.options.quotas), 1)
        came, gone = executor.tasks.values(), ()
    for tasks, sign in ((came, 1), (gone, -1)):
        for task in tasks:
            task.share = task.share or share(task.info, core.options.quotas)
            _count_share(executor, task.share, sign)
    cpus = None if executor.uncapped else max(executor.capped / THOUSAND, LEAST_CPUS)
    if instance.fixed or cpus == instance.cpus:
        return False
    instance.cpus = cpus
    return True


def _count_share(executor: AgentExecutor, share: TaskShare, sign: int) -> None:
    if math.isinf(share.limit):
        executor.uncapped += sign
    else:
        executor.capped = (executor.capped or 0) + sign * round(share.limit * THOUSAND)


def wait_status(code: int | None) -> int | None:
    """An exit code, negative for a signal, as ``wait`` has it.

    >>> wait_status(1), wait_status(-9)
    (256, 9)
    """
    if code is None:
        return None
    return (code & 0xFF) << 8 if code >= 0 else -code & 0x7F


def exit_text(code: int | None, what: str = "Command") -> str:
    """An exit code for people.

    >>> exit_text(1), exit_text(-9)
    ('Command exited with status 1', 'Command terminated with signal Killed')
    """
    if code is None:
        return f"{what} ended in an unknown way"
    if code >= 0:
        return f"{what} exited with status {code}"
    return f"{what} terminated with signal {signal.strsignal(-code)}"


def failed_end(
    instance: ContainerState, code: int | None, reason: str, what: str = "Command", otherwise: str | None = None
) -> TaskEnd:
    """What is reported of tasks whose container has failed.

    Parameters
    ----------
    code, reason
        See `Agent.exited`.
    what
        What has run in it.
    otherwise
        One of Mesos' reasons, where nothing better is known.
    """
    if instance.pid is None:
        return TaskEnd("failed", "REASON_CONTAINER_LAUNCH_FAILED", reason or f"{what} could not be started")
    text = exit_text(code, what)
    if reason == OUT_OF_MEMORY:
        limit = "" if instance.memory is None else f", its limit is {instance.memory / MIB:g} MiB"
        return TaskEnd("failed", reason, f"{text}: out of memory{limit}")
    return TaskEnd("failed", otherwise, f"{text}: {reason}" if reason else text)


def _limit_cores(limit: float) -> float | None:
    return None if math.isinf(limit) else max(limit, LEAST_CPUS)


def lend_cpus(
    core: AgentCore, instance: ContainerState, limit: float | None, request: float | None, seconds: float
) -> None:
    """Another CPU limit, another weight, or both, for so long [s]; the right ones come back by themselves.

    Parameters
    ----------
    limit
        Cores at most, infinite for no limit; None to leave the limit as it is.
    request
        Cores it should have when others want theirs too; None to leave the weight as it is.
    """
    until = core.now + seconds
    if limit is not None:
        instance.lease, instance.until = limit, until
        core.timers.at(("lease", instance.id), until)
    if request is not None:
        instance.request_lease, instance.request_until = request, until
        core.timers.at(("request", instance.id), until)
    _apply_cpus(core, instance, limit=limit is not None, request=request is not None)


def set_cpus(core: AgentCore, instance: ContainerState, limit: float | None, request: float | None) -> None:
    """The same for good: the container has a right to that from now on, and a lease of it ends."""
    if limit is not None:
        instance.cpus, instance.fixed = None if math.isinf(limit) else limit, True
        _drop_lease(core, instance, "lease")
    if request is not None:
        instance.request = request
        _drop_lease(core, instance, "request")
    _apply_cpus(core, instance, limit=limit is not None, request=request is not None)


def end_leases(core: AgentCore, instance: ContainerState, *, limit: bool = False, request: bool = False) -> None:
    """End the lease of the limit, of the weight, or of both; nothing happens where there is none."""
    limit, request = limit and instance.lease is not None, request and instance.request_lease is not None
    if limit:
        _drop_lease(core, instance, "lease")
    if request:
        _drop_lease(core, instance, "request")
    if limit or request:
        _apply_cpus(core, instance, limit=limit, request=request)


def lease_over(core: AgentCore, what: str, container_id: str) -> None:
    """A lease is over, by the name of its timer: the container gets what it has a right to."""
    if (instance := core.state.instances.get(container_id)) is not None:
        end_leases(core, instance, limit=what == "lease", request=what == "request")


def resume_leases(core: AgentCore, instance: ContainerState) -> None:
    """After a restart: leases go on, and limit and weight are set again: they may not have been written."""
    if instance.lease is not None:
        core.timers.at(("lease", instance.id), instance.until)
    if instance.request_lease is not None:
        core.timers.at(("request", instance.id), instance.request_until)
    core.add(LimitCpu(instance.id, instance.limit))
    if instance.weighed:
        core.add(WeighCpu(instance.id, instance.weight))


def _drop_lease(core: AgentCore, instance: ContainerState, what: str) -> None:
    if what == "lease":
        instance.lease = None
    else:
        instance.request_lease = None
    core.timers.cancel(what, instance.id)


def _apply_cpus(core: AgentCore, instance: ContainerState, *, limit: bool, request: bool) -> None:
    instance.weighed |= request
    keep_instance(core, instance)
    if limit:
        core.add(LimitCpu(instance.id, instance.limit))
    if request:
        core.add(WeighCpu(instance.id, instance.weight))


RETRY_S, RETRY_MOST_S = 10.0, 600.0
"""After how long an update that was not acknowledged is sent again [s], at first and at most; Mesos' defaults."""


def report_event(
    core: AgentCore, task: AgentTask, event: str, reason: str | None = None, text: str | None = None
) -> None:
    """The agent itself reports what has become of a task: the next state by `TASK_TRANSITIONS`."""
    instance = None if task.container is None else core.state.instances.get(task.container)
    more = {} if instance is None else {"container_status": container_status(instance)}
    status = task_status(
        task.id,
        TASK_TRANSITIONS[task.state, event],
        core.now,
        source="SOURCE_AGENT",
        agent_id=core.state.id,
        executor_id=task.executor_id,
        reason=reason,
        text=text,
        uuid=core.fresh(),
        **more,
    )
    add_update(core, task, status)


def add_update(core: AgentCore, task: AgentTask, status: Message) -> None:
    """Take a complete status of a task that is not over: keep it, and pass it on when its turn has come."""
    _log.info(
        "task %s of %s: %s -> %s %s", task.id, task.framework, task.state, status["state"], status.get("reason", "")
    )
    task.state = status["state"]
    task.statuses = [item for item in task.statuses if item["state"] != task.state]
    task.statuses.append({name: item for name, item in status.items() if name != "data"})
    if task.state in TERMINAL:
        core.count(task.state.lower().replace("task_", "tasks_", 1))
    if core.state.frameworks[task.framework].over:
        return
    task.pending.append(status)
    keep_updates(core, task)
    if len(task.pending) == 1:
        send_update(core, task)


def acknowledge_update(core: AgentCore, task: AgentTask, uuid: str) -> Message | None:
    """The framework has acknowledged an update: the status if it was the one it was asked to, else None.

    Parameters
    ----------
    uuid
        In base64, as it was sent.
    """
    if not task.pending or task.pending[0]["uuid"] != uuid:
        return None
    status = task.pending.popleft()
    task.acknowledged.append(uuid)
    task.tries = 0
    core.timers.cancel("retry", task.framework, task.id)
    if task.pending or not task.over:
        keep_updates(core, task, copied=True)
    if task.pending:
        send_update(core, task)
    return status


def send_update(core: AgentCore, task: AgentTask) -> None:
    """Send a task's first pending update, and again after a while; nothing before the agent has registered."""
    if not core.state.registered:
        return
    head = task.pending[0] | {"agent_id": identity(core.state.id or "")}
    core.send_to_master("UPDATE", framework_id=identity(task.framework), status=head, latest_state=task.state)
    wait = min(RETRY_S * 2**task.tries, RETRY_MOST_S)
    task.tries = min(task.tries + 1, 10)
    core.timers.at(("retry", task.framework, task.id), core.now + wait)


def resend_updates(core: AgentCore) -> None:
    """The master has just come back: send what it has not acknowledged, without waiting for the next turn."""
    for framework in core.state.frameworks.values():
        for task in framework.tasks.values():
            if task.pending:
                task.tries = 0
                send_update(core, task)


def retry_update(core: AgentCore, framework_id: str, task_id: str) -> None:
    """It is time to send an update again."""
    task = core.state.task(framework_id, task_id)
    if task is not None and task.pending:
        send_update(core, task)


def known_update(task: AgentTask, uuid: bytes) -> str | None:
    """Whether an update was taken before: ``"pending"``, or ``"acknowledged"``."""
    text = base64_of(uuid)
    if text in task.acknowledged:
        return "acknowledged"
    return "pending" if any(status["uuid"] == text for status in task.pending) else None
