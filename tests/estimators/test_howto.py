"""The how-to's example runs as printed."""

import doctest
from pathlib import Path

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "write-an-estimator.md"


def test_the_howto_runs_as_printed():
    result = doctest.testfile(str(HOWTO), module_relative=False)
    assert result.attempted == 8
    assert result.failed == 0
