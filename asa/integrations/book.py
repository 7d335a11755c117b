"""Which future each call belongs to, and what travels to the workers."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError, RunFailed
from asa.core.event import Event, TaskCancelled, TaskFailed
from asa.core.job import Resources
from asa.core.task import Task, Value
from asa.integrations.call import call, raised
from asa.log.rundir import RunDirectory
from asa.log.values import INLINE_MOST, dump, load, write_value
from asa.workflows.payload import dump_or_explain

_NOTHING = dump(((None, (), {}), {}))


class CallFuture(Future[Any]):
    """A future that reports when it is cancelled."""

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Cancel the call, unless it was given to an allocation already; whether it is cancelled."""
        before, after = self.cancelled(), super().cancel()
        if after and not before:
            self._on_cancel()
        return after


class CallBook:
    """Calls by number: made in the user's threads, sent and answered in the runner's."""

    def __init__(self, name: str, directory: RunDirectory) -> None:
        self._name, self._values = name, directory.values
        self._function = str(directory.functions / "0000.pkl")
        write_value(Path(self._function), dump(call))
        self._lock = threading.Lock()
        self._widths: dict[str, int] = {}
        self._open: dict[tuple[str, int], tuple[CallFuture, Value]] = {}

    # ------------------------------------------------------ in the user's threads

    def add(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_cancel: Callable[[int], None],
        name: str = "",
    ) -> Future[Any]:
        """One more call, among those of a `name`; `on_cancel` gets its number when it is cancelled. What cannot travel
        fails its future."""
        called = getattr(function, "__qualname__", type(function).__qualname__)
        try:
            arguments = self._keep(dump_or_explain(((function, args, kwargs), {}), f"a call of {called}"))
        except AsaError as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed
        name = name or self._name
        with self._lock:
            index = self._widths.get(name, 0)
            self._widths[name] = index + 1
            future = CallFuture(partial(on_cancel, index))
            self._open[name, index] = future, arguments
        return future

    def cancel_all(self) -> None:
        """Cancel what has not been given to an allocation."""
        with self._lock:
            futures = [future for future, _ in self._open.values()]
        for future in futures:
            future.cancel()

    def _keep(self, data: bytes) -> Value:
        if len(data) <= INLINE_MOST:
            return data
        path = self._values / f"args-{secrets.token_hex(8)}.pkl"
        write_value(path, data)
        return str(path)

    # ------------------------------------------------------ in the runner's thread

    def width(self, name: str = "") -> int:
        with self._lock:
            return self._widths.get(name or self._name, 0)

    def task(self, name: str, index: int, resources: Resources) -> Task:
        """A call for a worker; one that is cancelled at this very moment does nothing there."""
        future, arguments = self._open[name, index]
        # it runs already when its node was lost, and runs again
        if not future.running() and not future.set_running_or_notify_cancel():
            self._close(name, index)
            arguments = _NOTHING
        return Task(name, index, self._function, arguments, (), resources)

    def settle(self, event: Event) -> None:
        """A call has ended, if the event says so."""
        if isinstance(event, TaskFailed):
            if not event.infrastructure:
                said = "\n".join(filter(None, (event.error, event.traceback.rstrip(), event.stderr.strip())))
                reason = f"call {event.index} on node {event.node}: {said}"
                self.fail(event.stage, event.index, RunFailed(reason, stage=event.stage))
        elif isinstance(event, TaskCancelled):
            if (future := self._close(event.stage, event.index)) is not None:
                future.set_running_or_notify_cancel()
        elif (result := event.result) is not None:
            value = result.path if result.value is None else result.value
            if (future := self._close(result.stage, result.task)) is not None and value is not None:
                _answer(future, value)
            if result.path is not None:
                Path(result.path).unlink(missing_ok=True)

    def give_up(self, name: str, index: int, reason: str) -> None:
        """A call will not run any more."""
        self.fail(name, index, RunFailed(f"call {index}: {reason}", stage=name))

    def fail(self, name: str, index: int, error: BaseException) -> None:
        """A call has no answer but this one."""
        future = self._close(name, index)
        if future is not None and (future.running() or future.set_running_or_notify_cancel()):
            future.set_exception(error)

    def fail_all(self, error: BaseException) -> None:
        """No call has an answer any more."""
        with self._lock:
            left = list(self._open)
        for name, index in left:
            self.fail(name, index, error)

    def _close(self, name: str, index: int) -> CallFuture | None:
        """Forget a call; its future, the first time."""
        with self._lock:
            future, arguments = self._open.pop((name, index), (None, None))
        if isinstance(arguments, str):
            Path(arguments).unlink(missing_ok=True)
        return future


def _answer(future: CallFuture, value: Value) -> None:
    try:
        answered = load(value)
    except Exception as error:  # unpickling runs foreign code, which may raise anything
        future.set_exception(error)
        return
    if answered is None:  # in virtual time, where nothing was called
        future.set_result(None)
    elif answered[0]:
        future.set_result(answered[1])
    else:
        future.set_exception(raised(answered))
