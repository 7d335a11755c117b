"""What the `mesos` executor runs beside the driver: framework, operator and, for a run's own pool, the master."""

from __future__ import annotations

import getpass
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.core.allocation import Allocation
from asa.core.clock import Joinable
from asa.core.errors import AsaError, StateError
from asa.core.event import ContainersSeen, ContainerUse
from asa.core.job import Resources
from asa.core.ports import Post, Report, RunContext
from asa.security.files import write_private
from asa.web.hosts import LOOPBACK
from executors.hub import HubExecutor
from executors.mesos.codec import BadMessage, Message
from executors.mesos.driver import SchedulerDriver
from executors.mesos.framework import (
    RUN,
    Borrower,
    Framework,
    FrameworkOutcome,
    Lease,
    NodeProgram,
    Offered,
    TaskNeed,
    TaskProgram,
    all_of,
)
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.master_command import start_master
from executors.mesos.messages import attribute, identity
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, PoolDirectory
from executors.mesos.pool_rows import containers
from executors.mesos.scheduler import FrameworkScheduler
from executors.mesos.sharing import ALLOCATION, Tenant, framework_labels, framework_name, look_at_pool

WATCH_EVERY_S = 5.0
"""How often containers are looked at [s]."""
PER_AGENT_S = 0.5
"""At least so much time passes for each agent that is asked [s]: large pools are looked at less often."""
NEWS = 0.1
"""What use must change by to be news: a share of the quota, or of a core without one; of throttled periods likewise."""

_WATCH_CLOSING_S = 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _LastSeen:
    """A container when it was last seen: totals, and when [s]."""

    at: float
    cpu_s: float | None
    periods: float | None
    throttled: float | None


class ContainerChanges:
    """What was posted of containers; `step` returns what is to be posted next."""

    def __init__(self) -> None:
        self._looks: dict[str, _LastSeen] = {}
        self._posted: dict[str, ContainerUse] = {}

    def step(self, rows: Iterable[Mapping[str, Any]], now: float) -> ContainersSeen | None:
        """Compare rows, as `pool_rows.containers` has them, to what was posted; None when nothing has changed.

        Containers on a node that does not answer are neither seen nor gone.
        """
        rows = list(rows)
        found = {row["container"]: self._use(row, now) for row in rows if row["container"] is not None}
        silent = {row["node"] for row in rows if row["container"] is None}
        gone = [name for name, use in self._posted.items() if name not in found and use.node not in silent]
        for name in gone:
            del self._posted[name]
            self._looks.pop(name, None)
        seen = {name: use for name, use in found.items() if _has_changed(self._posted.get(name), use)}
        self._posted |= seen
        return ContainersSeen(now, tuple(seen.values()), tuple(gone)) if seen or gone else None

    def _use(self, row: Mapping[str, Any], now: float) -> ContainerUse:
        name, before = row["container"], self._looks.get(row["container"])
        look = _LastSeen(now, row["cpu_s"], row["periods"], row["throttled"])
        self._looks[name] = look
        if before is None or now <= before.at:
            return ContainerUse(name, row["node"], row["limit_cores"])
        cpu_s, periods = _grown(before.cpu_s, look.cpu_s), _grown(before.periods, look.periods)
        throttled = _grown(before.throttled, look.throttled)
        return ContainerUse(
            name,
            row["node"],
            row["limit_cores"],
            None if cpu_s is None else round(cpu_s / (now - before.at), 2),
            None if throttled is None or not periods else round(min(1.0, throttled / periods), 2),
        )


class ContainerWatch:
    """Looks at the containers of one framework, on a thread of its own, and posts what is news."""

    def __init__(
        self,
        directory: PoolDirectory,
        framework_id: str,
        post: Post,
        every_s: float = WATCH_EVERY_S,
        host: PoolHost = POOL_HOST,
    ) -> None:
        self._directory, self._framework_id, self._post, self._every_s = directory, framework_id, post, every_s
        self._host = host
        self._over = threading.Event()
        self._thread = host.start(self._run, "asa-containers")

    def close(self) -> None:
        self._over.set()
        self._thread.join(_WATCH_CLOSING_S)  # an agent that does not answer may keep it a little longer

    def _run(self) -> None:
        sightings, pause = ContainerChanges(), self._every_s
        with Operator(self._directory, READER, self._host) as operator:
            while not self._host.wait(self._over, pause):
                with suppress(AsaError, OSError, BadMessage):  # the pool does not answer now: it is asked again
                    rows = containers(operator)
                    pause = max(self._every_s, PER_AGENT_S * len({row["node"] for row in rows}))
                    ours = [row for row in rows if row["framework"] in (self._framework_id, None)]
                    if (news := sightings.step(ours, self._host.time())) and not self._over.is_set():
                        self._post([news])


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _has_changed(before: ContainerUse | None, use: ContainerUse) -> bool:
    if before is None or before.limit_cores != use.limit_cores:
        return True
    step = NEWS * (use.limit_cores or 1.0)
    return _differs(before.used_cores, use.used_cores, step) or _differs(before.throttled, use.throttled, NEWS)


