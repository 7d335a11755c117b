from __future__ import annotations

import errno

import pytest

from executors.mesos.agent.shim import advice


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.ENOENT, False)])
def test_what_to_do_where_nothing_can_be_written(number: int, says: bool) -> None:
    assert ("free some space" in advice(OSError(number, "x"))) is says
