"""Made-up queues for properties, and what every dispatcher that fills a machine must heed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from asa.core.decision import Start
from asa.core.view import QueueView
from asa.lab.core.table import TableView
from tests.lab.dispatchers.views import Job, node_view, queue_view, slot_view

UNTIMED = settings(deadline=None)
"""What is compiled takes seconds when it is first called."""
JOBS = st.lists(
    st.builds(
        Job,
        units=st.integers(1, 9),
        submit=st.sampled_from([0.0, 40.0, 90.0, 100.0]),
        estimate=st.sampled_from([10.0, 60.0, 600.0]),
    ),
    max_size=9,
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[Job], int, QueueView | TableView]:
    """Jobs, free cores, and a view of them; either kind."""
    jobs, total = draw(JOBS), draw(st.integers(1, 16))
    free = draw(st.integers(0, total))
    return jobs, free, draw(st.sampled_from([queue_view, slot_view]))(jobs, free, total)


@st.composite
def machines(draw: st.DrawFn) -> TableView:
    """A machine of unequal nodes with two resources, and jobs of two kinds."""
    jobs = draw(
        st.lists(
            st.builds(Job, units=st.integers(1, 6), kind=st.integers(0, 1), per_node=st.sampled_from([0, 0, 1])),
            max_size=8,
        )
    )
    free = draw(st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 6)), min_size=1, max_size=5))
    return node_view(jobs, free, demands=((1, 1), (2, 0)), placement=draw(st.integers(-1, 2)))


def holds(view: TableView, left: np.ndarray, row: int) -> bool:
    """Whether the nodes have room for a job, one unit after the other."""
    job, need = view.jobs[row], view.demands[int(view.jobs[row]["kind"])]
    found = 0
    for amounts in left:
        units = 0
        while units < (int(job["per_node"]) or 99) and all((need * (units + 1) <= amounts) | (need == 0)):
            units += 1
        found += units
    return found >= int(job["units"])


def left_over(view: TableView, starts: Sequence[Start]) -> np.ndarray:
    """What the nodes have left after these starts, each of which is checked."""
    left = view.free.copy()
    for start in starts:
        job, units = view.jobs[start.job], 0
        for run in start.nodes:
            nodes = slice(run.first, run.last + 1)
            left[nodes] -= run.units * view.demands[int(job["kind"])]
            units += run.units * (run.last - run.first + 1)
            needed = view.demands[int(job["kind"])] > 0
            assert (left[nodes][:, needed] >= 0).all()
            assert not job["per_node"] or run.units <= job["per_node"]
        assert units == job["units"]
    return left
