"""Tasks, executors, containers and status updates: what the master has launched and killed, and what becomes of it."""

from __future__ import annotations

import logging
import math
import os.path
import signal
from collections import Counter
from collections.abc import Iterable, Mapping

from asa.core.units import MIB
from executors.mesos.agent import records, task_info
from executors.mesos.agent.state import (
    CONTAINER_TRANSITIONS,
    OUT_OF_MEMORY,
    TASK_TRANSITIONS,
    AgentCore,
    AgentExecutor,
    AgentFramework,
    AgentTask,
    ContainerSpec,
    ContainerState,
    CpuShare,
    HoldMemory,
    LimitCpu,
    RemoveContainer,
    StartContainer,
    StopContainer,
    TaskEnd,
    TaskShare,
    WeighCpu,
)
from executors.mesos.agent.task_info import KILL_GRACE_S
from executors.mesos.codec import BadMessage, Message
from executors.mesos.messages import TERMINAL, base64_of, field, identity, message, task_status, value_of
from executors.mesos.resources import LEAST_CPUS, THOUSAND

_log = logging.getLogger(__name__)


def run_tasks(core: AgentCore, item: Message) -> None:
    """RUN: launch those of its tasks that are not known; raises `BadMessage`."""
    framework_info = field(item, "framework_info", dict)
    framework_id = task_info.path_id(framework_info, "id")
    info: Message | None = field(item, "executor_info", dict, None)
    executor_id = None if info is None else task_info.path_id(info, "executor_id")
    unknown = {task_info.path_id(each, "task_id"): each for each in field(item, "tasks", list)}
    framework = core.state.frameworks.get(framework_id)
    for id in () if framework is None else framework.tasks:
        unknown.pop(id, None)
    if not unknown or (framework is not None and framework.over):
        return
    if framework is None or framework.info != framework_info:
        framework = framework or AgentFramework(framework_id, framework_info)
        framework.info = framework_info
        core.state.frameworks[framework_id] = framework
        records.keep(core, "frameworks", framework)
    new = [AgentTask(id, framework_id, executor_id, info, core.now) for id, info in unknown.items()]
    framework.tasks |= {task.id: task for task in new}
    if core.state.departure is not None:
        for task in new:
            _drop(core, framework, task, "REASON_AGENT_DRAINING", core.state.departure.reason)
        return
    new = [task for task in new if not _is_refused(core, framework, info, task)]
    if info is None:
        for task in new:
            start_task(core, framework, task)
    elif new:
        _launch_custom(core, framework, info, new)


def _is_refused(core: AgentCore, framework: AgentFramework, info: Message | None, task: AgentTask) -> bool:
    """Whether a task cannot run here, which is then reported."""
    objection = _framework_objection(core, framework, info) or (
        task_info.unsupported(task.info, core.options) if info is None else _share_objection(core, task.info)
    )
    if objection is not None:
        _refuse(core, framework, task, "refused", "REASON_TASK_INVALID", objection)
    return objection is not None


def _framework_objection(core: AgentCore, framework: AgentFramework, info: Message | None) -> str | None:
    user = core.options.user
    try:
        asked = field(framework.info, "user", str, "")
        if user is not None and asked not in ("", user):
            return f"tasks run as {user!r} here, not as {asked!r:.80}"
        if info is None:
            return None
        if field(info, "type", str, "CUSTOM") == "DEFAULT":
            return "default executors are not supported: launch tasks without an executor, each by itself"
        return task_info.unsupported(info, core.options)
    except BadMessage as error:
        return str(error)


def _share_objection(core: AgentCore, info: Message) -> str | None:
    try:
        task_info.share(info, core.options.quotas)
    except BadMessage as error:
        return str(error)
    return None


def _drop(core: AgentCore, framework: AgentFramework, task: AgentTask, reason: str, text: str) -> None:
    _refuse(core, framework, task, "dropped" if framework.can("PARTITION_AWARE") else "lost", reason, text)


def _refuse(core: AgentCore, framework: AgentFramework, task: AgentTask, event: str, reason: str, text: str) -> None:
    if _share_objection(core, task.info) is not None:
        task.info = {"task_id": task.info["task_id"]}  # what is wrong in it must not go on to the master
    records.keep(core, "tasks", task)
    _log.info("task %s of %s is refused: %s", task.id, framework.id, text)
    conclude_task(core, task, event, reason, text)


