"""Accounting logs: dumps of ``sacct --parsable2``, and those of PBS Professional, OpenPBS and Torque.

A dump of Slurm's accounting that has all that is read here::

    sacct --allusers --allocations --duplicates --parsable2 --starttime=... --endtime=... \\
        --format=JobID,JobIDRaw,JobName,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,\\
    Timelimit,ReqTRES,AllocTRES,Constraints

with ``SLURM_TIME_FORMAT=%s`` in the environment, so that no hour comes twice when the clocks change.
"""

from __future__ import annotations

import csv
import datetime
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.history import Usage
from asa.core.job import JobState
from asa.core.units import moment
from asa.lab.core.cluster import MOST_RESOURCES, RESOURCES
from asa.lab.core.files import LARGEST
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.records import Sieve, Trace, contents, shown

# -- CSV --------------------------------------------------------------------------------------------------------------

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
    """The time zone of this name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(f"time zone {name!r} is not known: write a name such as 'Europe/Stockholm'") from error


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
    gres
        What else the job holds, such as GPUs of a type, by names as `tres` has them.
    unlimited
        Whether its wall time is one without an end.
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
    qos: Sequence[str]
    constraint: Sequence[str] = ()
    gres: Mapping[str, Floats] = field(default_factory=dict)
    unlimited: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(1, dtype=np.bool_))

    def trace(self, sieve: Sieve, *, units: str, wait_from: str) -> Trace:
        """The trace, on a clock that reads 0 at the first submission.

        Parameters
        ----------
        sieve
            With what only the format knows to be wrong dropped already.
        units
            "cores": a job is so many single cores anywhere. "chunks": so many equal parts as it has nodes (or chunks,
            in PBS), each with its share of cores, memory and GPUs; a request that does not divide so falls apart into
            as many equal parts as give whole cores, GPUs and other Gres, put anywhere.
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
        parts = np.maximum(self.nodes, 1)
        with np.errstate(invalid="ignore"):  # infinite in records that were dropped
            even = (self.nodes > 0) & (np.array([self.cores, self.gpus, *self.gres.values()]) % parts == 0).all(axis=0)
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
            workload,
            None,
            sieve.report(),
            sieve.source,
            epoch,
            self.eligible[rows] - epoch,
            self.outcome[rows],
            np.broadcast_to(self.unlimited, len(self.job))[rows],
        )

    def _sift(self, sieve: Sieve) -> None:
        """Drop and note what is odd in a record by itself."""
        sieve.drop("cancelled", (self.outcome == OUTCOMES.index(JobState.CANCELLED)) & ~(self.run > 0))
        held = (self.nodes, self.cores, self.memory, self.gpus, *self.gres.values())
        sieve.drop("too-large", (np.abs((self.submit, self.run, self.walltime, *held)) >= LARGEST).any(axis=0))
        sieve.drop("no-submit-time", np.isnan(self.submit))
        sieve.drop("no-run-time", np.isnan(self.run))
        sieve.drop("negative-run-time", self.run < 0)
        sieve.drop("no-processors", self.cores < 1)
        sieve.note("zero-run-time", self.run == 0)
        sieve.note("no-requested-time", ~(self.walltime > 0) & ~self.unlimited)
        sieve.note("unlimited", np.broadcast_to(self.unlimited, sieve.count))
        sieve.note("overrun", (self.walltime > 0) & (self.run > self.walltime))

    def _workload(self, rows: Ints, submit: Floats, wait: Floats, columns: dict[str, Any]) -> Workload:
        """The jobs of these records, with times of submission and waits [s], shape (rows,), and further columns."""
        labels = {}
        for column in ("user", "group", "name", "partition", "qos", "constraint"):
            if len(texts := getattr(self, column)):
                columns[column], labels[column] = coded([texts[row] for row in rows.tolist()])
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
        names = (*RESOURCES, *self.gres)
        cores, *gres = (each[rows].astype(np.int64) for each in (self.cores, self.gpus, *self.gres.values()))
        units = np.where(even, self.nodes[rows], np.gcd.reduce([cores, *gres])).astype(np.int64)
        memory = np.ceil(self.memory[rows] / units).astype(np.int64)
        asked = [cores // units, memory, *(each // units for each in gres)]
        demands, kind = np.unique(np.stack(asked, axis=1), axis=0, return_inverse=True)
        used = [column for column in range(len(names)) if column == 0 or demands[:, column].any()]
        return {
            "units": units,
            "kind": kind.reshape(-1),
            "demands": demands[:, used],
            "resources": tuple(names[column] for column in used),
            "per_node": even & self.spread[rows],
        }


def _number(job: str) -> int:
    match = re.match(r"\d+", job)
    return int(match[0]) if match and float(match[0]) < LARGEST else UNKNOWN


def codes_of_states(words: Sequence[str], states: dict[str, JobState]) -> npt.NDArray[np.int8]:
    """Codes of `OUTCOMES` for a format's words; `UNKNOWN` for others."""
    table = {word: OUTCOMES.index(state) for word, state in states.items()}
    return np.array([table.get(word, UNKNOWN) for word in words], dtype=np.int8)


# -- sacct ------------------------------------------------------------------------------------------------------------

_DELIMITERS = "|,;\t^\x1f"
_UNFINISHED = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "STAGE_OUT", "REQUEUE_HOLD",
    "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT",
}  # fmt: skip
_STATES = {state.value.upper(): state for state in JobState if state.final} | {
    "BOOT_FAIL": JobState.NODE_FAIL,
    "DEADLINE": JobState.CANCELLED,
    "LAUNCH_FAILED": JobState.FAILED,
    "REQUEUED": JobState.PREEMPTED,
    "RESIZING": JobState.COMPLETED,
    "REVOKED": JobState.CANCELLED,
}
_COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End",
    "Elapsed", "ElapsedRaw", "Timelimit", "TimelimitRaw", "AllocTRES", "AllocCPUS", "AllocNodes", "ReqTRES", "ReqCPUS",
    "ReqNodes", "ReqMem", "MaxRSS", "TotalCPU", "QOS", "Constraints",
)  # fmt: skip
_OTHER_NAMES = {"ncpus": "AllocCPUS", "nnodes": "AllocNodes", "uid": "User", "group": "Account"}


