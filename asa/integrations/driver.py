"""The thread that drives calls: all that a run has but a workflow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from asa.core.errors import InvalidInput, RunFailed
from asa.core.job import Capabilities, QueueRegime
from asa.core.run import CALLS
from asa.core.stage import StageSpec
from asa.integrations.book import CallBook
from asa.integrations.call import call
from asa.integrations.desk import Desk, Ledger, PatientClock
from asa.integrations.elastic import Elastic, Limits, slots
from asa.log.rundir import RunDirectory
from asa.strategies.options import DEFAULT_ESTIMATOR
from asa.workflows.assemble import Parts, assemble_parts
from asa.workflows.graph import Graph, make_graph
from asa.workflows.settings import Settings
from asa.workflows.stage import Stage, make_needs

_MOST_QUEUED = 8


class Driver:
    """Drives the calls of one executor on a thread of its own, from now on until `close`.

    Parameters
    ----------
    directory
        A run's directory, new.
    settings
        Where jobs go, and how calls run there.
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

    Raises
    ------
    InvalidInput
        When an option cannot be used.
    """

    def __init__(
        self, directory: RunDirectory, settings: Settings, limits: Mapping[str, Any], needs: Mapping[str, Any]
    ) -> None:
        self.over = threading.Event()
        self._accepts, self._lock, self._why = True, threading.Lock(), ""
        bounds: Limits | None = None

        def parts(site: Capabilities) -> Parts[Desk]:
            nonlocal bounds
            graph, self.spec = _size(settings.name, site, needs)
            self.local = site.regime is QueueRegime.IMMEDIATE
            bounds = _limits(limits, 1 if self.local else _MOST_QUEUED)
            self._book = CallBook(settings.name, directory)
            self._desk = desk = Desk(Elastic(bounds, teaches=not self.local), self._book)
            return Parts(
                graph,
                desk,
                DEFAULT_ESTIMATOR,
                CALLS,
                True,
                lambda _learned: (self.spec,),
                lambda _log: self._book,
                Ledger,
                lambda clock: PatientClock(clock, desk),
            )

        self._assembly = assemble_parts(directory, settings, parts)
        self._runner = self._assembly.runner
        assert bounds is not None
        self.slots = slots(self.spec)
        self.most = bounds.maximum * self.slots
        self._thread = threading.Thread(target=self._drive, name=f"asa-{directory.name}", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        """One more call.

        Raises
        ------
        RuntimeError
            After `close`, or when the driver has ended by itself.
        """
        with self._lock:
            if not self._accepts:
                raise RuntimeError(f"cannot schedule new futures after shutdown{self._why}")
            future = self._book.add(function, args, kwargs, self._ring)
        self._ring()
        return future

    def close(self, *, cancel: bool = False) -> None:
        """No more calls will come; `cancel` those that were not given to an allocation. Returns at once."""
        with self._lock:
            self._accepts = False
        if cancel:
            self._book.cancel_all()
        self._desk.closing = True
        self._ring()

    def cancel(self, reason: str) -> None:
        """Give all allocations back, with whatever runs in them. Returns at once."""
        self._runner.cancel(reason)

    def _ring(self) -> None:
        """Have the runner look again."""
        self._runner.inbox.post(())

    def _drive(self) -> None:
        error: BaseException
        try:
            self._runner.start_executor()
            self._runner.run()
            error = RunFailed(self._desk.broken or "the executor was shut down", stage=self.spec.name)
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
    if needs.keys() & {"launcher", "retries"}:
        raise InvalidInput("calls have neither a launcher nor retries: use @asa.stage for those")
    if not needs.keys() & {"cores", "nodes"} and site.cores_per_node:
        task = needs.get("task_cores") or 1
        needs = {**needs, "cores": max(site.cores_per_node // task, 1) * task}
    graph = make_graph(Stage(call, make_needs(name, **needs), name)(None, (), {}))
    (spec,) = graph.specs(site)
    return graph, replace(spec, width=None)