def _launch_custom(core: AgentCore, framework: AgentFramework, info: Message, new: list[AgentTask]) -> None:
    executor_id = task_info.path_id(info, "executor_id")
    executor = framework.executors.get(executor_id)
    if executor is not None and executor.verdict is not None:
        for task in new:
            _drop(core, framework, task, "REASON_EXECUTOR_TERMINATED", "its executor is about to end")
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
        grace = task_info.seconds(item, "kill_policy.grace_period", -1.0)
        kill_task(core, task, None if grace < 0 else grace)
    elif (executor := core.state.executor(task.framework, task.executor_id)) is not None:
        kill_on_executor(core, executor, task, policy)


def update_framework(core: AgentCore, info: Message) -> None:
    """FRAMEWORK: what is known of a framework has changed."""
    framework = core.state.frameworks.get(value_of(info, "id"))
    if framework is not None and framework.info != info:
        framework.info = info
        records.keep(core, "frameworks", framework)


def start_task(core: AgentCore, framework: AgentFramework, task: AgentTask) -> None:
    """Start a task's command in a container of its own."""
    task.container = core.new_id()
    records.keep(core, "tasks", task)
    share_of_it = task_info.share(task.info, core.options.quotas)
    command, executor_id = task.info["command"], task.executor_id
    start_container(core, framework, command, share_of_it, id=task.container, executor=executor_id, task=task)


def task_started(core: AgentCore, task: AgentTask) -> None:
    """Its command runs."""
    if task.verdict is None and not task.over:
        report_event(core, task, "started")


def task_exited(core: AgentCore, task: AgentTask, instance: ContainerState, code: int | None, reason: str) -> None:
    """Its command has ended, or could not be started."""
    if not task.over:
        conclude_task(core, task, *(task.verdict or _command_end(instance, code, reason)))


def _command_end(instance: ContainerState, code: int | None, reason: str) -> TaskEnd:
    if code == 0 and instance.pid is not None:
        return TaskEnd("finished", None, exit_text(code))
    return failed_end(instance, code, reason)


def kill_task(core: AgentCore, task: AgentTask, grace_s: float | None) -> None:
    """A framework kills a task."""
    end_task(core, task, TaskEnd("killed", None, "the framework has killed it"), grace_s)


def end_task(core: AgentCore, task: AgentTask, verdict: TaskEnd, grace_s: float | None = None) -> None:
    """Have a task ended, `grace_s` [s] after SIGTERM at the latest; None for the task's own grace period.

    One that is to end already is stopped again when a grace period is given: it may be shorter. `verdict` is reported
    once it has ended.
    """
    if task.over or task.container is None or (task.verdict is not None and grace_s is None):
        return
    if task.verdict is None:
        task.verdict = verdict
        framework = core.state.frameworks[task.framework]
        if task.state == "TASK_RUNNING" and framework.can("TASK_KILLING_STATE"):
            report_event(core, task, "asked to end", None, verdict.text)
        else:
            records.keep(core, "updates", task)
    grace = task_info.seconds(task.info, "kill_policy.grace_period", KILL_GRACE_S) if grace_s is None else grace_s
    stop_container(core, task.container, grace)


def conclude_task(
    core: AgentCore, task: AgentTask, event: str, reason: str | None = None, text: str | None = None
) -> None:
    """A task is over by this event of `TASK_TRANSITIONS`."""
    report_event(core, task, event, reason, text)
    settle_task(core, task)


def settle_task(core: AgentCore, task: AgentTask) -> None:
    """A task has just ended: what it took is free."""
    framework = core.state.frameworks[task.framework]
    executor = framework.executors.get(task.executor or "")
    if executor is not None:
        executor.tasks.pop(task.id, None)
        adjust_limit(core, executor, gone=(task,))
    if framework.over or not task.pending:
        remove_task(core, framework, task)


def remove_task(core: AgentCore, framework: AgentFramework, task: AgentTask) -> None:
    """All updates of a task that is over are acknowledged: forget it."""
    del framework.tasks[task.id]
    core.timers.cancel("retry", framework.id, task.id)
    records.forget_task(core, task)
    core.state.completed.append(records.task_message(task, core.state.id))
    remove_if_empty(core, framework)


