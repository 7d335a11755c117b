"""Jobs: what is asked of a batch system, the states it reports, and the reasons, which are Slurm's words."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from asa.core.errors import InvalidInput


class Reason(StrEnum):
    """Reasons that decisions depend on, or which a backend other than Slurm gives."""

    PRIORITY = "Priority"
    RESOURCES = "Resources"
    DEPENDENCY = "Dependency"
    NEVER = "DependencyNeverSatisfied"
    BEGIN = "BeginTime"
    HELD = "JobHeldUser"
    THROTTLED = "JobArrayTaskLimit"
    BARRED = "BadConstraints"  # so does a parked job show
    TIME_LIMIT = "TimeLimit"
    NODE_FAIL = "NodeFail"


_MEANINGS = {
    Reason.PRIORITY: "jobs of higher priority are before it",
    Reason.RESOURCES: "its turn has come, and it waits for nodes to become free",
    Reason.NEVER: "the job that it waits for did not end well: it will never start",
    Reason.DEPENDENCY: "it waits for another job",
    Reason.BEGIN: "its begin time has not come",
    Reason.HELD: "it is held until `scontrol release`",
    "JobHeldAdmin": "an operator holds it: ask the site",
    Reason.THROTTLED: "as many elements of its job array run as may at a time",
    Reason.BARRED: "no node is what it asks for: it may be parked",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "Licenses": "licences that it asks for are in use",
    "PartitionDown": "its partition starts no jobs just now",
    "PartitionInactive": "its partition takes and starts no jobs just now",
    "Partition": "it asks for more than its partition allows",
    "QOSNotAllowed": "its account or partition does not allow its QOS",
    "Cleaning": "it is still being cleared up after its last run",
}
"""Beginnings of Slurm's commonest reasons, the longer before the shorter, in plain words."""


def explained(reason: str) -> str:
    """A batch system's reason, and what it means where that is known.

    >>> print(explained("QOSMaxCpuPerUserLimit"))
    QOSMaxCpuPerUserLimit: its user has as many CPUs in use as the QOS allows
    >>> print(explained("InvalidQOS"))
    InvalidQOS
    """
    meaning = next((words for start, words in _MEANINGS.items() if reason.startswith(start)), None)
    if meaning is None and (match := _LIMIT.match(reason)):
        meaning = _limited(*match.groups())
    elif meaning is None and _OTHER_LIMIT.match(reason):
        meaning = f"a limit of its {'QOS' if reason.startswith('QOS') else 'account'} is reached"
    return reason if meaning is None else f"{reason}: {meaning}"


_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max|Min)(\w*?)(Per(?:User|Account|Job|Node))?(?:Limit)?(?!\w)")
_OTHER_LIMIT = re.compile(r"(Assoc\w*|QOS(Usage|Job|Resource|Time)\w*)(Limit|Threshold)(?!\w)")
_LIMITED = {
    "Cpu": "many CPUs", "Node": "many nodes", "GRES": "many GPUs or other devices", "Mem": "much memory",
    "Memory": "much memory", "CPUMinutes": "many CPU minutes", "CPURunMinutes": "many CPU minutes of running jobs",
    "Jobs": "many jobs running", "Job": "many jobs running", "SubmitJobs": "many jobs in the queue",
    "SubmitJob": "many jobs in the queue", "Wall": "much wall time", "WallDuration": "much wall time",
}  # fmt: skip
"""What Slurm's limits of accounts and QOS count."""


def is_limit(reason: str) -> bool:
    """Whether a job waits for a limit of its account or QOS.

    >>> is_limit("AssocMaxJobsLimit"), is_limit("Priority")
    (True, False)
    """
    return bool(_LIMIT.match(reason) or _OTHER_LIMIT.match(reason))