def load_sacct(
    path: str | Path,
    *,
    processors: str = "allocated",
    units: str = "cores",
    wait_from: str = "submit",
    zone: str = "UTC",
    names: Mapping[str, str] | None = None,
) -> Trace:
    """The trace in a dump of ``sacct --parsable2``, or in another table whose columns are named as in one.

    Steps, jobs that had not ended and the heading of a second dump are counted and left out. Runs of a requeued job are
    jobs of their own, for the machine was in use. A heterogeneous job is as many jobs as it has components.

    Parameters
    ----------
    processors
        Which CPUs a job needs: "allocated" (Slurm rounds up to whole cores, or to whole nodes where they are not
        shared; this is what a machine must have free) or "requested"; where a record has none of this kind, the other.
        GPUs and other Gres are those requested, if the log has them: Slurm records a job that has its nodes alone with
        all their GPUs.
    zone
        Time zone of dates without one. Without the site's, jobs that ran while the clocks changed are an hour off.
    names
        A table's own names of columns -> those of sacct, for tables that did not come from it.

    Raises
    ------
    InvalidInput
        When the file cannot be read, a column that is needed is missing, or most lines are no records.
    """
    if processors not in ("allocated", "requested"):
        raise InvalidInput(f"processors={processors!r}: 'allocated' or 'requested' expected")
    table, sieve = _read_sacct(path, names or {})
    job = [raw or usual for raw, usual in zip(table["JobIDRaw"], table["JobID"], strict=True)]
    here = timezone(zone)
    submit, eligible, start, end = (
        each(table[name], lambda text: moment(text, here)) for name in ("Submit", "Eligible", "Start", "End")
    )
    state = [(text.split() or [""])[0].rstrip("+") for text in table["State"]]  # CANCELLED by 1000
    sieve.drop("step", ["." in text for text in table["JobID"]])
    sieve.drop("unfinished", [word in _UNFINISHED for word in state])
    sieve.drop_repeated(zip(job, submit.tolist(), np.nan_to_num(start).tolist(), strict=True))
    sieve.note("component", ["+" in text for text in table["JobID"]])
    kinds = ("Alloc", "Req") if processors == "allocated" else ("Req", "Alloc")
    named = {name for text in {*table["AllocTRES"], *table["ReqTRES"]} for name in tres(text)}
    resources = [*_HELD, *sorted(named - {*_HELD})]
    if len(resources) > MOST_RESOURCES:
        raise InvalidInput(f"{path} has jobs with {len(resources)} resources: at most {MOST_RESOURCES} expected")
    wanted, other = (_held(table, kind, resources) for kind in kinds)
    sieve.note("processors-missing", wanted[:, 0] < 1)
    sieve.note("processors-differ", (wanted[:, 0] >= 1) & (other[:, 0] >= 1) & (wanted[:, 0] != other[:, 0]))
    cores, nodes, memory, *allocated = np.where(wanted[:, :1] < 1, other, wanted).T
    requested = (wanted if kinds[0] == "Req" else other)[:, 3:].T
    gpus, *gres = np.where(np.array(table["ReqTRES"]) == "", allocated, requested)
    elapsed = _known(each(table["ElapsedRaw"], seconds), each(table["Elapsed"], seconds), end - start)
    accounting = Accounting(
        job=job,
        submit=submit,
        eligible=eligible,
        start=start,
        run=np.where(np.isnan(start), np.nan, elapsed),
        walltime=_known(each(table["Timelimit"], seconds), 60 * each(table["TimelimitRaw"], seconds)),
        nodes=nodes,
        cores=cores,
        memory=np.where(memory > 0, memory, _memory(table["ReqMem"], nodes, cores)),
        gpus=gpus,
        outcome=codes_of_states(state, _STATES),
        spread=np.ones(sieve.count, dtype=np.bool_),
        user=table["User"],
        group=table["Account"],
        name=table["JobName"],
        partition=table["Partition"],
        qos=table["QOS"],
        constraint=table["Constraints"],
        gres=dict(zip(resources[len(_HELD) :], gres, strict=True)),
        unlimited=(np.array([table["Timelimit"], table["TimelimitRaw"]]) == "UNLIMITED").any(axis=0),
    )
    return accounting.trace(sieve, units=units, wait_from=wait_from)


