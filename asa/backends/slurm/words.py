"""Slurm's words: its records of jobs and nodes, its states and errors, and requests as its options. Pure."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from asa.backends.batch import CommandError, ErrorPatterns, job_label, key, whole
from asa.backends.batch import SiteRefusal as SiteRefusal
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, JobState, JobStatus, Resources
from asa.core.units import MIB


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the controller's queue, or the accounting, has it.

    Parameters
    ----------
    key
        Job id; ``ID_INDEX`` for an element of a job array.
    name
        Job name: the token, when ASA submitted it.
    word
        State in Slurm's words, such as ``RUNNING`` or ``CANCELLED by 1000``.
    reason
        Slurm's reason, or "".
    submitted
        When it was submitted, or last requeued [s since the epoch].
    eligible
        When it became eligible to start, or None.
    start
        When it started; for a waiting job when Slurm means to start it. None when there is no such time.
    end
        When it ended, or will at the latest; None when there is no such time.
    exit_code
        Exit code of its script (128 + n after signal n), or None.
    restarts
        How often it was requeued.
    nodes
        Names of its nodes; none while it waits.
    ages_since
        Since when its age counts (``AccrueTime``), perhaps in the future; None while Slurm has set no such time.
    cpus
        CPUs that it holds or held; while it waits those that it asks for. None where nothing is said of that.
    energy_j
        What it has drawn [J], once it has ended; None where Slurm does not measure it (``AcctGatherEnergyType``).
    """

    key: str
    name: str
    word: str
    reason: str = ""
    submitted: float = 0.0
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    ages_since: float | None = None
    cpus: int | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class VisibleJob:
    """Any user's job that waits or runs, as far as Slurm shows it to this one; `key` to `end` are as in `JobRecord`.

    Parameters
    ----------
    partition
        Its partition; several with commas between while it waits for any of them.
    priority
        Slurm's number: the highest starts first.
    cores, nodes
        CPUs and nodes that it holds or, while it waits, asks for at least.
    limit
        Wall time [s], or None for no limit.
    held
        Names of the nodes it runs on.
    """

    key: str
    name: str
    user: str
    partition: str
    word: str
    reason: str
    priority: int
    cores: int
    nodes: int
    limit: float | None
    submitted: float
    end: float | None
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Like nodes of one partition: how many, and the CPUs, memory [bytes] and GPUs of each.

    `cores` are counted as Slurm does; `state` is its word, such as ``idle`` or ``down*``; `kinds` are the GPUs by name,
    such as ``2 a100 and 1 v100``, and empty where they have none.
    """

    partition: str
    count: int
    cores: int
    memory: int
    gpus: int
    state: str
    kinds: str = ""


# -- whose record it is: an id alone does not say, a controller that lost its state gives ids out again ----------------

CLOCK_SKEW_S = 300.0
"""Two machines of one cluster cannot differ by more [s]: munge refuses credentials that old or that new."""


def keys(handles: Iterable[JobHandle]) -> list[str]:
    """Each job's key, once."""
    return list(dict.fromkeys(map(key, handles)))


def is_same_job(handle: JobHandle, record: JobRecord) -> bool:
    """Whether the record is of this job.

    Id, name and submission time must all fit. A requeued job's submission time is that of its last requeue.
    """
    near = abs(record.submitted - handle.submitted) <= CLOCK_SKEW_S
    later = record.restarts > 0 and record.submitted > handle.submitted
    return record.key == key(handle) and record.name == handle.token and (near or later)


def is_of_same_array(handle: JobHandle, record: JobRecord) -> bool:
    """Whether the record is of an element, whichever, of the array that the job belongs to."""
    near = abs(record.submitted - handle.submitted) <= CLOCK_SKEW_S
    return handle.array_index is not None and near and record.key.startswith(f"{handle.job_id}_")