def _limited(whose: str, kind: str, what: str, each: str | None) -> str:
    """What it means that a limit of the association (that is, the account) or the QOS is reached."""
    owner, much = "QOS" if whose == "QOS" else "account", _LIMITED.get(what, f"much {what}")
    if kind == "Min":
        return f"it asks for less than its {owner} wants of a job: it will not start"
    if what == "WallDuration" or each in ("PerJob", "PerNode"):
        return f"it asks for more {much.partition(' ')[2]} than its {owner} allows a job: it will not start"
    used = "" if what.endswith(("Job", "Jobs")) else " in use"
    if kind == "Grp":
        return f"its {owner} has as {much}{used} as it may, all users together"
    return f"its {'account' if each == 'PerAccount' else 'user'} has as {much}{used} as the {owner} allows"


SETUP = "setup"
"""The option with shell lines to run before a job's program."""
Options = tuple[tuple[str, str], ...]
"""Options of a batch system by name, such as ``(("partition", "gpu"),)``; one that is "" has no value."""

QUEUE = ("partition", "qos", "account")
"""The options that say in which queue a job is; of each there may be several to choose from, with ``|`` between."""


def alternatives(options: Options) -> tuple[Options, ...]:
    """The queues that a job with these options may go to, each as options; one where there is nothing to choose.

    Several options with ``|`` go in step, the first with the first; one with a single value goes with each.

    Raises
    ------
    InvalidInput
        When they have different numbers of values, or one is empty.

    Examples
    --------
    >>> alternatives((("account", "bio"), ("partition", "core|gpu")))
    ((('account', 'bio'), ('partition', 'core')), (('account', 'bio'), ('partition', 'gpu')))
    """
    if not any("|" in value for name, value in options if name in QUEUE):
        return (options,)
    found = {name: [part.strip() for part in value.split("|")] for name, value in options if name in QUEUE}
    counts = {name: len(parts) for name, parts in found.items() if len(parts) > 1}
    said = ", ".join(f"{name}={dict(options)[name]!r}" for name in counts)
    if len(set(counts.values())) > 1:
        raise InvalidInput(f"{said}: the first goes with the first, so give as many of each, or one")
    if any(not part for name in counts for part in found[name]):
        raise InvalidInput(f"{said}: a name expected on both sides of each |")
    places = range(max(counts.values(), default=1))
    several = (tuple((name, found[name][at] if name in counts else value) for name, value in options) for at in places)
    return tuple(dict.fromkeys(several))


