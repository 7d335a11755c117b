"""What readers of logs share: the text of a file, and rules for odd records.

A *record* is what a log has of one job, or a part of it; a *job* is what a reader makes of it. Whatever the format,
the records of a log are the jobs of its workload and those that were left out, and a report says of each rule how many.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Bools, Floats
from asa.core.errors import InvalidInput, UnknownName, cause
from asa.lab.core.cluster import MOST_NODES, Cluster
from asa.lab.core.workload import Workload

# -- Rules for odd records --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordRule:
    """What is done with records that are odd in one way."""

    name: str
    says: str
    done: str
    drops: bool = False


_LEFT_OUT = "left out"
RULES = {
    rule.name: rule
    for rule in (
        RecordRule("unreadable-line", "a line that is no record of this format", _LEFT_OUT, drops=True),
        RecordRule("delimiter-in-name", "a job name with the delimiter of the fields in it", "put together again"),
        RecordRule("short-line", "a line with too few fields, as if cut off", _LEFT_OUT, drops=True),
        RecordRule("extra-fields", "a line with more fields than the format has", "the further ones are ignored"),
        RecordRule("step", "a step of a job, which has a record of its own", _LEFT_OUT, drops=True),
        RecordRule("event", "an event in a job's life other than its end", _LEFT_OUT, drops=True),
        RecordRule("repeated", "a record, or the heading, once more", _LEFT_OUT, drops=True),
        RecordRule(
            "partial", "a part of a job that was checkpointed, beside the record of the whole", _LEFT_OUT, drops=True
        ),
        RecordRule("unfinished", "a job that was waiting or running when the log was written", _LEFT_OUT, drops=True),
        RecordRule("cancelled", "cancelled before it had started", _LEFT_OUT, drops=True),
        RecordRule("unknown-partition", "names a partition that the machine does not have", _LEFT_OUT, drops=True),
        RecordRule("unknown-qos", "names a QOS that the machine does not have", _LEFT_OUT, drops=True),
        RecordRule("unknown-resource", "asks for a resource that no node has", _LEFT_OUT, drops=True),
        RecordRule(
            "unreadable-constraint", "a constraint that is not features joined by '&' or by '|'", _LEFT_OUT, drops=True
        ),
        RecordRule("no-submit-time", "no time of submission, or one before the log begins", _LEFT_OUT, drops=True),
        RecordRule("too-large", "a number that is not below 9.0e15, which nothing here can be", _LEFT_OUT, drops=True),
        RecordRule("no-run-time", "no run time", _LEFT_OUT, drops=True),
        RecordRule("negative-run-time", "a run time below zero", _LEFT_OUT, drops=True),
        RecordRule("no-processors", "neither requested nor allocated processors", _LEFT_OUT, drops=True),
        RecordRule("processors-missing", "no processors of the kind asked for", "those of the other kind are taken"),
        RecordRule("processors-differ", "requested and allocated processors are not as many", "taken as asked for"),
        RecordRule(
            "uneven", "a request that is not the same on all its nodes", "spread over equal units as well as can be"
        ),
        RecordRule("larger-than-machine", "more processors than the machine has", "kept: no simulator will start it"),
        RecordRule("out-of-order", "submitted before the record above it", "put in order of submission"),
        RecordRule("duplicate-number", "a job number that came before", "kept as a job of its own"),
        RecordRule("requeued", "a further run of a job that was requeued", "kept as a job of its own"),
        RecordRule("component", "a part of a heterogeneous job", "kept as a job of its own"),
        RecordRule("zero-run-time", "ended in the second in which it started", "kept"),
        RecordRule(
            "no-requested-time",
            "no requested time",
            "kept: planned as the default or the limit of its partition, or as the longest that is requested",
        ),
        RecordRule(
            "unlimited",
            "the requested time is UNLIMITED",
            "kept: planned as its limit in the site model (a year if it has none), or as the longest that is requested",
        ),
        RecordRule("overrun", "ran past its requested time", "kept: the simulator's rule for overruns decides"),
        RecordRule("no-memory", "no memory, where it was asked for", "kept: it needs none"),
        RecordRule("no-wait", "no observed wait", "kept, with an unknown wait"),
        RecordRule(
            "bad-preceding", "waits for a job that is not there, or not above it", "kept, without that dependency"
        ),
        RecordRule(
            "bad-widths",
            "a header line of widths that cannot be read (as in 17 4 64 0.95: job, least and most processors, parallel "
            "part of its work), or that fits no job of the log",
            "passed over",
        ),
    )
}
"""All rules, by name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How often a rule applied, and where it did first (a line or a job of the log)."""

    rule: RecordRule
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class TraceReport:
    """What became of the records of a log.

    Examples
    --------
    >>> report = Sieve("my.log", 3, "job {}".format).drop("no-run-time", [False, True, False]).report()
    >>> print(report)
    my.log: 2 jobs of 3 records
      no-run-time: 1, first job 1: no run time; left out
    >>> report.count("no-run-time"), report.count("overrun")
    (1, 0)
    """

    source: str
    records: int
    jobs: int
    findings: tuple[Finding, ...] = ()

    def count(self, rule: str) -> int:
        """How many records the rule of this name applied to."""
        if rule not in RULES:
            raise UnknownName("rule", rule, RULES)
        return sum(finding.count for finding in self.findings if finding.rule.name == rule)

    @property
    def counts(self) -> dict[str, int]:
        """Name of each rule that applied -> how often."""
        return {finding.rule.name: finding.count for finding in self.findings}

    def then(self, later: TraceReport) -> TraceReport:
        """The report of two steps, where `later` began with what this one left."""
        found = {finding.rule.name: finding for finding in self.findings}
        for finding in later.findings:
            before = found.get(finding.rule.name)
            found[finding.rule.name] = replace(before, count=before.count + finding.count) if before else finding
        return TraceReport(self.source, self.records, later.jobs, tuple(sorted(found.values(), key=_place)))

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.jobs} jobs of {self.records} records"]
        lines += [
            f"  {item.rule.name}: {item.count}, first {item.first}: {item.rule.says}; {item.rule.done}"
            for item in self.findings
        ]
        return "\n".join(lines)


def _place(finding: Finding) -> tuple[bool, int]:
    return not finding.rule.drops, list(RULES).index(finding.rule.name)


class Sieve:
    """Applies rules to the records of a log, one after the other; a record that one has dropped concerns no other."""

    def __init__(self, source: str, count: int, where: Callable[[int], str]) -> None:
        self.source, self.count, self.where = source, count, where
        self.keep = np.ones(count, dtype=np.bool_)
        self._dropped: dict[str, npt.NDArray[np.bool_]] = {}
        self._noted: dict[str, npt.NDArray[np.bool_]] = {}

    def drop(self, rule: str, wrong: npt.ArrayLike) -> Sieve:
        """Leave these records out (a mask); those that an earlier rule left out are not counted again."""
        assert RULES[rule].drops, rule
        hit = np.asarray(wrong, dtype=np.bool_) & self.keep
        self._dropped[rule] = hit | self._dropped.get(rule, False)
        self.keep &= ~hit
        return self

    def drop_repeated(self, keys: Iterable[Hashable]) -> Sieve:
        """Leave out the records whose key stands further up already, as where two dumps overlap."""
        seen: set[Hashable] = set()
        again = np.zeros(self.count, dtype=np.bool_)
        for row, (key, keep) in enumerate(zip(keys, self.keep.tolist(), strict=True)):
            again[row] = keep and key in seen
            if keep:
                seen.add(key)
        return self.drop("repeated", again)

    def note(self, rule: str, odd: npt.ArrayLike) -> Sieve:
        """Count these records (a mask) as far as they are kept in the end."""
        assert not RULES[rule].drops, rule
        self._noted[rule] = np.asarray(odd, dtype=np.bool_) | self._noted.get(rule, False)
        return self

    def note_rows(self, rule: str, rows: npt.NDArray[np.int64]) -> Sieve:
        """Count these records, given by their indices, as far as they are kept in the end."""
        odd = np.zeros(self.count, dtype=np.bool_)
        odd[rows] = True
        return self.note(rule, odd)

    def report(self) -> TraceReport:
        hits = self._dropped | {rule: odd & self.keep for rule, odd in self._noted.items()}
        findings = [
            Finding(RULES[rule], int(hit.sum()), self.where(int(np.argmax(hit))))
            for rule, hit in hits.items()
            if hit.any()
        ]
        return TraceReport(self.source, self.count, int(self.keep.sum()), tuple(sorted(findings, key=_place)))


# -- Logs -------------------------------------------------------------------------------------------------------------

_GZIP = b"\x1f\x8b"
_PACKED = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM = b"\xef\xbb\xbf"
_HEAD = 1 << 16  # bytes from which a format is recognised
_SHOWN = 60  # bytes of a line that messages show


@dataclass(frozen=True, eq=False)
class Trace:
    """What was submitted to a machine, and what the log tells of it besides.

    Parameters
    ----------
    cluster
        The machine as the log describes it, or None when it does not.
    epoch
        Time [s since the epoch] at which the workload's clock reads 0; NaN where the log does not tell.
    eligible
        When nothing of its own (begin time, dependency, hold) kept a job from starting any more [s on the workload's
        clock], shape (jobs,); NaN where the log does not tell.
    outcome
        How each job ended: codes of `asa.lab.core.schedule.OUTCOMES`, shape (jobs,); `UNKNOWN` where the log does not
        tell.
    unlimited
        Which jobs have asked for no limit of their run time, shape (jobs,); none where left out.
    unsized
        What the log says of the machine's size, where that cannot be taken; "" where it says nothing.
    """

    workload: Workload
    cluster: Cluster | None
    report: TraceReport
    source: str
    epoch: float
    eligible: Floats
    outcome: npt.NDArray[np.int8]
    unlimited: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    unsized: str = ""

    def __post_init__(self) -> None:
        if not len(self.unlimited):
            object.__setattr__(self, "unlimited", np.zeros(len(self.workload), dtype=bool))

    def on(self, cluster: Cluster) -> Trace:
        """The jobs for which this machine has what they name; the others are in the report.

        Raises
        ------
        InvalidInput
            When none is left.
        """
        jobs = self.workload
        left, wrong = placed(jobs, cluster)

        def where(row: int) -> str:
            named = [repr(jobs.label(each, row)) for each in ("partition", "qos") if wrong[f"unknown-{each}"][row]]
            return " ".join([f"job {int(jobs.number[row])}", *named])

        sieve = Sieve(self.source, len(jobs), where)
        for rule, rows in wrong.items():
            sieve.drop(rule, rows)
        report = sieve.report()
        if len(jobs) and not report.jobs:
            why = "; ".join(f"{each.count}, first {each.first}: {each.rule.says}" for each in report.findings)
            there = ", ".join([*cluster.partitions, *cluster.qos, *cluster.features, *cluster.resources])
            raise InvalidInput(f"the machine takes no job of {self.source}: {why}; it has {there}")
        return replace(
            self,
            workload=left,
            report=self.report.then(report),
            **{name: getattr(self, name)[sieve.keep] for name in ("eligible", "outcome", "unlimited")},
        )

    def machine(self, nodes: int = 0, cores: int = 0, memory: int = 0, gpus: int = 0) -> Cluster:
        """The machine, with what is said here in the place of what the log says.

        Parameters
        ----------
        nodes, cores, memory, gpus
            Nodes, and what each of them has, memory in bytes; 0 where nothing is said. With `cores` alone, the log's
            cores are grouped into nodes of so many.

        Raises
        ------
        InvalidInput
            When neither says how large it is, or the log's cores do not make whole nodes.
        """
        log = self.cluster
        if log is None and not nodes:
            passed = f" ({self.unsized}: whole numbers, and at most {MOST_NODES:,} nodes, expected)"
            raise InvalidInput(
                f"{self.source} does not say how large its machine is{passed if self.unsized else ''}: give nodes, and "
                "cores per node unless each has one"
            )
        if log is not None:
            if not (nodes or cores or memory or gpus):
                return log
            cores = cores or (int(log.capacity[0, 0]) if log.uniform else 1)
            if not nodes and log.cores % cores:
                raise InvalidInput(f"{log.cores} cores make no whole nodes of {cores}: give nodes, too")
            nodes = nodes or log.cores // cores
        return Cluster.of(nodes, cores or 1, memory, gpus)

    def __repr__(self) -> str:
        return f"<Trace {self.source}: {len(self.workload)} jobs on {self.cluster or 'an unknown machine'}>"


def placed(jobs: Workload, cluster: Cluster) -> tuple[Workload, dict[str, Bools]]:
    """The jobs for which a machine has what they name; and which are left out, shape (jobs,) each, by rule."""
    found: dict[str, Bools] = {}
    for rule, column, look_up in (
        ("unknown-partition", "partition", cluster.partition_number),
        ("unknown-qos", "qos", cluster.qos_number),
        ("unreadable-constraint", "constraint", lambda text: cluster.allowed(0, text)),
    ):
        gone, codes = [], getattr(jobs, column)
        for code in np.unique(codes).tolist():
            try:
                look_up(jobs.text(column, code))
            except InvalidInput:
                gone.append(code)
        found[rule] = np.isin(codes, gone)
    has = {"memory", *cluster.resources}  # memory does not count where no node states it, types neither
    there = np.array([bool({name, name.partition(":")[0]} & has) for name in jobs.resources])
    lacking: Bools = np.any(jobs.demands[:, ~there] > 0, axis=1)
    found["unknown-resource"] = lacking[jobs.kind]
    resources = tuple(name for name, each in zip(jobs.resources, there.tolist(), strict=True) if each)
    left = jobs.take(~np.any([*found.values()], axis=0))
    return replace(left, demands=left.demands[:, there], resources=resources), found


def contents(path: str | Path, comment: bytes = b"#", heading: int = 0) -> bytes:
    """The text of a log, unpacked when it is packed with gzip, whatever its name.

    Raises
    ------
    InvalidInput
        When the file is missing, empty, binary, packed otherwise, or cut off; the last says how many records are left,
        which are lines that neither begin with `comment` nor belong to the first `heading` ones.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise _cannot_read(path, error) from error
    for magic, packer in _PACKED.items():
        if data.startswith(magic):
            raise InvalidInput(f"{path} is packed with {packer}: unpack it, or pack it with gzip")
    if data.startswith(_GZIP):
        data = _unpack(path, data, comment, heading)
    data = data.removeprefix(_BOM)
    if (nul := data.find(b"\0")) >= 0:
        number = data.count(b"\n", 0, nul) + 1
        line = data[data.rfind(b"\n", 0, nul) + 1 :].split(b"\n", 1)[0]
        raise InvalidInput(f"{path} is a binary file: line {number} is {shown(line)}. The text of a log was expected")
    if not data.strip():
        raise InvalidInput(f"{path} is empty: a log of jobs was expected")
    return data


