"""The suite of `conformance`, with whatever works on this machine; `make test-cgroup2` boots one that has more."""

from __future__ import annotations

import os

import pytest

from executors.cgroup import probe
from tests.executors.cgroup.conformance import Conformance

pytestmark = pytest.mark.slow
_FOUND = {found.name: found for found in probe.means(f"collect-{os.getpid()}", gentle=True)}
_MISSING = {name: found.why for name, found in _FOUND.items() if found.quotas is None}


@pytest.mark.root
class TestVersion1(Conformance):
    only = "cgroup v1"
    __test__ = only not in _MISSING


class TestVersion2(Conformance):
    only = "cgroup v2"
    __test__ = only not in _MISSING


class TestSystemd(Conformance):
    only = "systemd scopes"
    __test__ = only not in _MISSING


class TestDutyCycle(Conformance):
    only = "duty cycle"
    __test__ = only not in _MISSING


@pytest.mark.parametrize("name", sorted(_FOUND))
def test_means_on_this_machine(name: str) -> None:
    """Says what is missing, and why."""
    if name in _MISSING:
        pytest.skip(f"{name}: {_MISSING[name]}")
    assert probe.best(f"only-{os.getpid()}", only=name).name == name