def usage_of_sacct(path: str | Path) -> list[Usage]:
    """What jobs in a dump of ``sacct --parsable2`` took, for the history; a stage is a name of jobs.

    Memory is the most that a task of one of the job's steps had, so dump without ``--allocations``; with the columns
    ``JobID,JobName,State,Submit,Start,End,ElapsedRaw,Timelimit,AllocCPUS,ReqMem,MaxRSS,TotalCPU``. Jobs that were
    cancelled, or lost with a node, are left out. Times without a zone are taken to be UTC.

    Raises
    ------
    InvalidInput
        When the file cannot be read, or is no such dump.
    """
    table, sieve = _read_sacct(path, {})
    most: dict[str, float] = {}
    for row, text in enumerate(table["JobID"]):
        if sieve.keep[row]:
            job = text.partition(".")[0]
            most[job] = max(most.get(job, 0.0), size(table["MaxRSS"][row], "K"))
    allocated, requested = (_held(table, kind, _HELD) for kind in ("Alloc", "Req"))
    held = np.where(allocated > 0, allocated, requested)
    asked = _memory(table["ReqMem"], held[:, 1], held[:, 0])
    ends = each(table["End"], lambda text: moment(text, datetime.UTC))
    times = [each(table[name], seconds) for name in ("ElapsedRaw", "Elapsed", "Timelimit", "TotalCPU")]
    limits = _known(times[2], 60 * each(table["TimelimitRaw"], seconds))
    runs = _known(times[0], times[1])
    found = []
    for row in np.flatnonzero(sieve.keep).tolist():
        job, outcome = table["JobID"][row], _TAUGHT.get((table["State"][row].split() or [""])[0].rstrip("+"))
        if "." in job or outcome is None or not 0 <= runs[row] < LARGEST or np.isnan(ends[row]):
            continue
        cpu_s, limit = float(times[3][row]), float(limits[row])
        found.append(
            Usage(
                stage=table["JobName"][row] or "job",
                code="",
                machine="",
                input=None,
                cores=int(held[row, 0]) or None,
                width=int(held[row, 0]) or None,
                run_time_s=float(runs[row]),
                cpu_s=cpu_s if cpu_s > 0 else None,
                memory=int(most[job]) or None,
                asked_memory=int(asked[row]) or None,
                asked_s=limit if limit > 0 else None,
                outcome=outcome,
                ended=float(ends[row]),
                source="sacct",
            )
        )
    return found


