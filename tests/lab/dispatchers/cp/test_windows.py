import numpy as np
from hypothesis import given, settings

from asa.lab.dispatchers.cp.times import times_of
from asa.lab.dispatchers.cp.windows import NEVER, Ahead, windows
from asa.lab.dispatchers.planning.active import active
from asa.lab.dispatchers.planning.lists import keys, order_of
from tests.lab.dispatchers.planning.instances import instance, instances


@given(instances())
@settings(max_examples=40, deadline=None)
def test_the_first_start_is_that_of_a_plan_of_one(problem):
    times = times_of(problem)
    for job, early in enumerate(windows(problem, times).early.tolist()):
        alone = active(problem, np.array([job]))
        assert early * times.tick == alone.start[job]


@given(instances())
@settings(max_examples=40, deadline=None)
def test_plans_that_are_no_worse_are_within(problem):
    times = times_of(problem)
    plans = [active(problem, order_of(keys(problem, rule))) for rule in ("dense", "sjf", "fcfs", "pcp")]
    for known in plans:
        found = windows(problem, times, times.in_ticks(known.start))
        for plan in plans:
            if plan.objective(problem) <= known.objective(problem):
                assert (found.early * times.tick <= plan.start + 1e-9).all()
                assert (plan.start <= found.late * times.tick + 1e-9).all()


def test_what_never_fits():
    problem = instance([[2]], [([3], 1, 5, 0), ([2], 1, 5, 0)], [(0, [1], 1, 4)])
    ahead = Ahead(problem)
    assert [ahead.first(0), ahead.first(1)] == [NEVER, 1]
