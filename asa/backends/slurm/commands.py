"""Slurm through its commands: make a command line, parse what it printed, and the transport that does both.

The two halves in the middle are pure. Parsing is tolerant of what differs between versions 20.11 and 25.11.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from asa.backends.batch import Asking, CommandError, by_subprocess, host_names, moment, reading, whole, without
from asa.backends.slurm import words
from asa.backends.slurm.words import JobRecord, NodeGroup, VisibleJob
from asa.core.errors import BackendError, InvalidInput
from asa.core.units import MIB, duration

_log = logging.getLogger(__name__)


class SlurmTransport(Protocol):
    """A way to talk to one Slurm cluster as one user.

    Jobs are named by keys: an id, or ``ID_INDEX``. Every method raises `BackendError`, ``transient`` when Slurm did not
    answer; a `SiteRefusal` when it said no. `arrays`: elements of job arrays can be changed singly; `user`: whose jobs
    they are, by name; `questions`: how often it asked something.
    """

    arrays: bool

    @property
    def user(self) -> str: ...
    @property
    def questions(self) -> int: ...

    def name(self) -> str:
        """How Slurm is reached, in words."""

    def version(self) -> tuple[int, ...]: ...
    def submit(self, options: Sequence[str], script: str, withheld: Sequence[str] = ()) -> str:
        """Submit a batch job with these sbatch options, without some variables of ours; returns its id."""

    def submission(self, options: Sequence[str]) -> list[str]:
        """The command that submits with these options, or would."""

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        """Those of these jobs that the controller knows, and perhaps more of the user's."""

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        """The user's jobs of these names that the controller knows, and perhaps more of the user's."""

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        """Those of these jobs that the accounting knows; none where there is no accounting."""

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        """The user's jobs of these names that the accounting knows."""

    def visible_jobs(self, partitions: Sequence[str]) -> list[VisibleJob]:
        """Anybody's jobs in these partitions that wait or hold nodes."""

    def update(self, key: str, settings: Sequence[str]) -> None:
        """Change a job; settings are scontrol's ``Name=value``."""

    def cancel(self, keys: Sequence[str]) -> None:
        """End jobs; those that have ended, or are unknown, are passed over."""

    def configuration(self) -> dict[str, str]:
        """The controller's settings by name."""

    def partitions(self) -> list[dict[str, str]]:
        """Settings of each partition by name, as scontrol calls them."""

    def nodes(self, partition: str) -> list[NodeGroup]:
        """Nodes of these partitions (names with commas between)."""

    def accounting_settings(self, what: Sequence[str], fields: Sequence[str]) -> list[dict[str, str]]:
        """These columns of what ``sacctmgr show`` has, one mapping a row."""


