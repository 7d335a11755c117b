"""Why a job of a queue ran where it did: every decision about it, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput, StateError
from asa.core.units import brief
from asa.log.rundir import state_directory
from coscheduler.queuelog import NAME, Entry, logs, read

_ABOUT = ("job", "host", "guest")


def explain(job: str, directory: Path | None = None) -> CommandResult:
    """Explain a job of the queue in this directory, or of the newest queue that has one of this name.

    In the state directory, logs that cannot be read are passed over.

    Raises
    ------
    InvalidInput
        When there is none.
    StateError
        When the log of `directory` cannot be read.
    """
    paths = logs(state_directory()) if directory is None else [directory / NAME]
    for path in paths:
        try:
            entries = read(path)
        except StateError:
            if directory:
                raise
            continue
        if found := [entry for entry in entries if job in (entry.get(name) for name in _ABOUT)]:
            text = "\n".join([f"{job} in {path.parent}", *(line for entry in found for line in _lines(entry, job))])
            return CommandResult({"job": job, "log": str(path), "entries": found}, text)
    where = str(directory) if directory else f"any of {len(paths)} queues"
    raise InvalidInput(
        f"no job {job!r} in {where}: a job's name, as in its queue file, expected (simulated queues keep no log)"
    )


def explain_if_known(job: str) -> CommandResult | None:
    """The same for ``asa explain``; None where no queue has such a job."""
    try:
        return explain(job)
    except InvalidInput:
        return None


def _lines(entry: Entry, job: str) -> Iterable[str]:
    yield f"  {describe_time(entry)}: {describe(entry, job)}"
    if why := entry.get("why"):
        yield from (f"      {line}" for line in _shown(why))


def describe_time(entry: Entry) -> str:
    """The time of an entry, in words."""
    return f"at {brief(entry['at'])}" if entry["at"] >= 0.1 else "at once"


def describe(entry: Entry, job: str) -> str:
    """An entry about a job, in words."""
    share = f"{entry['share']:.0%}" if entry.get("share") is not None else ""
    kind = "at most" if entry.get("hard") else "a weight of"
    match entry.get("decision") or entry.get("event"):
        case "Start":
            return "started on cores of its own"
        case "StartGuest" if entry["job"] == job:
            return f"started as a guest of {entry['host']}, with {kind} {share} of its cores"
        case "StartGuest":
            return f"{entry['job']} became its guest, with {kind} {share} of its cores"
        case "SetShare":
            return f"has {share} of its host's cores from now on"
        case "Evict":
            return "evicted: goes back to the queue"
        case "Keep":
            return "keeps its cores to itself"
        case "started":
            return f"runs on {', '.join(entry['nodes'])}"
        case "requeued":
            return f"goes back to the queue: {entry['because']}"
        case "ended":
            return _end(entry)
        case other:
            return str(other)


def _end(entry: Entry) -> str:
    if entry["problem"]:
        return f"failed: {entry['problem']}"
    slowdown, losses = entry.get("slowdown"), entry.get("loss", {})
    ran = f"ended after {brief(entry['run_time_s'])}"
    alone = "; how long it runs alone is not known" if slowdown is None else f", {slowdown:.2f} times as long as alone"
    loss = ", ".join(f"{name} {value:.2f}" for name, value in losses.items() if value is not None)
    return ran + alone + (f"; loss by {loss}" if loss else "")


def _shown(why: Mapping[str, Any]) -> Iterable[str]:
    """A record, a line for each entry; tables below their names.

    >>> list(_shown({"rate": 0.93, "state": {"cpu": 0.5}, "votes": {"cpu": [0.1, 0.9]}}))
    ['rate 0.93', 'state: cpu 0.5', 'votes:', '  cpu 0.1 0.9']
    >>> list(_shown({"node": "n7", "memory": 1.02, "hard": False}))
    ['node n7', 'memory 1.02', 'hard no']
    """
    for name, value in why.items():
        if isinstance(value, Mapping) and any(isinstance(each, Sequence) for each in value.values()):
            yield f"{name}:"
            yield from (f"  {line}" for line in _shown(value))
        elif isinstance(value, Mapping):
            yield f"{name}: " + ", ".join(f"{key} {_number(each)}" for key, each in value.items())
        else:
            yield f"{name} {_number(value)}"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return " ".join(map(_number, value))
    return "unlimited" if value is None else f"{value:.3g}"
