from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from asa.core.ports import Executor, RunContext
from asa.testing.executors import Bench, ExecutorConformance
from executors.dask import dask
from executors.hub import local

pytestmark = pytest.mark.slow

KINDS: dict[str, tuple[Callable[[], Executor], bool]] = {
    "processes": (local, True),
    "threads": (lambda: local(workers="threads"), True),
    "tls": (local, False),
    "dask": (dask, True),
}


class TestExecutors(ExecutorConformance):
    @pytest.fixture(params=KINDS)
    def bench(self, request: pytest.FixtureRequest, context: RunContext) -> Iterator[Bench]:
        make, is_local = KINDS[request.param]
        with Bench(make, replace(context, local=is_local)) as bench:
            yield bench
