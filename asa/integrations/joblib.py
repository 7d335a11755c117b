"""A backend for joblib, and with it for scikit-learn: importing this module registers it as ``"asa"``.

::

    import asa.integrations.joblib
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("asa", where="slurm:partition=core", cores=28, maximum=4):
        Parallel()(delayed(fit)(x) for x in xs)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from asa.core.errors import InvalidInput
from asa.integrations.futures import PoolExecutor


class AsaBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # it is not typed
    """Runs joblib's batches as calls of an `asa.integrations.futures.PoolExecutor`.

    Parameters
    ----------
    where
        An executor that is shared with others and stays open; or where jobs go, as its first parameter: then it has
        one of its own, from the first `Parallel` that needs it until the end of the ``with`` block.
    nesting_level, inner_max_num_threads
        As joblib says; the number of threads follows from the executor's ``task_cores``.
    options
        The other parameters of its own executor.

    Raises
    ------
    InvalidInput
        When there are options for an executor that is there already.

    Notes
    -----
    ``n_jobs`` is -1 unless given: as many calls at once as fit in all the allocations there may be. How many
    allocations are asked for follows from the calls.
    """

    default_n_jobs = -1
    supports_retrieve_callback = True

    def __init__(
        self,
        where: PoolExecutor | str = "local",
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        if options and isinstance(where, PoolExecutor):
            raise InvalidInput(f"{', '.join(options)} cannot be set of an executor that is there already")
        self._where, self._options = where, options
        self._executor = where if isinstance(where, PoolExecutor) else None
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls may run at once."""
        if n_jobs == 0:
            raise InvalidInput("n_jobs=0 has no meaning: a positive number expected, or -1 for as many as fit")
        most = self._open().most
        if n_jobs is None or n_jobs < 0:
            return max(1, most + 1 + (n_jobs or -1))
        return n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_options: Any) -> int:
        """Begin to serve a `Parallel`; how many calls may run at once."""
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        future = self._open().submit(func)
        self._futures.add(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        """What a batch returned; raises what it raised."""
        return future.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what has not begun: a batch has failed."""
        for future in list(self._futures):
            future.cancel()

    def _open(self) -> PoolExecutor:
        if self._executor is None:
            assert not isinstance(self._where, PoolExecutor), "it is there already"
            self._executor = PoolExecutor(self._where, **{"name": "joblib"} | self._options)
        return self._executor


register_parallel_backend("asa", AsaBackend)