def match(handles: Sequence[JobHandle], records: Iterable[JobRecord]) -> dict[JobHandle, JobRecord]:
    """The record of each of these jobs that has one."""
    by_key: dict[str, list[JobRecord]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    return {
        handle: record for handle in handles for record in by_key.get(key(handle), ()) if is_same_job(handle, record)
    }


def handle_of(record: JobRecord) -> JobHandle:
    """A handle on the job that a record is of."""
    job_id, _, index = record.key.partition("_")
    return JobHandle(job_id, record.name, record.submitted, whole(index))


# -- states ------------------------------------------------------------------------------------------------------------

_WORDS = {
    # SPECIAL_EXIT: requeued and held because of its exit code
    JobState.PENDING: "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT EXPEDITING",
    # These hold cores. COMPLETING alone hides how the job ends; a later answer has another word.
    JobState.RUNNING: "RUNNING CONFIGURING POWER_UP_NODE RESIZING SIGNALING STOPPED SUSPENDED STAGE_OUT UPDATE_DB"
    " COMPLETING",
    JobState.COMPLETED: "COMPLETED",
    JobState.FAILED: "FAILED",
    JobState.TIMEOUT: "TIMEOUT DEADLINE",
    JobState.CANCELLED: "CANCELLED REVOKED",  # REVOKED: started elsewhere in a federation
    JobState.PREEMPTED: "PREEMPTED",
    JobState.OUT_OF_MEMORY: "OUT_OF_MEMORY",
    JobState.NODE_FAIL: "NODE_FAIL BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL",
}
STATES = {word: state for state, words in _WORDS.items() for word in words.split()}
"""Slurm's word -> state, for the words of squeue, sacct and the REST interface up to 26.05."""

_NOW_S = 2.0  # the controller's clock may be ahead, and counts whole seconds
_BY = re.compile(r"CANCELLED by (\d+)")
_SEPARATOR = re.compile(r"[,+ ]")


def state_of(record: JobRecord) -> JobState:
    """Where the job stands.

    A word that is not in the table counts as RUNNING for a job that holds nodes and as PENDING for others: such a job
    is neither submitted again nor given up, and a later answer has more.
    """
    return state_of_word(record.word, holds_nodes=bool(record.nodes))


def state_of_word(word: str, *, holds_nodes: bool = False) -> JobState:
    """As `state_of`, from Slurm's word alone.

    The REST interface adds flags to a state. One that says that the job is not over yet counts, as for squeue, which
    shows it in the state's place; of several, that of a job that still holds cores.

    >>> state_of_word("CANCELLED,COMPLETING"), state_of_word("NODE_FAIL,REQUEUED"), state_of_word("CANCELLED by 1000")
    (<JobState.RUNNING: 'running'>, <JobState.PENDING: 'pending'>, <JobState.CANCELLED: 'cancelled'>)
    """
    fallback = JobState.RUNNING if holds_nodes else JobState.PENDING
    first, *flags = _SEPARATOR.split(word.upper())
    state = STATES.get(first, fallback)
    live = {STATES[flag] for flag in flags if flag in STATES and not STATES[flag].final}
    return JobState.RUNNING if JobState.RUNNING in live else JobState.PENDING if live else state


def job_status(handle: JobHandle, queued: JobRecord | None, accounted: JobRecord | None, now: float) -> JobStatus:
    """What the controller's record says of a job or, once the controller has forgotten it, the accounting's.

    The controller keeps a job as long as it waits or runs and a while longer (``MinJobAge``). A job that it has
    forgotten is over, even if the accounting still shows it as running. A job whose age is to count from later than
    `now` [s since the epoch] does not age yet.
    """
    if queued is not None:
        return _from_record(handle, queued, now)
    if accounted is not None and state_of(accounted).final:
        return _from_record(handle, accounted, now)
    return _lost(handle, accounted)


def was_cancelled(handle: JobHandle) -> JobStatus:
    """An element of an array that was cancelled while it waited, and of which Slurm has no record any more.

    Slurm 26.05 forgets one that has no record of its own, that is the last of its array, at once, and its accounting
    goes on showing the array as pending.
    """
    return JobStatus(handle, JobState.CANCELLED, reason="cancelled while it waited")


def _from_record(handle: JobHandle, record: JobRecord, now: float) -> JobStatus:
    state = state_of(record)
    ages = state is JobState.PENDING and record.ages_since is not None and record.ages_since <= now + _NOW_S
    ran = bool(record.nodes)  # a job cancelled while it waited has a start time all the same
    return JobStatus(
        handle=handle,
        state=state,
        reason=_reason(record),
        eligible=record.eligible,
        started=record.start if ran else None,
        ended=record.end if state.final else None,
        planned=record.start if state is JobState.PENDING else None,
        ages_since=record.ages_since if ages else None,
        nodes=record.nodes,
        exit_code=record.exit_code if state.final and ran else None,
        restarts=record.restarts,
        cores=_held(record),
        submitted=record.submitted if record.submitted and not record.restarts else None,
        energy_j=record.energy_j if state.final and ran else None,
    )


def _held(record: JobRecord) -> int | None:
    """CPUs that a job holds or held. While it is completing Slurm counts only those not yet free again."""
    return record.cpus if record.nodes and "COMPLETING" not in record.word.upper() else None


def _reason(record: JobRecord) -> str:
    said = [record.reason] if record.reason else []
    if match := _BY.fullmatch(record.word):
        said.append(f"cancelled by uid {match[1]}")
    elif _SEPARATOR.split(record.word.upper())[0] not in STATES:
        said.append(f"unknown state {record.word!r}")
    return "; ".join(said)


def _lost(handle: JobHandle, last: JobRecord | None) -> JobStatus:
    known = "the accounting has no record of it" if last is None else f"the accounting still says {last.word}"
    reason = f"Slurm's controller does not know job {job_label(handle)} any more, and {known}"
    return JobStatus(
        handle,
        JobState.LOST,
        reason=reason,
        started=last.start if last and last.nodes else None,
        nodes=last.nodes if last else (),
        cores=_held(last) if last else None,
    )


# -- errors ------------------------------------------------------------------------------------------------------------

ERRORS = ErrorPatterns(
    no_answer=re.compile(
        r"unable to contact slurm controller|unable to contact slurmctld|unable to contact slurmdbd|socket timed out"
        r"|connection (refused|reset|timed out)|communications? \w+ failure|transport endpoint is not connected"
        r"|resource temporarily unavailable|temporarily unable|zero bytes were transmitted|no route to host"
        r"|network is unreachable|rate limit|limit(ed|ing)? rpc|in standby mode|not in (a )?primary|database is busy"
        r"|problem talking to the database|error connecting to the database|munge .*socket",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^\s*\w+: (error|fatal): |^sbatch: "),
    ended=re.compile(r"already (finished|completing)|invalid job id|job/step already", re.IGNORECASE),
    broken=re.compile(
        r"configuration (source|file)|fetch config|shared librar|(find|load|initialize) \S*plugin", re.IGNORECASE
    ),
)
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)
_ELEMENT = re.compile(r"\s*\d+_")
_NO_ERROR = re.compile(r"\bno error$", re.IGNORECASE)
_FULL = re.compile(r"\b(Assoc|QOS)(Max|Grp)SubmitJob")
_POLICY = re.compile(r"violates accounting/QOS policy")
_OTHER = re.compile(r"\b(Assoc|QOS)(Max|Grp|Min)\w+")
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|slurm accounting.*disabled", re.IGNORECASE)


def is_unknown_job(error: CommandError) -> bool:
    """Whether the controller does not know the only job that the question named."""
    return bool(_UNKNOWN_JOB.search(error.stderr))


def changed_the_others(reason: str) -> bool:
    """Whether a change of a whole array was refused for elements that have ended, and for these alone.

    >>> changed_the_others("29_0: Job has already finished\\n29_1-2: No error")
    True
    >>> changed_the_others("29_0: Job has already finished")  # Slurm 24.11 names no others
    True
    """
    lines = reason.splitlines()
    return bool(lines) and all(
        _NO_ERROR.search(line) or (_ELEMENT.match(line) and ERRORS.ended.search(line)) for line in lines
    )


def is_full(reason: str, limited: bool) -> bool:
    """Whether a job was refused because the user, account or QOS has as many in the queue as may be.

    slurmrestd does not say which limit it was: then it is taken for that one where there is one (`limited`), as a job
    that is too large has been found before.

    >>> is_full("QOSMaxSubmitJobPerUserLimit\\nJob violates accounting/QOS policy", False)
    True
    """
    return bool(_FULL.search(reason) or (limited and _POLICY.search(reason) and not _OTHER.search(reason)))


def is_no_accounting(error: CommandError) -> bool:
    """Whether the site keeps no accounting."""
    return bool(_NO_ACCOUNTING.search(error.stderr))


# -- requests ----------------------------------------------------------------------------------------------------------

Flag = str | int | float | bool | None

_TOKEN = re.compile(r"[A-Za-z0-9_.+:@=-]+")
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")

_EXCLUDE_EACH_OTHER = (
    {"mem", "mem-per-cpu", "mem-per-gpu"},
    {"gres", "gpus", "G", "gpus-per-node", "gpus-per-task", "gpus-per-socket"},
)
_ELSEWHERE = {
    ("time", "t"): "give the stage a walltime",
    ("nodes", "N"): "give the stage nodes",
    ("ntasks", "n"): "give the stage cores",
    ("job-name", "J"): "jobs are found again by the names that ASA gives them",
    ("output", "o"): "ASA collects the output in the run's directory",
    ("chdir", "D"): "start the run in that directory",
    ("dependency", "d"): "the strategy decides about dependencies",
    ("begin", "b"): "the strategy decides when to submit",
    ("requeue", "no-requeue"): "use the option requeue=True or False",
    ("array", "a"): "use stage.map(...)",
    ("wrap",): "use a stage or asa.command(...)",
    ("parsable",): "ASA needs it and always gives it",
    ("test-only",): "it would submit nothing",
    ("wait", "W"): "ASA waits by itself",
    ("hold", "H"): "nothing would release the job",
    ("p",): "write partition=...",
    ("A",): "write account=...",
    ("M",): "write clusters=...",
}
_REMEDIES = {name: remedy for names, remedy in _ELSEWHERE.items() for name in names}


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What a user asks of every job.

    Parameters
    ----------
    flags
        sbatch options by their long names (underscores or dashes) or single letters. True stands for an option without
        a value; None or False leaves out an option that ASA would give (``mem=False``).
    setup
        Shell lines before the program.
    template
        Text of a whole job script with ``{{placeholders}}``, or None for ASA's own.
    requeue
        Whether Slurm may start a job again whose node failed. ASA submits a new one by itself if it may not.

    Raises
    ------
    InvalidInput
        When a flag cannot be passed through, or the template has no ``{{program}}`` or an unknown placeholder.
    """

    flags: Mapping[str, Flag] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    template: str | None = None
    requeue: bool = False

    def __post_init__(self) -> None:
        flags = {name.replace("_", "-"): value for name, value in self.flags.items()}
        for name, value in flags.items():
            if name in _REMEDIES:
                raise InvalidInput(f"Slurm option {name!r} cannot be passed through: {_REMEDIES[name]}")
            if "\n" in f"{name}{value}":
                raise InvalidInput(f"Slurm option {name!r}: {value!r} has more than one line")
        object.__setattr__(self, "flags", flags)
        if self.template is not None:
            _check_template(self.template)


def sbatch_options(request: JobRequest, options: SlurmOptions) -> list[str]:
    """Options of the submission; flags of the user win over those that follow from the resources.

    Raises `InvalidInput` when the token cannot be a job name.
    """
    if not _TOKEN.fullmatch(request.token):
        raise InvalidInput(f"token {request.token!r}: expected letters, digits and _ . + : @ = - only")
    flags: dict[str, Flag] = {
        "job-name": request.token,
        **_size(request.resources),
        "time": minutes(request.walltime_s),
        "chdir": request.workdir,
        "output": output_file(request),
        "open-mode": "append",  # what a requeued job printed before is kept
        "requeue" if options.requeue else "no-requeue": True,
    }
    if request.dependencies:
        flags["dependency"] = dependency_list(request.dependencies)
        if any(item.kind is DependencyKind.AFTER_OK for item in request.dependencies):
            flags["kill-on-invalid-dep"] = "yes"  # or it would wait for ever once its predecessor has failed
    if request.begin is not None:
        flags["begin"] = local_time(request.begin)
    if request.deadline is not None:
        flags["deadline"] = local_time(request.deadline)
    for group in _EXCLUDE_EACH_OTHER:
        if group & options.flags.keys():
            flags = {name: value for name, value in flags.items() if name not in group}
    flags |= options.flags
    return [_option(name, value) for name, value in flags.items() if value is not None and value is not False]


def output_file(request: JobRequest) -> str:
    """The file that has a job's output, as Slurm spells it."""
    return "/dev/null" if request.output is None else request.output.replace("%", "%%")


def job_script(request: JobRequest, options: SlurmOptions) -> str:
    """The job script; it can also be submitted by hand, because it repeats the options as ``#SBATCH`` lines."""
    program = "\n".join(_program(request))
    header = "\n".join(f"#SBATCH {shlex.quote(option)}" for option in sbatch_options(request, options))
    values = {
        "directives": header,
        "setup": "\n".join(options.setup),
        "program": program,
        "token": request.token,
        "cores": str(request.resources.cores),
        "nodes": str(request.resources.nodes or ""),
        "minutes": str(minutes(request.walltime_s)),
        "workdir": request.workdir,
    }
    template = options.template
    if template is None:
        template = "#!/bin/sh\n{{directives}}\n" + ("{{setup}}\n" if options.setup else "") + "{{program}}\n"
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


PLACEHOLDERS = ("directives", "setup", "program", "token", "cores", "nodes", "minutes", "workdir")
"""What a template may contain, in double braces; ``program`` it must."""


def _check_template(template: str) -> None:
    used = _PLACEHOLDER.findall(template)
    for name in used:
        if name not in PLACEHOLDERS:
            raise UnknownName("placeholder in the job script template", name, PLACEHOLDERS)
    if "program" not in used:
        near = difflib.get_close_matches("{{program}}", template.split(), n=1)
        hint = f" (is {near[0]!r} meant?)" if near else ""
        raise InvalidInput(f"the job script template has no {{{{program}}}}, so the job would do nothing{hint}")
    if not template.startswith("#!"):
        first = template.partition("\n")[0]
        raise InvalidInput(f"the job script template starts with {first!r}: expected a line like '#!/bin/sh'")


def _program(request: JobRequest) -> list[str]:
    """Shell lines that run the program once on each node, with all the cores that the job has there."""
    program = shlex.join(request.argv)
    nodes = request.resources.nodes
    if nodes == 1:
        return [f"exec {program}"]
    # One process a node, none bound to a part of the cores; later steps may share the cores with it. What the job asked
    # for each of its tasks, which srun takes for its own under some versions, is not meant for this one.
    unset = ["unset SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK SLURM_TRES_PER_TASK"] if request.resources.unit else []
    srun = "exec srun --ntasks-per-node=1 --cpu-bind=none --overlap --kill-on-bad-exit=0 --wait=0 --export=ALL"
    if nodes is not None:
        return [f"{srun} --nodes={nodes} --ntasks={nodes} {program}"]
    return [
        *unset,
        'if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then',
        f'    {srun} --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" {program}',
        "fi",
        f"exec {program}",
    ]


def _size(resources: Resources) -> dict[str, Flag]:
    """Units as tasks; of whole shapes each core, because scontrol has users change no number of tasks on a node.

    GPUs are as many on each node, rounded up: where ``--gpus`` spreads them unevenly, srun gives a step fewer than the
    job has, or refuses it (22.05).
    """
    nodes, unit = resources.nodes, resources.unit or 1
    flags: dict[str, Flag] = {"ntasks": resources.cores // unit}
    if unit > 1:
        flags["cpus-per-task"] = unit
    if nodes is not None:
        flags |= {"nodes": nodes, "ntasks-per-node": resources.cores // nodes}
    if resources.memory is not None:
        flags["mem" if nodes else "mem-per-cpu"] = f"{_mib_each(resources)}M"
    if resources.gpus:
        flags |= {"gpus": resources.gpus} if nodes is None else {"gres": f"gpu:{-(-resources.gpus // nodes)}"}
    return flags


def _mib_each(resources: Resources) -> int:
    """Memory of each node, or of each core where the number of nodes is left open [MiB], rounded up."""
    return -(-(resources.memory or 0) // ((resources.nodes or resources.cores) * MIB))


def scontrol_settings(changes: JobChanges, now: float) -> list[str]:
    """scontrol's settings for changes of a waiting job.

    Raises `InvalidInput` when GPUs are asked for: Slurm has no dependable way to change them.
    """
    found = [] if changes.resources is None else _size_settings(changes.resources)
    if changes.walltime_s is not None:
        found.append(f"TimeLimit={minutes(changes.walltime_s)}")
    if changes.dependencies is not None:
        found.append(f"Dependency={dependency_list(changes.dependencies)}")
    if changes.begin is not None:
        found.append(f"StartTime={local_time(changes.begin) if changes.begin > now else 'now'}")
    return found


def parking_setting(parked: bool, nodes: str, options: SlurmOptions) -> str:
    """scontrol's setting that parks a waiting job, or lets it go; `nodes` are all of its partition."""
    own = options.flags.get("exclude", options.flags.get("x")) or ""
    return f"ExcNodeList={nodes if parked else own}"


def _size_settings(resources: Resources) -> list[str]:
    if resources.gpus:
        raise InvalidInput("the GPUs of a waiting job cannot be changed: cancel it and submit another")
    unit = resources.unit or 1
    units = resources.cores // unit
    found = [f"NumTasks={units}", f"NumCPUs={resources.cores}"]
    if resources.unit is not None or resources.nodes is not None:
        found.append(f"CPUsPerTask={unit}")
    if resources.nodes is not None:
        nodes = resources.nodes
        each = resources.cores // nodes  # said twice, or Slurm would go on asking for as many CPUs a node as before
        found = [f"NumNodes={nodes}-{nodes}", *found, f"TasksPerNode={each}", f"MinCPUsNode={each}"]
    elif resources.unit is not None:
        found = [f"NumNodes=1-{units}", *found, f"MinCPUsNode={unit}"]
    if resources.memory is not None:
        found.append(f"MinMemory{'Node' if resources.nodes else 'CPU'}={_mib_each(resources)}")
    return found


def dependency_list(dependencies: Sequence[Dependency]) -> str:
    """Slurm's words for dependencies that must all be fulfilled."""
    return ",".join(f"{item.kind.value}:{key(item.on)}" for item in dependencies)


def minutes(seconds: float) -> int:
    """Slurm's time limits are whole minutes; rounded up, at least one."""
    return max(1, math.ceil(seconds / 60))


def local_time(at: float) -> str:
    """A time [s since the epoch] as Slurm reads it: in this machine's time zone, whole seconds, rounded up."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(math.ceil(at)))


def _option(name: str, value: Flag) -> str:
    dashes = "-" if len(name) == 1 else "--"
    if value is True:
        return f"{dashes}{name}"
    return f"{dashes}{name}{'' if len(name) == 1 else '='}{value}"