def remove_if_empty(core: AgentCore, framework: AgentFramework) -> None:
    """Forget a framework of which nothing is left here."""
    if not framework.tasks and not framework.executors and core.state.frameworks.pop(framework.id, None) is not None:
        records.forget(core, "frameworks", framework)


def launch_on_executor(
    core: AgentCore, framework: AgentFramework, executor: AgentExecutor, given: list[AgentTask]
) -> None:
    """Have these tasks run by an executor, which is started unless it is there."""
    known = executor.id in framework.executors
    executor.tasks |= {task.id: task for task in given}
    for task in given:
        records.keep(core, "tasks", task)
    if known:
        adjust_limit(core, executor, came=given)
        if executor.stream is not None:
            deliver_tasks(core, executor, given)
        return
    framework.executors[executor.id] = executor
    records.keep(core, "executors", executor)
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
    """Have a connected executor launch these tasks."""
    for task in given:
        task.delivered = True
        core.send(executor.stream, message("LAUNCH", task=task.info))


def kill_on_executor(core: AgentCore, executor: AgentExecutor, task: AgentTask, policy: Message | None) -> None:
    """A framework kills a task: its executor has to end it, unless it has not received it yet."""
    if task.delivered:
        task.verdict = TaskEnd("killed", None, "its executor has ended while it was to be killed")
        records.keep(core, "updates", task)
        more = {} if policy is None else {"kill_policy": policy}
        core.send(executor.stream, message("KILL", task_id=identity(task.id), **more))
        return
    kill_undelivered(core, task)
    if not executor.tasks and not executor.subscribed:
        verdict = TaskEnd("killed", "REASON_TASK_KILLED_DURING_LAUNCH", "nothing is left to do")
        shut_down_executor(core, executor, verdict)


def kill_undelivered(core: AgentCore, task: AgentTask) -> None:
    """A task that was killed was never sent to its executor."""
    text = "it was killed before its executor had received it"
    conclude_task(core, task, "killed", "REASON_TASK_KILLED_DURING_LAUNCH", text)


def shut_down_executor(core: AgentCore, executor: AgentExecutor, verdict: TaskEnd) -> None:
    """Ask an executor to end, and end it after its grace period; `verdict` is reported of the tasks that it leaves."""
    if executor.verdict is not None:
        return
    executor.verdict = verdict
    _log.info("executor %s of %s is asked to end: %s", executor.id, executor.framework, verdict.text)
    records.keep(core, "executors", executor)
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
    records.keep(core, "executors", executor)
    stop_container(core, executor.container, 0.0)


def executor_exited(
    core: AgentCore, executor: AgentExecutor, instance: ContainerState, code: int | None, reason: str
) -> None:
    """Its process has ended, or could not be started: the tasks that it has left behind have failed."""
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
    del framework.executors[executor.id]
    records.forget(core, "executors", executor)
    status = wait_status(code)
    ids = {"framework_id": identity(framework.id), "executor_id": identity(executor.id)}
    core.send_to_master("EXITED_EXECUTOR", **ids, status=-1 if status is None else status)
    remove_if_empty(core, framework)


def _shutdown_grace(core: AgentCore, executor: AgentExecutor) -> float:
    return task_info.seconds(executor.info, "shutdown_grace_period", core.options.grace_s)


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
    """Have a container started for an executor, or for a task; its CommandInfo was checked before."""
    path = sandbox_path(core, framework.id, executor, id)
    memory = None if math.isinf(share.memory) else max(1, round(share.memory))
    limits, requests = CpuShare(max(share.limit, LEAST_CPUS)), CpuShare(max(share.cpus, LEAST_CPUS))
    task_id, gpus = None if task is None else task.id, _free_gpus(core, share.gpus)
    instance = ContainerState(id, framework.id, executor, task_id, path, limits, requests, memory, gpus=gpus)
    core.state.instances[id] = instance
    records.keep(core, "instances", instance)
    variables = task_info.environment(
        core.options, core.state.id or "", framework.info, executor, path,
        command=command, grace_s=grace_s, gpus=gpus,
    )  # fmt: skip
    words = task_info.argv(command)
    spec = ContainerSpec(id, framework.id, executor, words, variables, path, requests.now, instance.limit, memory)
    _log.info("container %s: %s: %.80r for %s", id, instance.phase.value, spec.argv[0], executor)
    core.add(StartContainer(spec))


