"""Calls as executorlib has them: ``submit(function, ..., resource_dict={"cores": 2})``, futures among the arguments.

executorlib itself need not be installed; mpi4py, where calls ask for more than one core, as there.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

from asa.core.errors import CommandFailed, InvalidInput
from asa.core.task import ending, substitute
from asa.integrations.call import call, raised
from asa.integrations.futures import PoolExecutor
from asa.log.values import dump

_KNOWN = ("cores", "threads_per_core", "gpus_per_core", "cwd", "run_time_max")
# The pool has counted the cores already, and a launcher knows nothing of what else runs on the node.
_OVERSUBSCRIBE = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
}
_RANK = """
import pickle, sys, cloudpickle
from mpi4py import MPI
with open(sys.argv[1], "rb") as file:
    path, call = pickle.load(file)
sys.path += [entry for entry in path if entry not in sys.path]
made, function, args, kwargs = pickle.loads(call)
answers = MPI.COMM_WORLD.gather(cloudpickle.dumps(made(function, args, kwargs)))
if answers is not None:
    with open(sys.argv[2], "wb") as file:
        pickle.dump(answers, file)
"""


class ResourceExecutor(futures.Executor):
    """What executorlib's executors are to programs: in the place of `SingleNodeExecutor`, `SlurmJobExecutor` ...

    Parameters
    ----------
    backend, options
        As for `asa.integrations.futures.PoolExecutor`.
    resource_dict
        What calls need that say nothing else. Known are ``cores`` (MPI ranks), ``threads_per_core``, ``gpus_per_core``,
        ``cwd`` and ``run_time_max`` [s]; others are refused, since nothing would come of them.

    Raises
    ------
    InvalidInput
        When an option cannot be used.

    Notes
    -----
    As there, a call with ``cores`` above 1 is made in so many MPI ranks, started by ``mpiexec`` on one node, and its
    result is their list; and a future among the arguments, also in lists, tuples, sets and dicts, stands for its
    result: the call waits for it, and fails as it does. All sizes share allocations.

    Examples
    --------
    >>> with ResourceExecutor("local:cores=4") as executor:  # doctest: +SKIP
    ...     three = executor.submit(abs, -3, resource_dict={"threads_per_core": 2})
    ...     print(executor.submit(pow, three, 2).result())
    9
    """

    def __init__(
        self, backend: Any = "local", *, resource_dict: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self._default = dict(resource_dict or {})
        _check(self._default)
        self._waiting: set[futures.Future[Any]] = set()
        self.pool = PoolExecutor(backend, **options)

    def submit(  # type: ignore[override]  # `resource_dict` is executorlib's
        self, fn: Callable[..., Any], /, *args: Any, resource_dict: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> futures.Future[Any]:
        """Have ``fn(*args, **kwargs)`` called.

        Parameters
        ----------
        resource_dict
            What it needs, besides what the executor says.

        Raises
        ------
        InvalidInput
            When an allocation has no room for it, or it asks for what is not known here.
        RuntimeError
            After `shutdown`.
        """
        needs = self._default | dict(resource_dict or {})
        _check(needs)
        ranks, threads = needs.get("cores") or 1, needs.get("threads_per_core") or 1
        gpus, limit = ranks * (needs.get("gpus_per_core") or 0), needs.get("run_time_max")
        name = f"{ranks}x{threads} cores, {gpus} GPUs, {limit or 'no'} s"
        sized = self.pool.sized(name, cores=ranks * threads, gpus=gpus, timeout=limit)
        made = partial(_call, ranks, needs.get("cwd"), fn)
        found = list[futures.Future[Any]]()
        substitute((args, kwargs), futures.Future, found.append)
        if not found:
            return sized.submit(made, *args, **kwargs)
        outer = futures.Future[Any]()
        self._waiting.add(outer)
        outer.add_done_callback(self._waiting.discard)
        left, lock = {id(each): each for each in found}, threading.Lock()

        def ready(each: futures.Future[Any]) -> None:
            with lock:
                del left[id(each)]
                last = not left
            if last and outer.set_running_or_notify_cancel():
                try:
                    given, named = substitute((args, kwargs), futures.Future, lambda future: future.result())
                    sized.submit(made, *given, **named).add_done_callback(partial(_pass_on, outer))
                except BaseException as error:  # one that it waits for has failed, or was cancelled
                    outer.set_exception(error)

        for each in [*left.values()]:
            each.add_done_callback(ready)
        return outer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `PoolExecutor.shutdown`; unless it is to wait, calls that wait for futures are cancelled."""
        for each in [*self._waiting]:
            if cancel_futures or not wait:
                each.cancel()
        while self._waiting:
            futures.wait([*self._waiting])
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


def _check(needs: Mapping[str, Any]) -> None:
    if unknown := [name for name in needs if name not in _KNOWN]:
        raise InvalidInput(
            f"resource_dict: {unknown[0]!r} means nothing here: expected {', '.join(_KNOWN)}; what jobs need besides "
            "is said where the executor is made, as for PoolExecutor"
        )


def _pass_on(outer: futures.Future[Any], inner: futures.Future[Any]) -> None:
    if inner.cancelled():
        outer.set_exception(futures.CancelledError())
    elif (error := inner.exception()) is not None:
        outer.set_exception(error)
    else:
        outer.set_result(inner.result())


def _call(ranks: int, folder: str | None, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In the worker: call it, in so many ranks."""
    with contextlib.nullcontext() if folder is None else contextlib.chdir(folder):
        if ranks == 1:
            return function(*args, **kwargs)
        with tempfile.TemporaryDirectory(prefix="asa-ranks-") as private:
            source, target = Path(private, "call"), Path(private, "answers")
            source.write_bytes(pickle.dumps((sys.path, dump((call, function, args, kwargs)))))
            argv = ["mpiexec", "-n", str(ranks), sys.executable, "-c", _RANK, str(source), str(target)]
            try:
                code = subprocess.run(argv, check=False, env=_OVERSUBSCRIBE | os.environ).returncode
            except OSError as error:
                raise CommandFailed(f"mpiexec cannot be started: {error.strerror}: is MPI on PATH?") from None
            if not target.exists():
                raise CommandFailed(f"the {ranks} ranks of a call {ending(code)} without an answer; see their output")
            answers = [pickle.loads(answer) for answer in pickle.loads(target.read_bytes())]
        for answer in answers:
            if not answer[0]:
                raise raised(answer)
        return [value for _, value, _ in answers]