_TAUGHT = {"COMPLETED": "ok", "OUT_OF_MEMORY": "memory", "TIMEOUT": "time", "FAILED": "failed"}


def _known(*columns: Floats) -> Floats:
    """Of several columns, the first that tells something (is not NaN), record by record."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        found = np.where(np.isnan(column), found, column)
    return found


def _read_sacct(path: str | Path, names: Mapping[str, str]) -> tuple[dict[str, list[str]], Sieve]:
    """Columns by their names, "" where there is none, and a sieve that has dropped the lines that are no records."""
    lines = contents(path, heading=1).decode("utf-8", errors="backslashreplace").split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip()), -1)
    if begin < 0:
        raise InvalidInput(f"{path} has no text: what sacct --parsable2 prints expected")
    delimiter = max(_DELIMITERS, key=lines[begin].count)
    reader = csv.reader(
        lines[begin:], delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    )
    try:
        heading = next(reader)
    except csv.Error as error:
        raise InvalidInput(f"{path}: the first line is no heading of sacct's columns: {error}") from error
    place = _places(path, heading, names)
    width, pick = len(heading), itemgetter(*place.values())
    picked, numbers, wrong = [], [], []
    for row in _rows(reader):
        if not row:
            continue
        rule = _join(row, width, delimiter, place) if len(row) > width else ""
        if len(row) < width:
            rule = "short-line"
        elif len(row) > width or not row[place["JobID"]][:1].isdecimal():
            rule = "repeated" if row == heading else "unreadable-line"
        picked.append(pick(row if rule not in ("short-line", "unreadable-line") else [""] * width))
        numbers.append(begin + reader.line_num)
        wrong.append(rule)
    sieve = Sieve(str(path), len(picked), lambda row: f"line {numbers[row]}")
    for rule in ("repeated", "short-line", "unreadable-line"):
        sieve.drop(rule, [found == rule for found in wrong])
    sieve.note("delimiter-in-name", [found == "delimiter-in-name" for found in wrong])
    if 2 * int(sieve.keep.sum()) < len(picked) or not picked:
        number = numbers[int(np.argmin(sieve.keep))] if picked else begin + 1
        raise InvalidInput(
            f"{path} is no dump of sacct: line {number} is {shown(lines[number - 1].encode())}, where a job was "
            f"expected: {width} fields separated by {delimiter!r}, its id among them"
        )
    empty = [""] * len(picked)
    columns = dict(zip(place, map(list, zip(*picked, strict=True)), strict=True))
    return {name: columns.get(name, empty) for name in _COLUMNS}, sieve


def _join(row: list[str], width: int, delimiter: str, place: Mapping[str, int]) -> str:
    """Put together what delimiters have cut in a row: a constraint, ``a|b``, or else the name, where the time of
    submission is not in its place; which rule tells of that."""
    asked, named = place.get("Constraints"), place.get("JobName")
    if asked is not None and (named is None or not np.isnan(moment(row[place["Submit"]], datetime.UTC))):
        first, rule = asked, ""
    elif named is not None:
        first, rule = named, "delimiter-in-name"
    else:
        return ""
    last = first + len(row) - width + 1
    row[first:] = [delimiter.join(row[first:last]), *row[last:]]
    return rule


def _rows(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows of a table; one that cannot be taken apart is a short one."""
    while True:
        try:
            yield next(reader)
        except csv.Error:
            yield ["?"]
        except StopIteration:
            return


