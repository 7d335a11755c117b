"""What the `mesos` executor runs beside the driver: framework, operator and, for a run's own pool, the master."""

from __future__ import annotations

import getpass
import queue
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from asa.core.allocation import Allocation
from asa.core.errors import AsaError, StateError
from asa.core.job import Resources
from asa.core.ports import Post, RunContext
from asa.log.messages import notify
from asa.security.files import write_private
from asa.web.hosts import LOOPBACK
from executors.mesos.borrowing import RUN, Borrower, Lease
from executors.mesos.codec import BadMessage, Message
from executors.mesos.container_watch import ContainerWatch
from executors.mesos.decisions import Outcome
from executors.mesos.driver import SchedulerDriver
from executors.mesos.framework import Crew, Framework
from executors.mesos.master.service import MasterService
from executors.mesos.master.state import Options
from executors.mesos.messages import identity
from executors.mesos.neighbours import ALLOCATION, attribute, labels, look, name_of
from executors.mesos.offered import Need, Offered, Program, all_of
from executors.mesos.on_demand import start_master
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.scheduler import Scheduler
from executors.mesos.tenant import Tenant
from executors.station import Station

EVERY_S = 1.0
"""How often a run looks at its neighbours in a pool that they share [s]."""

_FRAMEWORK = "framework"
_READY_S = 30.0
_CLOSING_S = 5.0
_FAILOVER_S = 3600.0
_SOON_S, _LOOK_S = 0.2, 0.02
_MISSED_S = 3.0