def _differs(before: float | None, found: float | None, step: float) -> bool:
    if before is None or found is None:
        return before is not found
    return abs(before - found) > step


LOOK_EVERY_S = 1.0
"""How often a run looks at its neighbours in a pool that they share [s]."""

_FRAMEWORK = "framework"
_READY_S = 30.0
_CLOSING_S = 5.0
_FAILOVER_S = 3600.0
_SOON_S, _LOOK_S = 0.2, 0.02
_MISSED_S = 3.0


class DriverSide:
    """Starts the master, or finds that of a pool that others share; then `subscribe` makes our framework known.

    `inner` is the executor whose supervisors are started on all nodes. `released` are allocations whose agents are to
    go; `allocation_released` says that there is a new one.
    """

    def __init__(
        self,
        path: Path,
        context: RunContext,
        inner: HubExecutor,
        released: set[str],
        post: Report,
        host: PoolHost = POOL_HOST,
        start_master: Callable[..., None] = start_master,
    ) -> None:
        self._launch_master = start_master
        self._context, self._inner, self._released, self._post = context, inner, released, post
        self._host = host
        self._directory = PoolDirectory.create(path, context.run)
        self._kept: Path = context.directory / _FRAMEWORK
        self._asked, self._over = threading.Event(), False
        self._dismissed: set[str] = set()  # agents whose ends are no news
        self._master: MasterService | None = None
        self._missed = 0.0
        if context.pool is None:
            user = getpass.getuser()
            listens = LOOPBACK if context.local else ""
            self._master = MasterService(self._directory, MasterOptions(user=user), host=listens)
            self._master.start()
        elif self._directory.master() is None:
            self._start_master()
        name = host.random_bytes(4).hex()
        self._borrower = Borrower(context.run, name, self._leased_program) if context.pool else None
        framework = Framework(name, borrower=self._borrower)
        self._scheduler = FrameworkScheduler(framework, self.report, self._is_wanted, host)
        self._operator = Operator(self._directory, host=host)
        self._driver: SchedulerDriver | None = None
        self._watch: ContainerWatch | None = None
        self.tenant: Tenant | None = None
        self._thread: Joinable | None = None

    def subscribe(self) -> None:
        """Make our framework known to the master: as the one that it was before, if the master still has that one.

        Raises `StateError` when the master does not take it.
        """
        attributes = {RUN: self._context.run}
        # before updates come for tasks that an earlier driver has left: they are this program's
        self._scheduler.want(
            lambda framework, now: framework.add_program(NodeProgram("nodes", self._program, attributes), now)
        )
        deadline = self._host.monotonic() + _READY_S
        while self._directory.master() is None and self._host.monotonic() < deadline:
            self._host.sleep(_LOOK_S)
        known = self._kept.read_text() if self._kept.exists() else ""
        self._driver = self._registering(known)
        if self._borrower:
            dismiss_idle = self._inner.dismiss_idle
            self.tenant = Tenant(self._borrower, self._scheduler, self._tell, dismiss_idle, self._post, self._host.time)
        self._thread = self._host.start(self._run, "asa-pool")
        answered = self._host.wait(self._scheduler.ready, _READY_S)
        if known and self._scheduler.error_text:  # it was away for longer than its failover timeout
            _log.warning("the run goes on as another framework of its pool")
            self._driver.join()
            self._scheduler.reset()
            known, self._driver = "", self._registering("")
            answered = self._host.wait(self._scheduler.ready, _READY_S)
        if not answered or self._scheduler.error_text:
            what = self._scheduler.error_text or "it does not answer"
            raise StateError(f"the master of {self._directory.path} does not take our framework: {what}")
        known = known or self._scheduler.framework_id
        write_private(self._kept, known.encode())
        self._watch = ContainerWatch(self._directory, known, self._post, WATCH_EVERY_S, self._host)

    def _registering(self, known: str) -> SchedulerDriver:
        """A driver that makes our framework known, under this id if it has one."""
        info = self._info()
        if known:
            info["id"] = identity(known)
        driver = SchedulerDriver(self._scheduler, info, self._directory, host=self._host)
        driver.start()
        return driver

    def allocation_released(self) -> None:
        self._asked.set()

    def close(self) -> None:
        """End all of them. Agents that were not released wait for a new driver."""
        if self._watch is not None:
            self._watch.close()
        self._over = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join(_CLOSING_S)
        if self._driver is not None:
            over = self._is_over()
            self._driver.stop(failover=not over)
            self._driver.join()
            if over:
                self._kept.unlink(missing_ok=True)
        self._scheduler.close()
        self._operator.close()
        if self._master:
            self._master.close()

    def _is_over(self) -> bool:
        """Whether the pool goes on and has no agents of this run any more."""
        try:
            return self.tenant is not None and all(
                node.run != self._context.run for node in look_at_pool(self._operator).nodes.values()
            )
        except (AsaError, OSError, BadMessage):
            return False

    # ------------------------------------------------------------- the framework

    def _info(self, *, waits: bool = False) -> Message:
        return {
            "user": getpass.getuser(),
            "name": framework_name(self._context.run),
            "roles": ["asa"],
            "failover_timeout": _FAILOVER_S,
            "checkpoint": True,
            "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}, {"type": "GPU_RESOURCES"}],
            "labels": framework_labels(waits=waits),
        }

    def _tell(self, waits: bool) -> None:
        if self._driver is not None:
            self._driver.updateFramework(self._info(waits=waits))

    def _program(self, offer: Offered) -> TaskProgram:
        """The supervisor, for all that an agent of this run offers."""
        return self._supervisor(offer.attributes[ALLOCATION], all_of(offer.resources), offer)

    def _leased_program(self, lease: Lease, offer: Offered) -> TaskProgram:
        """The supervisor, for part of what another run's agent offers."""
        return self._supervisor(lease.key, lease.need, offer)

    def _supervisor(self, key: str, need: TaskNeed, offer: Offered) -> TaskProgram:
        resources = Resources(int(need.cpus), memory=need.memory or None, gpus=int(need.gpus))
        argv = self._inner.bootstrap(Allocation(key, resources, 0.0), self._context)
        return TaskProgram(argv, (("SLURMD_NODENAME", offer.hostname),))

    def _is_wanted(self, offer: Message) -> bool:
        """False for an agent that came after its allocation was released: it is sent away."""
        key = attribute(offer, ALLOCATION)
        if key in self._released:
            self.allocation_released()
        return key not in self._released

    def report(self, outcomes: Sequence[FrameworkOutcome]) -> None:
        """Log why a supervisor could not run; nodes that come and go are events of the hub."""
        for outcome in outcomes:
            if self.tenant is not None and self.tenant.on_outcome(outcome):
                continue
            if outcome.state == "failed" and outcome.agent not in self._dismissed:
                who = f"agent {outcome.agent}" if outcome.agent else f"our {outcome.key}"
                _log.warning("%s: %s", who, outcome.reason)

    # ------------------------------------------------------------- its thread

    def _run(self) -> None:
        """Send the agents of released allocations home; in a shared pool look after all else that needs time."""
        while self._next_turn():
            with suppress(
                AsaError, OSError, BadMessage
            ):  # the master is gone, so the agents are going, or it is not yet
                self._restart_missing_master()
                pool, now = look_at_pool(self._operator), self._host.time()
                if self.tenant is not None:
                    self.tenant.step(pool, self._released, self._operator, now)
                    continue
                for node in pool.nodes.values():
                    if node.allocation in self._released:
                        self._dismissed.add(node.agent)
                        self._operator.call("MARK_AGENT_GONE", agent_id=identity(node.agent))

    def _next_turn(self) -> bool:
        """Wait for a request or for the time; False when it is over."""
        tenant = self.tenant
        period = None if tenant is None else _SOON_S if tenant.leaving else LOOK_EVERY_S
        self._host.wait(self._asked, period)
        self._asked.clear()
        return not self._over

    def _restart_missing_master(self) -> None:
        """In a shared pool a run that misses the master starts another one."""
        if self.tenant is None or self._scheduler.ready.is_set():
            self._missed = 0.0
        elif not self._missed or self._host.monotonic() < self._missed:
            self._missed = self._missed or self._host.monotonic() + _MISSED_S
        else:
            self._start_master()

    def _start_master(self) -> None:
        self._missed = self._host.monotonic() + _MISSED_S
        self._launch_master(self._directory, local=self._context.local, withheld=self._context.secrets)
