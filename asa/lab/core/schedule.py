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
class Resizes:
    """When malleable jobs changed their widths while they ran; shape (k,) each.

    Parameters
    ----------
    job
        Row of the workload.
    at
        When [s]; those of a job stand in order of time.
    units
        What it had until then.
    """

    job: Ints
    at: Floats
    units: Ints


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
        Where jobs ran, or None when that was not recorded, or some changed their widths meanwhile.
    decisions
        How often the dispatcher was asked.
    seconds
        Time [s] that the simulation took, compilation and loading excluded; NaN for an observed schedule.
    units
        Units that each job had when it ended, shape (n,); None where all had those that they asked for.
    resizes
        Which changed their widths while they ran, in their last run; None where none could.
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
    resizes: Resizes | None = None

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
        """Cores of each job as it ran, shape (n,); of one that was resized: as it ended."""
        jobs = self.workload
        cores: Ints = jobs.cores if self.units is None else self.units * jobs.demands[jobs.kind, 0]
        return cores

    @property
    def run_as_asked(self) -> Floats:
        """How long each job would have run with the width that it asked for [s], shape (n,); NaN as in `end`."""
        run: Floats = self.end - self.start
        if self.units is not None:
            job, begin, end, units = self.pieces
            took = end - begin
            for piece in np.flatnonzero(units != self.workload.units[job]).tolist():
                took[piece] /= self.workload.stretch(int(job[piece]), int(units[piece]))
            run[self.ran] = np.bincount(job, took, len(self))[self.ran]
        return run

    @property
    def pieces(self) -> tuple[Ints, Floats, Floats, Ints]:
        """The jobs that ran, each in as many pieces as it had widths one after the other.

        Returns
        -------
        job, begin, end, units
            Its row, from when to when it had that width [s], and the width; shape (k,) each, by job and time.
        """
        job = np.flatnonzero(self.ran)
        begin, end = self.start[job], self.end[job]
        units = (self.workload.units if self.units is None else self.units)[job]
        if self.resizes is None:
            return job, begin, end, units
        changed = self.ran[self.resizes.job]
        job = np.concatenate([self.resizes.job[changed], job])
        order = np.argsort(job, kind="stable")  # what a job had last stands behind what it had before
        job, end = job[order], np.concatenate([self.resizes.at[changed], end])[order]
        begin, again = self.start[job], np.flatnonzero(job[1:] == job[:-1])
        begin[again + 1] = end[again]
        return job, begin, end, np.concatenate([self.resizes.units[changed], units])[order]

    @property
    def used(self) -> tuple[Floats, Floats, Ints]:
        """From when to when [s] how many cores were in use, shape (k,) each: the `pieces`."""
        job, begin, end, units = self.pieces
        return begin, end, units * self.workload.demands[self.workload.kind[job], 0]

    def count(self, state: JobState) -> int:
        """How many jobs came out so."""
        return int((self.outcome == OUTCOMES.index(state)).sum())

    def __repr__(self) -> str:
        return f"<Schedule of {len(self)} jobs on {self.cluster}>"
