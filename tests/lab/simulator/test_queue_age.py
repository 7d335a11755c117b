"""Who starts first when a job was held back for a while: the table that was measured on Slurm 22.05.

One node, busy until 200 s. C0 comes at 2 s, P at 12 s, C1 at 30 s, C2 at 110 s; each wants the whole node. P is parked
at its submission or, "aged", at 50 s, and let go at 100 s. Kept is C0 P C1 C2; lost C0 C1 P C2; worst C0 C1 C2 P.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from asa.core.job import DependencyKind
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Fcfs
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.settings import Fifo, MachineSettings, Multifactor

Act = Callable[[Engine, int], None]
KEPT, LOST, WORST = "C0 P C1 C2", "C0 C1 P C2", "C0 C1 C2 P"
SITES = {
    "fifo": Fifo(),
    "mf": Multifactor(age=100_000, max_age_s=600, regime="multifactor"),
    "lim": Multifactor(age=100_000, max_age_s=600, regime="limits"),
    "aa": Multifactor(age=100_000, max_age_s=600, regime="accrue-always"),
}


class Lane:
    """The node, and what happens in front of it."""

    def __init__(self, site: str) -> None:
        self.engine = Engine(
            Workload.of(submit=[0], run=[200], cores=[1], walltime=[200]),
            Cluster.of(1),
            MachineSettings(priority=SITES[site]),
        )
        self.rows: dict[str, int] = {}

    def until(self, at: float) -> None:
        rule = Fcfs().native
        assert rule is not None
        while self.engine.now < at:
            self.engine.dispatch(rule, until=at)

    def submit(self, name: str, **options: object) -> int:
        options = {"run": 10.0, "walltime": 20.0, "units": 1, **options}
        self.rows[name] = operations.submit(self.engine, **options)  # type: ignore[arg-type]
        return self.rows[name]

    def order(self, at_submit: dict[str, object], park: Act | None, let_go: Act | None) -> str:
        """Who starts when, given how P is parked and let go."""
        self.until(2)
        self.submit("C0")
        self.until(12)
        p = self.submit("P", **at_submit)
        self.until(30)
        self.submit("C1")
        self.until(50)
        if park:
            park(self.engine, p)
        self.until(100)
        if let_go:
            let_go(self.engine, p)
        self.until(110)
        self.submit("C2")
        self.until(1000)
        start = self.engine.state.jobs["started"]
        return " ".join(sorted(self.rows, key=lambda name: start[self.rows[name]]))


def never(lane: Lane) -> dict[str, object]:
    """A dependency on a job that does not end before it is taken away."""
    gone = operations.submit(lane.engine, run=1.0, walltime=9.0, units=1, begin=1e6)
    return {"after": [(gone, DependencyKind.AFTER_OK)]}


def depend(engine: Engine, row: int) -> None:
    gone = operations.submit(engine, run=1.0, walltime=9.0, units=1, begin=1e6)
    operations.set_dependencies(engine, row, [(gone, DependencyKind.AFTER_OK)])


def to(change: Callable[..., None], value: Any) -> Act:
    """A change of a job to this value."""
    return lambda engine, row: change(engine, row, value)


FREE, AT_ONCE = to(operations.set_dependencies, []), to(operations.set_begin, 0.0)
NICED, NOT_NICED = to(operations.set_nice, 1_000_000), to(operations.set_nice, 0)
TECHNIQUES: dict[str, tuple[dict[str, object], Act | None, Act | None]] = {
    "plain": ({}, None, None),
    "dependency": ({"never": True}, None, FREE),
    "aged, dependency": ({}, depend, FREE),
    "begin": ({"begin": 3600.0}, None, AT_ONCE),
    "aged, begin": ({}, to(operations.set_begin, 3650.0), AT_ONCE),
    "hold": ({"held": True}, None, operations.release),
    "aged, hold": ({}, operations.hold, operations.release),
    "nice": ({"nice": 1_000_000.0}, None, NOT_NICED),
    "aged, nice": ({}, NICED, NOT_NICED),
    "wall time": ({"walltime": 1200.0}, None, to(operations.set_walltime, 15.0)),
    "excluded nodes": ({}, operations.bar, operations.unbar),
}
MEASURED = {
    "plain": (KEPT, KEPT, KEPT, KEPT),
    "dependency": (KEPT, LOST, LOST, KEPT),
    "aged, dependency": (KEPT, KEPT, LOST, KEPT),
    "begin": (KEPT, WORST, LOST, KEPT),
    "aged, begin": (KEPT, KEPT, LOST, KEPT),
    "hold": (LOST, LOST, LOST, KEPT),
    "aged, hold": (LOST, KEPT, LOST, KEPT),
    "nice": (KEPT, KEPT, KEPT, KEPT),
    "aged, nice": (KEPT, KEPT, KEPT, KEPT),
    "wall time": (KEPT, KEPT, KEPT, KEPT),
    "excluded nodes": (LOST, KEPT, KEPT, KEPT),
}
"""Under FIFO, under multifactor priority without and with enforced limits, and with ACCRUE_ALWAYS. Under FIFO, a job
that asks for excluded nodes loses its place once it has been evaluated; here it is evaluated at once."""


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("site", SITES)
def test_start_order(technique: str, site: str) -> None:
    lane = Lane(site)
    options, park, let_go = TECHNIQUES[technique]
    if options.get("never"):
        options = never(lane)
    expected = MEASURED[technique][list(SITES).index(site)]
    assert lane.order(options, park, let_go) == expected


@pytest.mark.parametrize("site", SITES)
def test_a_requeued_job_loses_its_place(site: str) -> None:
    lane = Lane(site)
    lane.until(5)
    lane.submit("C0")
    lane.until(50)
    operations.requeue(lane.engine, 0)
    lane.until(1000)
    start = lane.engine.state.jobs["started"]
    assert start[lane.rows["C0"]] == 50.0
    assert start[0] == 60.0
    assert math.isnan(lane.engine.state.jobs["planned"][0])
