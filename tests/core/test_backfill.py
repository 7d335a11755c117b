from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.backfill import Profile
from asa.core.errors import InvalidInput
from asa.core.job import Resources

CAPACITY = Resources(cores=4, memory=100, gpus=2)
RESOURCES = st.builds(
    Resources,
    cores=st.integers(1, 5),
    memory=st.none() | st.sampled_from([30, 50, 100, 120]),
    gpus=st.integers(0, 2),
)
TIMES = st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 7.0])
DURATIONS = st.sampled_from([0.5, 1.0, 2.0, 3.5, math.inf])


@dataclass
class BruteForce:
    """Boxes of resources in use; whatever is asked is computed from all of them."""

    start: float
    boxes: list[tuple[float, float, Resources]] = field(default_factory=list)

    def free(self, at: float) -> tuple[int, int, int]:
        inside = [need for begin, end, need in self.boxes if begin <= at < end]
        return (
            4 - sum(need.cores for need in inside),
            100 - sum(need.memory or 0 for need in inside),
            2 - sum(need.gpus for need in inside),
        )

    def fits(self, need: Resources, start: float, duration: float) -> bool:
        edges = [edge for begin, end, _ in self.boxes for edge in (begin, end)]
        moments = [start, *(edge for edge in edges if start <= edge < start + duration)]
        wanted = (need.cores, need.memory or 0, need.gpus)
        return start >= self.start and all(
            asked <= free for moment in moments for asked, free in zip(wanted, self.free(moment), strict=True)
        )

    def earliest(self, need: Resources, duration: float, after: float) -> float:
        candidates = [max(after, self.start), *(end for _, end, _ in self.boxes if end > after)]
        return min((at for at in candidates if at < math.inf and self.fits(need, at, duration)), default=math.inf)


@given(
    start=st.sampled_from([0.0, 2.0]),
    held=st.lists(st.tuples(RESOURCES, TIMES), max_size=4),
    questions=st.lists(st.tuples(RESOURCES, DURATIONS, TIMES, st.booleans()), max_size=12),
)
def test_profile_agrees_with_brute_force(
    start: float,
    held: list[tuple[Resources, float]],
    questions: list[tuple[Resources, float, float, bool]],
) -> None:
    profile = Profile(CAPACITY, start, held)
    soonest = math.nextafter(start, math.inf)
    brute = BruteForce(start, [(start, max(until, soonest), need) for need, until in held])
    for need, duration, after, keep in questions:
        at = profile.earliest(need, duration, after)
        assert at == brute.earliest(need, duration, after)
        assert profile.fits(need, after, duration) == brute.fits(need, after, duration)
        if keep and at < math.inf:
            profile.reserve(need, at, duration)
            brute.boxes.append((at, at + duration, need))
    for time, free in profile.steps():
        assert free == brute.free(time)


def test_steps_begin_with_the_profile_and_rise_to_the_capacity() -> None:
    profile = Profile(Resources(cores=4), 5.0, [(Resources(cores=1), 8.0), (Resources(cores=2), 8.0)])
    assert profile.steps() == [(5.0, (1, math.inf, 0)), (8.0, (4, math.inf, 0))]


def test_an_overdue_job_still_holds_its_cores_now() -> None:
    profile = Profile(Resources(cores=4), 10.0, [(Resources(cores=2), 3.0)])
    assert not profile.fits(Resources(cores=3), 10.0, 1.0)
    assert profile.earliest(Resources(cores=3), 1.0) == math.nextafter(10.0, math.inf)


def test_a_machine_that_shrank_has_nothing_free_until_enough_is_back() -> None:
    held = [(Resources(cores=4), 10.0), (Resources(cores=1), 20.0)]
    profile = Profile(Resources(cores=2), 0.0, held)
    assert profile.earliest(Resources(cores=1), 1.0) == 10.0
    assert profile.earliest(Resources(cores=2), 1.0) == 20.0


def test_a_job_larger_than_the_machine_never_fits() -> None:
    assert Profile(CAPACITY, 0.0).earliest(Resources(gpus=3), 1.0) == math.inf


def test_memory_that_nobody_states_is_not_counted() -> None:
    profile = Profile(Resources(cores=4), 0.0)
    assert profile.fits(Resources(memory=10**15), 0.0, 1.0)


def test_a_reservation_too_short_for_a_float_still_takes_its_cores() -> None:
    now = 1.8e9
    profile = Profile(Resources(cores=1), now)
    profile.reserve(Resources(), now, 1e-9)
    assert not profile.fits(Resources(), now, 1e-9)


def test_reserving_what_is_not_free_is_refused() -> None:
    profile = Profile(Resources(cores=1), 0.0)
    profile.reserve(Resources(), 5.0, 5.0)
    with pytest.raises(InvalidInput, match="not free from 0"):
        profile.reserve(Resources(), 0.0, 6.0)
    with pytest.raises(InvalidInput, match="not free from -1"):
        profile.reserve(Resources(), -1.0, 1.0)
