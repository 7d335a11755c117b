from collections.abc import Iterator
from dataclasses import replace

import pytest

from asa.core.ports import RunContext
from asa.testing.executors import ExecutorConformance, Ground
from executors.dask import dask
from executors.hub import local

pytestmark = pytest.mark.slow


class TestProcesses(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(local, context) as ground:
            yield ground


class TestThreads(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(lambda: local(workers="threads"), context) as ground:
            yield ground


class TestTls(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(local, replace(context, local=False)) as ground:
            yield ground


class TestDask(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(dask, context) as ground:
            yield ground
