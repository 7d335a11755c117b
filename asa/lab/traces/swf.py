"""Logs in the Standard Workload Format (SWF): header, jobs and schedules; reading and writing.

References
----------
S. J. Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999, section 2;
version 2.2 of the format in the Parallel Workloads Archive. D. G. Feitelson, D. Tsafrir and D. Krakov, "Experience with
using the Parallel Workloads Archive", JPDC 74(10), 2014 (what is odd in such logs).

Notes
-----
An extension: header fields such as ``; Moldable: 17 4 64 0.95`` say that job 17 may have 4 to 64 processors, as
`asa.lab.core.workload.Moldable` has it, and that 0.95 of its work runs in parallel; ``; Malleable: 17 4 64 0.95``
that it may also change them while it runs. Its run time is that on the processors that were allocated, its requested
time that on those that it requested. Of a job that was resized the processors are a mean, in whole ones, so that its
work is read as about what it was. To other readers these lines are comments.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import secrets
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import AsaWarning, InvalidInput, cause
from asa.core.job import JobState
from asa.lab.core.cluster import MOST_NODES, Cluster
from asa.lab.core.files import LARGEST
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import UNKNOWN, Moldable, Workload
from asa.lab.traces.records import RULES, Finding, Sieve, Trace, TraceReport, contents, shown

# -- Header -----------------------------------------------------------------------------------------------------------

_FIELD = re.compile(r"([A-Z][A-Za-z]*):(?!//)[ \t]*(.*)")
_NUMBER = re.compile(r"[-+]?\d+(?!\w|[^\s\w(]\w|\s\d{3}\b)")  # not in 12.5, 1e12, 1,024 or 1 024
_NAMED = re.compile(r"(\d+)\s+(.*)")


@dataclass(frozen=True, slots=True)
class SwfHeader:
    """Header fields of an SWF log, in order; some (Note, Queue, Partition) may come more than once.

    Lines that begin no field go on with the one above; behind an empty line, or at the top, they have the key "".

    Parameters
    ----------
    fields
        Keys with their texts; a line break in a text is one in the log.

    References
    ----------
    S. J. Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999, sec. 2;
    version 2.2 of the format in the Parallel Workloads Archive.

    Examples
    --------
    >>> header = SwfHeader.parse(["; MaxNodes: 338 (batch partition; 512 total)", "; Queue: 1 express"])
    >>> header.max_nodes, header.max_procs, header.queues
    (338, None, {1: 'express'})
    >>> header.machine()
    <Cluster of 338 nodes: 338 cores>
    """

    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, lines: Iterable[str]) -> SwfHeader:
        """The header in these lines; each begins with ``;``."""
        fields: list[tuple[str, str]] = []
        going_on = False
        for line in lines:
            text = line.lstrip().lstrip(";").strip()
            if match := _FIELD.fullmatch(text):
                fields.append((match[1], match[2]))
            elif text and going_on:
                key, before = fields[-1]
                fields[-1] = (key, f"{before}\n{text}")
            elif text:
                fields.append(("", text))
            going_on = bool(text)
        return cls(tuple(fields))

    def lines(self) -> list[str]:
        """The header as it is written; `parse` gives it back."""
        found = []
        for key, text in self.fields:
            first, *others = text.split("\n")
            found += [f"; {key}: {first}".rstrip()] if key else [";", f"; {first}"]
            found += [f";   {line}" for line in others]
        return found

    def get(self, key: str) -> str | None:
        """Text of the first field of this name, or None."""
        return next((text for name, text in self.fields if name == key), None)

    def number(self, key: str) -> int | None:
        """The whole number, without separators of thousands, that a field begins with; None for anything else, and
        below 0 (-1: unknown)."""
        match = _NUMBER.match(self.get(key) or "")
        return int(match[0]) if match and 0 <= float(match[0]) < LARGEST else None

    def passed_over(self) -> list[str]:
        """Fields for the machine and the clock that say something, and are no whole number in range."""
        unsized = self.machine() is None
        found = []
        for key, most in (("MaxNodes", MOST_NODES), ("MaxProcs", LARGEST), ("UnixStartTime", LARGEST)):
            text, number = (self.get(key) or "").strip(), self.number(key)
            unused = number is None or number > most or (unsized and key != "UnixStartTime")
            if text and text.split()[0] != "-1" and unused:
                found.append(f"{key}: {text.split(chr(10))[0]:.80}")
        return found

    @property
    def max_nodes(self) -> int | None:
        return self.number("MaxNodes")

    @property
    def max_procs(self) -> int | None:
        return self.number("MaxProcs")

    @property
    def unix_start_time(self) -> int | None:
        """Time [s since the epoch] at which the log's clock reads 0."""
        return self.number("UnixStartTime") or None

    @property
    def queues(self) -> dict[int, str]:
        return self._named("Queue")

    @property
    def partitions(self) -> dict[int, str]:
        return self._named("Partition")

    def _named(self, key: str) -> dict[int, str]:
        texts = (text for name, text in self.fields if name == key)
        named = [match for match in map(_NAMED.match, texts) if match and float(match[1]) < LARGEST]
        return {int(match[1]): match[2].split("\n")[0].strip() for match in named}

    def machine(self) -> Cluster | None:
        """The machine, or None when the header does not give its size, or one that no machine has.

        MaxNodes nodes of MaxProcs / MaxNodes processors when that is a whole number. Otherwise (nodes unknown, or of
        several kinds) as many nodes of one processor as there are processors: SWF jobs are processors anywhere.
        """
        nodes, processors = self.max_nodes, self.max_procs
        if not nodes and not processors:
            return None
        if nodes and nodes <= MOST_NODES and processors and processors % nodes == 0:
            return Cluster.of(nodes, processors // nodes)
        alone = processors or nodes or 1
        return Cluster.of(alone) if alone <= MOST_NODES else None


def make_header(fields: Mapping[str, object]) -> SwfHeader:
    """A header with these fields; those that are None are left out, and those of a list come once for each item."""
    found: list[tuple[str, str]] = []
    for key, value in fields.items():
        items = value if isinstance(value, list) else [value]
        found += [(key, str(item)) for item in items if item is not None]
    return SwfHeader(tuple(found))


# -- Logs -------------------------------------------------------------------------------------------------------------

FIELDS = (
    "number", "submit", "wait", "run", "allocated", "cpu", "used_memory", "requested", "walltime", "requested_memory",
    "status", "user", "group", "executable", "queue", "partition", "preceding", "think",
)  # fmt: skip
"""Names of the 18 fields of a record. Times in s, memory in KiB per processor; -1 where a value is unknown."""

_CANCELLED, _PARTS = 5, (2, 3, 4)
STATES = {0: JobState.FAILED, 1: JobState.COMPLETED, _CANCELLED: JobState.CANCELLED}
"""Status of a record -> how the job ended."""
MOLDABLE, MALLEABLE = "Moldable", "Malleable"
"""Header fields of a moldable job, and of a malleable one."""
_MOST_NAMES = 10_000  # more partitions no machine has; a code above it is an odd one
_RECORD = re.compile(rb"(?m)^[ \t]*[^;\s]")
_COMMENT = re.compile(rb"(?m)^[ \t]*;.*$")


@dataclass(frozen=True, eq=False)
class SwfLog:
    """A log in the Standard Workload Format.

    Parameters
    ----------
    records
        Values of `FIELDS`, shape (n, 18); finite.
    reading
        What became of its lines; None where it was not read.

    Raises
    ------
    InvalidInput
        When the records have another shape, or one is not finite.
    """

    header: SwfHeader
    records: Floats
    source: str = "SWF log"
    reading: TraceReport | None = None

    def __post_init__(self) -> None:
        records = np.ascontiguousarray(self.records, dtype=np.float64).view()
        if records.ndim != 2 or records.shape[1] != len(FIELDS):
            raise InvalidInput(f"SWF records have the shape {records.shape}: (n, {len(FIELDS)}) expected")
        if not np.isfinite(records).all():
            row, column = np.argwhere(~np.isfinite(records))[0].tolist()
            raise InvalidInput(f"SWF record {row} has {FIELDS[column]} {records[row, column]}: write -1 for unknown")
        records.setflags(write=False)
        object.__setattr__(self, "records", records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, name: str) -> Floats:
        """A field of all records, shape (n,)."""
        column: Floats = self.records[:, FIELDS.index(name)]
        return column

    def trace(
        self,
        *,
        processors: str = "requested",
        memory: str | None = None,
        dependencies: bool = False,
        cancelled: bool = False,
    ) -> Trace:
        """The workload, a job being a number of single processors; odd records: `asa.lab.traces.records.RULES`.

        Parameters
        ----------
        processors
            Which a job needs: "requested" or "allocated"; where a record has none of this kind, those of the other.
        memory
            Which a processor needs: "requested", "used", or None to leave memory out.
        dependencies
            Whether jobs wait for their preceding job and its think time. The submit times were observed with these
            dependencies in them, so both together are wanted only where users are to react to another schedule.
        cancelled
            Whether jobs cancelled before their start take part, with a run time of 0 s.

        Raises
        ------
        InvalidInput
            When `processors` or `memory` is none of these.
        """
        if processors not in ("requested", "allocated") or memory not in (None, "requested", "used"):
            raise InvalidInput(
                f"processors={processors!r}, memory={memory!r}: 'requested' or 'allocated' for processors, "
                "'requested', 'used' or None for memory expected"
            )
        never = (self["status"] == _CANCELLED) & (self["run"] <= 0)
        run = np.where(never & cancelled, 0.0, self["run"])
        wanted, other = self["requested"], self["allocated"]
        if processors == "allocated":
            wanted, other = other, wanted
        cores, machine = np.ceil(np.where(wanted > 0, wanted, other)), self.header.machine()
        sieve = self._sift(run, cores, never & (not cancelled))
        sieve.note("processors-missing", wanted <= 0)
        sieve.note("processors-differ", (wanted > 0) & (other > 0) & (wanted != other))
        sieve.note("larger-than-machine", cores > (machine.cores if machine else np.inf))
        passed = self.header.passed_over()
        sizes = [each for each in passed if not each.startswith("UnixStartTime")]
        for each in passed if machine else set(passed) - {*sizes}:
            said = f"{self.source}: the header's '; {each}' is passed over: a whole number in range expected"
            warnings.warn(said, AsaWarning, stacklevel=2)
        rows = self._in_order(sieve)
        columns: dict[str, Any] = {"units": cores[rows]}
        if dependencies:
            columns["after"] = after = self._after(rows)
            sieve.note_rows("bad-preceding", rows[(self["preceding"][rows] > 0) & (after == UNKNOWN)])
            columns["think"] = np.where(after == UNKNOWN, 0.0, np.maximum(self["think"][rows], 0.0))
        if memory:
            needed = self[f"{memory}_memory"]
            sieve.note("no-memory", needed <= 0)
            amounts, columns["kind"] = np.unique(np.ceil(np.maximum(needed[rows], 0) * 1024), return_inverse=True)
            columns["demands"] = np.stack([np.ones(len(amounts)), amounts], axis=1)
        workload, report = self._with_widths(self._workload(rows, run[rows], columns), sieve.report(), rows)
        return Trace(
            workload=workload,
            cluster=machine,
            report=self.reading.then(report) if self.reading else report,
            source=self.source,
            epoch=float(self.header.unix_start_time or np.nan),
            eligible=np.full(len(rows), np.nan),
            outcome=self._outcome(rows),
            unsized="" if machine else "its header has " + ", ".join(f"'; {each}'" for each in sizes) if sizes else "",
        )

    def _workload(self, rows: Ints, run: Floats, columns: Mapping[str, Any]) -> Workload:
        """The jobs of these records, with their run times [s], shape (rows,), and further columns."""
        where = "partition" if (self["partition"] >= 0).any() else "queue"  # what other systems call a partition
        return Workload.of(
            submit=self["submit"][rows],
            run=run,
            walltime=_known(self["walltime"][rows], self["walltime"][rows] > 0),
            wait=_known(self["wait"][rows], self["wait"][rows] >= 0),
            number=self["number"][rows],
            user=np.maximum(self["user"][rows], UNKNOWN),
            group=np.maximum(self["group"][rows], UNKNOWN),
            name=np.maximum(self["executable"][rows], UNKNOWN),
            partition=np.maximum(self[where][rows], UNKNOWN),
            labels=_labels(self.header.partitions if where == "partition" else self.header.queues, self[where][rows]),
            **columns,
        )

    def _with_widths(self, workload: Workload, report: TraceReport, rows: Ints) -> tuple[Workload, TraceReport]:
        """With the widths of moldable jobs; their times are those of as many processors as they need. And the report,
        with the lines of widths that are passed over."""
        lines = [(key, text.split("\n")[0]) for key, text in self.header.fields if key in (MOLDABLE, MALLEABLE)]
        if not lines:
            return workload, report
        known = dict[int, tuple[Any, ...]]()
        for line, (key, text) in enumerate(lines):
            try:
                number, least, most, parallel = text.split()
                counts = int(number), int(least), int(most)
                if max(map(abs, counts)) < LARGEST:
                    known[counts[0]] = line, *counts[1:], float(parallel), key == MALLEABLE
            except ValueError:
                continue
        rigid = np.ones((len(workload), 5)) * [-1, 0, 0, 1, 0]
        rigid[:, 1:3] = workload.units[:, None]
        widths = rigid.copy()
        for row, number in enumerate(workload.number.tolist()):
            widths[row] = known.get(number, widths[row])
        wrong = np.any([each for each, _ in Moldable(*widths.T[1:]).breaches(workload.units)], axis=0)
        widths[wrong] = rigid[wrong]
        used = {*widths[:, 0].tolist()}
        if unused := [f"'; {key}: {text:.80}'" for line, (key, text) in enumerate(lines) if line not in used]:
            found = Finding(RULES["bad-widths"], len(unused), unused[0])
            report = report.then(replace(report, findings=(found,)))
        if used <= {-1}:
            return workload, report
        made = replace(workload, moldable=Moldable(*widths.T[1:]))
        run, walltime = workload.run.copy(), workload.walltime.copy()
        for row in np.flatnonzero(widths[:, 0] >= 0).tolist():
            ran, asked = (int(self[name][rows[row]]) for name in ("allocated", "requested"))
            run[row] /= made.stretch(row, ran) if ran > 0 else 1.0
            walltime[row] /= made.stretch(row, asked) if asked > 0 else 1.0
        return replace(made, run=run, walltime=walltime), report

    def _outcome(self, rows: Ints) -> npt.NDArray[np.int8]:
        """How the jobs of these records ended: codes of `OUTCOMES`, or `UNKNOWN`."""
        found = np.full(len(rows), UNKNOWN, dtype=np.int8)
        for status, state in STATES.items():
            found[self["status"][rows] == status] = OUTCOMES.index(state)
        return found

    def _sift(self, run: Floats, cores: Floats, never: npt.NDArray[np.bool_]) -> Sieve:
        part = np.isin(self["status"], _PARTS)
        sieve = Sieve(self.source, len(self), lambda row: f"job {self['number'][row]:.0f}")
        sieve.drop("too-large", (np.abs(self.records) >= LARGEST).any(axis=1))
        sieve.drop("no-submit-time", self["submit"] < 0)
        sieve.drop("partial", part & np.isin(self["number"], self["number"][~part]))
        sieve.drop("cancelled", never)
        sieve.drop("no-run-time", run == -1)
        sieve.drop("negative-run-time", run < 0)
        sieve.drop("no-processors", cores <= 0)
        sieve.note("zero-run-time", run == 0)
        sieve.note("no-requested-time", self["walltime"] <= 0)
        sieve.note("overrun", (self["walltime"] > 0) & (run > self["walltime"]))
        return sieve.note("no-wait", self["wait"] < 0)

    def _in_order(self, sieve: Sieve) -> Ints:
        """The records that were kept, in order of submission; those of the same instant as they stand."""
        rows = np.flatnonzero(sieve.keep)
        sieve.note_rows("out-of-order", rows[1:][np.diff(self["submit"][rows]) < 0])
        rows = rows[np.argsort(self["submit"][rows], kind="stable")]
        _, firsts = np.unique(self["number"][rows], return_index=True)
        sieve.note_rows("duplicate-number", np.delete(rows, firsts))
        return rows

    def _after(self, rows: Ints) -> Ints:
        """For each of these records, the place among them of the job that precedes it, or `UNKNOWN`.

        It must stand above: jobs that wait for one another would never start.
        """
        numbers, firsts = np.unique(self["number"][rows], return_index=True)
        found = np.minimum(np.searchsorted(numbers, self["preceding"][rows]), len(numbers) - 1)
        good = (numbers[found] == self["preceding"][rows]) & (firsts[found] < np.arange(len(rows)))
        after: Ints = np.where(good & (self["preceding"][rows] > 0), firsts[found], UNKNOWN)
        return after


def _known(values: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    return np.where(known, values, np.nan)


def _labels(names: Mapping[int, str], codes: Floats) -> dict[str, tuple[str, ...]]:
    """Names of partitions by code, where there are any; a code without a name is its own."""
    most = max((*names, int(codes.max(initial=0))))
    if not names or most > _MOST_NAMES:
        return {}
    return {"partition": tuple(names.get(code, str(code)) for code in range(most + 1))}


def load_swf(path: str | Path, **options: Any) -> Trace:
    """The trace in an SWF file; options are those of `SwfLog.trace`."""
    return read_swf(path).trace(**options)


def read_swf(path: str | Path) -> SwfLog:
    """Read a log, plain or packed with gzip, whatever its name. Lines that are no records are counted and left out.

    Raises
    ------
    InvalidInput
        When the file is missing, empty, binary or cut off, has no records, or most of its lines are none.
    """
    data = contents(path, comment=b";")
    begin = _RECORD.search(data)
    if begin is None:
        raise InvalidInput(f"{path} has a header but no records: it may be cut off; get it again")
    comments = _COMMENT.findall(data[: begin.start()])
    if data.find(b";", begin.start()) >= 0:
        comments += [b";", *_COMMENT.findall(data[begin.start() :])]
    header = SwfHeader.parse(line.decode("utf-8", errors="backslashreplace") for line in comments)
    try:
        records = np.loadtxt(io.BytesIO(data), comments=";", ndmin=2)
    except ValueError:
        records = np.empty((0, 0))
    reading = None
    if records.shape[1] != len(FIELDS) or not np.isfinite(records).all():
        records, reading = _read_lines(str(path), data)
    return SwfLog(header, records, str(path), reading)


def _read_lines(source: str, data: bytes) -> tuple[Floats, TraceReport]:
    """The records line by line: slower, but it tells what is wrong with each."""
    lines = [(number, line.partition(b";")[0]) for number, line in enumerate(data.split(b"\n"), 1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    rows = [_numbers(line) for _, line in lines]
    sieve = Sieve(source, len(rows), lambda row: f"line {lines[row][0]}")
    sieve.drop("unreadable-line", [row is None for row in rows])
    sieve.drop("short-line", [row is not None and len(row) < len(FIELDS) for row in rows])
    sieve.note("extra-fields", [row is not None and len(row) > len(FIELDS) for row in rows])
    if 2 * int(sieve.keep.sum()) < len(rows):
        number, line = lines[int(np.argmin(sieve.keep))]
        raise InvalidInput(
            f"{source} is not in the Standard Workload Format: line {number} is {shown(line)}, where {len(FIELDS)} "
            f"numbers were expected (and so are {int((~sieve.keep).sum())} of {len(rows)} lines)"
        )
    kept = [row[: len(FIELDS)] for row, keep in zip(rows, sieve.keep.tolist(), strict=True) if keep and row]
    return np.array(kept), sieve.report()


def _numbers(line: bytes) -> list[float] | None:
    try:
        numbers = [float(word) for word in line.decode("latin-1").split()]
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def write_swf(log: SwfLog, path: str | Path) -> None:
    """Write a log, packed with gzip when the name ends in ``.gz``; it appears whole or not at all.

    Reading it back gives the same header and records.

    Raises
    ------
    InvalidInput
        When it has no records (which could not be read back), or cannot be written.
    """
    path = Path(path)
    if not len(log):
        raise InvalidInput(f"{path} is not written, for the log has no records: at least one expected")
    columns = [_texts(column) for column in log.records.T]
    rows = map(" ".join, zip(*columns, strict=True))
    data = "".join(f"{line}\n" for part in (log.header.lines(), rows) for line in part).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {cause(error)}") from error
    finally:
        draft.unlink(missing_ok=True)


def _texts(column: Floats) -> list[str]:
    """Numbers as they read back: whole ones without a point."""
    if (column == np.rint(column)).all() and (np.abs(column) < 2**53).all():
        return list(map(str, column.astype(np.int64).tolist()))
    return [str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value) for value in column.tolist()]


# -- Schedules --------------------------------------------------------------------------------------------------------


def log_of(schedule: Schedule) -> SwfLog:
    """A schedule as a log whose wait, run time and status are what became of the jobs; others can read it.

    Jobs that never started have neither wait nor run time. A job that reached its wall time has status 0.
    """
    jobs = schedule.workload
    started = ~np.isnan(schedule.start)
    status = np.zeros(len(OUTCOMES))
    status[OUTCOMES.index(JobState.PENDING)] = -1
    for code, state in STATES.items():
        status[OUTCOMES.index(state)] = code
    records = np.full((len(jobs), len(FIELDS)), -1.0)
    for name, values in {
        "number": jobs.number,
        "submit": jobs.submit,
        "wait": np.where(started, schedule.wait, -1.0),
        "run": np.where(schedule.ran, schedule.end - schedule.start, -1.0),
        "allocated": np.where(started, _allocated(schedule), -1.0),
        "requested": jobs.cores,
        "walltime": np.where(np.isnan(jobs.walltime), -1.0, jobs.walltime),
        "requested_memory": _memory(jobs),
        "status": status[schedule.outcome],
        "user": jobs.user,
        "group": jobs.group,
        "executable": jobs.name,
        "partition": jobs.partition,
        "preceding": np.where(jobs.after == UNKNOWN, -1, jobs.number[jobs.after]),
        "think": np.where(jobs.after != UNKNOWN, jobs.think, -1.0),
    }.items():
        records[:, FIELDS.index(name)] = values
    return SwfLog(_header(schedule), records, source="schedule")


def _allocated(schedule: Schedule) -> Floats:
    """Cores of each job as it ran, shape (n,): of one that was resized their mean, in whole ones."""
    found = schedule.cores.astype(np.float64)
    if schedule.resizes is not None:
        begin, end, cores = schedule.used
        ran, used = schedule.end - schedule.start, np.bincount(schedule.pieces[0], (end - begin) * cores, len(found))
        rows = np.unique(schedule.resizes.job)
        rows = rows[ran[rows] > 0]
        found[rows] = np.maximum(1.0, np.rint(used[rows] / ran[rows]))
    return found


def _memory(jobs: Workload) -> Floats:
    """KiB per processor, shape (n,); -1 where a job asks for none."""
    if "memory" not in jobs.resources:
        return np.full(len(jobs), -1.0)
    asked = jobs.units * jobs.demands[jobs.kind, jobs.resources.index("memory")]
    found: Floats = np.where(asked > 0, asked / jobs.cores / 1024, -1.0)
    return found


def _widths(jobs: Workload, malleable: bool) -> list[str]:
    """A text for each moldable job, or for each malleable one."""
    if (found := jobs.moldable) is None:
        return []
    rows = np.flatnonzero((found.least < found.most) & (found.malleable == malleable))
    each = jobs.demands[jobs.kind[rows], 0]
    columns = jobs.number[rows], found.least[rows] * each, found.most[rows] * each, found.parallel[rows]
    return [" ".join(map(str, row)) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _header(schedule: Schedule) -> SwfHeader:
    jobs = schedule.workload
    return make_header(
        {
            "Version": "2.2",
            "Computer": "simulated",
            "MaxJobs": len(jobs),
            "MaxRecords": len(jobs),
            "MaxNodes": schedule.cluster.nodes,
            "MaxProcs": schedule.cluster.cores,
            "Partition": [f"{code} {name}" for code, name in enumerate(jobs.labels.get("partition", ()))],
            "Note": "waits, run times and status are simulated",
            MOLDABLE: _widths(jobs, False),
            MALLEABLE: _widths(jobs, True),
        }
    )
