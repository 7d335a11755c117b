"""Accounting logs as columns of text: what `sacct` and `pbs` have in common once a line has been taken apart."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import RESOURCES
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.load import Trace
from asa.lab.traces.rules import Sieve

_NOTHING = ("", "None", "Unknown", "N/A", "(null)", "None assigned")
_CLOCK = re.compile(r"(?:(?:(?:(\d+)-)?(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:I?(B|W))?", re.IGNORECASE)
_POWER = {letter: 2 ** (10 * power) for power, letter in enumerate("BKMGTP")}
_WORD = 8  # bytes that PBS counts as a word


def each(texts: Sequence[str], parse: Callable[[str], float]) -> Floats:
    """Numbers of texts that repeat themselves: every distinct one is parsed once."""
    found = {text: parse(text) for text in dict.fromkeys(texts)}
    return np.array([found[text] for text in texts], dtype=np.float64)


def coded(texts: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Codes of texts, in order of their first coming, and the texts behind them; `UNKNOWN` where there is nothing.

    >>> codes, labels = coded(["bob", "Unknown", "ann", "bob"])
    >>> codes.tolist(), labels
    ([0, -1, 1, 0], ('bob', 'ann'))
    """
    labels = tuple(text for text in dict.fromkeys(texts) if text not in _NOTHING)
    place = {text: code for code, text in enumerate(labels)}
    return np.array([place.get(text, UNKNOWN) for text in texts], dtype=np.int64), labels


def timezone(name: str) -> datetime.tzinfo:
    """The time zone of this name.

    Raises
    ------
    InvalidInput
        When this machine knows none.
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(f"time zone {name!r} is not known: write a name such as 'Europe/Stockholm'") from error


def moment(text: str, zone: datetime.tzinfo) -> float:
    """Time [s since the epoch] of a number of seconds, or of an ISO date and time in `zone`; NaN for anything else.

    >>> moment("2024-03-01T12:00:00", datetime.UTC), moment("1709294400", datetime.UTC), moment("None", datetime.UTC)
    (1709294400.0, 1709294400.0, nan)
    """
    if text.isdecimal():
        return float(text) or np.nan  # 0 is Slurm's and PBS's word for never
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()


def seconds(text: str) -> float:
    """Duration [s] of ``[[[D-]HH:]MM:]SS``; NaN for anything else (no limit, nothing known).

    >>> seconds("1-00:00:10"), seconds("02:30"), seconds("90"), seconds("UNLIMITED")
    (86410.0, 150.0, 90.0, nan)
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        return np.nan
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


