"""When a master has nothing to do any more, so that one that was started on demand ends by itself."""

from __future__ import annotations

import asyncio

from executors.mesos.master.state import State

_LOOKS, _SOONEST_S, _LATEST_S = 10, 0.02, 5.0
_ARRIVALS = (
    "messages_register_framework",
    "messages_reregister_framework",
    "slave_registrations",
    "slave_reregistrations",
)


async def until_idle(state: State, idle_s: float) -> None:
    """Returns once no framework was subscribed and no agent registered for so long [s]."""
    loop = asyncio.get_running_loop()
    since, before = loop.time(), _arrivals(state)
    while loop.time() - since < idle_s:
        await asyncio.sleep(min(max(idle_s / _LOOKS, _SOONEST_S), _LATEST_S))
        now = _arrivals(state)
        if now != before or is_needed(state):
            since, before = loop.time(), now


def is_needed(state: State) -> bool:
    """Whether a framework is subscribed, or an agent registered."""
    return bool(state.agents) or any(framework.stream is not None for framework in state.frameworks.values())


def _arrivals(state: State) -> int:
    """How many have ever come: some leave again between two looks."""
    return sum(state.counters.get(name, 0) for name in _ARRIVALS)
