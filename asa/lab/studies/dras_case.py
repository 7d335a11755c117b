"""Dispatchers side by side on a log, as DRAS is compared: what becomes of each job under each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.core.units import HOUR, WEEK
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.run import simulate
from asa.lab.studies.cp_case import Case, case
from asa.lab.studies.dras_modes import MODES, Watched

COMPARED = ("easy", "binpacking", "random", "knapsack")
"""The paper's methods that need no training: FCFS with EASY backfilling, BinPacking, Random and Optimization."""
Strings = npt.NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Jobs:
    """The jobs that ran under all dispatchers: submission and run time [s], and cores; shape (n,) each."""

    submit: Floats
    run: Floats
    cores: Ints

    def weeks(self) -> tuple[Ints, Floats]:
        """The week in which each was submitted, shape (n,), and the core-hours submitted in each week, (weeks,)."""
        week: Ints = np.floor((self.submit - self.submit.min()) / WEEK).astype(np.int64)
        hours: Floats = np.bincount(week, weights=self.run * self.cores / HOUR).astype(np.float64)
        return week, hours


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of them under one dispatcher.

    Parameters
    ----------
    dispatcher
        Its spec.
    numbers
        What `asa.lab.metrics.schedule.summarise` says.
    wait
        Of each job [s], shape (n,).
    mode
        Of each job, one of `MODES`, shape (n,).
    """

    dispatcher: str
    numbers: dict[str, Any]
    wait: Floats
    mode: Strings

    def means(self, jobs: Jobs) -> dict[str, tuple[float, float, float]]:
        """Of each mode: share of the jobs, share of their core-seconds, and mean wait [s] (0 where there is none)."""
        work, found = jobs.run * jobs.cores, {}
        for mode in MODES:
            mine = self.mode == mode
            mean = float(self.wait[mine].mean()) if mine.any() else 0.0
            found[mode] = (float(mine.mean()), float(work[mine].sum() / work.sum()), mean)
        return found


@dataclass(frozen=True, eq=False)
class Compared:
    """Dispatchers side by side: what was simulated, its jobs, and what became of them."""

    case: str
    jobs: Jobs
    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; waits to the second, and modes as their first letters."""
        jobs = self.jobs
        columns = {"submit_s": jobs.submit.tolist(), "run_s": jobs.run.tolist(), "cores": jobs.cores.tolist()}
        rows = [
            {
                **each.numbers,
                "dispatcher": each.dispatcher,
                "wait_s": np.round(each.wait).tolist(),
                "modes": "".join(_LETTERS[mode] for mode in each.mode.tolist()),
            }
            for each in self.outcomes
        ]
        return {"case": self.case, "jobs": columns, "rows": rows}


_LETTERS = {"ready": "s", "reserved": "r", "backfilled": "b"}
_NAMES = {letter: mode for mode, letter in _LETTERS.items()}


def compared(
    *,
    trace: str | None = None,
    from_day: float = 0.0,
    to_day: float = float("inf"),
    dispatchers: Sequence[str] | None = None,
    seed: int = 0,
) -> Compared:
    """Simulate a log under each dispatcher.

    Parameters
    ----------
    trace, from_day, to_day, seed
        As of `asa.lab.studies.cp_case.case`.
    dispatchers
        Specs; `COMPARED` unless given.

    Raises
    ------
    InvalidInput
        When there is no log, or a dispatcher does not suit its machine.
    """
    if trace is None:
        raise InvalidInput("DRAS is compared on a log: give --trace, or --from with what was measured before")
    what = case(trace, from_day=from_day, to_day=to_day, seed=seed)
    specs = tuple(dict.fromkeys(dispatchers or COMPARED))
    return side_by_side(what, {spec: DISPATCHERS.create(spec, seed=seed) for spec in specs})


def side_by_side(what: Case, dispatchers: dict[str, Any]) -> Compared:
    """The same of any case, and dispatchers by name."""
    schedules, modes = {}, {}
    for spec, rule in dispatchers.items():
        watched = Watched(rule)
        schedules[spec] = simulate(what.workload, what.cluster, watched)
        modes[spec] = np.array([watched.modes.get(row, "") for row in range(len(what.workload))])
    ran = np.logical_and.reduce([schedule.ran for schedule in schedules.values()])
    if not ran.any():
        raise InvalidInput(f"{what.name}: no job ran under all dispatchers")
    one = next(iter(schedules.values()))
    jobs = Jobs(what.workload.submit[ran], (one.end - one.start)[ran], what.workload.cores[ran])
    outcomes = [
        Outcome(spec, summarise(schedule), schedule.wait[ran], modes[spec][ran]) for spec, schedule in schedules.items()
    ]
    return Compared(what.name, jobs, tuple(outcomes))


def read_compared(path: str | Path) -> Compared:
    """What ``asa figure dras-6`` (or any of 7 to 9, or table4) wrote with ``--json``.

    Raises
    ------
    InvalidInput
        When it cannot be read, or is something else.
    """
    try:
        found = json.loads(Path(path).read_text())
        columns = found["jobs"]
        jobs = Jobs(np.array(columns["submit_s"], float), np.array(columns["run_s"], float), np.array(columns["cores"]))
        outcomes = tuple(_outcome(dict(row)) for row in found["rows"])
        if not outcomes or any(len(each.wait) != len(jobs.submit) for each in outcomes):
            raise ValueError("rows that do not fit the jobs, or none")
        return Compared(found["case"], jobs, outcomes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa figure dras-6 --json writes: {error!r}") from error


def _outcome(row: dict[str, Any]) -> Outcome:
    wait, modes = np.array(row.pop("wait_s"), float), np.array([_NAMES[letter] for letter in row.pop("modes")])
    return Outcome(row["dispatcher"], row, wait, modes)


@dataclass(frozen=True)
class DrasFigure:
    """What was compared, and how it is shown.

    Parameters
    ----------
    compared
        What became of the jobs.
    lines
        Makes the lines of a table for people.
    picture
        Draws it into a file.
    """

    compared: Compared
    lines: Callable[[Compared], list[dict[str, Any]]]
    picture: Callable[[Compared, str | Path], None]

    def draw(self, path: str | Path) -> None:
        """Draw it; the suffix of `path` decides the format."""
        self.picture(self.compared, path)

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; the other figures can be made from it, too."""
        return self.compared.to_json()

    def table(self) -> list[dict[str, Any]]:
        """Lines for people."""
        return self.lines(self.compared)