class SlurmCommands:
    """Slurm through sbatch, squeue, sacct, scontrol, scancel, sinfo and sacctmgr; a `SlurmTransport`.

    Parameters
    ----------
    cluster
        Another cluster of a multi-cluster site, or None for the one that the commands speak to by themselves.
    timeout_s
        How long one command may take [s]. While a controller is down a command gives up by itself after about 10 s.
    environment
        Environment of the caller.
    """

    arrays = True

    def __init__(self, cluster: str | None, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._cluster = cluster
        submitting, asking = submission_environment(environment), query_environment(environment)
        self._submission = Asking(by_subprocess(timeout_s, submitting), words.ERRORS)
        self._question = Asking(by_subprocess(timeout_s, asking), words.ERRORS)
        self._briefly = Asking(by_subprocess(min(timeout_s, LIMITS_S), asking), words.ERRORS)
        self._user = str(os.geteuid())
        self.questions = 0

    @property
    def user(self) -> str:
        return own_name()

    def name(self) -> str:
        return "its commands" + (f", cluster {self._cluster}" if self._cluster else "")

    def version(self) -> tuple[int, ...]:
        return parse_version(self._question(["sbatch", "--version"]))  # which asks no server

    def submit(self, options: Sequence[str], script: str, withheld: Sequence[str] = ()) -> str:
        return parse_job_id(self._submission(without(withheld, self.submission(options)), script))

    def submission(self, options: Sequence[str]) -> list[str]:
        return on_cluster(["sbatch", "--parsable", *options], self._cluster)

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        return self._jobs(queue_command(self._user, keys=keys)) if keys else []

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return self._jobs(queue_command(self._user, names=names)) if names else []

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        return self._accounts(keys, lambda some: accounting_command(self._user, keys=some))

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return self._accounts(names, lambda some: accounting_command(self._user, names=some))

    def visible_jobs(self, partitions: Sequence[str]) -> list[VisibleJob]:
        return parse_visible(self._ask(visible_command(partitions)))

    def update(self, key: str, settings: Sequence[str]) -> None:
        self._question(on_cluster(["scontrol", "update", f"JobId={key}", *settings], self._cluster))

    def cancel(self, keys: Sequence[str]) -> None:
        for some in portions(keys):
            self._question(on_cluster(["scancel", "--quiet", *some], self._cluster), unless=words.ERRORS.only_ended)

    def configuration(self) -> dict[str, str]:
        return parse_configuration(self._ask(["scontrol", "show", "config"]))

    def partitions(self) -> list[dict[str, str]]:
        return parse_oneliners(self._ask(["scontrol", "--all", "--oneliner", "show", "partition"]))

    def nodes(self, partition: str) -> list[NodeGroup]:
        return parse_nodes(
            self._ask(["sinfo", "--noheader", "--exact", f"--partition={partition}", f"--format={NODE_FORMAT}"])
        )

    def accounting_settings(self, what: Sequence[str], fields: Sequence[str]) -> list[dict[str, str]]:
        argv = ["sacctmgr", "--noheader", "--parsable2", "show", *what, f"format={','.join(fields)}"]
        self.questions += 1
        printed = self._briefly(argv)  # which cluster is said in `what`
        return [dict(zip(fields, row, strict=True)) for row in rows(printed, "sacctmgr", len(fields))]

    def prints(self, argv: Sequence[str]) -> str:
        """What a command prints that only asks."""
        if argv[0] != "sacctmgr":
            return self._ask([*argv])
        self.questions += 1
        return self._briefly([*argv])

    def _jobs(self, argv: list[str]) -> list[JobRecord]:
        return parse_queue(self._ask(argv, unless=words.is_unknown_job))

    def _accounts(self, items: Sequence[str], question: Callable[[Sequence[str]], list[str]]) -> list[JobRecord]:
        return [
            record
            for some in portions(items)
            for record in parse_accounting(self._ask(question(some), unless=words.is_no_accounting))
        ]

    def _ask(self, argv: list[str], *, unless: Callable[[CommandError], bool] | None = None) -> str:
        self.questions += 1
        return self._question(on_cluster(argv, self._cluster), unless=unless)


# -- make a command ----------------------------------------------------------------------------------------------------

QUEUE_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "State", "Reason", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "exit_code",
    "RestartCnt", "NodeList", "AccrueTime", "NumCPUs", "tres-alloc", "Name",
)  # fmt: skip
VISIBLE_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "UserName", "Partition", "State", "Reason", "PriorityLong", "NumCPUs", "NumNodes",
    "TimeLimit", "SubmitTime", "EndTime", "NodeList", "Name",
)  # fmt: skip
ACCOUNTING_FIELDS = (
    "JobID", "State", "Submit", "Eligible", "Start", "End", "ExitCode", "NodeList", "AllocCPUS", "ConsumedEnergyRaw",
    "JobName",
)  # fmt: skip
NODE_FORMAT = "%R|%D|%c|%m|%G|%t"
DELIMITER = "|"  # only names may contain it, and they come last

LIMITS_S = 15.0
"""How long sacctmgr may take [s]: a run begins without what it would say."""

KEYS_AT_ONCE = 1000
"""Jobs named in one command line; Linux takes no argument longer than 128 KiB."""

ANY_STATE = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"  # without it jobs never eligible to start are left out
HORIZON = "now-30days"  # without a start, accounting looks for names in today's jobs only
_KEPT_IN_JOB = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


def submission_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for sbatch, which hands it on to the job.

    When the caller itself runs in a Slurm job, that job's ``SLURM_*`` variables are left out: they would point an srun
    in the new job to the wrong allocation. ``SBATCH_*``, the defaults of the site or the user, stay.
    """
    in_job = "SLURM_JOB_ID" in inherited
    return {
        name: value
        for name, value in inherited.items()
        if not (in_job and name.startswith("SLURM") and name not in _KEPT_IN_JOB)
    }


def query_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for everything but sbatch, without a person's display settings.

    Times are asked for as seconds since the epoch: they know no time zone and no summer time.
    """
    display = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
    kept = {name: value for name, value in inherited.items() if not name.startswith(display)}
    return kept | {"SLURM_TIME_FORMAT": "%s"}


