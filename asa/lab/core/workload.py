"""Workloads: many jobs as columns, in order of submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import check_number
from asa.core.units import share as share_of
from asa.core.width import WIDTHS_MOST, sizes, time_on
from asa.lab.core.cluster import RESOURCES

Reals = npt.NDArray[np.float32]
UNKNOWN = -1
"""Code of a user, group, name, queue, partition, QOS or constraint that the source does not tell."""
_CODES = ("user", "group", "name", "partition", "qos", "constraint")
_TABLES = ("resources", "labels", "moldable")
"""What is no array of its own."""


@dataclass(frozen=True, eq=False)
class Moldable:
    """Which widths jobs may have, and how fast they run with each; columns of a workload.

    A moldable job starts with one of its widths: as many units as it asks for, `least`, `most`, and `least` doubled as
    often as that stays below `most`. Run time and wall time of its row are those of the width that it asks for. With
    others they follow Amdahl's law. A malleable one may go on with another of its widths while it runs.

    Parameters
    ----------
    least, most
        Units, shape (n,); 1 <= least <= units <= most. A job for which they are equal is rigid.
    parallel
        Part of the work on one unit that runs in parallel, in [0, 1], shape (n,).
    malleable
        Which of those that are not rigid may change their width while they run, shape (n,); none where left out.

    References
    ----------
    D. G. Feitelson and L. Rudolph, "Toward convergence in job schedulers for parallel supercomputers", JSSPP 1996
    (rigid, moldable, evolving and malleable jobs). W. Cirne and F. Berman, "Using moldability to improve the
    performance of supercomputer jobs", JPDC 62, 2002. G. Amdahl, "Validity of the single processor approach to
    achieving large scale computing capabilities", AFIPS 1967.
    """

    least: Ints
    most: Ints
    parallel: Floats
    malleable: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        if not len(self.malleable):
            object.__setattr__(self, "malleable", np.zeros(len(self.least), dtype=bool))
        for name, dtype in (("least", "i8"), ("most", "i8"), ("parallel", "f8"), ("malleable", "?")):
            column: npt.NDArray[Any] = np.ascontiguousarray(getattr(self, name), dtype=dtype).view()
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    def breaches(self, units: Ints) -> list[tuple[Bools, str]]:
        """Which jobs of so many units break a bound, shape (n,) each, and what is expected of them."""
        return [
            ((self.least < 1) | (self.least > units), "least from 1 to its units"),
            (self.most < units, "most of at least its units"),
            (self.most > self.least * 2.0 ** (WIDTHS_MOST - 1), f"at most {WIDTHS_MOST} widths"),
            (~((self.parallel >= 0) & (self.parallel <= 1)), "parallel from 0 to 1"),
        ]

    def take(self, rows: Ints) -> Moldable:
        return Moldable(self.least[rows], self.most[rows], self.parallel[rows], self.malleable[rows])

    @classmethod
    def drawn(
        cls,
        workload: Workload,
        cores: int,
        share: float | str,
        *,
        parallel: float = 0.95,
        factor: int = 4,
        malleable: bool = False,
        seed: int = 0,
    ) -> Moldable:
        """Some of the jobs of a log of rigid ones, drawn at random, as moldable ones, or as `malleable` ones.

        Parameters
        ----------
        cores
            Of the machine: no job is made wider than that.
        share
            Chance of each job to be drawn, in [0, 1]; also as in ``"30%"``.
        parallel
            Part of their work that runs in parallel, in [0, 1].
        factor
            They may be so many times narrower or wider than they ask; a whole number, at least 2.

        Raises
        ------
        InvalidInput
            When a number is out of its bounds.

        Examples
        --------
        >>> jobs = Workload.of(submit=[0, 5], run=[60, 30], cores=[4, 1], walltime=[100, 100])
        >>> found = Moldable.drawn(jobs, 8, "100%")
        >>> found.least.tolist(), found.most.tolist()
        ([1, 1], [8, 4])
        """
        chance = share_of(share, what=f"share of {'malleable' if malleable else 'moldable'} jobs")
        check_number("factor", factor, 2, whole=True)
        check_number("parallel", parallel, 0)
        units, drawn = workload.units, np.random.default_rng(seed).random(len(workload)) < chance
        widest = np.minimum(units * factor, cores // workload.demands[workload.kind, 0].clip(1))
        least = np.where(drawn, np.maximum(1, -(-units // factor)), units)
        most = np.where(drawn, np.maximum(units, widest), units)
        return cls(least, most, np.full(len(workload), parallel), drawn & malleable)


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs, one per row, in order of submission. Rows of the same instant keep the order in which they were given.

    A job is a number of identical *units*, placed on the nodes of a machine: single cores, whole nodes, or anything
    between. What one unit needs is a row of `demands`, shared by all jobs alike.

    Parameters
    ----------
    submit
        Submission [s], shape (n,); not decreasing.
    run
        Run time [s] at full speed; >= 0.
    units
        Number of units; >= 1.
    walltime
        Requested time [s]; > 0, NaN where the source has none.
    kind
        Row of `demands` that one unit needs.
    demands
        Amounts, shape (kinds, resources); cores first, memory in bytes; 0 where nothing is asked.
    resources
        Names of the columns of `demands`.
    per_node
        Most units that may share a node; 0 for no limit.
    user, group, name, partition, qos, constraint
        Codes >= 0 into `labels`, or of the source; `UNKNOWN` where there is none. A constraint names features of nodes,
        as `asa.lab.core.cluster.Cluster.allowed` takes them.
    after
        Row of a job that must have ended before this one may start, or `UNKNOWN`.
    think
        Time [s] between the end of that job and this one's being eligible; >= 0.
    wait
        Wait [s] that the source observed, NaN where it did not.
    labels
        Column -> the texts behind its codes.
    moldable
        Which widths jobs may have; None where all are rigid.

    Raises
    ------
    InvalidInput
        When a column has another length or a value out of its bounds; names the first such row.

    Examples
    --------
    >>> Workload.of(submit=[0, 5], run=[60, 30], cores=[4, 1], walltime=[100, 100])
    <Workload of 2 jobs over 5 s>
    """

    submit: Floats
    run: Floats
    units: Ints
    walltime: Floats
    kind: Ints
    demands: Ints
    resources: tuple[str, ...]
    per_node: Ints
    number: Ints
    user: Ints
    group: Ints
    name: Ints
    partition: Ints
    qos: Ints
    constraint: Ints
    after: Ints
    think: Floats
    wait: Floats
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moldable: Moldable | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.name in _TABLES:
                continue
            dtype = np.float64 if item.name in ("submit", "run", "walltime", "think", "wait") else np.int64
            column = np.ascontiguousarray(getattr(self, item.name), dtype=dtype)
            if item.name != "demands":
                _check_shape(item.name, column, len(self.submit))
            column = column.view()
            column.setflags(write=False)
            object.__setattr__(self, item.name, column)
        if self.demands.ndim != 2 or self.demands.shape[1] != len(self.resources):
            raise InvalidInput(f"demands of shape {self.demands.shape} need one column for each of {self.resources}")
        known = self.walltime[~np.isnan(self.walltime)]
        self._refuse("submit", ~np.isfinite(self.submit), "a finite time")
        self._refuse("run", ~((self.run >= 0) & np.isfinite(self.run)), "at least 0 s and finite")
        self._refuse("units", self.units < 1, "at least 1")
        if (known <= 0).any():
            self._refuse("walltime", self.walltime <= 0, "above 0 s, or NaN")
        self._refuse("kind", (self.kind < 0) | (self.kind >= len(self.demands)), "a row of demands")
        self._refuse("per_node", self.per_node < 0, "at least 0")
        self._refuse("think", ~(self.think >= 0), "at least 0 s")
        self._refuse("after", (self.after != UNKNOWN) & ~((self.after >= 0) & (self.after < len(self))), "a row, or -1")
        if (self.demands < 0).any():
            kind, column = np.argwhere(self.demands < 0)[0].tolist()
            raise InvalidInput(
                f"demands of kind {kind} are {self.demands[kind, column]} {self.resources[column]}: at least 0 expected"
            )
        if len(self) and (np.diff(self.submit) < 0).any():
            row = int(np.argmax(np.diff(self.submit) < 0)) + 1
            raise InvalidInput(
                f"job {int(self.number[row])} (row {row}) was submitted before the one above it: "
                "sort by submission first (Workload.of does)"
            )
        if self.moldable is not None:
            self._check_widths(self.moldable)

    def _check_widths(self, moldable: Moldable) -> None:
        for name in ("least", "most", "parallel", "malleable"):
            _check_shape(f"moldable.{name}", getattr(moldable, name), len(self))
        for wrong, what in moldable.breaches(self.units):
            if wrong.any():
                row = int(np.argmax(wrong))
                least, most, parallel = moldable.least[row], moldable.most[row], moldable.parallel[row]
                raise InvalidInput(
                    f"job {int(self.number[row])} (row {row}) of {self.units[row]} units is moldable with least "
                    f"{least}, most {most}, parallel {parallel:g}: {what} expected"
                )

    def widths(self, row: int) -> tuple[int, ...]:
        """Units that a job may have, those that it asks for first.

        >>> jobs = Workload.of(
        ...     submit=[0, 0], run=[60, 60], cores=[6, 2], moldable=Moldable([2, 2], [16, 2], [0.9, 0.9])
        ... )
        >>> jobs.widths(0), jobs.widths(1)
        ((6, 2, 4, 8, 16), (2,))
        """
        asked = int(self.units[row])
        if self.moldable is None or self.moldable.least[row] == self.moldable.most[row]:
            return (asked,)
        found = sizes((int(self.moldable.least[row]), int(self.moldable.most[row])), 1)
        return (asked, *(units for units in found if units != asked))

    def stretch(self, row: int, units: int) -> float:
        """How many times longer a job runs with so many units than with as many as it asks for."""
        if self.moldable is None:
            return 1.0
        parallel = float(self.moldable.parallel[row])
        return time_on(units, parallel) / time_on(int(self.units[row]), parallel)

    def _refuse(self, column: str, wrong: npt.NDArray[np.bool_], expected: str) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            value = getattr(self, column)[row].item()
            raise InvalidInput(f"job {int(self.number[row])} (row {row}) has {column} {value!r}: {expected} expected")

    @classmethod
    def of(
        cls, *, submit: Any, run: Any, units: Any = None, cores: Any = None, demands: Any = None, **columns: Any
    ) -> Workload:
        """Jobs from whatever columns there are, sorted by submission; missing ones are unknown.

        Give `cores` for jobs of single cores anywhere, or `units` with `demands` (default: one core a unit).

        Raises
        ------
        InvalidInput
            When a column has another length or a value out of its bounds.
        """
        submit = np.asarray(submit, dtype=np.float64)
        count = len(submit)
        if (units is None) == (cores is None):
            raise InvalidInput("give a workload either `cores` or `units`")
        demands = np.array([[1]] if demands is None else demands, dtype=np.int64)
        given: dict[str, Any] = {"submit": submit, "run": run, "units": cores if units is None else units, **columns}
        given.setdefault("walltime", np.full(count, np.nan))
        given.setdefault("wait", np.full(count, np.nan))
        given.setdefault("number", np.arange(1, count + 1))
        for column in (*_CODES, "after"):
            given.setdefault(column, np.full(count, UNKNOWN))
        for column in ("kind", "per_node", "think"):
            given.setdefault(column, np.zeros(count))
        given.setdefault("resources", RESOURCES[: demands.shape[1]])
        for column, values in given.items():
            if column not in _TABLES:
                _check_shape(column, values, count)
        order = np.argsort(submit, kind="stable")
        if (np.diff(order) < 0).any():
            rank = np.empty(count, dtype=np.int64)
            rank[order] = np.arange(count)
            after = np.asarray(given["after"], dtype=np.int64)
            row = (after >= 0) & (after < count)  # what is none is refused below, as it was given
            given["after"] = np.where(row, rank[np.where(row, after, 0)], after)
            for column, values in given.items():
                if column == "moldable" and values is not None:
                    given[column] = values.take(order)
                elif column not in _TABLES:
                    given[column] = np.asarray(values)[order]
        return cls(demands=demands, **given)

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def cores(self) -> Ints:
        """Cores of each job, shape (n,)."""
        cores: Ints = self.units * self.demands[self.kind, 0]
        return cores

    def take(self, rows: npt.ArrayLike) -> Workload:
        """These rows only (numbers or a mask, in order of submission); a dependency on a row left out is dropped."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        place = np.full(len(self) + 1, UNKNOWN)  # one more, so that UNKNOWN finds itself
        place[chosen] = np.arange(len(chosen))
        changed = {
            item.name: getattr(self, item.name)[chosen]
            for item in fields(self)
            if item.name not in ("demands", "after", *_TABLES)
        }
        widths = None if self.moldable is None else self.moldable.take(chosen)
        return replace(self, **changed, after=place[self.after[chosen]], moldable=widths)

    def between(self, begin: float, end: float) -> Workload:
        """Jobs submitted from `begin` [s] until before `end` [s]."""
        return self.take((self.submit >= begin) & (self.submit < end))

    def label(self, column: str, row: int) -> str:
        """Text of a row's user, group, name, partition, QOS or constraint; its code where there is no text, "" where
        unknown."""
        return self.text(column, int(getattr(self, column)[row]))

    def text(self, column: str, code: int) -> str:
        """As `label`, of a code."""
        if code == UNKNOWN:
            return ""
        return self.labels[column][code] if column in self.labels else str(code)

    def __repr__(self) -> str:
        span = self.submit[-1] - self.submit[0] if len(self) else 0.0
        return f"<Workload of {len(self)} jobs over {span:.6g} s>"


def _check_shape(column: str, values: npt.ArrayLike, count: int) -> None:
    if np.shape(values) != (count,):
        raise InvalidInput(f"column {column!r} has shape {np.shape(values)}: ({count},) expected")
