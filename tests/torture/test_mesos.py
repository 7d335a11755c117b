"""`asa torture --site mesos`: schedules of a pool hold and replay, and what they found stays mended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from coscheduler.torture import mesos
from coscheduler.torture.case import Fault, shrink
from coscheduler.torture.mesos import FAULTS, CustomerShape, GangShape, PoolCase, WorkShape, draw, run, smaller
from executors.mesos.agent import containers

WORKS = (WorkShape(2, 8.0, 0), WorkShape(1, 0.2, 1), WorkShape(1, 40.0, 0), WorkShape(4, 3.0, 0), WorkShape(1, 25.0, 0))
USER = CustomerShape(WORKS, 120.0, 5.0)
OURS = CustomerShape((), 120.0, 0.0, (GangShape(3, 1, 20.0, True), GangShape(4, 2, 5.0, False)), 3)
QUIET = PoolCase(7, (4, 4, 8), (USER, OURS), 60.0, 60.0, None, ())


def at(kind: str, *times: float, which: int = 0, share: float = 0.3) -> tuple[Fault, ...]:
    return tuple(Fault(kind, time, which, share) for time in times)


def with_faults(*faults: Fault, **changes: Any) -> PoolCase:
    return replace(QUIET, faults=tuple(sorted(faults, key=lambda fault: fault.at)), **changes)


def test_a_pool_without_faults() -> None:
    outcome = run(QUIET)
    assert (outcome.violations, outcome.resumes) == ([], 0)
    assert 40.0 < outcome.seconds < 200.0


@pytest.mark.parametrize("seed", range(8))
def test_what_is_drawn_holds(seed: int) -> None:
    assert run(draw(seed)).violations == []


def test_a_schedule_goes_the_same_way_each_time() -> None:
    case = with_faults(*at("master dies", 5.0), *at("agent dies", 12.0), *at("connections reset", 20.0))
    assert run(case) == run(case)
    assert run(replace(case, seed=8)).fingerprint != run(case).fingerprint


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_each_kind_of_fault_strikes_and_is_survived(kind: str) -> None:
    outcome = run(with_faults(*at(kind, 0.5, 3.0, 8.5, 21.0, 30.0, which=5)))
    assert outcome.violations == []
    assert outcome.struck[kind] >= 3


FOUND = {
    # Each offer of an agent that was refused for no time came back by itself, at once, and so they never came together:
    # a task for which there was room waited for ever, while offers went to and fro.
    "pieces of an agent that are refused for no time": replace(
        QUIET,
        seed=6350,
        cpus=(4, 4),
        customers=(CustomerShape(WORKS[:4], 120.0, 0.0), CustomerShape(WORKS, 120.0, 0.0)),
    ),
    # The same for gangs, which withheld each piece for a while.
    "pieces of an agent for a gang": replace(
        QUIET,
        seed=859,
        cpus=(2, 2, 2),
        customers=(
            CustomerShape((WorkShape(1, 8.0, 0), WorkShape(1, 20.0, 0), WorkShape(1, 40.0, 0)), 120.0, 5.0),
            CustomerShape((), 120.0, 0.0, (GangShape(3, 2, 5.0, False),)),
        ),
    ),
    # The process that starts containers was killed, and each of several that waited for it started another one: all but
    # one of these ended at once, with containers that were not known to any agent.
    "several containers after the death of a shim": replace(
        QUIET, seed=4609, cpus=(4,), customers=(USER,), faults=at("shim dies", 9.646, which=4, share=0.29)
    ),
    # A shim that was stopped went on when another agent had taken over, and started what the first had ordered.
    "an order of an agent that is gone": replace(
        QUIET,
        seed=3443,
        cpus=(8, 4),
        customers=(CustomerShape((*WORKS, WorkShape(1, 3.0, 0)), 120.0, 5.0),),
        faults=(
            Fault("agent dies", 5.295, 1, 0.81),
            Fault("process stopped", 5.666, 9, 0.37),
            Fault("connections reset", 17.955, 0, 0.28),
            Fault("process stopped", 22.953, 1, 0.94),
        ),
    ),
    # The master passed an end on, and died before it had written that down. The next one, asked before the agent had
    # sent the end once more, answered that the task ran.
    "an end that a dead master had passed on": replace(
        QUIET,
        seed=4,
        cpus=(4,),
        customers=(CustomerShape((WorkShape(1, 10.0, 1),) * 3, 120.0, 5.0),),
        faults=(Fault("disk slow", 20.0, 0, 0.9), Fault("master dies at an update", 20.0, 0, 0.5)),
    ),
    # A framework was not connected when its master died. That there was no master for longer than it could be away was
    # counted against it, and its tasks were killed. (So was a clock that was set forward on the master's machine.)
    "a framework that was away without a master": replace(
        QUIET,
        seed=6,
        cpus=(4,),
        customers=(CustomerShape((WorkShape(1, 150.0, 0),), 20.0, 5.0),),
        faults=(Fault("connections reset", 29.99, 2, 0.0), Fault("master dies", 30.0, 0, 0.0)),
    ),
    # What tasks of a framework that was removed took was offered to others while these tasks still ended.
    "tasks that outlive their framework": replace(
        QUIET,
        seed=4,
        cpus=(4,),
        customers=(
            CustomerShape((WorkShape(4, 300.0, 0),), 30.0, 5.0),
            CustomerShape((WorkShape(4, 3.0, 0), WorkShape(4, 50.0, 0)), 120.0, 5.0),
        ),
        faults=(Fault("SIGTERM not heeded", 30.0, 0, 0.9), Fault("framework away", 30.0, 0, 0.9)),
    ),
}
"""What `asa torture --site mesos` has found, made smaller."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    for seed in (FOUND[name].seed, 0, 1):
        assert run(replace(FOUND[name], seed=seed)).violations == []


def test_a_dropped_safeguard_is_seen_and_the_case_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "process_of", lambda *_arguments: None)
    case = with_faults(*at("agent dies", 5.0, which=2), *at("disk slow", 5.0), *at("clock jumps", 2.0, 20.0))

    def fails(other: PoolCase) -> bool:
        return bool(run(other).violations)

    assert fails(case)
    small = shrink(smaller, case, fails, tries=20)
    assert fails(small)
    assert [fault.kind for fault in small.faults] == ["agent dies"]
    assert small.customers != case.customers
    assert eval(repr(small), vars(mesos)) == small


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    words = ["torture", "--site", "mesos", "--schedules", "3", "--processes", "2", "--json", str(out)]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("3 schedules, ")
    assert json.loads(out.read_text())["failed"] == []