def queue_command(user: str, *, keys: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
    """All jobs of a user that the controller knows, ended ones included; only those named when the list is short."""
    what = [f"--user={user}", _format(QUEUE_FIELDS)]
    argv = ["squeue", "--noheader", "--all", "--array", "--states=all", *what]
    if 0 < len(keys) <= KEYS_AT_ONCE:
        argv.append(f"--jobs={','.join(keys)}")
    if 0 < len(names) <= KEYS_AT_ONCE:
        argv.append(f"--name={','.join(names)}")
    return argv


def visible_command(partitions: Sequence[str]) -> list[str]:
    """All users' jobs in these partitions that wait or hold nodes."""
    where = f"--partition={','.join(partitions)}"
    return ["squeue", "--noheader", "--all", "--array", where, _format(VISIBLE_FIELDS)]


def _format(fields: Sequence[str]) -> str:
    return "--Format=" + ",".join(f"{field}:{DELIMITER}" for field in fields)


def accounting_command(user: str, *, keys: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
    """Jobs in the accounting by id, or a user's jobs by name, with all that ever had the same id."""
    fields = ",".join(ACCOUNTING_FIELDS)
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--format={fields}"]
    if keys:
        return [*argv, f"--jobs={','.join(keys)}"]
    when = [f"--starttime={HORIZON}", "--endtime=now", f"--state={ANY_STATE}"]
    return [*argv, f"--user={user}", *when, f"--name={','.join(names)}"]


def portions(items: Sequence[str], most: int = KEYS_AT_ONCE) -> list[Sequence[str]]:
    """These items, at most so many at a time."""
    return [items[at : at + most] for at in range(0, len(items), most)]


def own_name() -> str:
    """The caller's name on this machine."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def on_cluster(argv: list[str], cluster: str | None) -> list[str]:
    """The same question to another cluster of a multi-cluster site."""
    return argv if cluster is None else [argv[0], f"--clusters={cluster}", *argv[1:]]


# -- parse its output --------------------------------------------------------------------------------------------------

NOTHING = ("", "N/A", "None", "Unknown", "(null)", "None assigned")
_NO_LIMIT = ("UNLIMITED", "INFINITE", "NONE")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_GPUS = re.compile(r"gpu(?::([^:,()]+))?:(\d{1,9})(?!\d)")
_WALL_TIME = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})")
_ENERGY = re.compile(r"(?:^|,)energy=(\d{1,15})(?!\d)", re.ASCII)
_ELEMENTS = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
ELEMENTS_MOST = 100_000
"""Of how many elements that one row stands for there are records; Slurm takes 1,000 an array unless sites change it."""

_OTHER_CLUSTER = "CLUSTER: "  # heading of the answer about another cluster


def parse_version(text: str) -> tuple[int, ...]:
    """Version of ``slurm 23.11.4`` or ``slurm-wlm 22.05.8``.

    >>> parse_version("slurm-wlm 22.05.8")
    (22, 5, 8)
    """
    match = _VERSION.search(text)
    if match is None:
        raise BackendError(f"sbatch --version printed {text.strip()!r}: expected something like 'slurm 22.05.8'")
    return tuple(int(part or 0) for part in match.groups())


def version_text(version: tuple[int, ...]) -> str:
    """A version as Slurm writes it.

    >>> version_text((22, 5, 8))
    '22.05.8'
    """
    return f"{version[0]}.{version[1]:02}" + "".join(f".{part}" for part in version[2:])


def parse_job_id(text: str) -> str:
    """Id of the submitted job, from ``ID`` or ``ID;CLUSTER``."""
    lines = text.split()
    identity = lines[-1].partition(";")[0] if lines else ""  # a site's submit plugin may print lines before it
    if not (identity.isdecimal() and identity.isascii() and len(identity) < 20):
        raise BackendError(f"sbatch --parsable printed {text.strip()!r}: expected a job id")
    return identity


def parse_queue(text: str) -> list[JobRecord]:
    """Jobs in the controller's queue."""
    return [_queued(job) for job in _jobs(text, "squeue", QUEUE_FIELDS)]


def _queued(job: Mapping[str, str]) -> JobRecord:
    return JobRecord(
        key=_key(job),
        name=job["Name"].removesuffix(DELIMITER),
        word=job["State"],
        reason=_text(job["Reason"]),
        submitted=parse_time(job["SubmitTime"]) or 0.0,
        eligible=parse_time(job["EligibleTime"]),
        start=parse_time(job["StartTime"]),
        end=parse_time(job["EndTime"]),
        ages_since=parse_time(job["AccrueTime"]),
        exit_code=parse_exit_status(job["exit_code"]),
        restarts=_count(job["RestartCnt"], 0),
        nodes=host_names(_text(job["NodeList"])),
        cpus=_count(job["NumCPUs"], 0) or None,
        energy_j=parse_energy(job["tres-alloc"]),
    )


def _key(job: Mapping[str, str]) -> str:
    array, index = job["ArrayJobID"], job["ArrayTaskID"]
    return f"{array}_{index}" if whole(index) is not None else array


def parse_visible(text: str) -> list[VisibleJob]:
    """Anybody's jobs that wait or hold nodes."""
    return [_visible(job) for job in _jobs(text, "squeue", VISIBLE_FIELDS)]


def _visible(job: Mapping[str, str]) -> VisibleJob:
    return VisibleJob(
        key=_key(job),
        name=job["Name"].removesuffix(DELIMITER),
        user=job["UserName"],
        partition=job["Partition"],
        word=job["State"],
        reason=_text(job["Reason"]),
        priority=_count(job["PriorityLong"], 0),
        cores=_count(job["NumCPUs"], 1),
        nodes=_count(job["NumNodes"], 1),
        limit=parse_wall_time(job["TimeLimit"]),
        submitted=parse_time(job["SubmitTime"]) or 0.0,
        end=parse_time(job["EndTime"]),
        held=host_names(_text(job["NodeList"])),
    )


def parse_accounting(text: str) -> list[JobRecord]:
    """Jobs in the accounting, each once, as it was last.

    The accounting has a record for each time that a job was requeued (or resized); an id that was given out twice is
    two jobs here, with different names.
    """
    latest: dict[tuple[str, str], JobRecord] = {}
    restarts: dict[tuple[str, str], int] = {}
    jobs = _jobs(text, "sacct", ACCOUNTING_FIELDS)
    for record in (_accounted(job, key) for job in jobs for key in _keys(job["JobID"])):
        which = (record.key, record.name)
        if before := latest.get(which):
            restarts[which] = restarts.get(which, 0) + (before.word != "RESIZING")
        if before is None or record.submitted >= before.submitted:
            latest[which] = record
    return [replace(record, restarts=restarts.get(which, 0)) for which, record in latest.items()]


def _keys(key: str) -> list[str]:
    """Elements that have not been split from their array yet are in one row, ``ID_[0-3%1]``."""
    array, bracket, words = key.partition("_[")
    return [f"{array}_{index}" for index in parse_elements(words.rstrip("]"))] if bracket else [key]


def parse_elements(text: str) -> list[int]:
    """Indices of a job array.

    >>> parse_elements("0,2-3,10-14:2%4")
    [0, 2, 3, 10, 12, 14]
    """
    words = text.partition("%")[0].split(",")
    ranges = [match.groups() for match in map(_ELEMENTS.fullmatch, words) if match]
    found: list[int] = []
    for low, high, step in ranges:
        indices = range(int(low), int(high or low) + 1, int(step or 1) or 1)
        if len(found) + len(indices) > ELEMENTS_MOST:
            _log.warning("of the array elements %.100r only the first %d are looked at", text, ELEMENTS_MOST)
            return [*found, *indices[: ELEMENTS_MOST - len(found)]]
        found += indices
    return found


def _accounted(job: Mapping[str, str], key: str) -> JobRecord:
    return JobRecord(
        key=key,
        name=job["JobName"],
        word=job["State"],
        submitted=parse_time(job["Submit"]) or 0.0,
        eligible=parse_time(job["Eligible"]),
        start=parse_time(job["Start"]),
        end=parse_time(job["End"]),
        exit_code=parse_exit_status(job["ExitCode"]),
        nodes=host_names(_text(job["NodeList"])),
        cpus=_count(job["AllocCPUS"], 0) or None,
        energy_j=parse_energy(f"energy={job['ConsumedEnergyRaw']}"),
    )


def parse_configuration(text: str) -> dict[str, str]:
    """``Name = value`` lines of ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): _text(value.strip()) for name, _, value in pairs}


def parse_oneliners(text: str) -> list[dict[str, str]]:
    """``Name=value`` words of ``scontrol --oneliner show ...``, one mapping a line."""
    found = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
    return [fields for fields in found if fields]


@reading("sinfo", f"columns as --format={NODE_FORMAT!r} has them expected")
def parse_nodes(text: str) -> list[NodeGroup]:
    """Groups of like nodes."""
    return [
        NodeGroup(partition, int(count), int(cores.rstrip("+")), int(memory.rstrip("+")) * MIB, gpus, state, kinds)
        for partition, count, cores, memory, resources, state in rows(text, "sinfo", 6)
        for gpus, kinds in [parse_gpus(resources)]
    ]


def parse_gpus(text: str) -> tuple[int, str]:
    """GPUs in a list of generic resources, and what they are called where they have names.

    >>> parse_gpus("gpu:a100:4(S:0-1),gpu:v100:2,nvme:1"), parse_gpus("gpu:2")
    ((6, '4 a100 and 2 v100'), (2, ''))
    """
    found = [(kind, int(number)) for kind, number in _GPUS.findall(text)]
    named = [f"{number} {kind}" for kind, number in found if kind]
    return sum(number for _, number in found), " and ".join(named)


def parse_time(text: str) -> float | None:
    """Seconds since the epoch, or None where Slurm prints none."""
    if text in NOTHING:
        return None
    try:
        seconds = float(text)
    except ValueError:
        raise BackendError(f"Slurm printed the time {text!r}: expected seconds since the epoch") from None
    return moment(seconds)


def parse_limit(text: str) -> float | None:
    """A time limit [s] such as ``1-00:00:00``; None where there is none."""
    if text.upper() in _NO_LIMIT or text in NOTHING:
        return None
    try:
        return duration(text, what="Slurm's time limit")
    except InvalidInput as error:
        raise BackendError(str(error)) from error


def parse_wall_time(text: str) -> float | None:
    """A job's time limit [s] as squeue prints it, where the last number is seconds; None where there is none.

    >>> parse_wall_time("1:30"), parse_wall_time("1-00:00:00"), parse_wall_time("UNLIMITED")
    (90.0, 86400.0, None)
    """
    match = _WALL_TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def parse_energy(text: str) -> float | None:
    """What a job has drawn [J], of all that it was given; None where the site does not measure it: 0, or next to 2^64.

    >>> parse_energy("cpu=4,node=1,billing=4,energy=1234"), parse_energy("cpu=4,energy=18446744073709551614")
    (1234.0, None)
    """
    match = _ENERGY.search(text)
    return float(match[1]) or None if match else None


def parse_exit_status(text: str) -> int | None:
    """Exit code from ``CODE:SIGNAL`` or from a wait status; 128 + n after signal n, as shells say it.

    >>> [parse_exit_status(text) for text in ("3:0", "0:9", "256", "N/A")]
    [3, 137, 1, None]
    """
    code, colon, signal = text.partition(":")
    number, killed = whole(code), whole(signal) if colon else 0
    if number is None or killed is None:
        return None
    if not colon:
        number, killed = number >> 8, number & 0x7F
    return 128 + killed if killed else number


def _jobs(text: str, command: str, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    return (dict(zip(fields, row, strict=True)) for row in rows(text, command, len(fields)))


def rows(text: str, command: str, width: int) -> Iterator[list[str]]:
    """The columns of each line; the last one may have the delimiter in it."""
    some = False
    for line in text.split("\n"):  # other signs at which Python would split may be part of names
        if not line.strip() or line.startswith(_OTHER_CLUSTER):
            continue
        row = line.split(DELIMITER, width - 1)
        if some and len(row) <= 2:
            _log.warning("%s: %.200r is passed over: the rest of a job's name, which has several lines", command, line)
            continue
        some = True
        if len(row) != width:
            raise BackendError(f"{command} printed {line!r}: expected {width} fields separated by {DELIMITER!r}")
        yield row


def _text(value: str) -> str:
    return "" if value in NOTHING else value


def _count(value: str, otherwise: int) -> int:
    found = whole(value)
    return otherwise if found is None else found
