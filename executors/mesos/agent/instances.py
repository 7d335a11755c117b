"""Containers as the machine sees them: told to start, limited, told to stop, ended."""

from __future__ import annotations

import math
import os.path
import signal
from collections import Counter
from collections.abc import Iterable

from asa.core.units import MIB
from executors.mesos.agent import rows
from executors.mesos.agent.command import Share, argv, files, role, share
from executors.mesos.agent.core import Core
from executors.mesos.agent.effects import OUT_OF_MEMORY, Container, Limit, Remove, Start, Stop
from executors.mesos.agent.environment import environment
from executors.mesos.agent.state import Executor, Framework, Instance, Task, Verdict
from executors.mesos.codec import Message
from executors.mesos.resources import LEAST_CPUS, THOUSAND


def sandbox(core: Core, framework: str, executor: str, container: str) -> str:
    """The directory of a container, where Mesos has it too."""
    path = ("slaves", core.state.id or "", "frameworks", framework, "executors", executor, "runs", container)
    return os.path.join(core.options.directory, *path)


def begin(
    core: Core,
    framework: Framework,
    command: Message,
    share: Share,
    *,
    id: str,
    executor: str,
    task: Task | None = None,
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
        Whose it is; see `Instance`.
    grace_s
        How long an executor may take to end [s]; None for the default.
    """
    path = sandbox(core, framework.id, executor, id)
    cpus, memory = _cores(share.limit), None if math.isinf(share.memory) else max(1, round(share.memory))
    request, task_id = max(share.cpus, LEAST_CPUS), None if task is None else task.id
    instance = Instance(id, framework.id, executor, task_id, path, request, cpus, memory)
    instance.gpus = _free_gpus(core, share.gpus)
    core.state.instances[id] = instance
    rows.keep_instance(core, instance)
    allocated_to = None if task is None else role(task.info)
    variables = environment(
        core.options, core.state.id or "", framework.info, executor, path,
        command=command, role=allocated_to, grace_s=grace_s, gpus=instance.gpus,
    )  # fmt: skip
    core.do(
        Start(
            Container(id, framework.id, executor, argv(command), variables, path, request, cpus, memory, files(command))
        )
    )


def _free_gpus(core: Core, count: int) -> tuple[str, ...]:
    """Those that the fewest containers see.

    That is none, unless an executor has been given more than it holds now: what it saw at its start, it sees to its
    end, while the GPUs of its tasks are offered again as soon as these have ended.
    """
    seen = Counter(gpu for instance in core.state.instances.values() for gpu in instance.gpus)
    return tuple(sorted(core.options.gpus, key=lambda gpu: seen[gpu])[:count])


def begun(core: Core, container_id: str, pid: int, birth: int) -> Instance | None:
    """It runs; None for one that is not known, or that was known to."""
    instance = core.state.instances.get(container_id)
    if instance is None or instance.pid is not None:
        return None
    instance.pid, instance.birth = pid, birth
    rows.keep_instance(core, instance)
    return instance


def drop(core: Core, instance: Instance) -> None:
    """It has ended, and nothing of it is needed any more."""
    del core.state.instances[instance.id]
    for what in ("lease", "request"):
        core.timers.cancel(what, instance.id)
    rows.forget_instance(core, instance)
    core.do(Remove(instance.id))


def stop(core: Core, container_id: str, grace_s: float) -> None:
    """Have it ended; nothing to do when it has."""
    if container_id in core.state.instances:
        core.do(Stop(container_id, grace_s))


def executor_share(core: Core, executor: Executor) -> Share:
    """What a custom executor's container takes: what the executor itself does, and its tasks.

    Its memory may be all that the agent has: it cannot be raised later, when more tasks come.
    """
    shares = [share(executor.info, core.options.quotas)]
    for task in executor.tasks.values():
        task.share = task.share or share(task.info, core.options.quotas)
        shares.append(task.share)
    memory = core.options.resources.scalar("mem") * MIB or math.inf
    cpus, limit, gpus = (sum(amounts) for amounts in zip(*((s.cpus, s.limit, s.gpus) for s in shares), strict=True))
    return Share(cpus, limit, memory, int(gpus))


def adjust(core: Core, executor: Executor, *, came: Iterable[Task] = (), gone: Iterable[Task] = ()) -> None:
    """A custom executor's tasks have come or gone, and so may its CPU limit. It is not written down: see `readjust`."""
    instance = core.state.instances.get(executor.container)
    if instance is None:
        executor.capped = None
    elif _recount(core, executor, instance, came, gone) and instance.lease is None:
        core.do(Limit(instance.id, instance.cpus))


def readjust(core: Core, executor: Executor) -> None:
    """Whatever an earlier agent has come to: the executor's container has a right to what its tasks give it."""
    instance = core.state.instances.get(executor.container)
    if instance is not None and instance.pid is not None:
        _recount(core, executor, instance)


def _recount(
    core: Core, executor: Executor, instance: Instance, came: Iterable[Task] = (), gone: Iterable[Task] = ()
) -> bool:
    """Whether that has changed the container's limit."""
    if executor.capped is None:  # count all of them once, and from then on what changes
        executor.capped, executor.uncapped = 0, 0
        _count(executor, share(executor.info, core.options.quotas), 1)
        came, gone = executor.tasks.values(), ()
    for tasks, sign in ((came, 1), (gone, -1)):
        for task in tasks:
            task.share = task.share or share(task.info, core.options.quotas)
            _count(executor, task.share, sign)
    cpus = None if executor.uncapped else max(executor.capped / THOUSAND, LEAST_CPUS)
    if instance.fixed or cpus == instance.cpus:
        return False
    instance.cpus = cpus
    return True


def _count(executor: Executor, share: Share, sign: int) -> None:
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


def how_it_ended(code: int | None, what: str = "Command") -> str:
    """An exit code for people.

    >>> how_it_ended(1), how_it_ended(-9)
    ('Command exited with status 1', 'Command terminated with signal Killed')
    """
    if code is None:
        return f"{what} ended in an unknown way"
    if code >= 0:
        return f"{what} exited with status {code}"
    return f"{what} terminated with signal {signal.strsignal(-code)}"


def failure(
    instance: Instance, code: int | None, reason: str, what: str = "Command", otherwise: str | None = None
) -> Verdict:
    """What is said of tasks whose container has ended otherwise than it should.

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
        return Verdict("TASK_FAILED", "REASON_CONTAINER_LAUNCH_FAILED", reason or f"{what} could not be started")
    text = how_it_ended(code, what)
    if reason == OUT_OF_MEMORY:
        limit = "" if instance.memory is None else f", its limit is {instance.memory / MIB:g} MiB"
        return Verdict("TASK_FAILED", reason, f"{text}: out of memory{limit}")
    return Verdict("TASK_FAILED", otherwise, f"{text}: {reason}" if reason else text)


def _cores(limit: float) -> float | None:
    return None if math.isinf(limit) else max(limit, LEAST_CPUS)
