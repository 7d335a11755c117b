from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.master.allocator import REFUSALS_MOST, Filters
from executors.mesos.resources import NONE, Resources, scalars


def refused(resources: Resources, until: float = 10.0) -> Filters:
    filters = Filters()
    filters.refuse("F", "r", "S", resources, until)
    return filters


def test_what_was_refused_and_less_of_it_is_suppressed() -> None:
    filters = refused(scalars(cpus=2, mem=100))
    assert filters.suppresses("F", "r", "S", scalars(cpus=2, mem=100), 0.0)
    assert filters.suppresses("F", "r", "S", scalars(cpus=1), 0.0)


def test_freed_resources_break_through() -> None:
    filters = refused(scalars(cpus=2, mem=100))
    assert not filters.suppresses("F", "r", "S", scalars(cpus=3, mem=100), 0.0)
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1, gpus=1), 0.0)


def test_a_refusal_is_about_one_framework_role_and_agent() -> None:
    filters, cpus = refused(scalars(cpus=2)), scalars(cpus=2)
    assert not filters.suppresses("G", "r", "S", cpus, 0.0)
    assert not filters.suppresses("F", "q", "S", cpus, 0.0)
    assert not filters.suppresses("F", "r", "T", cpus, 0.0)


def test_a_refusal_ends_at_its_time() -> None:
    filters, cpus = refused(scalars(cpus=2), until=10.0), scalars(cpus=2)
    assert filters.suppresses("F", "r", "S", cpus, 9.999)
    assert not filters.suppresses("F", "r", "S", cpus, 10.0)


def test_a_shorter_refusal_of_less_changes_nothing() -> None:
    filters = refused(scalars(cpus=2), until=10.0)
    filters.refuse("F", "r", "S", scalars(cpus=1), 5.0)
    assert len(filters) == 1
    assert filters.suppresses("F", "r", "S", scalars(cpus=2), 9.0)


def test_a_longer_refusal_of_more_replaces_it() -> None:
    filters = refused(scalars(cpus=1), until=5.0)
    filters.refuse("F", "r", "S", scalars(cpus=2), 10.0)
    assert len(filters) == 1
    assert filters.suppresses("F", "r", "S", scalars(cpus=2), 9.0)


def test_a_longer_refusal_of_less_stays_beside_it() -> None:
    filters = refused(scalars(cpus=1), until=20.0)
    filters.refuse("F", "r", "S", scalars(cpus=2), 10.0)
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 9.0) for cpus in (1, 2)] == [True, True]
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 10.0) for cpus in (1, 2)] == [True, False]


def test_revive_clears_some_roles_or_all() -> None:
    filters = refused(scalars(cpus=2))
    filters.refuse("F", "q", "S", scalars(cpus=2), 10.0)
    filters.refuse("G", "q", "S", scalars(cpus=2), 10.0)
    filters.clear("F", {"r", "unknown"})
    assert [filters.suppresses("F", role, "S", scalars(cpus=1), 0.0) for role in "rq"] == [False, True]
    filters.clear("F")
    assert not filters.suppresses("F", "q", "S", scalars(cpus=1), 0.0)
    assert filters.suppresses("G", "q", "S", scalars(cpus=1), 0.0)


def test_an_agent_is_forgotten() -> None:
    filters = refused(scalars(cpus=2))
    filters.refuse("F", "r", "T", scalars(cpus=2), 10.0)
    filters.forget("S")
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1), 0.0)
    assert filters.suppresses("F", "r", "T", scalars(cpus=1), 0.0)


def test_it_tells_once_whose_refusals_have_ended() -> None:
    filters = Filters()
    for agent, until in (("S", 1.0), ("T", 2.0), ("U", 3.0), ("V", 1.0)):
        filters.refuse("F", "r", agent, scalars(cpus=1), until)
    filters.forget("V")
    assert filters.due() == 1.0
    assert filters.ended(2.0) == {"S", "T"}
    assert filters.ended(2.0) == set()
    assert (len(filters), filters.due()) == (1, 3.0)
    filters.clear("F")
    assert filters.ended(3.0) == set()
    assert filters.due() == float("inf")


def test_one_of_two_refusals_of_an_agent_ends() -> None:
    filters = refused(scalars(cpus=2), until=1.0)
    filters.refuse("F", "r", "S", scalars(cpus=1), 2.0)
    assert filters.ended(1.0) == {"S"}
    assert [filters.suppresses("F", "r", "S", scalars(cpus=cpus), 1.0) for cpus in (1, 2)] == [True, False]


def test_memory_is_bounded_for_one_that_refuses_ever_more() -> None:
    filters = Filters()
    for turn in range(5000):
        filters.refuse("F", "r", "S", scalars(cpus=1 + turn, mem=5000 - turn), 1000.0 + turn)
    assert len(filters) == REFUSALS_MOST
    assert filters.suppresses("F", "r", "S", scalars(cpus=5000, mem=1), 0.0)
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1, mem=5000), 0.0)
    assert len(filters._ends) <= 2048


def test_memory_is_bounded_for_one_that_refuses_and_revives_for_ever() -> None:
    filters = Filters()
    for turn in range(5000):
        filters.refuse("F", "r", "S", scalars(cpus=1), 1e9 + turn)
        filters.clear("F")
    assert len(filters) == 0
    assert len(filters._ends) <= 2048


NAMES = st.sampled_from("FG"), st.sampled_from("rq"), st.sampled_from("ST")
SOME = st.builds(lambda cpus, mem: scalars(cpus=cpus, mem=mem), st.integers(0, 3), st.integers(0, 3))
STEPS = st.one_of(
    st.tuples(st.just("refuse"), *NAMES, SOME, st.integers(0, 9)),
    st.tuples(st.just("clear"), NAMES[0], st.none() | st.sets(NAMES[1])),
    st.tuples(st.just("forget"), NAMES[2]),
    st.tuples(st.just("ended"), st.integers(0, 9)),
)


@given(st.lists(STEPS, max_size=15), st.integers(0, 9), st.tuples(*NAMES, SOME))
def test_it_is_as_good_as_a_list_of_all_refusals(steps, now, asked) -> None:  # type: ignore[no-untyped-def]
    filters, model = Filters(), []
    for what, *given_ in steps:
        if what == "refuse":
            filters.refuse(*given_)
            model.append(given_)
        elif what == "clear":
            filters.clear(*given_)
            framework, roles = given_
            model = [one for one in model if one[0] != framework or (roles is not None and one[1] not in roles)]
        elif what == "forget":
            filters.forget(*given_)
            model = [one for one in model if one[2] != given_[0]]
        else:
            now = max(now, *given_)  # time does not run back
            filters.ended(now)
    *who, resources = asked
    expected = any(one[:3] == who and one[4] > now and one[3].covers(resources) for one in model)
    assert filters.suppresses(*who, resources, now) == expected


def test_nothing_is_suppressed_by_a_refusal_of_nothing_but_nothing() -> None:
    filters = refused(NONE)
    assert filters.suppresses("F", "r", "S", NONE, 0.0)
    assert not filters.suppresses("F", "r", "S", scalars(cpus=1), 0.0)
