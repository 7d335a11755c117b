"""Carries out what the framework decides, through a scheduler driver: ours, or pymesos's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from executors.mesos.codec import BadMessage, Message
from executors.mesos.framework import (
    NEVER_S,
    Accept,
    Call,
    Decline,
    Framework,
    FrameworkOutcome,
    Kill,
    Reconcile,
    Revive,
    Suppress,
)
from executors.mesos.host import POOL_HOST, PoolHost
from executors.mesos.messages import identity


class PymesosDriver(Protocol):
    """What is asked of a driver; names and arguments are those of pymesos."""

    def acceptOffers(self, offer_ids: Any, operations: Any, filters: Any = None) -> None: ...
    def declineOffer(self, offer_ids: Any, filters: Any = None) -> None: ...
    def killTask(self, task_id: Any) -> None: ...
    def reviveOffers(self, roles: Any = ()) -> None: ...
    def suppressOffers(self, roles: Any = ()) -> None: ...
    def reconcileTasks(self, tasks: Any) -> None: ...


class FrameworkScheduler:
    """The callbacks of a scheduler driver, around a `Framework`. Calls come from any thread.

    `report` takes what became of gangs and node programs. Offers for which `is_wanted` returns False are declined for
    good, and the framework does not see them.
    """

    def __init__(
        self,
        framework: Framework,
        report: Callable[[Sequence[FrameworkOutcome]], None],
        is_wanted: Callable[[Message], bool] = lambda offer: True,
        host: PoolHost = POOL_HOST,
    ) -> None:
        self._framework, self._report, self._is_wanted, self._host = framework, report, is_wanted, host
        self._lock = threading.RLock()
        self._driver: PymesosDriver | None = None
        self._changed = threading.Event()
        self._over = False
        self._clock = host.start(self._wake, "asa-framework")
        self.framework_id = ""
        """What the master calls us, where it was the one to choose."""
        self.ready = threading.Event()
        """Set while the master knows us."""
        self.error_text: str | None = None
        """Why the driver has given up, if it has."""

    def want(self, decide: Callable[[Framework, float], list[Call]]) -> None:
        """Have the framework decide something, and carry it out: ``want(lambda f, now: f.gang(gang, now))``."""
        with self._lock:
            self._do(decide(self._framework, self._host.time()))
        self._changed.set()

    def close(self) -> None:
        """No calls from now on."""
        with self._lock:
            self._over, self._driver = True, None
        self._changed.set()
        self._clock.join()

    def reset(self) -> None:
        """Another driver is about to start: why the last one has given up is forgotten."""
        self.error_text = None
        self.ready.clear()

    # ------------------------------------------------------------ callbacks

    def registered(self, driver: PymesosDriver, framework_id: Message, master_info: Message) -> None:
        """The master knows us, for the first time."""
        self.framework_id = framework_id["value"]
        self.reregistered(driver, master_info)

    def reregistered(self, driver: PymesosDriver, master_info: Message) -> None:
        """The master knows us again: what has happened meanwhile is asked for."""
        with self._lock:
            self._driver = driver
        self.want(lambda framework, now: framework.subscribed(now))
        self.ready.set()

    def disconnected(self, driver: PymesosDriver) -> None:
        """The stream broke; the driver connects again."""
        self.ready.clear()

    def resourceOffers(self, driver: PymesosDriver, offers: Sequence[Message]) -> None:
        welcome = [offer for offer in offers if self._is_wanted(offer)]
        others = tuple(offer["id"]["value"] for offer in offers if offer not in welcome)
        self.want(lambda framework, now: [Decline(others, NEVER_S)] * bool(others) + framework.offers(welcome, now))

    def offerRescinded(self, driver: PymesosDriver, offer_id: Message) -> None:
        with self._lock:
            self._framework.rescinded(offer_id["value"])

    def statusUpdate(self, driver: PymesosDriver, status: Message) -> None:
        """A task's state has changed; the driver acknowledges it when this returns."""
        with suppress(BadMessage):
            self.want(lambda framework, now: framework.update(status, now))

    def frameworkMessage(self, driver: PymesosDriver, executor_id: Message, agent_id: Message, data: Any) -> None:
        """Our tasks are commands: they send none."""

    def slaveLost(self, driver: PymesosDriver, agent_id: Message) -> None:
        """Updates say what it means for tasks."""

    def executorLost(self, driver: PymesosDriver, executor_id: Message, agent_id: Message, status: int) -> None:
        """Updates say what it means for tasks."""

    def processHeartBeat(self, driver: PymesosDriver) -> None:
        """The driver watches for them."""

    def error(self, driver: PymesosDriver, text: str) -> None:
        """The driver has given up."""
        self.error_text = text
        self._report([FrameworkOutcome("framework", "failed", text)])
        self.ready.set()

    # -------------------------------------------------------------- inside

    def _do(self, calls: Sequence[Call]) -> None:
        """Carry out; what cannot be sent now is decided anew once the driver has found the master."""
        for call in calls:
            if self._driver is not None:
                with suppress(OSError):
                    _call(self._driver, call)
        outcomes, self._framework.outcomes = self._framework.outcomes, []
        if outcomes:
            self._report(outcomes)

    def _wake(self) -> None:
        while not self._over:
            with self._lock:
                due = self._framework.due()
            self._host.wait(self._changed, None if due is None else max(0.0, due - self._host.time()))
            self._changed.clear()
            if due is not None and self._host.time() >= due:
                self.want(lambda framework, now: framework.wake(now))


def _call(driver: PymesosDriver, call: Call) -> None:
    match call:
        case Accept(offers, tasks):
            launch = {"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}
            # what is left of the offer is offered again at once
            driver.acceptOffers([identity(offer) for offer in offers], [launch], {"refuse_seconds": 0})
        case Decline(offers, refuse_s):
            driver.declineOffer([identity(offer) for offer in offers], {"refuse_seconds": refuse_s})
        case Kill(task, _):
            driver.killTask(identity(task))
        case Reconcile(tasks):
            driver.reconcileTasks([{"task_id": identity(task), "agent_id": identity(agent)} for task, agent in tasks])
        case Revive():
            driver.reviveOffers([])
        case Suppress():
            driver.suppressOffers([])
