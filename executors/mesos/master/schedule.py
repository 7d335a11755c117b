"""The maintenance schedule: which machines operators take away, from when on, and for how long.

A machine of the schedule is draining: agents on it are told to be unavailable from then on, and frameworks are asked
for their resources. Once its maintenance has started it is down, and has no agents; when it stops, the machine is up
and out of the schedule.

References
----------
Apache Mesos, ``docs/maintenance.md`` and ``include/mesos/v1/maintenance/maintenance.proto``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage, Message
from executors.mesos.master import agents, rows
from executors.mesos.master.core import Core
from executors.mesos.master.state import Agent, State
from executors.mesos.messages import field

Machine = tuple[str, str]
"""Host name and address; one of both may be empty."""

MACHINES_MOST = 100_000
"""How many machines a schedule has at most."""


def update(core: Core, payload: Message) -> None:
    """UPDATE_MAINTENANCE_SCHEDULE: from now on it is this one.

    Raises
    ------
    BadMessage, HTTPError
        When a window has no machine, a machine is there twice, or one that is down would no longer be there.
    """
    windows = [_window(item) for item in field(field(payload, "schedule", dict), "windows", list, [])]
    machines = [machine for window in windows for machine in _machines(window)]
    if len(machines) > MACHINES_MOST:
        raise HTTPError(400, f"expected a schedule of at most {MACHINES_MOST} machines, found {len(machines)}")
    _check_once(machines)
    if lost := sorted(core.state.down.difference(machines)):
        raise HTTPError(400, f"machine {_name(lost[0])} is down: stop its maintenance before it leaves the schedule")
    _change(core, windows, core.state.down)


def start(core: Core, payload: Message) -> None:
    """START_MAINTENANCE: these machines are down from now on, and their agents are shut down.

    Raises
    ------
    BadMessage, HTTPError
        When a machine is not in the schedule, or down already.
    """
    machines, scheduled = _named(payload), _plan(core.state.windows)
    for machine in machines:
        if machine not in scheduled:
            raise HTTPError(400, f"machine {_name(machine)} is not in the maintenance schedule: put it there first")
        if machine in core.state.down:
            raise HTTPError(400, f"machine {_name(machine)} is down already")
    _change(core, core.state.windows, core.state.down.union(machines))
    by_name = _by_name(machines)
    for agent in [agent for agent in core.state.agents.values() if any(_under(agent, by_name))]:
        agents.remove(core, agent.id, gone=True)


def stop(core: Core, payload: Message) -> None:
    """STOP_MAINTENANCE: these machines are up again, and leave the schedule.

    Raises
    ------
    BadMessage, HTTPError
        When one is not down.
    """
    machines = set(_named(payload))
    if up := sorted(machines - core.state.down):
        raise HTTPError(400, f"machine {_name(up[0])} is not down: only maintenance that has started can be stopped")
    left = [
        window | {"machine_ids": [item for item in window["machine_ids"] if _machine(item) not in machines]}
        for window in core.state.windows
    ]
    _change(core, [window for window in left if window["machine_ids"]], core.state.down - machines)


def is_down(state: State, agent: Agent) -> bool:
    """Whether the machine that an agent runs on is down, so that the agent may not be there."""
    return any(_under(agent, _by_name(state.down)))


def apply(core: Core, agent: Agent) -> None:
    """Let an agent be unavailable as the schedule has it, unless its own unavailability begins earlier.

    To be called when it has joined.
    """
    plan = _plan(core.state.windows)
    if plan:
        planned = _planned(agent, plan, _by_name(plan))
        _tell(core, agent, planned, planned)


def told(core: Core, agent: Agent, unavailability: Message) -> None:
    """The agent says when its allocation ends; maintenance that begins earlier hides it."""
    plan = _plan(core.state.windows)
    _settle(core, agent, unavailability, _planned(agent, plan, _by_name(plan)))


def schedule(state: State) -> Message:
    """The answer to GET_MAINTENANCE_SCHEDULE."""
    return {"schedule": {"windows": state.windows}}


def status(state: State) -> Message:
    """The answer to GET_MAINTENANCE_STATUS: with what frameworks have said to the inverse offers."""
    answers: dict[Machine, list[Message]] = {
        machine: [] for machine in _plan(state.windows) if machine not in state.down
    }
    by_name = _by_name(answers)
    for agent in state.agents.values():
        for machine in _under(agent, by_name):
            answers[machine] += agent.answers.values()
    draining = [{"id": _id(machine), "statuses": said} for machine, said in answers.items()]
    return {"status": {"draining_machines": draining, "down_machines": [_id(one) for one in sorted(state.down)]}}


def _change(core: Core, windows: list[Message], down: set[Machine]) -> None:
    before, plan = _plan(core.state.windows), _plan(windows)
    core.state.windows, core.state.down = windows, down
    rows.keep_maintenance(core)
    if before != plan:
        was, by_name = _by_name(before), _by_name(plan)
        for agent in (*core.state.agents.values(), *core.state.recovered.values()):
            _tell(core, agent, _planned(agent, before, was), _planned(agent, plan, by_name))


def _tell(core: Core, agent: Agent, before: Message | None, planned: Message | None) -> None:
    """Change an agent's unavailability, where it stood `before` in the schedule and now stands as `planned`."""
    hidden = before is not None and agent.unavailability == before
    _settle(core, agent, agent.told if hidden else agent.unavailability, planned)


