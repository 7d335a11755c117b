"""What an agent that owns a part of a node says of it, and what it is told where that cannot be kept."""

from __future__ import annotations

import os

import pytest

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import probe
from executors.cgroup.dutycycle import DutyCycle
from executors.mesos.agent.command import bound_capacity, parse_attributes, with_capacity
from executors.mesos.agent.containers import Unlimited


@pytest.mark.parametrize("cores", [0.0, -1.0, 0.001, 2.1, float("inf"), float("nan")])
def test_a_part_of_what_is_offered(cores: float) -> None:
    with pytest.raises(InvalidInput, match=r"--capacity .*: expected from 0.01 to the 2 cores that are offered"):
        bound_capacity(Unlimited(), cores, 2.0)


@pytest.mark.parametrize("quotas", [Unlimited(), DutyCycle("space")])
def test_a_means_that_cannot(quotas: Unlimited | DutyCycle) -> None:
    with pytest.raises(StateError, match=f"--capacity 0.3: a fraction of the processor .* by '{quotas.name}'"):
        bound_capacity(quotas, 0.3, 2.0)


@pytest.mark.parametrize("means", ["cgroup v2", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_a_means_that_can(means: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        quotas = probe.best(f"capacity-{os.getpid()}", means)
    except StateError as error:
        pytest.skip(str(error))
    bounds, bound = list[float](), quotas.bound
    monkeypatch.setattr(quotas, "bound", lambda cores: (bounds.append(cores), bound(cores)))
    bound_capacity(quotas, 0.3, 2.0)
    assert bounds == [0.3]


def test_only_one_attribute_has_its_name() -> None:
    given = parse_attributes(["rack=r1"])
    assert with_capacity(given, None) == given
    found = with_capacity(given, 1.5)
    assert found == [*given, {"name": "capacity", "type": "SCALAR", "scalar": {"value": 1.5}}]
    taken = parse_attributes(["capacity=much"])
    assert with_capacity(taken, None) == taken
    with pytest.raises(InvalidInput, match="--capacity says this one"):
        with_capacity(taken, 1.5)
