"""What slurmrestd's answers mean: jobs, partitions and nodes as records, and errors. Pure.

Written for v0.0.38 (Slurm 22.05) and v0.0.40 to v0.0.45 (23.11 to 26.05), where numbers became objects
``{"set", "infinite", "number"}``, states lists in capitals, exit codes objects, and a partition's settings groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asa.backends.batch import host_names, load_json, moment, reading
from asa.backends.slurm import commands, words
from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob
from asa.core.errors import BackendError
from asa.core.job import JobState
from asa.core.units import MIB

# -- errors ------------------------------------------------------------------------------------------------------------

INVALID_JOB_ID, ALREADY_DONE, NO_ENTRY, NOTHING_FOUND = 2017, 2021, 9002, 9003

_UNSPECIFIED = -1  # what 22.05 says when the controller is silent, and when it does not accept the token
_COMMUNICATION = range(1000, 2000)  # Slurm's own protocol
_NOT_AUTHENTIC = 1007
_NO_DATABASE = 7000
_CANNOT_PARSE = 9001
_UNAUTHORIZED = (401, 403, 511)  # the last is 24.11's
_OVERLOADED = (408, 429, 502, 503, 504)
_SHOWN = 200  # letters of an answer that is no JSON


_answers = reading("slurmrestd", "answers as v0.0.38 to v0.0.45 of its interface have them expected")


class NoSuchPage(BackendError):
    """The server does not speak this version of the interface, or lacks a part of it."""


class Unauthorized(BackendError):
    """The server does not know who is asking."""


class Silent(BackendError):
    """The controller gave slurmrestd no usable answer; 22.05 says the same when the controller rejects the token."""


class Denied(SiteRefusal):
    """Slurm said no; `numbers` are those of its errors."""

    def __init__(self, reason: str, message: str, numbers: frozenset[int]) -> None:
        super().__init__(reason, message)
        self.numbers = numbers


@_answers
def content(status: int, text: str, asked: str) -> Mapping[str, Any]:
    """The JSON object of an answer; `status` is HTTP's, `asked` the question, for messages.

    Raises `NoSuchPage`, `Unauthorized`, `Silent`, `Denied`, as their names say; otherwise a `BackendError`,
    ``transient`` when the same call may be made again later.
    """
    try:
        answer = load_json(text)
    except (ValueError, RecursionError):
        answer = None
    errors = _errors(answer) if isinstance(answer, dict) else []
    if status in _UNAUTHORIZED:
        said = "\n".join(map(_error_words, errors)) or text.strip()[:_SHOWN] or "not authorized"
        raise Unauthorized(f"{asked}: {said} (HTTP {status})")
    if not isinstance(answer, dict) or (status >= 400 and not errors):
        if status == 404:
            raise NoSuchPage(f"{asked}: there is no such page (HTTP 404)")
        said = f"HTTP {status}, {text.strip()[:_SHOWN]!r}"
        raise BackendError(f"{asked}: {said}: expected JSON from slurmrestd", transient=status in _OVERLOADED)
    if not errors or answer.get("job_id"):  # a submitted job may come with remarks, such as that it is held
        return answer
    raise _failure(status, errors, asked)


def _errors(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Errors of an answer; from v0.0.41 on, those of single jobs stand beside them."""
    found = list(answer.get("errors") or ())
    for item in answer.get("status") or ():  # of jobs to end
        error = item.get("error") or {}
        found.append({"error_number": error.get("code"), "error": error.get("message") or error.get("string")})
    found += answer.get("results") or ()  # of jobs to change
    return [error for error in found if _error_number(error) or _error_words(error)]


@_answers
def warnings(answer: Mapping[str, Any]) -> list[str]:
    """What slurmrestd did not understand of a question, or could not tell."""
    return [f"{item.get('source', '')}: {item.get('description', '')}" for item in answer.get("warnings") or ()]


def _failure(status: int, errors: Sequence[Mapping[str, Any]], asked: str) -> BackendError:
    numbers = frozenset(map(_error_number, errors))
    reason = "\n".join(dict.fromkeys(filter(None, map(_error_words, errors)))) or "no reason given"
    message = f"{asked}: {reason}"
    if _NOT_AUTHENTIC in numbers:
        return Unauthorized(message)
    if numbers == {_UNSPECIFIED}:
        return Silent(message, transient=True)
    if status in _OVERLOADED or all(map(_is_no_answer, errors)):
        return BackendError(message, transient=True)
    if status == 404 and not numbers & {INVALID_JOB_ID, NO_ENTRY, NOTHING_FOUND}:
        return NoSuchPage(message)
    return Denied(reason, message, numbers)


def _error_number(error: Mapping[str, Any]) -> int:
    found = error.get("error_number", error.get("error_code", error.get("errno", 0)))
    return found if isinstance(found, int) else 0


def _is_no_answer(error: Mapping[str, Any]) -> bool:
    number = _error_number(error)
    return (
        number in _COMMUNICATION or number == _NO_DATABASE or bool(words.ERRORS.no_answer.search(_error_words(error)))
    )