class DriverSide:
    """Starts the master, or finds that of a pool that others share; then `subscribe` makes our framework known.

    Parameters
    ----------
    path
        The pool's directory.
    context
        The run.
    inner
        The executor whose supervisors are started on all nodes.
    released
        Allocations whose agents are to go; `look_after` says that there is a new one.
    """

    def __init__(self, path: Path, context: RunContext, inner: Station, released: set[str], post: Post) -> None:
        self._context, self._inner, self._released, self._post = context, inner, released, post
        self._directory = PoolDirectory.create(path, context.run)
        self._kept: Path = context.directory / _FRAMEWORK
        self._letters: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._sent_home: set[str] = set()  # agents whose ends are no news
        self._master: MasterService | None = None
        self._missed = 0.0
        if context.pool is None:
            user = getpass.getuser()
            self._master = MasterService(self._directory, Options(user=user), host=LOOPBACK if context.local else "")
            self._master.start()
        elif self._directory.master() is None:
            self._call_master()
        name = secrets.token_hex(4)
        self._borrower = Borrower(context.run, name, self._leased_program) if context.pool else None
        self._scheduler = Scheduler(Framework(name, borrower=self._borrower), self._heed, self._is_wanted)
        self._operator = Operator(self._directory)
        self._driver: SchedulerDriver | None = None
        self._watch: ContainerWatch | None = None
        self.tenant: Tenant | None = None
        self._thread = threading.Thread(target=self._run, name="asa-pool", daemon=True)

    def subscribe(self) -> None:
        """Make our framework known to the master: as the one that it was before, if the master still has that one.

        Raises
        ------
        StateError
            When the master does not take it.
        """
        attributes = {RUN: self._context.run}
        # before the master tells of tasks that an earlier driver has left: they are this crew's
        self._scheduler.want(lambda framework, now: framework.crew(Crew("nodes", self._program, attributes), now))
        deadline = time.monotonic() + _READY_S
        while self._directory.master() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        known = self._kept.read_text() if self._kept.exists() else ""
        self._driver = self._registering(known)
        if self._borrower:
            self.tenant = Tenant(self._borrower, self._scheduler, self._tell, self._inner.dismiss_idle, self._post)
        self._thread.start()
        answered = self._scheduler.ready.wait(_READY_S)
        if known and self._scheduler.error_text:  # it was away for longer than its failover timeout
            notify("the run goes on as another framework of its pool")
            self._driver.join()
            self._scheduler.begin_anew()
            known, self._driver = "", self._registering("")
            answered = self._scheduler.ready.wait(_READY_S)
        if not answered or self._scheduler.error_text:
            what = self._scheduler.error_text or "it does not answer"
            raise StateError(f"the master of {self._directory.path} does not take our framework: {what}")
        known = known or self._scheduler.framework_id
        write_private(self._kept, known.encode())
        self._watch = ContainerWatch(self._directory, known, self._post)

    def _registering(self, known: str) -> SchedulerDriver:
        """A driver that makes our framework known, under this id if it has one."""
        info = self._info()
        if known:
            info["id"] = identity(known)
        driver = SchedulerDriver(self._scheduler, info, self._directory)
        driver.start()
        return driver

    def look_after(self) -> None:
        """Something has been released."""
        self._letters.put(True)

    def close(self) -> None:
        """End all of them. Agents that were not released wait for a new driver."""
        if self._watch is not None:
            self._watch.close()
        self._letters.put(False)
        if self._thread.ident:
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
        """Whether nothing of ours is left in a pool that goes on without us."""
        try:
            return self.tenant is not None and all(
                node.run != self._context.run for node in look(self._operator).nodes.values()
            )
        except (AsaError, OSError, BadMessage):
            return False

    # ------------------------------------------------------------- the framework

    def _info(self, *, waits: bool = False) -> Message:
        return {
            "user": getpass.getuser(),
            "name": name_of(self._context.run),
            "roles": ["asa"],
            "failover_timeout": _FAILOVER_S,
            "checkpoint": True,
            "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}, {"type": "GPU_RESOURCES"}],
            "labels": labels(waits=waits),
        }

    def _tell(self, waits: bool) -> None:
        if self._driver is not None:
            self._driver.updateFramework(self._info(waits=waits))

    def _program(self, offer: Offered) -> Program:
        """The supervisor, for all that an agent of ours offers."""
        return self._supervisor(offer.attributes[ALLOCATION], all_of(offer.resources), offer)

    def _leased_program(self, lease: Lease, offer: Offered) -> Program:
        """The supervisor, for part of what another run's agent offers."""
        return self._supervisor(lease.key, lease.need, offer)

    def _supervisor(self, key: str, need: Need, offer: Offered) -> Program:
        resources = Resources(int(need.cpus), memory=need.memory or None, gpus=int(need.gpus))
        argv = self._inner.bootstrap(Allocation(key, resources, 0.0), self._context)
        return Program(argv, (("SLURMD_NODENAME", offer.hostname),))

    def _is_wanted(self, offer: Message) -> bool:
        """False for an agent that came after its allocation was released: it is sent away."""
        key = attribute(offer, ALLOCATION)
        if key in self._released:
            self.look_after()
        return key not in self._released

    def _heed(self, outcomes: Sequence[Outcome]) -> None:
        """The hub tells of nodes that come and go; here is why a supervisor could not run."""
        for outcome in outcomes:
            if self.tenant is not None and self.tenant.heed(outcome):
                continue
            if outcome.state == "failed" and outcome.agent not in self._sent_home:
                who = f"agent {outcome.agent}" if outcome.agent else f"our {outcome.key}"
                notify(f"{who}: {outcome.reason}")

    # ------------------------------------------------------------- its thread

    def _run(self) -> None:
        """Send the agents of released allocations home; in a shared pool look after all else that needs time."""
        while self._has_turn():
            with suppress(
                AsaError, OSError, BadMessage
            ):  # the master is gone, so the agents are going, or it is not yet
                self._call_master_again()
                hood, now = look(self._operator), time.time()
                if self.tenant is not None:
                    self.tenant.step(hood, self._released, self._operator, now)
                    continue
                for node in hood.nodes.values():
                    if node.allocation in self._released:
                        self._sent_home.add(node.agent)
                        self._operator.call("MARK_AGENT_GONE", agent_id=identity(node.agent))

    def _has_turn(self) -> bool:
        """Wait for a letter or for the time; False when it is over."""
        tenant = self.tenant
        period = None if tenant is None else _SOON_S if tenant.leaving else EVERY_S
        try:
            return self._letters.get(timeout=period)
        except queue.Empty:
            return True

    def _call_master_again(self) -> None:
        """In a shared pool whoever misses the master starts another one."""
        if self.tenant is None or self._scheduler.ready.is_set():
            self._missed = 0.0
        elif not self._missed or time.monotonic() < self._missed:
            self._missed = self._missed or time.monotonic() + _MISSED_S
        else:
            self._call_master()

    def _call_master(self) -> None:
        self._missed = time.monotonic() + _MISSED_S
        start_master(self._directory, local=self._context.local)
