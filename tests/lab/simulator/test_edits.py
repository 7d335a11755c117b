from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import DependencyKind, JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Settings
from asa.lab.simulator.state import Why


def busy(until: float = 10.0, **settings: str) -> Engine:
    """Two cores, one of which a job holds; it is 10 s."""
    work = Workload.of(submit=[0], run=[50], cores=[1], walltime=[60])
    engine = Engine(work, Cluster.of(2), Settings(**settings))
    go(engine, until)
    return engine


def go(engine: Engine, until: float = math.inf) -> None:
    while engine.drive(rule_of("fcfs"), until=until) is Why.NOTICE:
        pass


def ended(engine: Engine) -> list[tuple[JobState, float]]:
    """How and when [s] jobs ended."""
    fates = engine.state.fates[: engine.state.world[0]["jobs"]]
    return [(OUTCOMES[fate["outcome"]], float(fate["ended"])) for fate in fates]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda e: edits.submit(e, run=1.0, walltime=9.0, units=1, at=9.5), "submitted at 9.5 s: it is 10 s already"),
        (lambda e: edits.submit(e, run=1.0, walltime=9.0, units=3), "a job of 3 units of .*could run 2 at most"),
        (lambda e: edits.submit(e, run=1.0, walltime=9.0, units=0), "a job of 0 units of .*could run 2 at most"),
        (lambda e: edits.submit(e, run=1.0, walltime=9.0, units=1, need=(0,)), "ask for nothing: at least one"),
        (lambda e: edits.fail_node(e, 0, at=9.0), "node 0 cannot fail at 9 s and be back at inf s: it is 10 s"),
        (lambda e: edits.fail_node(e, 0, at=12.0, back=12.0), "cannot fail at 12 s and be back at 12 s"),
        (lambda e: edits.fail_node(e, 2, at=12.0), "there is no node 2: nodes go from 0 to 1"),
        (lambda e: edits.fail_node(e, -1, at=12.0), "there is no node -1: nodes go from 0 to 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(edit: Callable[[Engine], object], message: str) -> None:
    engine = busy()
    with pytest.raises(InvalidInput, match=message):
        edit(engine)
    go(engine)
    assert ended(engine) == [(JobState.COMPLETED, 50.0)]


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        (DependencyKind.AFTER_OK, (JobState.CANCELLED, 10.0)),
        (DependencyKind.AFTER_ANY, (JobState.COMPLETED, 13.0)),
        (DependencyKind.AFTER, (JobState.COMPLETED, 13.0)),
    ],
)
def test_a_job_that_follows_one_that_has_failed(kind: DependencyKind, fate: tuple[JobState, float]) -> None:
    engine = busy()
    edits.end(engine, 0, JobState.FAILED)
    edits.submit(engine, run=3.0, walltime=9.0, units=1, after=[(0, kind)])
    go(engine)
    assert ended(engine) == [(JobState.FAILED, 10.0), fate]


def test_what_has_ended_is_not_cancelled() -> None:
    engine = busy(until=55.0)
    edits.cancel(engine, 0)
    go(engine)
    assert ended(engine) == [(JobState.COMPLETED, 50.0)]


@pytest.mark.parametrize(
    ("overrun", "fate"), [("clip", (JobState.TIMEOUT, 24.0)), ("allow", (JobState.COMPLETED, 27.0))]
)
def test_another_wall_time_ends_a_job_only_where_it_is_enforced(overrun: str, fate: tuple[JobState, float]) -> None:
    engine = busy(overrun=overrun)
    row = edits.submit(engine, run=7.0, walltime=9.0, units=1, begin=20.0)
    edits.set_walltime(engine, row, 4.0)
    go(engine)
    assert ended(engine)[row] == fate