def _free_gpus(core: AgentCore, count: int) -> tuple[str, ...]:
    """The GPUs that the fewest containers see.

    That is none, unless an executor has been given more than it holds now: what it saw at its start, it sees to its
    end, while the GPUs of its tasks are offered again as soon as these have ended.
    """
    seen = Counter(gpu for instance in core.state.instances.values() for gpu in instance.gpus)
    return tuple(sorted(core.options.gpus, key=lambda gpu: seen[gpu])[:count])


def container_started(core: AgentCore, container_id: str, pid: int, birth: int) -> ContainerState | None:
    """It runs; None for a container that is not known, or has started before."""
    instance = core.state.instances.get(container_id)
    if instance is None or instance.pid is not None:
        return None
    instance.pid, instance.birth = pid, birth
    _move(instance, "started", f"process {pid}")
    records.keep(core, "instances", instance)
    return instance


def drop_container(core: AgentCore, instance: ContainerState, why: str) -> None:
    """It has ended, and nothing of it is needed any more; `why` is for the log."""
    _move(instance, "ended", why)
    del core.state.instances[instance.id]
    for what in ("limit", "request", "memory"):
        core.timers.cancel(what, instance.id)
    records.forget(core, "instances", instance)
    core.add(RemoveContainer(instance.id))


def stop_container(core: AgentCore, container_id: str, grace_s: float) -> None:
    """Have it ended; nothing to do when it has."""
    if (instance := core.state.instances.get(container_id)) is not None:
        _move(instance, "asked to end", f"within {grace_s:g} s")
        core.add(StopContainer(container_id, grace_s))


def _move(instance: ContainerState, event: str, text: str) -> None:
    before, instance.phase = instance.phase, CONTAINER_TRANSITIONS[instance.phase, event]
    _log.info("container %s: %s -> %s (%s: %s)", instance.id, before.value, instance.phase.value, event, text)


def executor_share(core: AgentCore, executor: AgentExecutor) -> TaskShare:
    """What a custom executor's container takes: what the executor itself does, and its tasks.

    Its memory may be all that the agent has: it cannot be raised later, when more tasks come.
    """
    shares = [task_info.share(executor.info, core.options.quotas)]
    for task in executor.tasks.values():
        task.share = task.share or task_info.share(task.info, core.options.quotas)
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
    elif _recount(core, executor, instance, came, gone) and instance.limits.lent is None:
        core.add(LimitCpu(instance.id, instance.limit))


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
        _count_share(executor, task_info.share(executor.info, core.options.quotas), 1)
        came, gone = executor.tasks.values(), ()
    for tasks, sign in ((came, 1), (gone, -1)):
        for task in tasks:
            task.share = task.share or task_info.share(task.info, core.options.quotas)
            _count_share(executor, task.share, sign)
    cpus = math.inf if executor.uncapped else max(executor.capped / THOUSAND, LEAST_CPUS)
    if instance.limits.fixed or cpus == instance.limits.right:
        return False
    instance.limits.right = cpus
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
    """What is reported of tasks whose container has failed (see `NodeAgent.exited`).

    `what` has run in it; `otherwise` is one of Mesos' reasons, where nothing better is known.
    """
    if instance.pid is None:
        return TaskEnd("failed", "REASON_CONTAINER_LAUNCH_FAILED", reason or f"{what} could not be started")
    text = exit_text(code, what)
    if reason == OUT_OF_MEMORY:
        limit = "" if instance.memory is None else f", its limit is {instance.memory / MIB:g} MiB"
        return TaskEnd("failed", reason, f"{text}: out of memory{limit}")
    return TaskEnd("failed", otherwise, f"{text}: {reason}" if reason else text)


