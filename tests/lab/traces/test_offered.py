import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.workload import Workload
from asa.lab.traces.cycle import Cycle
from asa.lab.traces.offered import at_load, offered_load

jobs = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 64)), min_size=2, max_size=30)


def make(rows):
    submit, run, cores = zip(*rows, strict=True)
    return Workload.of(submit=submit, run=run, cores=cores)


@given(jobs.filter(lambda rows: len({row[0] for row in rows}) > 1), st.floats(0.05, 3), st.booleans())
def test_the_load_is_as_asked_and_the_jobs_keep_their_order(rows, load, daily):
    before = make(rows)
    after = at_load(before, 64, load, Cycle((1.0, 3.0, 0.5), DAY) if daily else None)
    assert offered_load(after, 64) == pytest.approx(load, rel=1e-9)
    assert after.submit[0] == before.submit[0]
    assert (after.run == before.run).all()
    assert (after.cores == before.cores).all()


def test_without_a_cycle_all_pauses_are_stretched_alike():
    after = at_load(make([(0, 10, 4), (10, 10, 4), (40, 10, 4)]), 4, 0.375)
    assert after.submit.tolist() == [0, 20, 80]


def test_with_a_cycle_nights_stay_where_they_are():
    day = Cycle((0.0, 1.0), DAY)
    before = make([(DAY / 2 + k, 10, 1) for k in range(1000)])
    after = at_load(before, 1, 0.02, day)
    assert after.submit[-1] > 3 * DAY
    clock = after.submit[:-1] % DAY  # the last one is where the load puts it
    assert ((clock >= DAY / 2 - 1e-6) | (clock < 1e-6)).all()


def test_loads_that_cannot_be_had_are_refused():
    with pytest.raises(InvalidInput, match="load is 0"):
        at_load(make([(0, 1, 1), (5, 1, 1)]), 4, 0)
    for rows in ([(0, 1, 1)], [(0, 1, 1), (0, 1, 1)], [(0, 0, 1), (9, 0, 1)]):
        with pytest.raises(InvalidInput, match="no stretching"):
            at_load(make(rows), 4, 0.5)
    with pytest.raises(InvalidInput, match="at least 1 core"):
        offered_load(make([(0, 1, 1), (5, 1, 1)]), 0)


def test_jobs_of_one_instant_are_an_infinite_load():
    assert offered_load(make([(3, 1, 1), (3, 1, 1)]), 4) == np.inf