def _settle(core: Core, agent: Agent, own: Message | None, planned: Message | None) -> None:
    """Let it be unavailable from the earlier on: as it says itself, or as it is planned."""
    found = own if planned is None or (own is not None and _start(own) <= _start(planned)) else planned
    agent.told = own if found is not own else None
    if found == agent.unavailability:
        return
    if agent.id in core.state.agents:
        agents.unavailable(core, agent, found)
    else:
        agent.unavailability = found
        rows.keep_agent(core, agent)


def _plan(windows: Iterable[Message]) -> dict[Machine, Message]:
    return {machine: window["unavailability"] for window in windows for machine in _machines(window)}


def _planned(agent: Agent, plan: Mapping[Machine, Message], by_name: Mapping[str, list[Machine]]) -> Message | None:
    return next((plan[machine] for machine in _under(agent, by_name)), None)


def _by_name(machines: Iterable[Machine]) -> dict[str, list[Machine]]:
    """Machines by their host name, or by their address where they have none."""
    found: dict[str, list[Machine]] = {}
    for machine in machines:
        found.setdefault(machine[0] or machine[1], []).append(machine)
    return found


def _under(agent: Agent, by_name: Mapping[str, list[Machine]]) -> Iterator[Machine]:
    """The machines that an agent runs on. An address that it has not told is taken for the right one."""
    for name in {agent.hostname.lower(), agent.ip or ""}:
        for hostname, ip in by_name.get(name, ()):
            if hostname in ("", agent.hostname.lower()) and (not hostname or ip in ("", agent.ip or ip)):
                yield hostname, ip


def _start(unavailability: Message) -> int:
    found: int = field(unavailability, "start.nanoseconds", int, 0)
    return found


def _window(item: Any) -> Message:
    window = {"window": item}
    machines = [_id(_machine(one)) for one in field(window, "window.machine_ids", list)]
    if not machines:
        raise BadMessage("expected 'machine_ids' of a maintenance window to name machines, found none")
    start = field(window, "window.unavailability.start.nanoseconds", int)
    unavailability = {"start": {"nanoseconds": start}}
    duration = field(window, "window.unavailability.duration.nanoseconds", int, None)
    if not abs(start) < 1 << 63 or not 0 <= (duration or 0) < 1 << 63:
        raise BadMessage("expected 'duration' of a maintenance window not to be negative, and both times to be 64 bits")
    if duration is not None:
        unavailability["duration"] = {"nanoseconds": duration}
    return {"machine_ids": machines, "unavailability": unavailability}


def _named(payload: Message) -> list[Machine]:
    machines = [_machine(item) for item in field(payload, "machines", list, [])]
    if not machines:
        raise BadMessage("expected 'machines' to name machines, found none")
    _check_once(machines)
    return machines


def _check_once(machines: list[Machine]) -> None:
    if len(set(machines)) < len(machines):
        twice = next(machine for machine in machines if machines.count(machine) > 1)
        raise HTTPError(400, f"machine {_name(twice)} appears more than once: name it once")


def _machines(window: Message) -> list[Machine]:
    return [_machine(item) for item in window["machine_ids"]]


def _machine(item: Any) -> Machine:
    hostname = field({"machine": item}, "machine.hostname", str, "").lower()
    ip = field({"machine": item}, "machine.ip", str, "")
    if not hostname and not ip:
        raise BadMessage("expected a machine to have 'hostname' or 'ip'")
    try:
        return hostname, str(ipaddress.ip_address(ip)) if ip else ""
    except ValueError:
        raise BadMessage(f"expected a machine's 'ip' to be an address, found {ip!r:.50}") from None


def _id(machine: Machine) -> Message:
    return {name: value for name, value in zip(("hostname", "ip"), machine, strict=True) if value}


def _name(machine: Machine) -> str:
    return " ".join(filter(None, machine))
