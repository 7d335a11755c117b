"""Traces from files: what was submitted to a machine, whatever format its log has."""

from __future__ import annotations

import gzip
import importlib
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, UnknownName, cause
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.traces.rules import Report

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
    workload
        The jobs; their waits are the observed ones.
    cluster
        The machine as the log describes it, or None when it does not.
    report
        What became of the log's records.
    source
        The file.
    epoch
        Time [s since the epoch] at which the workload's clock reads 0; NaN where the log does not tell.
    eligible
        When nothing of its own (begin time, dependency, hold) kept a job from starting any more [s on the workload's
        clock], shape (jobs,); NaN where the log does not tell.
    outcome
        How each job ended: codes of `asa.lab.core.schedule.OUTCOMES`, shape (jobs,); `UNKNOWN` where the log does not
        tell.
    """

    workload: Workload
    cluster: Cluster | None
    report: Report
    source: str
    epoch: float
    eligible: Floats
    outcome: npt.NDArray[np.int8]

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
            raise InvalidInput(
                f"{self.source} does not say how large its machine is: give nodes, and cores per node unless "
                "each has one"
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


@dataclass(frozen=True, slots=True)
class Format:
    """A format of logs.

    Parameters
    ----------
    name, says
        What it is called, and what it looks like.
    begins
        What the first line of such a log matches.
    reader
        ``"module:function"``; takes a path and options, returns a `Trace`.
    """

    name: str
    says: str
    begins: re.Pattern[bytes]
    reader: str


FORMATS = {
    item.name: item
    for item in (
        Format(
            "swf",
            "Standard Workload Format: lines of 18 numbers, comments after ';'",
            re.compile(rb"\s*;|\s*[-+.\d]+(\s+[-+.\deE]+){17}"),
            "asa.lab.traces.swf:load_swf",
        ),
        Format(
            "sacct",
            "sacct --parsable2: a first line of column names, JobID among them",
            re.compile(rb"(?i)(\w+[|,;\t^\x1f])*JobID(Raw)?[|,;\t^\x1f]"),
            "asa.lab.traces.sacct:load_sacct",
        ),
        Format(
            "pbs",
            "PBS or Torque accounting: lines of 'MM/DD/YYYY HH:MM:SS;E;ID;...'",
            re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];"),
            "asa.lab.traces.pbs:load_pbs",
        ),
    )
}
"""The formats that `load_trace` knows, by name."""


def load_trace(path: str | Path, format: str | None = None, **options: Any) -> Trace:
    """The trace in a file, plain or packed with gzip.

    Parameters
    ----------
    format
        A name in `FORMATS`; recognised by how the file begins unless given.
    options
        For the reader of that format: `load_swf`, `load_sacct`, `load_pbs`.

    Raises
    ------
    InvalidInput
        When the file is missing, cut off, empty, binary, or of no known format.
    UnknownName
        When there is no such format.
    """
    if format is None:
        line = _first_line(_head(path))
        format = next((item.name for item in FORMATS.values() if item.begins.match(line)), None)
        if format is None:
            line = _first_line(contents(path))  # which says more of a file that is broken
            known = "".join(f"\n  {item.name}: {item.says}" for item in FORMATS.values())
            raise InvalidInput(f"{path} is of no known format: its first line is {shown(line)}. Known are:{known}")
    elif format not in FORMATS:
        raise UnknownName("trace format", format, FORMATS)
    module, _, function = FORMATS[format].reader.partition(":")
    trace: Trace = getattr(importlib.import_module(module), function)(path, **options)
    return trace


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


def _first_line(data: bytes) -> bytes:
    return data.lstrip().split(b"\n", 1)[0]


def _head(path: str | Path) -> bytes:
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