def _error_words(error: Mapping[str, Any]) -> str:
    """The words of an error: Slurm's general ones are left out where there are better ones."""
    general, particular = error.get("error") or "", error.get("description") or ""
    if not particular or general in particular:
        return particular or general
    return particular if _error_number(error) in (_UNSPECIFIED, _CANNOT_PARSE) else f"{general} ({particular})"


# -- records -----------------------------------------------------------------------------------------------------------

_INFINITE = -1
_NUMBER_MOST = 10**18
_NO_TIME = 2**32 - 2  # what the accounting has where there is no time, or no end of it


@_answers
def version(answer: Mapping[str, Any]) -> tuple[int, ...]:
    """Slurm's version, from the answer to any question."""
    meta = answer.get("meta") or {}
    found = _at(meta, "Slurm/version") or _at(meta, "slurm/version") or {}
    try:
        return int(found["major"]), int(found["minor"]), int(found["micro"])
    except (KeyError, ValueError, TypeError):
        raise BackendError(f"slurmrestd says {meta!r} of itself: expected Slurm's version") from None


@_answers
def hosts(answer: Mapping[str, Any]) -> list[str]:
    """Machines of the controllers, from the answer to ``ping``."""
    return [str(item["hostname"]) for item in answer.get("pings") or () if item.get("hostname")]


@_answers
def queue(answer: Mapping[str, Any], user: str) -> list[JobRecord]:
    """One user's jobs in the controller's queue."""
    jobs = [job for job in answer.get("jobs") or () if str(job.get("user_name")) == user]
    return [_queued(job, key) for job in jobs for key in _keys(job)]


def _keys(job: Mapping[str, Any]) -> list[str]:
    """What a job is called; elements of an array that have not been split off yet are all in one entry."""
    array, index = _number(job.get("array_job_id")), _number(job.get("array_task_id"))
    if not array:
        return [str(job["job_id"])]
    if index is not None:
        return [f"{array}_{index}"]
    return [f"{array}_{element}" for element in commands.parse_elements(str(job.get("array_task_string") or ""))]


def _queued(job: Mapping[str, Any], key: str) -> JobRecord:
    return JobRecord(
        key=key,
        name=_text(job.get("name")),
        word=_word(job.get("job_state")),
        reason=_text(job.get("state_reason")),
        submitted=_time(job.get("submit_time")) or 0.0,
        eligible=_time(job.get("eligible_time")),
        start=_time(job.get("start_time")),
        end=_time(job.get("end_time")),
        ages_since=_time(job.get("accrue_time")),
        exit_code=_exit_code(job.get("exit_code")),
        restarts=_number(job.get("restart_cnt")) or 0,
        nodes=host_names(_text(job.get("nodes"))),
        cpus=_number(job.get("cpus")) or None,
        energy_j=commands.parse_energy(_text(job.get("tres_alloc_str"))),
    )


@_answers
def visible_jobs(answer: Mapping[str, Any]) -> list[VisibleJob]:
    """Anybody's jobs in the controller's queue."""
    return [_visible(job, key) for job in answer.get("jobs") or () for key in _keys(job)]


def _visible(job: Mapping[str, Any], key: str) -> VisibleJob:
    minutes, word = _number(job.get("time_limit")), _word(job.get("job_state"))
    pending = words.state_of_word(word) is JobState.PENDING
    return VisibleJob(
        key=key,
        name=_text(job.get("name")),
        user=_text(job.get("user_name")),
        partition=_text(job.get("partition")),
        word=word,
        reason=_text(job.get("state_reason")),
        priority=_number(job.get("priority")) or 0,
        cores=_number(job.get("cpus")) or 1,
        nodes=_number(job.get("node_count")) or 1,
        limit=None if minutes is None or minutes == _INFINITE else 60.0 * minutes,
        submitted=_time(job.get("submit_time")) or 0.0,
        end=_time(job.get("end_time")),
        held=() if pending or words.state_of_word(word).final else host_names(_text(job.get("nodes"))),
    )


@_answers
def accounting(answer: Mapping[str, Any], user: str) -> list[JobRecord]:
    """One user's jobs in the accounting.

    v0.0.38 has neither how often a job was requeued, nor the exit code of one that failed: it says 0.
    """
    return [_accounted(job) for job in answer.get("jobs") or () if str(job.get("user")) == user]


def _accounted(job: Mapping[str, Any]) -> JobRecord:
    word, code = _word(_at(job, "state/current")), _exit_code(job.get("exit_code"))
    array, index = _number(_at(job, "array/job_id")), _number(_at(job, "array/task_id"))
    killer = _text(job.get("kill_request_user"))
    return JobRecord(
        key=f"{array}_{index}" if array and index is not None else str(job["job_id"]),
        name=_text(job.get("name")),
        word=word,
        reason=f"cancelled by {killer}" if killer and word.startswith("CANCELLED") else "",
        submitted=_time(_at(job, "time/submission")) or 0.0,
        eligible=_time(_at(job, "time/eligible")),
        start=_time(_at(job, "time/start")),
        end=_time(_at(job, "time/end")),
        exit_code=None if code == 0 and word.startswith("FAILED") else code,
        restarts=_number(job.get("restart_cnt")) or 0,
        nodes=host_names(_text(job.get("nodes"))),
        cpus=_allocated(job, "cpu"),
        energy_j=commands.parse_energy(f"energy={_allocated(job, 'energy')}"),
    )