def queue_name(options: Options) -> str:
    """What a queue is called: its partition, QOS and account, as far as they are said.

    >>> queue_name((("partition", "gpu"), ("qos", "low"))), queue_name(())
    ('gpu+low', 'default')
    """
    asked = dict(options)
    return "+".join(asked[name] for name in QUEUE if asked.get(name)) or "default"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one job, or one task, needs.

    Parameters
    ----------
    cores
        CPU cores in all; >= 1.
    nodes
        Whole number of nodes to spread over, or None to leave it to the batch system. `cores` is a multiple of it.
    memory
        Bytes in all, or None for the site's default.
    gpus
        GPUs in all.
    unit
        Where there is no number of nodes: the cores may be on any nodes, so many of them together, a task's; `cores` is
        a multiple of it. None where nothing is said of that: one task is then on one node, and what becomes of a job is
        left to the batch system.
    options
        What the batch system is asked besides, for this job alone. A task runs only in a job with the same.

    Raises
    ------
    InvalidInput
        When a number is out of range or the cores do not divide over the nodes, or into units.
    """

    cores: int = 1
    nodes: int | None = None
    memory: int | None = None
    gpus: int = 0
    unit: int | None = None
    options: Options = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name, value, least in (
            ("cores", self.cores, 1), ("nodes", self.nodes, 1), ("memory", self.memory, 1), ("gpus", self.gpus, 0),
            ("unit", self.unit, 1),
        ):  # fmt: skip
            if value is not None and (type(value) is not int or value < least):
                raise InvalidInput(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.nodes is not None and self.cores % self.nodes:
            raise InvalidInput(
                f"{self.cores} cores do not divide over {self.nodes} nodes: ask for a multiple of {self.nodes} cores"
            )
        if self.unit is not None and (self.nodes is not None or self.cores % self.unit):
            where = f"on {self.nodes} nodes" if self.nodes is not None else "on any nodes"
            raise InvalidInput(f"{self.cores} cores {where} cannot be asked for in units of {self.unit}")

    def __str__(self) -> str:
        parts = [_count(self.cores, "core")]
        if self.nodes is not None:
            parts.append(f"on {_count(self.nodes, 'node')}")
        if self.unit is not None and self.cores > 1:
            parts.append("on any nodes" if self.unit == 1 else f"in parts of {self.unit} on any nodes")
        if self.memory is not None:
            parts.append(f"with {self.memory / 2**30:.3g} GiB")
        if self.gpus:
            parts.append(f"and {_count(self.gpus, 'GPU')}")
        return " ".join(parts)

    def on_each(self, nodes: int) -> Resources:
        """The part of each of so many nodes, over which the cores divide; memory and GPUs are rounded up.

        >>> Resources(6, memory=10, gpus=1).on_each(3)
        Resources(cores=2, nodes=None, memory=4, gpus=1, unit=None)
        """
        if nodes == 1 and self.nodes is None:
            return self
        memory = None if self.memory is None else -(-self.memory // nodes)
        return Resources(self.cores // nodes, None, memory, -(-self.gpus // nodes))

    def packed(self, cores_per_node: int | None, unit: int | None = None, gpus_each: int | None = None) -> Resources:
        """The same on as few nodes as hold it, with as many cores on each; as it is where nodes are given.

        Units, or `unit` cores, are never parted, nor is a unit's share of GPUs, so that there may be more cores in all.

        >>> Resources(100).packed(28), Resources(57, unit=1).packed(28).nodes, Resources(32, unit=8).packed(28).nodes
        (Resources(cores=100, nodes=4, memory=None, gpus=0, unit=None), 3, 2)
        """
        if self.nodes is not None or cores_per_node is None:
            return self
        each = unit or self.unit or 1
        units, on_one = max(1, self.cores // each), max(1, cores_per_node // each)
        if gpus_each and (share := self.gpus // units):
            on_one = min(on_one, max(1, gpus_each // share))
        nodes = max(min(units, -(-self.gpus // (gpus_each or self.gpus or 1))), -(-units // on_one))
        return replace(self, nodes=nodes, cores=-(-units // nodes) * nodes * each, unit=None)

    def fits(self, room: Resources) -> bool:
        """Whether `room` holds these resources; memory that is not stated on either side is not counted."""
        return (
            self.cores <= room.cores
            and self.gpus <= room.gpus
            and (self.memory is None or room.memory is None or self.memory <= room.memory)
        )


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


class JobState(enum.Enum):
    """Where a job stands. The last eight are final: the job will not run again."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"  # the batch system knows it no longer and kept no record

    @property
    def final(self) -> bool:
        return self not in (JobState.PENDING, JobState.RUNNING)


class DependencyKind(enum.Enum):
    """When a dependent job may start."""

    AFTER = "after"  # once the other has started
    AFTER_OK = "afterok"  # once the other has ended with exit code 0
    AFTER_ANY = "afterany"  # once the other has ended


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job that was submitted. An id alone is not enough: ids are reused after a controller lost its state.

    Parameters
    ----------
    job_id
        The batch system's own id, as text.
    token
        The unique job name that ASA gave it.
    submitted
        When it was submitted [s since the epoch].
    array_index
        Element of a job array, or None.
    """

    job_id: str
    token: str
    submitted: float
    array_index: int | None = None


@dataclass(frozen=True, slots=True)
class Dependency:
    """This job waits for another."""

    on: JobHandle
    kind: DependencyKind = DependencyKind.AFTER_OK


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What is submitted.

    Parameters
    ----------
    token
        Unique job name; finds the job again when its id was lost between submission and journal.
    resources
        What the job holds.
    walltime_s
        Wall time [s]; > 0.
    argv
        Program that the job runs once on each of its nodes.
    workdir
        Directory it starts in.
    output
        File for its standard output and error, or None to discard them.
    dependencies
        Jobs it waits for.
    begin
        Not before this time [s since the epoch], or None.
    deadline
        When it is of no use any more [s since the epoch], or None: a batch system that can drops it when it could not
        end by then. Others keep it.
    array
        Name of a job array, or "". Requests of one call with the same name become the elements of one array, in order.
        At most one element runs at a time, until `JobChanges.throttle` allows more; the others keep their places. Those
        behind one that failed may end without having run.
    withheld
        Variables of our environment that the job's own is not to have.
    queue
        Options with the queue that was chosen, where those of its resources leave a choice (`alternatives`).
    """

    token: str
    resources: Resources
    walltime_s: float
    argv: tuple[str, ...]
    workdir: str = "."
    output: str | None = None
    dependencies: tuple[Dependency, ...] = ()
    begin: float | None = None
    deadline: float | None = None
    array: str = ""
    withheld: tuple[str, ...] = ()
    queue: Options | None = None

    @property
    def options(self) -> Options:
        """What the batch system is asked besides; the first queue where none was chosen."""
        return alternatives(self.resources.options)[0] if self.queue is None else self.queue


