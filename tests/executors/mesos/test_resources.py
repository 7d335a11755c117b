"""Sums of resources against sets of single units, and what is no resource."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.codec import BadMessage
from executors.mesos.resources import NONE, Range, Resources, parse, scalars, to_json

NAMES = st.sampled_from(["cpus", "mem", "gpus", "licences"])
RANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=4)


def some(ranges: list[tuple[int, int]]) -> Resources:
    return parse(
        [{"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": a, "end": a + n} for a, n in ranges]}}]
    )


def units(resources: Resources) -> set[int]:
    ranges: tuple[Range, ...] = resources.amounts.get("ports", ())  # type: ignore[assignment]
    assert list(ranges) == sorted(ranges) and all(a[1] + 1 < b[0] for a, b in pairwise(ranges))
    return {unit for first, last in ranges for unit in range(first, last + 1)}


SCALARS = st.dictionaries(NAMES, st.integers(1, 10**9), max_size=5).map(Resources)
ANY = st.builds(lambda one, two: one + two, SCALARS, RANGES.map(some))


@given(ANY, ANY)
def test_what_was_added_can_be_taken_away(one: Resources, other: Resources) -> None:
    whole = one + other
    assert whole == other + one
    assert whole.covers(one) and whole.covers(other)
    left = {kind: amount for kind, amount in whole - other if isinstance(amount, int)}
    assert left == {kind: amount for kind, amount in one if isinstance(amount, int)}
    assert whole - whole == NONE and not whole - whole
    assert one + NONE == one == one - NONE


@given(RANGES, RANGES)
def test_ranges_are_sets_of_numbers(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = some(one), some(other)
    assert units(a + b) == units(a) | units(b)
    assert units(a - b) == units(a) - units(b)
    assert a.covers(b) == (units(a) >= units(b))


@given(ANY)
def test_messages_say_the_same(resources: Resources) -> None:
    assert parse(to_json(resources)) == resources
    assert all(item["allocation_info"] == {"role": "eng"} for item in to_json(resources, "eng"))


def test_thousandths_add_up_exactly() -> None:
    tenth = scalars(cpus=0.1)
    assert sum([tenth] * 10, start=NONE) == scalars(cpus=1)
    assert scalars(cpus=1.5).scalar("cpus") == 1.5
    assert not scalars(cpus=0)
    assert scalars(cpus=1) - scalars(gpus=1) == scalars(cpus=1)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"scalar": {"value": 1}}, "'name' to be present"),
        ({"name": "cpus"}, r"'scalar\.value' to be present"),
        ({"name": "cpus", "scalar": {"value": -1}}, "between 0"),
        ({"name": "cpus", "scalar": {"value": "Infinity"}}, "between 0"),
        ({"name": "cpus", "scalar": {"value": 1e300}}, "between 0"),
        ({"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 2, "end": 1}]}}, "range from 2 to 1"),
        ({"name": "ports", "type": "ODD"}, "expected SCALAR or RANGES"),
        ({"name": "s", "type": "SET", "set": {"item": ["a"]}}, "expected SCALAR or RANGES"),
        ({"name": "disk", "scalar": {"value": 1}, "disk": {}}, "only plain resources"),
        ({"name": "cpus", "scalar": {"value": 1}, "reservations": [{"role": "a"}]}, "reserved for a role"),
        ({"name": "cpus", "scalar": {"value": 1}, "role": "a"}, "reserved for a role"),
        ({"name": "cpus", "scalar": {"value": 1}, "revocable": {}}, "only plain resources"),
        ("cpus", "to be an object"),
    ],
)
def test_what_is_no_resource_is_refused(item: object, said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        parse([item])


def test_amounts_of_different_types_are_not_mixed() -> None:
    several, one = Resources({"x": ((1, 2),)}), Resources({"x": 5})
    assert not several.covers(one) and not one.covers(several)
    with pytest.raises(BadMessage, match="amounts of different types"):
        several + one
    with pytest.raises(BadMessage, match="amounts of different types"):
        several - one
    assert parse([{"name": "ports", "type": "RANGES", "ranges": {"range": []}}]) == NONE
