"""What became of a workload: when each job ran, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.decision import NodeRun
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload

OUTCOMES = tuple(JobState)
"""Meaning of the codes in `Schedule.outcome`."""


@dataclass(frozen=True, eq=False)
class Placements:
    """Where jobs ran: one row per run of neighbouring nodes.

    Parameters
    ----------
    job
        Row of the workload, shape (k,); the runs of a job stand together.
    runs
        First node, last node (inclusive) and units on each of them, shape (k, 3).
    """

    job: Ints
    runs: Ints

    def of(self, row: int) -> list[NodeRun]:
        """Where one job ran; empty when it did not, or when that was not recorded."""
        return [NodeRun(*map(int, run)) for run in self.runs[self.job == row]]

    def __iter__(self) -> Iterator[tuple[int, NodeRun]]:
        for row, run in zip(self.job.tolist(), self.runs.tolist(), strict=True):
            yield row, NodeRun(*run)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The outcome of a workload on a machine, one entry per row of the workload.

    Parameters
    ----------
    eligible, start, end
        Times [s], shape (n,); NaN where it never came to that. Of a requeued job, those of its last start.
    outcome
        Codes of `OUTCOMES`, shape (n,): PENDING for a job that never started, CANCELLED, COMPLETED, TIMEOUT ... and
        FAILED for one that was refused, because the machine could never run it.
    restarts
        How often each job was requeued, shape (n,).
    placements
        Where jobs ran, or None when that was not recorded.
    decisions
        How often the dispatcher was asked.
    seconds
        Time [s] that the simulation took, compilation and loading excluded; NaN for an observed schedule.
    units
        Units that each job had when it ran, shape (n,); None where all had those that they asked for.
    """

    workload: Workload
    cluster: Cluster
    eligible: Floats
    start: Floats
    end: Floats
    outcome: npt.NDArray[np.int8]
    restarts: Ints
    placements: Placements | None = None
    decisions: int = 0
    seconds: float = float("nan")
    units: Ints | None = None

    def __len__(self) -> int:
        return len(self.workload)

    @property
    def ran(self) -> npt.NDArray[np.bool_]:
        """Which jobs started and ended."""
        return ~np.isnan(self.end) & ~np.isnan(self.start)

    @property
    def wait(self) -> Floats:
        """Wait of each job [s]; NaN for those that never started."""
        return self.start - self.workload.submit

    @property
    def cores(self) -> Ints:
        """Cores of each job as it ran, shape (n,)."""
        jobs = self.workload
        cores: Ints = jobs.cores if self.units is None else self.units * jobs.demands[jobs.kind, 0]
        return cores

    @property
    def run_as_asked(self) -> Floats:
        """How long each job would have run with the width that it asked for [s], shape (n,); NaN as in `end`."""
        run: Floats = self.end - self.start
        if self.units is not None:
            for row in np.flatnonzero(self.units != self.workload.units).tolist():
                run[row] /= self.workload.stretch(row, int(self.units[row]))
        return run

    def count(self, state: JobState) -> int:
        """How many jobs came out so."""
        return int((self.outcome == OUTCOMES.index(state)).sum())

    def __repr__(self) -> str:
        return f"<Schedule of {len(self)} jobs on {self.cluster}>"