def _allocated(job: Mapping[str, Any], what: str) -> int | None:
    found = (item for item in _at(job, "tres/allocated") or () if item.get("type") == what)
    return next((_number(item.get("count")) or None for item in found), None)


@_answers
def partitions(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    """Settings of each partition, in scontrol's words.

    v0.0.40 to v0.0.44 mark none as the default one: then it is the only one, if there is only one.
    """
    found = [_partition(item) for item in answer.get("partitions") or ()]
    if len(found) == 1:
        found[0]["Default"] = "YES"
    return found


def _partition(item: Mapping[str, Any]) -> dict[str, str]:
    settings = {
        "PartitionName": str(item["name"]),
        "Default": "YES" if "DEFAULT" in map(str.upper, _names(item.get("flags"))) else "NO",
        "State": _word(item.get("state") or _at(item, "partition/state")),
        "MaxTime": _minutes(item.get("max_time_limit", _at(item, "maximums/time"))),
        "DefaultTime": _minutes(item.get("default_time_limit", _at(item, "defaults/time")), none="NONE"),
        "MaxNodes": _count(item.get("maximum_nodes_per_job", _at(item, "maximums/nodes"))),
        "MaxCPUsPerNode": _count(item.get("maximum_cpus_per_node", _at(item, "maximums/cpus_per_node"))),
        "Nodes": _text(_at(item, "nodes/configured") if isinstance(item.get("nodes"), Mapping) else item.get("nodes")),
        "TotalNodes": _count(item.get("total_nodes", _at(item, "nodes/total"))),
        "TotalCPUs": _count(item.get("total_cpus", _at(item, "cpus/total"))),
        "QoS": _text(_at(item, "qos/assigned") if isinstance(item.get("qos"), Mapping) else item.get("qos")) or "N/A",
    }
    return {name: value for name, value in settings.items() if value}


@_answers
def nodes(answer: Mapping[str, Any], names: Sequence[str]) -> list[NodeGroup]:
    """Groups of like nodes of these partitions."""
    groups = Counter(
        (partition, _number(node["cpus"]) or 0, _number(node["real_memory"]) or 0, _gres(node), _node_state(node))
        for node in answer.get("nodes") or ()
        for partition in _names(node.get("partitions"))
        if partition in names
    )
    return [
        NodeGroup(partition, count, cores, mebibytes * MIB, gpus, state, kinds)
        for (partition, cores, mebibytes, resources, state), count in groups.items()
        for gpus, kinds in [commands.parse_gpus(resources)]
    ]


def _gres(node: Mapping[str, Any]) -> str:
    return _text(node.get("gres"))


def _node_state(node: Mapping[str, Any]) -> str:
    words = [*_names(node.get("state")), *_names(node.get("state_flags"))]
    return "+".join(word.lower() for word in words) or "unknown"


def _at(item: Mapping[str, Any], path: str) -> Any:
    """What is at a path of keys; None where it ends early."""
    value: Any = item
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> int | None:
    """A number, or None where there is none; -1 stands for one without bounds."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return _INFINITE
        value = value.get("number") if value.get("set") else None
    return int(value) if isinstance(value, int | float) and abs(value) < _NUMBER_MOST else None


def _time(value: Any) -> float | None:
    seconds = _number(value)
    return moment(seconds) if seconds and seconds < _NO_TIME else None


def _text(value: Any) -> str:
    return "" if value is None or value in commands.NOTHING else str(value)


def _names(value: Any) -> Iterable[str]:
    """A list of words, given as one or as text with commas."""
    return (word for word in (value if isinstance(value, list) else _text(value).split(",")) if word)


def _word(value: Any) -> str:
    return ",".join(_names(value))


def _exit_code(value: Any) -> int | None:
    """Exit code from a wait status, or from an object of status, return code and signal."""
    if not isinstance(value, Mapping) or "return_code" not in value:
        status = _number(value)
        return None if status is None else commands.parse_exit_status(str(status))
    signal = _number(_at(value, "signal/id") or _at(value, "signal/signal_id"))
    return 128 + signal if signal and signal > 0 else _number(value["return_code"])


def _minutes(value: Any, none: str = "UNLIMITED") -> str:
    """A time limit as ``D-HH:MM:SS``."""
    minutes = _number(value)
    if minutes is None or minutes == _INFINITE:
        return none if minutes is None else "UNLIMITED"
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def _count(value: Any) -> str:
    count = _number(value)
    return "" if count is None or count == _INFINITE else str(count)
