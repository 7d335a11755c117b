"""How an agent ends: everything on it is ended, the master hears of it, and then there is nothing left."""

from __future__ import annotations

from executors.mesos.agent import executors, rows, tasks
from executors.mesos.agent.core import Core
from executors.mesos.agent.effects import Exit
from executors.mesos.agent.state import Departure, Framework, Verdict

SPARE_S = 5.0
"""What is left of an allocation when the last has been stopped, for what then remains to be said [s]."""


def plan(core: Core) -> None:
    """Look to the end of the allocation, which is to find nothing running."""
    ends, margin_s = core.options.ends, core.options.margin_s
    if ends is not None and margin_s is not None:
        core.timers.at(("ends",), ends - margin_s)


def run_out(core: Core) -> None:
    """The allocation ends soon."""
    ends = core.now if core.options.ends is None else core.options.ends
    until = max(ends - SPARE_S, core.now + core.options.grace_s)  # with a small margin, it may be a little late
    begin(core, "the agent's allocation ends", until)


def begin(core: Core, reason: str, until: float, *, told: bool = False) -> None:
    """End everything, and then the agent.

    Parameters
    ----------
    reason
        Why; frameworks and master are told.
    until
        When the agent ends at the latest [s since the epoch].
    told
        The master has given the agent up: nobody waits for updates.
    """
    if core.state.departure is not None:
        return
    core.state.departure = Departure(reason, until, told)
    core.timers.at(("leave",), until)
    for framework in list(core.state.frameworks.values()):
        end_framework(core, framework, Verdict("TASK_KILLED", "REASON_AGENT_DRAINING", reason))


def end_framework(core: Core, framework: Framework, verdict: Verdict) -> None:
    """End all that runs of a framework."""
    for executor in list(framework.executors.values()):
        executors.shutdown(core, executor, verdict)
    for task in list(framework.tasks.values()):
        tasks.end(core, task, verdict, core.options.grace_s)


def abandon(core: Core, framework: Framework) -> None:
    """The framework is gone: end all that runs of it, and say nothing more."""
    framework.over = True
    rows.keep_framework(core, framework)
    end_framework(core, framework, Verdict("TASK_KILLED", "REASON_FRAMEWORK_REMOVED", "its framework is gone"))
    for task in list(framework.tasks.values()):
        task.pending.clear()
        core.timers.cancel("retry", framework.id, task.id)
        if task.over:
            tasks.forget(core, framework, task)
    tasks.tidy(core, framework)


def finish(core: Core) -> None:
    """End the agent once it is to, and nothing is left to wait for."""
    leaving, state = core.state.departure, core.state
    if leaving is None or state.left:
        return
    if core.now < leaving.until:
        unsaid = any(task.pending for framework in state.frameworks.values() for task in framework.tasks.values())
        if state.instances or (unsaid and not leaving.told):
            return
    core.up("UNREGISTER", reason=leaving.reason)
    rows.forget_all(core)
    state.left = True
    core.do(Exit(0))
