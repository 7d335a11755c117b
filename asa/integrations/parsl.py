"""An executor for Parsl: apps run in allocations that come and go with them.

::

    import parsl
    from asa.integrations.parsl import AsaExecutor

    parsl.load(parsl.Config(executors=[AsaExecutor(backend="slurm:partition=core", cores=28)]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification
from parsl.utils import RepresentationMixin

from asa.integrations.futures import PoolExecutor


class AsaExecutor(ParslExecutor, RepresentationMixin):  # type: ignore[misc]  # it is not typed
    """Runs Parsl's apps as calls of an `asa.integrations.futures.PoolExecutor`.

    Parameters
    ----------
    label
        As for any executor of Parsl's.
    backend
        Where jobs go, as for `PoolExecutor`. Parsl's providers and blocks have no part in it.
    storage_access, working_dir
        As for Parsl's other executors.
    options
        The other parameters of `PoolExecutor`.

    Notes
    -----
    An app's ``parsl_resource_specification`` may say ``cores``, ``memory`` [MB] and ``gpus``, as Parsl has them.
    Retries, memoization, files and the order of apps are Parsl's. Parsl's monitoring of what apps use is off.
    """

    def __init__(
        self,
        label: str = "asa",
        backend: Any = "local",
        storage_access: list[Any] | None = None,
        working_dir: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.label, self.backend, self.options = label, backend, options
        self.storage_access, self.working_dir = storage_access, working_dir
        self.pool: PoolExecutor | None = None

    def start(self) -> None:
        """Begin; jobs are submitted when there are apps to run."""
        self.pool = PoolExecutor(self.backend, **{"name": self.label, **self.options})

    def submit(
        self, func: Callable[..., Any], resource_specification: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Have an app called.

        Raises
        ------
        InvalidResourceSpecification
            When it asks for what is not known here.
        """
        assert self.pool is not None, "start() comes first"
        needs = {name: value for name, value in resource_specification.items() if value is not None}
        if not needs:
            return self.pool.submit(func, *args, **kwargs)
        if unknown := needs.keys() - {"cores", "memory", "gpus"}:
            raise InvalidResourceSpecification(unknown, "expected cores, memory [MB] or gpus")
        if "memory" in needs:
            needs["memory"] = f"{needs['memory']}M"
        name = ", ".join(f"{key} {value}" for key, value in sorted(needs.items()))
        return self.pool.sized(name, **needs).submit(func, *args, **kwargs)

    def shutdown(self) -> None:
        """Give allocations back when the apps there are have ended."""
        if self.pool is not None:
            self.pool.shutdown()
        super().shutdown()

    def monitor_resources(self) -> bool:
        """No: it would start a process of its own around each app."""
        return False
