"""Agents that are registered: they are pinged, lost, given up, and tell when their allocation ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from executors.mesos.codec import Message
from executors.mesos.master import feedback, offers, rows, tasks, views
from executors.mesos.master.core import Core
from executors.mesos.master.state import Agent, Task
from executors.mesos.messages import TERMINAL, field, identity, message, nanoseconds, value_of
from executors.mesos.resources import NONE

AWAY_MOST = 10_000
"""How many unreachable agents, and how many that are gone, are remembered."""


def disconnected(core: Core, agent: Agent) -> None:
    """Its stream is gone: it is offered no more, and lost unless it comes back before its pings are used up."""
    agent.stream = None
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)


def watch(core: Core, agent: Agent) -> None:
    """Begin to ping an agent. Those that register together, as after a restart of the master, are pinged in turn."""
    agent.unanswered = 0
    wait_s = core.state.options.ping_s * (0.5 + 0.5 * (len(core.state.agents) * 0.618034 % 1))
    core.timers.at(("agent", agent.id), core.now + wait_s)


def ping(core: Core, agent_id: str) -> None:
    """Ask an agent whether it is there, or give it up."""
    agent = core.state.agents.get(agent_id)
    if agent is None:
        return
    if agent.unanswered >= core.state.options.pings:
        remove(core, agent_id, gone=False)
        return
    agent.unanswered += 1
    core.send(agent.stream, message("PING"))
    core.timers.at(("agent", agent_id), core.now + core.state.options.ping_s)


def expire_recovered(core: Core) -> None:
    """Agents that did not come back after the master's restart are unreachable."""
    for agent_id in list(core.state.recovered):
        remove(core, agent_id, gone=False)


def remove(core: Core, agent_id: str, *, gone: bool, state: str = "TASK_GONE_BY_OPERATOR") -> None:
    """Give an agent up.

    Parameters
    ----------
    gone
        For good, and it has to go; otherwise it is unreachable and may come back, with its tasks.
    state
        What becomes of the tasks of one that is gone, for frameworks that can tell.
    """
    known = core.state
    agent = known.agents.get(agent_id) or known.recovered.get(agent_id)
    lost = known.unreachable_tasks.pop(agent_id, [])
    if agent is not None:
        _leave(core, agent, "given up" if gone else "")
        lost = list(agent.tasks.values())
    core.filters.forget(agent_id)
    known.unreachable.pop(agent_id, None)
    if gone:
        _end_all(core, lost, state)
        known.away.pop(agent_id, None)
        known.gone[agent_id] = core.now
        core.keep("agents", agent_id, None)
        rows.keep_away(core, "unreachable", agent_id, None)
    elif agent is not None:
        known.unreachable[agent_id] = core.now
        known.away[agent_id] = agent
        known.unreachable_tasks[agent_id] = [task for task in lost if _set_aside(core, task)]
        agent.tasks.clear()
        agent.executors.clear()
        agent.used = NONE
    known.recovered.pop(agent_id, None)
    rows.keep_away(core, "gone" if gone else "unreachable", agent_id, core.now)
    feedback.lost(core, agent_id, gone=gone)
    _forget_oldest(core)
    if agent is not None:
        core.count("slave_removals" if gone else "slave_unreachable_completed")
        failure = message("FAILURE", agent_id=identity(agent_id))
        for framework in known.frameworks.values():
            core.send(framework.stream, failure)
        core.publish(views.agent_removed(agent_id))


def _leave(core: Core, agent: Agent, text: str) -> None:
    if text:
        core.send(agent.stream, message("SHUTDOWN", message=text))
    core.close(agent.stream)
    agent.stream = None
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)
    for executor in agent.executors.values():
        rows.drop_executor(core, executor)
    if agent.id in core.state.agents:
        core.usage.left(agent)
        core.state.recovered[agent.id] = core.state.agents.pop(agent.id)
    core.dirty.discard(agent.id)


def _end_all(core: Core, lost: Iterable[Task], state: str) -> None:
    for task in lost:
        framework = core.state.frameworks.get(task.framework)
        if framework is None or task not in (framework.tasks.get(task.id), framework.unreachable.get(task.id)):
            continue
        if task.state in TERMINAL:
            tasks.forget(core, framework, task)
        else:
            reason = "REASON_AGENT_REMOVED" + ("_BY_OPERATOR" if state == "TASK_GONE_BY_OPERATOR" else "")
            tasks.end(core, framework, task, tasks.worded(framework, state), reason, text="Agent is gone")


def _set_aside(core: Core, task: Task) -> bool:
    """The task's agent is unreachable: whether it may come back with it."""
    framework = core.state.frameworks.get(task.framework)
    if framework is None or framework.tasks.get(task.id) is not task:
        return False
    del framework.tasks[task.id]
    framework.unreachable[task.id] = task
    if task.state not in TERMINAL:
        task.state = "TASK_UNREACHABLE"
        word, since = tasks.worded(framework, "TASK_UNREACHABLE"), nanoseconds(core.now)
        text = "Agent is unreachable"
        status = tasks.made(core, task, word, "REASON_AGENT_REMOVED", text, unreachable_time=since)
        tasks.tell(core, framework, task, status)
    rows.keep_task(core, task)
    return True


def _forget_oldest(core: Core) -> None:
    while len(core.state.unreachable) > AWAY_MOST:
        remove(core, next(iter(core.state.unreachable)), gone=True)
    while len(core.state.gone) > AWAY_MOST:
        oldest = next(iter(core.state.gone))
        del core.state.gone[oldest]
        rows.keep_away(core, "gone", oldest, None)


def unavailability_of(payload: Any) -> Message:
    """A checked Unavailability; without a duration it is for good.

    >>> unavailability_of({"start": {"nanoseconds": 5}})
    {'start': {'nanoseconds': 5}}
    """
    found = {"start": {"nanoseconds": field({"": payload}, ".start.nanoseconds", int)}}
    if "duration" in payload:
        found["duration"] = {"nanoseconds": field(payload, "duration.nanoseconds", int)}
    return found


def unavailable(core: Core, agent: Agent, unavailability: Message | None) -> None:
    """The agent will be unavailable from then on, or with None no longer: its offers are made anew, and those that
    have something there are asked for it.
    """
    agent.unavailability = unavailability
    agent.answers.clear()
    holders = {offer.framework for offer in agent.offers.values()}
    for offer in list(agent.offers.values()):
        offers.rescind(core, offer)
    rows.keep_agent(core, agent)
    ask_back(core, agent, holders)


def ask_back(core: Core, agent: Agent, holders: Collection[str] = ()) -> None:
    """Ask those that have something on an agent that becomes unavailable for it, and `holders`."""
    if agent.unavailability is not None and agent.id in core.state.agents:
        names = {key[0] for key in (*agent.tasks, *agent.executors)} | set(holders)
        found = [core.state.frameworks[name] for name in sorted(names) if name in core.state.frameworks]
        offers.ask_back(core, agent, found)


def exited(core: Core, agent: Agent, item: Message) -> None:
    """EXITED_EXECUTOR: what the executor took is free; its framework is told."""
    framework_id, executor_id = value_of(item, "framework_id"), value_of(item, "executor_id")
    status = field(item, "status", int, 0)
    executor = agent.executors.pop((framework_id, executor_id), None)
    if executor is None:
        return
    core.give_back(agent, framework_id, executor.role, executor.resources)
    rows.drop_executor(core, executor)
    if framework := core.state.frameworks.get(framework_id):
        ids = {"agent_id": identity(agent.id), "executor_id": identity(executor_id)}
        core.send(framework.stream, message("FAILURE", **ids, status=status))
