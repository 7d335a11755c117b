from __future__ import annotations

import pytest

from tests.lab.simulator.compiled import compile_simulator


@pytest.fixture(scope="session", autouse=True)
def compiled_simulator() -> None:
    """Compiled once, before the first test is timed."""
    compile_simulator()
