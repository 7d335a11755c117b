from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Tests want to see at once what happens; `tests/allocations` has a budget of its own.
os.environ.setdefault("ASA_SCHEDULER_BUDGET", "off")
# The terminal that the tests are started from is not that of what they start: pytest-xdist exports its width.
os.environ.pop("COLUMNS", None)

pytest.register_assert_rewrite("asa.testing.backends", "asa.testing.estimators", "asa.testing.executors")

# How long an example takes depends on the machine and on what has been compiled: it is measured in benchmarks/. And
# chance must not fail a test that had to look long for its examples.
_CHANCE = [hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("asa", deadline=None, suppress_health_check=_CHANCE)
hypothesis.settings.load_profile("asa")

# A shell that starts the tests in the background has them ignore these, and so would the programs that they interrupt.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A directory of an ordinary user, and that user's rights: those of root ignore a read-only directory."""
    root, nobody = os.geteuid() == 0, 65534
    if root:
        os.seteuid(nobody)
    try:
        directory = Path(tempfile.mkdtemp())
        yield directory
        directory.chmod(0o700)
        shutil.rmtree(directory)
    finally:
        if root:
            os.seteuid(0)
