from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from coscheduler.nouns import ALONE, JobStates, RunningJobs


def states(count: int) -> JobStates:
    return JobStates(
        cpu=np.zeros(count), memory=np.zeros(count), parallel=np.zeros(count, dtype=bool), elapsed=np.zeros(count),
        happiness=np.ones(count),
    )  # fmt: skip


def running(count: int) -> RunningJobs:
    whole = np.full(count, 4)
    return RunningJobs(
        names=tuple(f"job {number}" for number in range(count)), applications=("blast",),
        application=np.zeros(count, dtype=np.int64), cores=whole, walltime=np.full(count, 9.0),
        started=np.zeros(count), states=states(count), host=np.full(count, ALONE), share=np.ones(count),
        exclusive=np.zeros(count, dtype=bool),
    )  # fmt: skip


@pytest.mark.parametrize("cpu", [np.zeros(3), np.zeros((2, 1)), np.float64(0.5)], ids=["longer", "wider", "a number"])
def test_columns_of_several_shapes_are_refused(cpu: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match=r"columns of shapes .*: all of the same shape \(n,\) expected"):
        replace(states(2), cpu=cpu)


def test_so_are_tables_without_a_row_for_each_job() -> None:
    jobs = running(2)
    for changed in ({"states": states(3)}, {"share": np.ones(3)}, {"names": ("a", "b", "c")}):
        with pytest.raises(InvalidInput, match=r"columns of lengths \[2, 3\]: one row for each running job expected"):
            replace(jobs, **changed)  # type: ignore[arg-type]


def test_what_rules_see_cannot_be_written_to() -> None:
    jobs = running(2)
    for column in (jobs.share, jobs.host, jobs.states.cpu):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
