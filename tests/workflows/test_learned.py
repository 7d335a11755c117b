"""Runs that go on at the same time learn from one another: each has its own view of one store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asa.core.context import Context
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.workflows.learned import LearnedWaits

SITE = Capabilities(site="s", partition="core", regime=QueueRegime.FIFO)
SIZE, HOUR = Resources(4), 3600.0
ESTIMATORS = ["fixed-share", "algorithm1:sampling=greedy"]

OTHER_RUN = """
import sys
from pathlib import Path
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.workflows.learned import LearnedWaits

path, estimator, first = sys.argv[1:]
run = LearnedWaits(Path(path), estimator, Capabilities(site="s", partition="core", regime=QueueRegime.FIFO))
for number in range(int(first), int(first) + 20):
    run.learn(JobRequest(f"other.{number}", Resources(4), 3600.0, ()), 5000.0)
"""


def learned(path: Path, estimator: str = "fixed-share") -> LearnedWaits:
    return LearnedWaits(path / "learned.db", estimator, SITE)


def job(token: str) -> JobRequest:
    return JobRequest(token, SIZE, HOUR, ())


def predicted(run: LearnedWaits) -> list[float]:
    return run.predict(SIZE, HOUR, Context(0.0, SIZE.cores, HOUR))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_one_run_learns_the_other_predicts_at_once(tmp_path: Path, estimator: str) -> None:
    left, right, alone = learned(tmp_path, estimator), learned(tmp_path, estimator), Path(tmp_path / "alone")
    alone.mkdir()
    single = learned(alone, estimator)
    before = predicted(left)
    for number in range(40):
        wait_s = 900.0 + number
        (left, right)[number % 2].learn(job(f"run.{number}"), wait_s)
        single.learn(job(f"run.{number}"), wait_s)
        assert predicted(left) == predicted(right)
    assert predicted(right) == predicted(single), "as if one run had seen it all"
    assert predicted(right) != before


def test_a_job_that_both_tell_of_teaches_once(tmp_path: Path) -> None:
    left, right, single = (
        learned(tmp_path),
        learned(tmp_path),
        LearnedWaits(tmp_path / "single.db", "fixed-share", SITE),
    )
    for run in (left, right, left):
        run.learn(job("run.0"), 5000.0)
    single.learn(job("run.0"), 5000.0)
    assert predicted(left) == predicted(right) == predicted(single)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_runs_in_other_processes_at_the_same_time(tmp_path: Path, estimator: str) -> None:
    here, single = learned(tmp_path, estimator), LearnedWaits(tmp_path / "single.db", estimator, SITE)
    words = [sys.executable, "-c", OTHER_RUN, str(tmp_path / "learned.db"), estimator]
    others = [subprocess.Popen([*words, str(first)]) for first in (0, 20)]
    for number in range(20):
        here.learn(job(f"here.{number}"), 5000.0)
    assert [other.wait(60) for other in others] == [0, 0]
    for number in range(60):
        single.learn(job(f"run.{number}"), 5000.0)
    assert predicted(here) == predicted(single), "no wait is lost, whoever told of it"


def test_run_times_are_shared_as_well(tmp_path: Path) -> None:
    from asa.core.run import FoldedRun, StageProgress
    from asa.core.stage import StageSpec, StageState

    done = StageProgress(
        StageSpec("a", SIZE, Resources(), HOUR, HOUR / 4), 1, state=StageState.DONE, started=10.0, ended=70.0
    )
    run = FoldedRun()
    run.stages["a"] = done
    left, right = learned(tmp_path), learned(tmp_path)
    right.run_time("w")("a", HOUR)
    left.learn_run_times(run, "w")
    assert right.run_time("w")("a", HOUR) == learned(tmp_path).run_time("w")("a", HOUR) != HOUR