@dataclass(frozen=True, slots=True)
class Refused:
    """A submission that the batch system turned down; `reason` is the site's own message.

    It did so for good, unless `later`: then as many of the user's jobs are in the queue as may be, and the same one may
    be taken when others have ended.
    """

    token: str
    reason: str
    later: bool = False


@dataclass(frozen=True, slots=True)
class JobChanges:
    """What to change of a pending job; None leaves a thing as it is.

    Parameters
    ----------
    walltime_s, resources, dependencies, begin
        As in `JobRequest`.
    throttle
        How many elements of its job array may run at a time; >= 1. Its array may have elements that do not wait.
    parked
        True to ask for nodes that are not to be had, so that the job cannot start but goes on ageing; False to let it
        go.
    """

    walltime_s: float | None = None
    resources: Resources | None = None
    dependencies: tuple[Dependency, ...] | None = None
    begin: float | None = None
    throttle: int | None = None
    parked: bool | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What a batch system says of a job.

    Parameters
    ----------
    handle
        The job.
    state
        Where it stands.
    reason
        Why it waits or how it ended, in the site's words; a `Reason` where that fits.
    eligible, started, ended
        Times [s since the epoch], or None when not (yet) known.
    planned
        When the batch system itself expects to start it [s since the epoch], or None.
    ages_since
        Since when a job that waits has grown older in the queue [s since the epoch]; None while it does not, and where
        the batch system does not tell.
    nodes
        Names of the nodes it holds or held.
    exit_code
        Exit code of the job script; None while it runs, or when unknown.
    restarts
        How often it was requeued.
    cores
        Cores that it holds or held, and is charged for: perhaps more, or fewer, than it asked for. None while it waits,
        and where the batch system does not say.
    submitted
        When it was submitted, by the batch system's clock [s since the epoch]; None when that is not known (any more).
    energy_j
        What its last run drew [J], once it has ended; None where the batch system does not measure it.
    """

    handle: JobHandle
    state: JobState
    reason: str = ""
    eligible: float | None = None
    started: float | None = None
    ended: float | None = None
    planned: float | None = None
    ages_since: float | None = None
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    restarts: int = 0
    cores: int | None = None
    submitted: float | None = None
    energy_j: float | None = None


class QueueRegime(enum.Enum):
    """What a site makes of a dependent job's place in the queue (measured: which jobs age while they wait for another).

    IMMEDIATE
        There is no queue of other people's jobs.
    FIFO
        Place by submission order; a dependency does not touch it.
    ACCRUE_ALWAYS
        Multifactor priority; dependent jobs age.
    MULTIFACTOR
        Multifactor priority, limits not enforced: a dependency at submission loses the age, one added later keeps it.
    LIMITS
        Multifactor priority, limits enforced: any dependency loses the age. Assumed when the site does not tell.
    """

    IMMEDIATE = "immediate"
    FIFO = "fifo"
    ACCRUE_ALWAYS = "accrue-always"
    MULTIFACTOR = "multifactor"
    LIMITS = "limits"

    @property
    def dependents_age(self) -> bool:
        """Whether a job that depends on another keeps its place from the moment it was submitted."""
        return self in (QueueRegime.IMMEDIATE, QueueRegime.FIFO, QueueRegime.ACCRUE_ALWAYS)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do and what matters to planning.

    Parameters
    ----------
    site
        Name under which waits are learned: one queue, one name.
    partition
        Part of the site that jobs go to; "" where there are none.
    regime
        What becomes of a dependent job's place.
    largest
        The largest job that can ever run, or None when the site does not tell.
    cores_per_node, gpus_per_node
        Cores, and GPUs, of the node that has most of them, or None.
    longest_s
        Longest wall time allowed [s], or None for no limit.
    bounds
        Limits of the accounting by name, with value and owner, that make `largest` and `longest_s` what they are.
    most_jobs
        How many jobs the user may have in the queue at a time, or None for no limit.
    poll_s
        Seconds [s] between status queries that this backend stands.
    dependencies
        Kinds of dependency it understands.
    arrays
        Whether it has job arrays whose throttle can be changed, and whose elements start in their order.
    unordered
        The setting by which they would not; "" where there is none.
    parks
        Whether waiting jobs can be parked (`JobChanges.parked`).
    apart
        What the site is for jobs with options of their own (`Resources.options`); None where those mean nothing, and
        are left out. Raises `InvalidInput` for an option that it does not know.
    wide_first
        Whether a wider job starts before a narrower one, however long that has waited.
    whole_nodes
        Whether a job gets, and is charged for, all cores of its nodes.
    preemptible
        Whether jobs of others may take the nodes of one that runs.
    details
        Further settings worth showing to a person (`asa doctor`).
    """

    site: str
    partition: str = ""
    regime: QueueRegime = QueueRegime.LIMITS
    largest: Resources | None = None
    cores_per_node: int | None = None
    gpus_per_node: int | None = None
    longest_s: float | None = None
    bounds: str = ""
    most_jobs: int | None = None
    poll_s: float = 15.0
    dependencies: frozenset[DependencyKind] = frozenset(DependencyKind)
    arrays: bool = False
    unordered: str = ""
    parks: bool = False
    wide_first: bool = False
    whole_nodes: bool = False
    preemptible: bool = False
    details: dict[str, str] = field(default_factory=dict)
    apart: Callable[[Options], Capabilities] | None = field(
        default=None, repr=False, compare=False, metadata={"logged": False}
    )

    def for_jobs(self, options: Options) -> Capabilities:
        """The site as it is for jobs with these options; with several queues to choose from, what one of them has.

        A job has one shape in all of them, which is that for the smallest nodes.
        """
        if self.apart is None or not options:
            return self
        first, *others = found = [self.apart(each) for each in alternatives(options)]
        if not others:
            return first
        sizes = [each.largest for each in found]
        memory = [None if size is None else size.memory for size in sizes]
        largest = None
        if all(sizes):
            largest = replace(
                max(filter(None, sizes), key=lambda size: size.cores),
                memory=None if None in memory else max(filter(None, memory)),
                gpus=max(size.gpus for size in sizes if size),
                nodes=None,
            )
        return replace(
            first,
            largest=largest,
            cores_per_node=min((each.cores_per_node for each in found if each.cores_per_node), default=None),
            gpus_per_node=max((each.gpus_per_node for each in found if each.gpus_per_node), default=None),
            longest_s=None if any(each.longest_s is None for each in found) else max(e.longest_s or 0.0 for e in found),
            bounds="; ".join(dict.fromkeys(each.bounds for each in found if each.bounds)),
        )

    def charged(self, resources: Resources) -> int:
        """Cores that a job is charged for, as far as is known before it starts.

        >>> site = Capabilities("here", cores_per_node=8, whole_nodes=True)
        >>> site.charged(Resources(10)), site.charged(Resources(4, nodes=2))
        (16, 16)
        """
        if not self.whole_nodes or self.cores_per_node is None:
            return resources.cores
        nodes = resources.nodes or -(-resources.cores // self.cores_per_node)
        return max(resources.cores, nodes * self.cores_per_node)
