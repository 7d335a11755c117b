"""Traces from files: what was submitted to a machine, whatever format its log has."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.traces.records import Trace, contents, head, shown


@dataclass(frozen=True, slots=True)
class Format:
    """A format of logs.

    Parameters
    ----------
    reader
        ``"module:function"``; takes a path and options, returns a `Trace`.
    amounts
        Those options by which jobs ask for memory and GPUs, too.
    """

    name: str
    says: str
    begins: re.Pattern[bytes]
    reader: str
    amounts: Mapping[str, str] = field(default_factory=dict)


FORMATS = {
    item.name: item
    for item in (
        Format(
            "swf",
            "Standard Workload Format: lines of 18 numbers, comments after ';'",
            re.compile(rb"\s*;|\s*[-+.\d]+(\s+[-+.\deE]+){17}"),
            "asa.lab.traces.swf:load_swf",
            {"memory": "requested"},
        ),
        Format(
            "sacct",
            "sacct --parsable2: a first line of column names, JobID among them",
            re.compile(rb"(?i)(\w+[|,;\t^\x1f])*JobID(Raw)?[|,;\t^\x1f]"),
            "asa.lab.traces.accounting:load_sacct",
            {"units": "chunks"},
        ),
        Format(
            "pbs",
            "PBS or Torque accounting: lines of 'MM/DD/YYYY HH:MM:SS;E;ID;...'",
            re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];"),
            "asa.lab.traces.accounting:load_pbs",
        ),
    )
}
"""The formats that `load_trace` knows, by name."""


def load_trace(path: str | Path, format: str | None = None, *, amounts: bool = False, **options: Any) -> Trace:
    """The trace in a file, plain or packed with gzip.

    Parameters
    ----------
    amounts
        Whether jobs also ask for the memory and GPUs that the log tells of, which then are on one node with their share
        of the cores.
    format
        A name in `FORMATS`; recognised by how the file begins unless given.

    Raises
    ------
    InvalidInput
        When the file is missing, cut off, empty, binary, or of no known format.
    UnknownName
        When there is no such format.
    """
    if format is None:
        line = _first_line(head(path))
        format = next((item.name for item in FORMATS.values() if item.begins.match(line)), None)
        if format is None:
            line = _first_line(contents(path))  # which says more of a file that is broken
            known = "".join(f"\n  {item.name}: {item.says}" for item in FORMATS.values())
            raise InvalidInput(f"{path} is of no known format: its first line is {shown(line)}. Known are:{known}")
    elif format not in FORMATS:
        raise UnknownName("trace format", format, FORMATS)
    module, _, function = FORMATS[format].reader.partition(":")
    options |= FORMATS[format].amounts if amounts else {}
    trace: Trace = getattr(importlib.import_module(module), function)(path, **options)
    return trace


def _first_line(data: bytes) -> bytes:
    return data.lstrip().split(b"\n", 1)[0]