def _places(path: str | Path, heading: Sequence[str], names: Mapping[str, str]) -> dict[str, int]:
    """Where the columns stand that are wanted."""
    wanted = {column.lower(): column for column in _COLUMNS} | _OTHER_NAMES
    place: dict[str, int] = {}
    for number, text in enumerate(heading):
        if column := wanted.get(names.get(text, text).strip().lower()):
            place.setdefault(column, number)
    if "JobIDRaw" in place:
        place.setdefault("JobID", place["JobIDRaw"])
    for column in ("JobID", "Submit", "Start"):
        if column not in place:
            found = ", ".join(name[:40] for name in heading[:20])
            raise InvalidInput(
                f"{path} has no column {column}, only {found}: dump it with sacct --parsable2 "
                "--format=JobID,JobIDRaw,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,State,AllocTRES,ReqTRES,User"
            )
    return place


_HELD = ("cores", "nodes", "memory", "gpus")


def _held(table: Mapping[str, list[str]], kind: str, names: Sequence[str]) -> Floats:
    """How much of these was allocated ("Alloc") or requested ("Req"), shape (n, names); `_HELD` come first."""
    words = table[f"{kind}TRES"]
    known = {text: [tres(text).get(name, 0.0) for name in names] for text in dict.fromkeys(words)}
    held = np.array([known[text] for text in words], dtype=np.float64).reshape(-1, len(names))
    for column, name in enumerate(("CPUS", "Nodes")):
        alone = np.nan_to_num(each(table[kind + name], seconds))
        held[:, column] = np.where(held[:, column] > 0, held[:, column], alone)
    return held


def tres(text: str) -> dict[str, float]:
    """Cores, nodes, bytes of memory, GPUs and other Gres by name; those of a type also under its name.

    >>> tres("billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,gres/nvme:fast=1,mem=8G")
    {'cores': 4.0, 'gpus:a100': 2.0, 'gpus': 2.0, 'gres/nvme:fast': 1.0, 'memory': 8589934592.0, 'gres/nvme': 1.0}
    """
    found = dict[str, float]()
    for name, _, words in (part.partition("=") for part in text.split(",")):
        if name in _TRES:
            found[_TRES[name]] = size(words, "M") if name == "mem" else count(words)
        elif name.startswith("gres/"):
            found[gres_column(name.removeprefix("gres/"))] = count(words)
    typed = dict[str, float]()
    for name, amount in found.items():
        if ":" in name:
            first = name.partition(":")[0]
            typed[first] = typed.get(first, 0.0) + amount
    return found | {name: max(found.get(name, 0.0), amount) for name, amount in typed.items()}


_TRES = {"cpu": "cores", "node": "nodes", "mem": "memory"}
_AMOUNT = re.compile(r"([0-9]{1,13})([KMGT]?)")
_MOST_GRES = 2**40  # of one node


def gres_column(name: str) -> str:
    """What the laboratory calls a Gres: ``gpus`` for ``gpu``, ``gpus:a100`` of a type; ``gres/nvme`` for others."""
    first, *kind = name.split(":")
    return ":".join(["gpus" if first == "gpu" else f"gres/{first}", *kind])


def gres(text: str) -> tuple[dict[str, int], list[str]]:
    """Amounts in the ``Gres`` of a node or a job, named as in `tres`; and what cannot be read, or is not used up.

    >>> gres("gpu:a100:2(S:0-1),gpu:1,nvme:fast,lustre:no_consume:4G")
    ({'gpus': 3, 'gpus:a100': 2, 'gres/nvme': 1, 'gres/nvme:fast': 1}, ['lustre:no_consume:4G'])
    """
    found, rest = dict[str, int](), list[str]()
    for each in [] if text in _NOTHING else re.sub(r"\([^)]*\)", "", text).split(","):
        name, *kind = each.split(":")
        amount = 1
        if kind and (number := _AMOUNT.fullmatch(kind[-1])):
            kind, amount = kind[:-1], int(number[1]) << 10 * " KMGT".index(number[2] or " ")
        if not name or len(kind) > 1 or "" in kind or "no_consume" in kind or amount >= _MOST_GRES:
            rest.append(each)
            continue
        for column in dict.fromkeys((gres_column(name), gres_column(":".join((name, *kind))))):
            found[column] = found.get(column, 0) + amount
    return found, rest


