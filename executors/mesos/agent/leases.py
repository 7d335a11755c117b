"""CPU limits and weights that change while a container runs: for a while, as a lease, or for good.

A limit and a weight are lent apart from each other: each has a lease of its own, which ends when it is over, when it is
given back, or when a value for good takes its place.
"""

from __future__ import annotations

import math

from executors.mesos.agent import rows
from executors.mesos.agent.core import Core
from executors.mesos.agent.effects import Limit, Weigh
from executors.mesos.agent.state import Instance


def lend(core: Core, instance: Instance, limit: float | None, request: float | None, seconds: float) -> None:
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
    _tell(core, instance, limit=limit is not None, request=request is not None)


def settle(core: Core, instance: Instance, limit: float | None, request: float | None) -> None:
    """The same for good: the container has a right to that from now on, and a lease of it ends."""
    if limit is not None:
        instance.cpus, instance.fixed = None if math.isinf(limit) else limit, True
        _end(core, instance, "lease")
    if request is not None:
        instance.request = request
        _end(core, instance, "request")
    _tell(core, instance, limit=limit is not None, request=request is not None)


def give_back(core: Core, instance: Instance, *, limit: bool = False, request: bool = False) -> None:
    """End the lease of the limit, of the weight, or of both; nothing happens where there is none."""
    limit, request = limit and instance.lease is not None, request and instance.request_lease is not None
    if limit:
        _end(core, instance, "lease")
    if request:
        _end(core, instance, "request")
    if limit or request:
        _tell(core, instance, limit=limit, request=request)


def over(core: Core, what: str, container_id: str) -> None:
    """A lease is over, by the name of its timer: the container gets what it has a right to."""
    if (instance := core.state.instances.get(container_id)) is not None:
        give_back(core, instance, limit=what == "lease", request=what == "request")


def resume(core: Core, instance: Instance) -> None:
    """After a restart: leases go on, and the container is given again what an earlier agent may not have come to."""
    if instance.lease is not None:
        core.timers.at(("lease", instance.id), instance.until)
    if instance.request_lease is not None:
        core.timers.at(("request", instance.id), instance.request_until)
    core.do(Limit(instance.id, instance.limit))
    if instance.weighed:
        core.do(Weigh(instance.id, instance.weight))


def _end(core: Core, instance: Instance, what: str) -> None:
    if what == "lease":
        instance.lease = None
    else:
        instance.request_lease = None
    core.timers.cancel(what, instance.id)


def _tell(core: Core, instance: Instance, *, limit: bool, request: bool) -> None:
    instance.weighed |= request
    rows.keep_instance(core, instance)
    if limit:
        core.do(Limit(instance.id, instance.limit))
    if request:
        core.do(Weigh(instance.id, instance.weight))