def size(text: str, unit: str = "B") -> float:
    """Bytes of an amount of memory; a bare number is one of `unit`. 0 for anything else.

    >>> size("4G"), size("512", "M"), size("2kb"), size("1kw"), size("?")
    (4294967296.0, 536870912.0, 2048.0, 8192.0, 0.0)
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return 0.0
    letter = (match[2] or ("B" if match[3] else unit)).upper()
    word = _WORD if (match[3] or "").upper() == "W" else 1
    return float(match[1]) * float(_POWER[letter] * word)


def count(text: str) -> float:
    """A whole number; 0 for anything else.

    >>> count("12"), count("12K"), count("")
    (12.0, 0.0, 0.0)
    """
    return float(text) if text.isdecimal() else 0.0


@dataclass(frozen=True, eq=False)
class Accounting:
    """Records of an accounting log, one per row; times in s since the epoch, NaN where unknown, amounts in all.

    Parameters
    ----------
    job
        Id as the log writes it; its leading digits become the job's number.
    submit, eligible, start, run, walltime
        Times and durations [s].
    nodes, cores, memory, gpus
        What the job holds: numbers (0 where unknown) and bytes.
    outcome
        Codes of `OUTCOMES`, or `UNKNOWN`.
    spread
        Whether no two parts of a job may share a node.
    user, group, name, partition
        Texts.
    """

    job: Sequence[str]
    submit: Floats
    eligible: Floats
    start: Floats
    run: Floats
    walltime: Floats
    nodes: Floats
    cores: Floats
    memory: Floats
    gpus: Floats
    outcome: npt.NDArray[np.int8]
    spread: npt.NDArray[np.bool_]
    user: Sequence[str]
    group: Sequence[str]
    name: Sequence[str]
    partition: Sequence[str]

    def trace(self, sieve: Sieve, *, units: str, wait_from: str) -> Trace:
        """The trace, on a clock that reads 0 at the first submission.

        Parameters
        ----------
        sieve
            With what only the format knows to be wrong dropped already.
        units
            "cores": a job is so many single cores anywhere. "chunks": so many equal parts as it has nodes (or chunks,
            in PBS), each with its share of cores, memory and GPUs; a request that does not divide so falls apart into
            as many equal parts as give whole cores and GPUs, put anywhere.
        wait_from
            "submit" or "eligible": what the observed wait is measured from. They differ by the time that a dependency,
            a begin time or a hold kept the job; the queue had no part in that.

        Raises
        ------
        InvalidInput
            When `units` or `wait_from` is none of these.
        """
        if units not in ("cores", "chunks") or wait_from not in ("submit", "eligible"):
            raise InvalidInput(
                f"units={units!r}, wait_from={wait_from!r}: 'cores' or 'chunks' for units, 'submit' or 'eligible' for "
                "wait_from expected"
            )
        self._sift(sieve)
        submit, further = self._submissions(sieve.keep)
        since = submit if wait_from == "submit" else np.fmax(self.eligible, submit)
        wait = self.start - since
        even = (self.nodes > 0) & (self.cores % np.maximum(self.nodes, 1) == 0)
        even &= self.gpus % np.maximum(self.nodes, 1) == 0
        sieve.note_rows("requeued", further)
        sieve.note("no-wait", ~(wait >= 0))
        if units == "chunks":
            sieve.note("uneven", ~even)
        rows = np.flatnonzero(sieve.keep)
        sieve.note_rows("out-of-order", rows[1:][np.diff(submit[rows]) < 0])
        rows = rows[np.argsort(submit[rows], kind="stable")]
        epoch = float(submit[rows[0]]) if len(rows) else np.nan

        columns = self._chunks(rows, even[rows]) if units == "chunks" else {"units": self.cores[rows]}
        workload = self._workload(rows, submit[rows] - epoch, wait[rows], columns)
        return Trace(
            workload, None, sieve.report(), sieve.source, epoch, self.eligible[rows] - epoch, self.outcome[rows]
        )

    def _sift(self, sieve: Sieve) -> None:
        """Drop and note what is odd in a record by itself."""
        sieve.drop("cancelled", (self.outcome == OUTCOMES.index(JobState.CANCELLED)) & ~(self.run > 0))
        sieve.drop("no-submit-time", np.isnan(self.submit))
        sieve.drop("no-run-time", np.isnan(self.run))
        sieve.drop("negative-run-time", self.run < 0)
        sieve.drop("no-processors", self.cores < 1)
        sieve.note("zero-run-time", self.run == 0)
        sieve.note("no-requested-time", ~(self.walltime > 0))
        sieve.note("overrun", (self.walltime > 0) & (self.run > self.walltime))

    def _workload(self, rows: Ints, submit: Floats, wait: Floats, columns: dict[str, Any]) -> Workload:
        """The jobs of these records, with times of submission and waits [s], shape (rows,), and further columns."""
        labels = {}
        for column in ("user", "group", "name", "partition"):
            columns[column], labels[column] = coded([getattr(self, column)[row] for row in rows.tolist()])
        return Workload.of(
            submit=submit,
            run=self.run[rows],
            walltime=np.where(self.walltime[rows] > 0, self.walltime[rows], np.nan),
            wait=np.where(wait >= 0, wait, np.nan),
            number=[_number(self.job[row]) for row in rows.tolist()],
            labels=labels,
            **columns,
        )

    def _submissions(self, keep: npt.NDArray[np.bool_]) -> tuple[Floats, Ints]:
        """When each run of a job was asked for, and which rows are further runs of a job that was requeued.

        A requeued job is submitted anew when its run before ended, where the log repeats the first submission.
        """
        submit, further = self.submit.copy(), []
        ended: dict[str, float] = {}
        for row in np.flatnonzero(keep)[np.argsort(self.start[keep], kind="stable")].tolist():
            job = self.job[row]
            if job in ended:
                further.append(row)
                submit[row] = np.fmax(submit[row], ended[job])
            ended[job] = self.start[row] + self.run[row]
        return submit, np.array(further, dtype=np.int64)

    def _chunks(self, rows: Ints, even: npt.NDArray[np.bool_]) -> dict[str, Any]:
        cores, gpus = self.cores[rows].astype(np.int64), self.gpus[rows].astype(np.int64)
        units = np.where(even, self.nodes[rows], np.where(gpus > 0, np.gcd(cores, gpus), cores)).astype(np.int64)
        memory = np.ceil(self.memory[rows] / units).astype(np.int64)
        demands, kind = np.unique(
            np.stack([cores // units, memory, gpus // units], axis=1), axis=0, return_inverse=True
        )
        used = [column for column in range(3) if column == 0 or demands[:, column].any()]
        return {
            "units": units,
            "kind": kind.reshape(-1),
            "demands": demands[:, used],
            "resources": tuple(RESOURCES[column] for column in used),
            "per_node": even & self.spread[rows],
        }


def _number(job: str) -> int:
    match = re.match(r"\d+", job)
    return int(match[0]) if match else UNKNOWN


def codes_of_states(words: Sequence[str], states: dict[str, JobState]) -> npt.NDArray[np.int8]:
    """Codes of `OUTCOMES` for a format's words; `UNKNOWN` for others."""
    table = {word: OUTCOMES.index(state) for word, state in states.items()}
    return np.array([table.get(word, UNKNOWN) for word in words], dtype=np.int8)