def change_cpus(core: AgentCore, instance: ContainerState, asked: Mapping[str, float], seconds: float | None) -> None:
    """Change a container's CPU limit, its weight, or both.

    Parameters
    ----------
    asked
        By ``"limit"`` and ``"request"``: cores, infinite for no limit.
    seconds
        For how long [s]: then it gets again what it has a right to. With 0 a lease ends now, whatever `asked` says;
        with None it has a right to that from now on.
    """
    changed = []
    for what, cores in asked.items():
        share = _share(instance, what)
        if seconds == 0 and share.lent is None:
            continue
        share.lent = None
        core.timers.cancel(what, instance.id)
        if seconds is None:
            share.right, share.fixed = cores, True
        elif seconds > 0:
            share.lent, share.until = cores, core.now + seconds
            core.timers.at((what, instance.id), share.until)
        share.changed = True
        changed.append(what)
    if changed:
        records.keep(core, "instances", instance)
        _apply_cpus(core, instance, changed)


def lease_over(core: AgentCore, what: str, container_id: str) -> None:
    """A lease has expired, by the name of its timer: the container has its own share again, or all memory."""
    if (instance := core.state.instances.get(container_id)) is None:
        return
    if what == "memory":
        hold_memory(core, instance, None, None)
    else:
        change_cpus(core, instance, {what: 0.0}, 0)


def hold_memory(core: AgentCore, instance: ContainerState, memory: int | None, seconds: float | None) -> None:
    """Take memory back from a container while it has more than this [bytes]; None for no such limit.

    That lasts so long [s], None for as long as this agent lives: the next one lets it go until it is set again.
    """
    core.timers.cancel("memory", instance.id)
    if memory is not None and seconds is not None:
        core.timers.at(("memory", instance.id), core.now + seconds)
    core.add(HoldMemory(instance.id, memory))


def resume_leases(core: AgentCore, instance: ContainerState) -> None:
    """After a restart: leases go on, and limit and weight are set again: they may not have been written."""
    hold_memory(core, instance, None, None)
    for what in ("limit", "request"):
        if (share := _share(instance, what)).lent is not None:
            core.timers.at((what, instance.id), share.until)
    _apply_cpus(core, instance, ["limit", "request"] if instance.requests.changed else ["limit"])


def _share(instance: ContainerState, what: str) -> CpuShare:
    return instance.limits if what == "limit" else instance.requests


def _apply_cpus(core: AgentCore, instance: ContainerState, changed: list[str]) -> None:
    if "limit" in changed:
        core.add(LimitCpu(instance.id, instance.limit))
    if "request" in changed:
        core.add(WeighCpu(instance.id, instance.requests.now))


RETRY_S, RETRY_MOST_S = 10.0, 600.0
"""After how long an update that was not acknowledged is sent again [s], at first and at most; Mesos' defaults."""


def report_event(
    core: AgentCore, task: AgentTask, event: str, reason: str | None = None, text: str | None = None
) -> None:
    """The agent itself reports what has become of a task: the next state by `TASK_TRANSITIONS`."""
    instance = None if task.container is None else core.state.instances.get(task.container)
    more = {} if instance is None else {"container_status": records.container_status(instance)}
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
    if core.state.frameworks[task.framework].over:
        if task.state in TERMINAL and core.state.registered:
            _send(core, task, status)
        return
    task.pending.append(status)
    records.keep(core, "updates", task)
    if len(task.pending) == 1:
        send_update(core, task)


def acknowledge_update(core: AgentCore, task: AgentTask, uuid: str) -> Message | None:
    """The framework has acknowledged an update, by its uuid in base64: the status; None if it is not the one sent."""
    if not task.pending or task.pending[0]["uuid"] != uuid:
        return None
    status = task.pending.popleft()
    task.acknowledged.append(uuid)
    task.tries = 0
    core.timers.cancel("retry", task.framework, task.id)
    if task.pending or not task.over:
        records.keep(core, "updates", task, copied=True)
    if task.pending:
        send_update(core, task)
    return status


def send_update(core: AgentCore, task: AgentTask) -> None:
    """Send a task's first pending update, and again after a while; nothing before the agent has registered."""
    if not core.state.registered:
        return
    _send(core, task, task.pending[0])
    wait = min(RETRY_S * 2**task.tries, RETRY_MOST_S)
    task.tries = min(task.tries + 1, 10)
    core.timers.at(("retry", task.framework, task.id), core.now + wait)


def _send(core: AgentCore, task: AgentTask, status: Message) -> None:
    status = status | {"agent_id": identity(core.state.id or "")}
    core.send_to_master("UPDATE", framework_id=identity(task.framework), status=status, latest_state=task.state)


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
