"""The thread that drives calls: all that a run has but a workflow."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import CallsAdded, Event, TaskCancelled
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.ports import Clock
from asa.core.run import CALLS
from asa.core.stage import StageSpec
from asa.core.units import memory
from asa.integrations.book import CallBook
from asa.integrations.call import call
from asa.integrations.elastic import Elastic, Expected, Limits, slots
from asa.log.messages import logged_in
from asa.log.rundir import RunDirectory
from asa.strategies.options import DEFAULT_ESTIMATOR
from asa.workflows.assemble import Parts, assemble_parts
from asa.workflows.graph import Graph, make_graph
from asa.workflows.plan import Action, Expand
from asa.workflows.settings import Settings
from asa.workflows.stage import PACK, Stage, make_needs

_MOST_QUEUED = 8


class Driver:
    """Drives the calls of one executor on a thread of its own, from now on until `close`.

    Parameters
    ----------
    limits
        How far allocations follow calls, as `Limits` takes it; without a ``maximum``, one allocation where there is no
        queue, else eight.
    needs
        Size of an allocation and of a call, as `asa.stage` takes it; ``cores`` is a whole node unless given.

    Attributes
    ----------
    spec
        The size of an allocation and of a call there.
    slots
        Calls that run at once in one allocation.
    most
        Calls that run at once in all the allocations there may be.
    local
        Whether all nodes are this machine.
    over
        Set once the driver has ended, and all jobs with it.
    """

    def __init__(
        self, directory: RunDirectory, settings: Settings, limits: Mapping[str, Any], needs: Mapping[str, Any]
    ) -> None:
        self.over = threading.Event()
        self._accepts, self._lock, self._why = True, threading.Lock(), ""
        bounds: Limits | None = None

        def parts(site: Capabilities) -> Parts[CallPlan]:
            nonlocal bounds
            graph, self.spec = _size(settings.name, site, needs)
            self.local = site.regime is QueueRegime.IMMEDIATE
            bounds = _limits(limits, 1 if self.local else _MOST_QUEUED)
            self._book = CallBook(settings.name, directory)
            self._plan = plan = CallPlan(Elastic(bounds, teaches=not self.local), self._book)
            return Parts(
                graph,
                plan,
                DEFAULT_ESTIMATOR,
                CALLS,
                True,
                lambda _graph, _learned: (self.spec,),
                lambda _log: self._book,
                results=False,
                clock=lambda clock: PatientClock(clock, plan),
            )

        with logged_in(directory.log):
            self._assembly = assemble_parts(directory, settings, parts)
            drive = copy_context()
        self._runner = self._assembly.runner
        assert bounds is not None
        self._sizes = {self.spec.name: self.spec}
        self.slots = slots(self.spec)
        self.most = bounds.maximum * self.slots
        self._thread = threading.Thread(
            target=drive.run, args=(self._drive,), name=f"asa-{directory.name}", daemon=True
        )
        self._thread.start()

    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str = ""
    ) -> Future[Any]:
        """One more call, of the size of that `name`.

        Raises
        ------
        RuntimeError
            After `close`, or when the driver has ended by itself.
        """
        with self._lock:
            if not self._accepts:
                raise RuntimeError(f"cannot schedule new futures after shutdown{self._why}")
            future = self._book.add(function, args, kwargs, partial(self._cancelled, name or self.spec.name), name)
        self._ring()
        return future

    def add_size(self, name: str, task: Resources, timeout_s: float | None) -> StageSpec:
        """Calls of another size, or of one that is known by this name already; they may run so long at most [s].

        Raises
        ------
        InvalidInput
            When an allocation has no room for one, or the name stands for another size.
        """
        spec = replace(self.spec, name=name, task=replace(task, options=self.spec.task.options), timeout_s=timeout_s)
        with self._lock:
            if (known := self._sizes.setdefault(name, spec)) is not spec and known != spec:
                raise InvalidInput(f"{name!r} is the name of calls of {known.task}, not of {spec.task}: use another")
            if known is spec:  # before any call of it
                self._runner.inbox.post([CallsAdded(self._runner.clock.now(), (spec,))])
        return known

    def expect(self, moments: Iterable[tuple[float, Mapping[str, int]]]) -> None:
        """In so many seconds [s] so many calls, by the names of their sizes, will be there together."""
        now = self._runner.clock.now()
        expected = (Expected(now + in_s, dict(calls)) for in_s, calls in moments if any(calls.values()))
        self._plan.expect(tuple(sorted(expected, key=lambda each: each.at)))
        self._ring()

    def close(self, *, cancel: bool = False) -> None:
        """No more calls will come; `cancel` those that were not given to an allocation. Returns at once."""
        with self._lock:
            self._accepts = False
        if cancel:
            self._book.cancel_all()
        self._plan.closing = True
        self._ring()

    def cancel(self, reason: str) -> None:
        """Give all allocations back, with whatever runs in them. Returns at once."""
        self._runner.cancel(reason)

    def _cancelled(self, name: str, index: int) -> None:
        """The user has cancelled the future of a call."""
        self._runner.inbox.post([TaskCancelled(self._runner.clock.now(), name, index)])

    def _ring(self) -> None:
        """Have the runner look again."""
        self._runner.inbox.post(())

    def _drive(self) -> None:
        error: BaseException
        try:
            self._runner.start_executor()
            self._runner.run()
            error = RunFailed(self._plan.broken or "the executor was shut down", stage=self.spec.name)
        except BaseException as raised:
            error = raised
        with self._lock:
            self._accepts, self._why = False, f": {error}"
        try:
            self._book.fail_all(error)
            self._assembly.close()
        finally:
            self.over.set()


def _limits(limits: Mapping[str, Any], usual: int) -> Limits:
    """Limits, with a maximum that is `usual` unless it, or a larger minimum, is given."""
    if limits.get("maximum") is None:
        limits = {**limits, "maximum": max(limits.get("minimum", 0), usual)}
    return Limits(**limits)


def _size(name: str, site: Capabilities, needs: Mapping[str, Any]) -> tuple[Graph, StageSpec]:
    """Calls as a stage: by itself a workflow's, and as it is at a site, with a width that is never known."""
    if needs.keys() & {"launcher", "retries", "secrets"}:
        raise InvalidInput("calls have neither a launcher, nor retries, nor secrets: use @asa.stage for those")
    needs = dict(needs)
    each = needs.pop("memory_per_core", None)
    there = site.for_jobs(make_needs(name, **needs).options)
    if not needs.keys() & {"cores", "nodes"} and there.cores_per_node:
        task = needs.get("task_cores") or 1
        needs |= {"cores": max(there.cores_per_node // task, 1) * task, "spread": needs.get("spread", PACK)}
    if each is not None:
        least = memory(needs["memory"]) if needs.get("memory") else 0
        needs["memory"] = f"{max(least, memory(each) * make_needs(name, **needs).resources.cores)}B"
    graph = make_graph(Stage(call, make_needs(name, **needs), name)(None, (), {}))
    (spec,) = graph.specs(site)
    return graph, replace(spec, width=None)


class CallPlan:
    """An `Elastic` plan whose calls are futures; satisfies `asa.workflows.runner.Decider`.

    Attributes
    ----------
    closing
        Set from any thread: no more calls will come.
    """

    def __init__(self, elastic: Elastic, book: CallBook) -> None:
        self._elastic, self._book, self.closing = elastic, book, False
        self.pool, self.stages = elastic.pool, elastic.stages
        self._given_up: dict[str, int] = {}  # how many calls of each size were so far

    @property
    def closed(self) -> bool:
        """The outcome is known and no job is left."""
        return self._elastic.closed

    @property
    def broken(self) -> str:
        return self._elastic.broken

    @property
    def busy(self) -> bool:
        """Whether something is to happen although there is no new call."""
        elastic = self._elastic
        return self.closing or elastic.unfinished > 0 or any(self._grown())

    def expect(self, expected: tuple[Expected, ...]) -> None:
        """These calls are announced, and no others; from any thread."""
        self._elastic.expected = expected

    def _grown(self) -> Iterator[str]:
        """Sizes of which there are new calls."""
        for name, stage in list(self.stages.items()):
            if self._book.width(name) > (stage.width or 0):
                yield name

    def on(self, event: Event) -> None:
        """Fold an event, and settle the futures that it is about."""
        self._elastic.on(event)
        self._book.settle(event)
        for name, stage in self.stages.items():
            if len(stage.given_up) > (known := self._given_up.get(name, 0)):
                for index, reason in islice(stage.given_up.items(), known, None):
                    self._book.give_up(name, index, reason)
                self._given_up[name] = len(stage.given_up)

    def decide(self, now: float) -> list[Action]:
        closing = self.closing  # before the width is looked at: no call comes once it is set
        if grown := [*self._grown()]:
            return [*map(Expand, grown)]
        self._elastic.closing = closing
        return self._elastic.decide(now)

    def spoiled(self) -> tuple[tuple[str, int], ...]:
        """None: calls do not take what other calls return."""
        return ()

    def wake_at(self, now: float) -> float:
        """When to decide again although nothing happened [s since the epoch]."""
        return self._elastic.wake_at(now)


class PatientClock:
    """A clock in virtual time that stands still while no call is to be waited for."""

    def __init__(self, clock: Clock, plan: CallPlan) -> None:
        self._clock, self._plan = clock, plan

    def now(self) -> float:
        return self._clock.now()

    def wait(self, signal: threading.Event, until: float = math.inf) -> bool:
        return self._clock.wait(signal, until) if self._plan.busy else signal.wait()