def head(path: str | Path) -> bytes:
    """How a log begins; as it is when it cannot be unpacked."""
    try:
        with open(path, "rb") as file:
            data = file.read(_HEAD)
    except OSError as error:
        raise _cannot_read(path, error) from error
    return (_salvage(data) if data.startswith(_GZIP) else data).removeprefix(_BOM)


def _cannot_read(path: str | Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"cannot read {path}: {cause(error)}")


def _unpack(path: str | Path, data: bytes, comment: bytes, heading: int) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        lines = [line for line in _salvage(data).split(b"\n")[:-1] if line.strip() and not line.startswith(comment)]
        what = "truncated" if isinstance(error, EOFError) else f"damaged ({error})"
        count = max(0, len(lines) - heading)
        raise InvalidInput(f"{path} is a {what} gzip file: it ends after {count} whole records") from error


def _salvage(data: bytes) -> bytes:
    """What can be unpacked of a gzip file that may be cut off or damaged."""
    found, step = [], 1 << 12  # what stands beside an error in the same step is lost
    while data.startswith(_GZIP):
        stream = zlib.decompressobj(wbits=31)
        for begin in range(0, len(data), step):
            try:
                found.append(stream.decompress(data[begin : begin + step]))
            except zlib.error:
                return b"".join(found)
        data = stream.unused_data
    return b"".join(found)


def shown(line: bytes) -> str:
    """A line of a file as an error message shows it.

    >>> print(shown(b"1 0 " + 100 * b"x").count("x"))
    56
    """
    text = line.rstrip()[:_SHOWN].decode("utf-8", errors="replace")
    return repr(text + "..." * (len(line.rstrip()) > _SHOWN))