def _memory(words: Sequence[str], nodes: Floats, cores: Floats) -> Floats:
    """Bytes of ReqMem: ``4Gn`` on each node, ``4Gc`` for each core, ``4G`` in all; a bare number is in MiB."""
    amounts = each(words, lambda text: size(text.rstrip("nc"), "M"))
    per = [text[-1:] for text in words]
    factor = np.where(np.array(per) == "n", np.maximum(nodes, 1), np.where(np.array(per) == "c", cores, 1))
    return amounts * factor


# -- PBS --------------------------------------------------------------------------------------------------------------

_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]*);(.*)")
_FIELD = re.compile(r'(?<![\w.])([A-Za-z][\w.]*)=("[^"]*"|\S*)')  # else each letter of a long word is tried
_ENDED, _DELETED, _WAITS_OR_RUNS = "E", ("D", "A"), ("Q", "S")
_KILLED = ("271", "265")  # PBS adds 256 to a signal: SIGTERM, SIGKILL
_DEVICES = ("ngpus", "gpus", "nmics", "mics")


def load_pbs(path: str | Path, *, units: str = "chunks", wait_from: str = "submit") -> Trace:
    """The trace in a PBS or Torque accounting log; daily files may stand one after the other in it.

    Jobs come from the records of their ends (E). A job that was deleted or aborted before it started has none and
    counts as cancelled, one that the log leaves waiting or running as unfinished; all other lines are events. Runs of
    a requeued job are jobs of their own.

    A request becomes as many units as it has chunks (``select=2:ncpus=8:ngpus=1``, ``nodes=2:ppn=8``, or ``nodect``
    with ``ncpus``), each with its cores, memory and GPUs; MICs count as GPUs. Chunks of ``nodes=`` and of
    ``place=scatter`` go to different nodes, as PBS has it. A request whose chunks differ falls apart into equal
    parts that are put anywhere: see `Accounting.trace`.

    Parameters
    ----------
    units, wait_from
        See `Accounting.trace`. Times are counted from ``ctime`` (submit) and ``etime`` (eligible).

    Raises
    ------
    InvalidInput
        When the file cannot be read, or most lines are no records.
    """
    jobs, fields, sieve = _read_pbs(path)

    def times(*names: str) -> Floats:
        return np.array([next((t for name in names if (t := _time(row.get(name, "")))), np.nan) for row in fields])

    def texts(*names: str) -> list[str]:
        return [next((row[name] for name in names if row.get(name)), "") for row in fields]

    start, end = times("start"), times("end")
    walltime = np.array([seconds(text) for text in texts("Resource_List.walltime")])
    used = np.array([seconds(text) for text in texts("resources_used.walltime")])
    run = np.where(np.isnan(end - start), used, end - start)
    chunks, cores, memory, gpus = np.array([_requested(row) for row in fields]).reshape(-1, 4).T
    accounting = Accounting(
        job=jobs,
        submit=times("ctime", "qtime"),
        eligible=times("etime"),
        start=start,
        run=run,
        walltime=walltime,
        nodes=chunks,
        cores=cores,
        memory=memory,
        gpus=gpus,
        outcome=np.array(
            [_outcome(row.get("Exit_status", ""), late) for row, late in zip(fields, run >= walltime, strict=True)],
            dtype=np.int8,
        ),
        spread=np.array([_scattered(row) for row in fields], dtype=np.bool_),
        user=texts("user"),
        group=texts("account", "group"),
        name=texts("jobname"),
        partition=texts("queue"),
        qos=texts("qos"),
    )
    return accounting.trace(sieve, units=units, wait_from=wait_from)


