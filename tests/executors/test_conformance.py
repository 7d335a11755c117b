from collections.abc import Iterator
from dataclasses import replace

import pytest

from asa.core.ports import RunContext
from asa.testing.executors import ExecutorConformance, Ground
from executors.dask import Dask
from executors.local import Local


class TestProcesses(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(Local, context) as ground:
            yield ground


class TestThreads(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(lambda: Local(workers="threads"), context) as ground:
            yield ground


class TestTls(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(Local, replace(context, local=False)) as ground:
            yield ground


class TestDask(ExecutorConformance):
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(Dask, context) as ground:
            yield ground
