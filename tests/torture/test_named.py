"""`asa torture --site named`: schedules of runs in a named pool hold and replay, and what they found stays mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.event import Event, Leased, Recalled
from asa.log.events import EventLog
from coscheduler.torture.case import Case, Fault, StageShape
from coscheduler.torture.named import FAULTS, draw, run
from executors.mesos.agent import service

LONG = (StageShape(True, 6, (), 1, 1, 600.0), StageShape(False, 2, (0,), 1, 1, 600.0))
SHORT = (StageShape(False, 2, (), 4, 1, 600.0), StageShape(False, 2, (0,), 4, 1, 3600.0))
QUIET = Case(7, (LONG, SHORT), ("per-stage", "big-job"), 8, "fifo", (0.0, 30.0), 0.3, 60.0, ())


def at(kind: str, *times: float, which: int = 0, share: float = 0.3) -> tuple[Fault, ...]:
    return tuple(Fault(kind, time, which, share) for time in times)


def with_faults(*faults: Fault, **changes: Any) -> Case:
    return replace(QUIET, faults=tuple(sorted(faults, key=lambda fault: fault.at)), **changes)


def events(state: Path) -> Iterator[Event]:
    for path in sorted(state.glob("runs/*/events.db")):
        with EventLog(path) as log:
            yield from (event for _, event in log.read())


def test_runs_lend_each_other_nodes(tmp_path: Path) -> None:
    found = set[type[Event]]()
    for seed in (8, 9):
        (tmp_path / str(seed)).mkdir(mode=0o700)
        outcome = run(replace(draw(seed), faults=(), failing=()), tmp_path / str(seed))
        assert (outcome.violations, outcome.resumes) == ([], 0)
        found |= {type(event) for event in events(tmp_path / str(seed))}
    assert {Leased, Recalled} <= found


@pytest.mark.parametrize("seed", range(6))
def test_what_is_drawn_holds(seed: int) -> None:
    assert run(draw(seed)).violations == []


def test_a_schedule_goes_the_same_way_each_time() -> None:
    case = with_faults(*at("master dies", 5.0), *at("driver dies", 12.0), *at("connections reset", 20.0))
    once, again, other = (run(each, fingerprint=True) for each in (case, case, replace(case, seed=8)))
    assert once == again
    assert once.fingerprint != other.fingerprint


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_each_kind_of_fault_strikes_and_is_survived(kind: str) -> None:
    outcome = run(with_faults(*at(kind, 3.0, 12.0, 28.0, which=5)))
    assert outcome.violations == []
    assert outcome.struck[kind] >= 2


FOUND = {
    # An agent offers itself until its allocation ends. By the clock of a login node that was ahead by more than a wall
    # time that was past, so nothing was ever started on it: job after job was asked for, and none of them worked.
    "a clock that is ahead by more than a wall time": replace(
        QUIET,
        workflows=(tuple(replace(step, walltime_s=120.0) for step in LONG),),
        strategies=("per-stage",),
        faults=(Fault("clock jumps", 1.0, 0, 0.93),),
    ),
    # Agents whose driver was away for too long were sent away as if they had been released: their jobs ended with exit
    # code 0, and those that waited for that started, with nothing to do.
    "drivers that stay away": replace(
        QUIET,
        grace_s=30.0,
        strategies=("hold", "hold"),
        faults=tuple(Fault("driver dies", time, which, 0.01) for time in (2.0, 12.0) for which in (0, 1)),
    ),
}
"""What `asa torture --site named` has found, made smaller. (Nodes that were lent although they kept the outcomes of an
earlier driver: `tests/executors/test_hub.py`.)"""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    for seed in (7, 0, 1):
        assert run(replace(FOUND[name], seed=seed)).violations == []


def test_a_dropped_safeguard_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "NO_MASTER", 0)
    assert run(replace(FOUND["drivers that stay away"], seed=1)).violations != []


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    words = ["torture", "--site", "named", "--schedules", "3", "--processes", "2", "--json", str(out)]
    assert main(words) == 0
    assert json.loads(out.read_text())["failed"] == []
