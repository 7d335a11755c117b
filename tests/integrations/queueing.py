"""A backend on this machine whose jobs wait for a while, as in a queue."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from asa.backends.local import Local
from asa.core.job import JobHandle, JobRequest, Refused


class Queueing:
    """Satisfies the Backend port. Travels: what it holds is made where it is used."""

    def __init__(self, wait_s: float, cores: int) -> None:
        self._wait_s, self._cores = wait_s, cores

    def __reduce__(self) -> tuple[Any, ...]:
        return Queueing, (self._wait_s, self._cores)

    @cached_property
    def _directory(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="asa-queueing-", ignore_cleanup_errors=True)

    @cached_property
    def _local(self) -> Local:
        return Local(cores=self._cores, directory=Path(self._directory.name))

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        begin = time.time() + self._wait_s
        return self._local.submit([replace(request, begin=begin) for request in requests])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._local, name)
