import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.ports import RunContext
from asa.testing.executors import Bench
from executors.hub import local


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """A run whose nodes are this machine."""
    return RunContext("r1", tmp_path / "run", str(tmp_path), tuple(sys.path), local=True)


@pytest.fixture
def bench(context: RunContext) -> Iterator[Bench]:
    with Bench(local, context) as bench:
        yield bench
