"""Dumps of Slurm's accounting: what ``sacct --parsable2`` prints.

A dump that tells all that is read here::

    sacct --allusers --allocations --duplicates --parsable2 --starttime=... --endtime=... \\
        --format=JobID,JobIDRaw,JobName,User,Account,Partition,State,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,\\
    ReqTRES,AllocTRES

with ``SLURM_TIME_FORMAT=%s`` in the environment, so that no hour comes twice when the clocks change.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.traces.csvlog import Accounting, codes_of_states, count, each, moment, seconds, size, timezone
from asa.lab.traces.load import Trace, contents, shown
from asa.lab.traces.rules import Sieve

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
    "ReqNodes", "ReqMem",
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
    units, wait_from
        See `Accounting.trace`.
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
    table, sieve = _read(path, names or {})
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
    wanted, other = (_held(table, kind) for kind in kinds)
    sieve.note("processors-missing", wanted[:, 0] < 1)
    sieve.note("processors-differ", (wanted[:, 0] >= 1) & (other[:, 0] >= 1) & (wanted[:, 0] != other[:, 0]))
    cores, nodes, memory, gpus = np.where(wanted[:, :1] < 1, other, wanted).T
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
    )
    return accounting.trace(sieve, units=units, wait_from=wait_from)


def _known(*columns: Floats) -> Floats:
    """Of several columns, the first that tells something (is not NaN), record by record."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        found = np.where(np.isnan(column), found, column)
    return found


def _read(path: str | Path, names: Mapping[str, str]) -> tuple[dict[str, list[str]], Sieve]:
    """Columns by their names, "" where there is none, and a sieve that has dropped the lines that are no records."""
    lines = contents(path, heading=1).decode("utf-8", errors="backslashreplace").split("\n")
    begin = next(number for number, line in enumerate(lines) if line.strip())
    delimiter = max(_DELIMITERS, key=lines[begin].count)
    reader = csv.reader(
        lines[begin:], delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    )
    heading = next(reader)
    place = _places(path, heading, names)
    width, joined, pick = len(heading), place.get("JobName"), itemgetter(*place.values())
    picked, numbers, wrong = [], [], []
    for row in reader:
        if not row:
            continue
        rule, further = "", len(row) - width
        if further > 0 and joined is not None:
            row[joined:] = [delimiter.join(row[joined : joined + further + 1]), *row[joined + further + 1 :]]
            rule = "delimiter-in-name"
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
            raise InvalidInput(
                f"{path} has no column {column}, only {', '.join(heading[:20])}: dump it with sacct --parsable2 "
                "--format=JobID,JobIDRaw,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,State,AllocTRES,ReqTRES,User"
            )
    return place


def _held(table: Mapping[str, list[str]], kind: str) -> Floats:
    """Cores, nodes, memory [bytes] and GPUs that were allocated ("Alloc") or requested ("Req"), shape (n, 4)."""
    words = table[f"{kind}TRES"]
    known = {text: _tres(text) for text in dict.fromkeys(words)}
    held = np.array([known[text] for text in words], dtype=np.float64)
    for column, name in enumerate(("CPUS", "Nodes")):
        alone = np.nan_to_num(each(table[kind + name], seconds))
        held[:, column] = np.where(held[:, column] > 0, held[:, column], alone)
    return held


def _tres(text: str) -> tuple[float, float, float, float]:
    """Cores, nodes, bytes of memory and GPUs of ``cpu=4,mem=8G,node=2,gres/gpu=1``.

    >>> _tres("billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=2")
    (4.0, 2.0, 8589934592.0, 2.0)
    """
    amounts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    typed = sum(count(amount) for name, amount in amounts.items() if name.startswith("gres/gpu:"))
    gpus = count(amounts["gres/gpu"]) if "gres/gpu" in amounts else typed
    return count(amounts.get("cpu", "")), count(amounts.get("node", "")), size(amounts.get("mem", ""), "M"), gpus


def _memory(words: Sequence[str], nodes: Floats, cores: Floats) -> Floats:
    """Bytes of ReqMem: ``4Gn`` on each node, ``4Gc`` for each core, ``4G`` in all; a bare number is in MiB."""
    amounts = each(words, lambda text: size(text.rstrip("nc"), "M"))
    per = [text[-1:] for text in words]
    factor = np.where(np.array(per) == "n", np.maximum(nodes, 1), np.where(np.array(per) == "c", cores, 1))
    return amounts * factor