def _read_pbs(path: str | Path) -> tuple[list[str], list[dict[str, str]], Sieve]:
    """Job and fields of each line, none where it is not the record of an end, and a sieve that has dropped those."""
    lines = contents(path).decode("utf-8", errors="backslashreplace").split("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    found = [_LINE.match(lines[number - 1]) for number in numbers]
    sieve = Sieve(str(path), len(numbers), lambda row: f"line {numbers[row]}")
    sieve.drop("unreadable-line", [match is None for match in found])
    if 2 * int(sieve.keep.sum()) < len(found):
        number = numbers[int(np.argmin(sieve.keep))]
        raise InvalidInput(
            f"{path} is no accounting log of PBS: line {number} is {shown(lines[number - 1].encode())}, where "
            "'MM/DD/YYYY HH:MM:SS;TYPE;ID;...' was expected"
        )
    kinds = [match[1] if match else "" for match in found]
    jobs = [match[2] if match else "" for match in found]
    endings = _endings(kinds, jobs)
    for rule in ("cancelled", "unfinished", "event"):
        sieve.drop(rule, [word == rule for word in endings])
    fields = [_fields(match[3]) if match and kind == _ENDED else {} for match, kind in zip(found, kinds, strict=True)]
    sieve.drop_repeated((job, row.get("start"), row.get("end")) for job, row in zip(jobs, fields, strict=True))
    return jobs, fields, sieve


def _endings(kinds: list[str], jobs: list[str]) -> list[str]:
    """For each line the rule that leaves it out; "" for the record of an end."""
    ended = {job for kind, job in zip(kinds, jobs, strict=True) if kind == _ENDED}
    deleted = {job: row for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)) if kind in _DELETED}
    alive = {job: row for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)) if kind in _WAITS_OR_RUNS}
    found = []
    for row, (kind, job) in enumerate(zip(kinds, jobs, strict=True)):
        if kind == _ENDED:
            found.append("event" if "[]" in job else "")  # a whole array, whose elements have records of their own
        elif job not in ended and deleted.get(job) == row:
            found.append("cancelled")
        elif job not in ended and job not in deleted and alive.get(job) == row:
            found.append("unfinished")
        else:
            found.append("event")
    return found


def _fields(text: str) -> dict[str, str]:
    return {name: value.strip('"') for name, value in _FIELD.findall(text)}


def _time(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0  # 0 is PBS's word for never


def _requested(row: Mapping[str, str]) -> tuple[float, float, float, float]:
    """Chunks, cores, bytes of memory and GPUs, in all; no chunks where they differ from one another.

    >>> _requested({"Resource_List.select": "2:ncpus=8:mem=16gb:ngpus=1"})
    (2.0, 16.0, 34359738368.0, 2.0)
    >>> _requested({"Resource_List.nodes": "1:ppn=8+n07:ppn=4", "Resource_List.mem": "12gb"})
    (0.0, 12.0, 12884901888.0, 0.0)
    """
    asked = {
        key.removeprefix("Resource_List."): value for key, value in row.items() if key.startswith("Resource_List.")
    }
    cores, memory = count(asked.get("ncpus", "")), size(asked.get("mem", ""))
    gpus = sum(count(asked.get(device, "")) for device in _DEVICES)
    text = asked.get("select") or asked.get("nodes")
    if not text:
        chunks = count(asked.get("nodect", "")) or 1.0
        return chunks, cores or count(asked.get("nodect", "")), memory, gpus
    parts = [_chunk(part) for part in text.split("+")]
    alike = len({part[1:] for part in parts}) == 1
    chunks = sum(part[0] for part in parts) if alike else 0.0
    inside = [sum(part[0] * part[column] for part in parts) for column in (1, 2, 3)]
    return chunks, max(inside[0], cores), inside[1] or memory, inside[2] or gpus


def _chunk(text: str) -> tuple[float, float, float, float]:
    """How many chunks, and the cores, bytes of memory and GPUs of each: of ``2:ncpus=8:mem=1gb`` or ``node7:ppn=4``."""
    first, *others = text.split(":")
    words = dict(word.split("=", 1) for word in (first, *others) if "=" in word)
    cores = count(words.get("ncpus", "")) or count(words.get("ppn", "")) or 1.0
    gpus = sum(count(words.get(device, "")) for device in _DEVICES)
    return float(first) if first.isdecimal() else 1.0, cores, size(words.get("mem", "")), gpus


def _scattered(row: Mapping[str, str]) -> bool:
    return "Resource_List.nodes" in row or "scatter" in row.get("Resource_List.place", "")


def _outcome(status: str, late: bool) -> int:
    """Code of how a job ended. PBS has no word for a job killed at its wall time: it has the status of a kill."""
    if not status:
        return UNKNOWN
    if status == "0":
        return OUTCOMES.index(JobState.COMPLETED)
    if late:
        return OUTCOMES.index(JobState.TIMEOUT)
    return OUTCOMES.index(JobState.CANCELLED if status in _KILLED else JobState.FAILED)
