"""What of a run's containers goes into its log: what is news, and no more."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.event import ContainersSeen, ContainerUse
from executors.mesos.driver_side import NEWS, ContainerChanges


def row(cpu_s: float | None, *, name: str = "c1", node: str = "cn01", limit: float | None = 4.0, **more: Any) -> Any:
    base = {"container": name, "node": node, "limit_cores": limit, "cpu_s": cpu_s, "periods": None, "throttled": None}
    return base | more


def test_use_is_the_difference_of_two_looks() -> None:
    sightings = ContainerChanges()
    assert sightings.step([row(7.0)], 100.0) == ContainersSeen(100.0, (ContainerUse("c1", "cn01", 4.0),))
    told = sightings.step([row(17.0, periods=10, throttled=0)], 105.0)
    assert told == ContainersSeen(105.0, (ContainerUse("c1", "cn01", 4.0, 2.0),))
    told = sightings.step([row(27.0, periods=60, throttled=25)], 110.0)
    assert told == ContainersSeen(110.0, (ContainerUse("c1", "cn01", 4.0, 2.0, 0.5),))


def test_what_hardly_changes_is_no_news() -> None:
    sightings = ContainerChanges()
    sightings.step([row(0.0)], 0.0)
    assert sightings.step([row(10.0)], 5.0) is not None
    assert sightings.step([row(21.0)], 10.0) is None  # 2.2 cores after 2.0, of 4
    told = sightings.step([row(36.0)], 15.0)
    assert told is not None and told.seen[0].used_cores == 3.0


def test_another_quota_is_reported_at_once() -> None:
    sightings = ContainerChanges()
    sightings.step([row(0.0)], 0.0)
    sightings.step([row(10.0)], 5.0)
    told = sightings.step([row(20.0, limit=3.0)], 10.0)
    assert told is not None and told.seen == (ContainerUse("c1", "cn01", 3.0, 2.0),)


def test_a_container_that_is_gone_is_posted_once_unless_its_node_does_not_answer() -> None:
    sightings = ContainerChanges()
    sightings.step([row(0.0), row(0.0, name="c2", node="cn02")], 0.0)
    assert sightings.step([row(0.0), row(None, name=None, node="cn02")], 5.0) == ContainersSeen(
        5.0, (ContainerUse("c1", "cn01", 4.0, 0.0),)
    )
    assert sightings.step([row(0.0)], 10.0) == ContainersSeen(10.0, gone=("c2",))
    assert sightings.step([row(0.0)], 15.0) is None


def test_where_cpu_time_is_not_counted_quotas_are_posted() -> None:
    sightings = ContainerChanges()
    assert sightings.step([row(None)], 0.0) is not None
    assert sightings.step([row(None)], 5.0) is None


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0, 4), max_size=3), max_size=12))
def test_what_was_posted_is_never_far_from_what_is(steps: list[dict[str, float]]) -> None:
    """Whoever folds the events knows which containers there are, and their use to a tenth of the quota."""
    sightings, known, totals = ContainerChanges(), dict[str, ContainerUse](), dict[str, float]()
    for number, used in enumerate(steps):
        fresh = {name for name in used if name not in known}
        totals = {name: totals.get(name, 0.0) + 5.0 * cores for name, cores in used.items()}
        told = sightings.step([row(total, name=name) for name, total in totals.items()], 5.0 * number)
        for use in told.seen if told else ():
            known[use.container] = use
        for name in told.gone if told else ():
            del known[name]
        assert known.keys() == used.keys()
        for name, cores in used.items():
            found = known[name].used_cores
            assert found is None if name in fresh else found is not None and abs(found - cores) <= NEWS * 4.0 + 0.01
