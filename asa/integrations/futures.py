"""`concurrent.futures.Executor`: calls in allocations, which come and go with them."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from asa.core.job import Resources
from asa.core.stage import StageSpec
from asa.core.units import duration
from asa.core.units import memory as bytes_of
from asa.integrations.driver import Driver
from asa.workflows.settings import make_settings, new_directory

P = ParamSpec("P")
R = TypeVar("R")

_WHAT = "calls through asa.integrations.futures, which are not kept"


class PoolExecutor(futures.Executor):
    """Runs calls in allocations of a batch system, which are requested as calls come and released when they are done.

    Parameters
    ----------
    backend
        Where jobs go, as for `asa.run`: ``"local"``, ``"slurm:partition=core"``, ``"sim:hpc2n"`` ...
    minimum
        Allocations that are held whether or not there are calls.
    maximum
        Allocations at most; default 1 where there is no queue, else 8.
    idle
        How long an allocation is kept that is not needed any more: seconds, or like ``"2m"``; default as long as it
        waited in the queue.
    worth
        Work that makes one more allocation worth while, in time of all its cores; the same units; default 5 s.
    executor
        How calls run inside allocations, as for `asa.run`; default the site's.
    name
        Beginning of the run's name.
    workdir
        Directory that calls run in, which must be there; default the current one.
    state
        State directory; default as for `asa.run`.
    orphan_grace
        How long allocations outlive this process if it dies; the same units.
    needs
        Size of an allocation (``cores``, ``nodes``, ``memory``, ``gpus``, ``walltime``), by default a whole node for
        an hour, and of a call (``task_cores``, by default 1), as for `asa.stage`. Or ``memory_per_core`` in place of
        ``memory``; of both the one that gives more.

    Raises
    ------
    InvalidInput
        When an option cannot be used.

    Notes
    -----
    A call is running once it was given to an allocation: from then on it cannot be cancelled. One that is lost with its
    node runs again; one whose process dies, or that is lost four times, fails with `RunFailed`. Functions and arguments
    travel by cloudpickle, as they are when `submit` is called, so there is no need of ``if __name__ == "__main__"``.

    Everything that happens is in the log of a run, but not what calls return: ``asa runs``, ``asa report`` and
    ``asa clean`` know it, ``asa resume`` has nothing to go on with. A simulated backend calls the functions in this
    process; its time stands still while there are no calls, and each submission falls into the instant of virtual time
    at which it happens to come.

    Examples
    --------
    >>> with PoolExecutor("local:cores=2") as executor:  # doctest: +SKIP
    ...     print(*executor.map(abs, [-1, 2, -3]))
    1 2 3
    """

    def __init__(
        self,
        backend: Any = "local",
        *,
        minimum: int = 0,
        maximum: int | None = None,
        idle: float | str | None = None,
        worth: float | str = 5.0,
        executor: Any = None,
        name: str = "calls",
        workdir: str | Path = ".",
        state: str | Path | None = None,
        orphan_grace: float | str = 60.0,
        **needs: Any,
    ) -> None:
        settings = make_settings(
            _WHAT, name, workdir=workdir, orphan_grace=orphan_grace, backend=backend, executor=executor
        )
        limits = {
            "minimum": minimum,
            "maximum": maximum,
            "idle_s": None if idle is None else _seconds(idle, "idle"),
            "worth_s": _seconds(worth, "worth"),
        }
        with new_directory(name, state) as directory:
            self._driver = Driver(directory, settings, limits, needs)
        self.directory, self.name = directory, directory.name
        weakref.finalize(self, self._driver.close)
        atexit.register(_finish, weakref.ref(self._driver))

    @property
    def spec(self) -> StageSpec:
        """The size of an allocation, and of a call, as they are at this site."""
        return self._driver.spec

    @property
    def local(self) -> bool:
        """Whether all nodes are this machine."""
        return self._driver.local

    @property
    def slots(self) -> int:
        """Calls that run at once in one allocation."""
        return self._driver.slots

    @property
    def most(self) -> int:
        """Calls that run at once when there are as many allocations as there may be."""
        return self._driver.most

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        """Have ``fn(*args, **kwargs)`` called in an allocation.

        Raises
        ------
        RuntimeError
            After `shutdown`.
        """
        return cast("futures.Future[R]", self._driver.submit(fn, args, kwargs))

    def sized(
        self,
        name: str,
        *,
        cores: int | None = None,
        memory: int | str | None = None,
        gpus: int | None = None,
        timeout: float | str | None = None,
    ) -> SizedCalls:
        """Calls of another size, in the same allocations; asked again by the same name, the same ones.

        Parameters
        ----------
        name
            What they are called in reports.
        cores, memory, gpus
            What each needs: bytes, or like ``"2GiB"``; default as for the calls of `submit`.
        timeout
            How long one may run: seconds, or like ``"2m"``; default for ever. One that takes longer fails.

        Raises
        ------
        InvalidInput
            When an allocation has no room for one, or the name stands for another size.

        Examples
        --------
        >>> with PoolExecutor("local:cores=4") as executor:  # doctest: +SKIP
        ...     wide = executor.sized("wide", cores=3)
        ...     print(wide.submit(abs, -7).result(), executor.submit(abs, -1).result())
        7 1
        """
        one = self.spec.task
        task = Resources(
            one.cores if cores is None else cores,
            memory=one.memory if memory is None else bytes_of(memory),
            gpus=one.gpus if gpus is None else gpus,
        )
        self._driver.add_size(name, task, None if timeout is None else duration(timeout, what="timeout"))
        return SizedCalls(self._driver, name)

    def expect(self, *moments: tuple[float, Mapping[str, int] | int]) -> None:
        """Announce calls, in place of those that were announced before: allocations are asked for ahead of them.

        Parameters
        ----------
        moments
            In how many seconds [s], and how many calls will be there together at that time: a number, or one by the
            name of each size (`sized`).

        Notes
        -----
        An allocation is asked for as long before a moment as the queue is expected to make wait, which is learned from
        all runs at the site; and one is kept that would have to be asked for again.
        """
        base = self.spec.name
        self._driver.expect((in_s, {base: n} if isinstance(n, int) else n) for in_s, n in moments)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; give allocations back when those there are have ended.

        Parameters
        ----------
        wait
            Return only then, and when all jobs have ended.
        cancel_futures
            Cancel the calls that no allocation was given yet.
        """
        self._driver.close(cancel=cancel_futures)
        if wait:
            self._driver.over.wait()

    def terminate_workers(self, grace_s: float = 0.0) -> None:
        """Take no more calls, and give all allocations back at once; calls that have not ended fail with `RunFailed`.

        Returns when all jobs have ended. Python's pool of processes has it from 3.14 on.

        Parameters
        ----------
        grace_s
            How long calls may end by themselves before [s].
        """
        self._driver.close(cancel=True)
        if not self._driver.over.wait(grace_s):
            self._driver.cancel("the executor is ending its workers")
            self._driver.over.wait()


class SizedCalls(futures.Executor):
    """Calls of one size, of those that a `PoolExecutor` runs: made by its `sized`, and shut down with it."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver, self.name = driver, name

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[R]:
        """As `PoolExecutor.submit`."""
        return cast("futures.Future[R]", self._driver.submit(fn, args, kwargs, self.name))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing: others use the same allocations."""


def _seconds(value: float | str, what: str) -> float:
    """A time that may be 0 [s]."""
    return 0.0 if value in (0, "0") else duration(value, what=what)


def _finish(reference: weakref.ref[Driver]) -> None:
    """As `concurrent.futures` does when the program ends: what was submitted is still done."""
    if (driver := reference()) is not None:
        driver.close()
        driver.over.wait()
