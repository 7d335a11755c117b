"""Site models: a machine, the jobs its users submit, and how it starts them, in a few hundred numbers.

A model is fitted to a log of the site; two models ship with ASA, those of the sites of the ASA paper.

The paper gives the machines of its two sites (section 4.2). Their loads, and that UPPMAX's batch system looks at 100
waiting jobs, are taken as given. Everything else is a guess that was chosen by search so that jobs wait as in the
paper's Table 1: what its three Big Jobs waited, in the mean. Probes of an hour's wall time, submitted every hour for 13
days after a week from the empty machine, in 16 workloads, wait (simulated; mean, and its standard deviation over the
workloads):

=======  =====  =======  ===============  =========================
site     cores  Table 1  mean wait [s]    share that starts at once
=======  =====  =======  ===============  =========================
hpc2n       28       91     74 +-   50    .88
hpc2n       56      145    127 +-   73    .86
hpc2n      112      247    257 +-  120    .83
uppmax     160     3762   3227 +-  907    .32
uppmax     320     8068   6401 +- 1755    .23
uppmax     640    10152  10276 +- 2506    .14
=======  =====  =======  ===============  =========================

Table 1 has three runs for each row, which differ by a factor of two or more where waits are short. Its sequential
stages hardly wait on UPPMAX, and neither do probes of one core (10 s). The half minute that real batch systems take
over every job is not modelled: most of hpc2n's jobs start at once, and few wait long.

The paper's Table 2 has waits ten times as long, of another period; these models do not have them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.energy import NodePower
from asa.core.errors import InvalidInput, UnknownName, cause
from asa.core.hostlist import expand
from asa.core.units import DAY, HOUR, WEEK, moment
from asa.core.units import memory as in_bytes
from asa.lab.core.cluster import (
    MOST_NODES,
    RESOURCES,
    ROOT,
    Association,
    Cluster,
    ClusterAccount,
    NodeFailures,
    NodeWindow,
    Partition,
    Qos,
    resources_in,
)
from asa.lab.core.files import LARGEST, parse_json, shortened
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.accounting import coded, gres
from asa.lab.traces.patterns import Cycle, measure, offered_load, span, zipf
from asa.metrics.intensity import intensity_of

# -- Mixture ----------------------------------------------------------------------------------------------------------

STEPS = 20
"""How many numbers describe how much of a request is used."""
CHOICES = 16
"""How many numbers describe the sizes, requests and lengths of the sessions of a class."""
REQUESTS = 3
"""Into how many classes jobs of one size are divided by the time they request."""
_MOST_JOBS = 50_000_000  # more do not fit into the memory of most machines
FEWEST = 64
"""A class of fewer sessions is joined to its neighbour."""


@dataclass(frozen=True)
class JobClass:
    """Jobs of like size that request like times. Users submit them in sessions: the same job one or more times.

    Parameters
    ----------
    share
        Share of the sessions that are of this class, relative to the other classes; > 0.
    cores
        Sizes, all equally likely; >= 1.
    walltime_s
        Requested times [s], all equally likely; > 0.
    used
        Run time as a share of the request: means of equal parts of the jobs, from those that use least to those that
        use most; in [0, 1], not falling. What is drawn lies on the line through them, so that the mean is kept.
    session
        Jobs of a session, all equally likely; >= 1.
    partition, qos
        Where they are submitted, and with which QOS; "" for the machine's first ones.
    unit
        So many of their cores are on one node together; >= 1, of which `cores` are multiples.
    memory, gpus
        What they ask for besides for each `unit` of cores: bytes, in a file text like ``"4G"``, and GPUs of any type;
        >= 0.
    constraint
        Features that their nodes have, as `asa.lab.core.cluster.Cluster.allowed` takes them.
    gres
        What else they ask for, for each `unit`, in Slurm's words: ``"gpu:a100:1,nvme:2"``.
    """

    share: float
    cores: tuple[int, ...]
    walltime_s: tuple[float, ...]
    used: tuple[float, ...] = (0.0, 1.0)
    session: tuple[int, ...] = (1,)
    partition: str = ""
    qos: str = ""
    unit: int = 1
    memory: int = 0
    gpus: int = 0
    constraint: str = ""
    gres: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.share < np.inf:
            raise InvalidInput(f"a job class has the share {self.share!r}: a number above 0 expected")
        for name, least in (("cores", 1), ("walltime_s", 1e-9), ("used", 0), ("session", 1)):
            values = getattr(self, name)
            if not values or not least <= min(values) or not max(values) < np.inf:
                raise InvalidInput(f"a job class has {name} {values!r}: numbers from {least:g} on expected")
        if self.unit < 1 or any(cores % self.unit for cores in self.cores):
            raise InvalidInput(f"a job class has cores {self.cores!r}: multiples of its unit {self.unit!r} expected")
        asked = _amounts(self.unit, self).values()
        if min(self.memory, self.gpus) < 0 or max(asked) * max(self.cores) >= 2**62:
            raise InvalidInput(
                f"a job class has {self.memory!r} bytes of memory and {self.gpus!r} GPUs: nothing below 0, and less "
                "than 2^62 for a job, expected"
            )
        if max(self.used) > 1 or any(np.diff(self.used) < 0):
            raise InvalidInput(f"a job class has used {self.used!r}: shares in [0, 1] that do not fall expected")

    @property
    def mean_work(self) -> float:
        """Mean work of a session [core-seconds]."""
        return float(np.mean(self.cores) * np.mean(self.walltime_s) * np.mean(self.used) * np.mean(self.session))


class Drawn(NamedTuple):
    """Jobs of a mixture, in sessions that stand together; all of shape (jobs,)."""

    session: Ints
    kind: Ints
    cores: Ints
    run: Floats
    walltime: Floats

    def first(self, count: int) -> Drawn:
        cut = slice(count)
        return Drawn(self.session[cut], self.kind[cut], self.cores[cut], self.run[cut], self.walltime[cut])


def draw(classes: Sequence[JobClass], sessions: int, rng: np.random.Generator, alike: float = 0.0) -> Drawn:
    """Jobs of this many sessions. Run times are whole seconds, at least 1 s, at most the request.

    Parameters
    ----------
    alike
        Share of the jobs of a session that use as much of their request as the session's first; in [0, 1].
    """
    shares = np.array([each.share for each in classes])
    kind = rng.choice(len(classes), size=sessions, p=shares / shares.sum())
    cores, length = np.empty(sessions, dtype=np.int64), np.empty(sessions, dtype=np.int64)
    walltime, place = np.empty(sessions), rng.random(sessions)
    for k, each in enumerate(classes):
        rows = np.flatnonzero(kind == k)
        cores[rows] = rng.choice(each.cores, len(rows))
        walltime[rows] = rng.choice(each.walltime_s, len(rows))
        length[rows] = rng.choice(each.session, len(rows))
    if float(length.sum(dtype=np.float64)) > _MOST_JOBS:
        raise InvalidInput(f"{sessions} sessions of up to {length.max()} jobs: at most {_MOST_JOBS:,} jobs expected")
    session = np.repeat(np.arange(sessions), length)
    again = rng.random(len(session)) < alike
    quantile = np.where(again, place[session], rng.random(len(session)))
    used = np.empty(len(session))
    for k, each in enumerate(classes):
        rows = np.flatnonzero(kind[session] == k)
        used[rows] = np.interp(quantile[rows], (np.arange(len(each.used)) + 0.5) / len(each.used), each.used)
    asked = walltime[session]
    run = np.minimum(np.maximum(np.floor(used * asked), 1.0), asked)
    return Drawn(session, kind[session], cores[session], run, asked)


def measure_classes(workload: Workload, session: Ints | None = None) -> tuple[JobClass, ...]:
    """The mixture that a workload looks like.

    Jobs are divided by size (powers of two) and then into three by the time they request, so that how much of a request
    is used may depend on both. Within a class, size, request, length of the session and use are taken to be
    independent.

    Parameters
    ----------
    workload
        At least one job. Jobs without a requested time count as if they had requested what they ran; jobs that ran past
        their request as if they had ended with it.
    session
        Number of each job's session, shape (n,), 0 and up; its first job speaks for its size and request. Default: each
        job is one.
    """
    if not len(workload):
        raise InvalidInput("there are no jobs to measure a mixture of: the log, or what was chosen of it, is empty")
    session = np.arange(len(workload)) if session is None else session
    asked = np.where(np.isnan(workload.walltime), np.maximum(workload.run, 1.0), workload.walltime)
    used = np.minimum(workload.run / asked, 1.0)
    _, first, length = np.unique(session, return_index=True, return_counts=True)
    cores, request = workload.cores[first], asked[first]
    label = _divide(np.floor(np.log2(cores)).astype(np.int64), request)
    of_job = label[np.unique(session, return_inverse=True)[1]]
    found = []
    for each in np.unique(label):
        rows = np.flatnonzero(label == each)
        found.append(
            JobClass(
                share=round(len(rows) / len(first), 6),
                cores=tuple(int(value) for value in _spread(cores[rows])),
                walltime_s=tuple(_spread(request[rows])),
                used=tuple(round(mean, 6) for mean in _means(used[of_job == each], STEPS)),
                session=tuple(round(mean) for mean in _means(length[rows], CHOICES)),
            )
        )
    return tuple(found)


def _divide(size: Ints, request: Floats) -> Ints:
    """Class of each session: size first, then request. Small ones are joined to the one before (or after) them."""
    label = np.zeros(len(size), dtype=np.int64)
    for each in np.unique(size):
        rows = np.flatnonzero(size == each)
        bounds = np.unique(np.quantile(request[rows], np.arange(1, REQUESTS) / REQUESTS, method="inverted_cdf"))
        label[rows] = each * (REQUESTS + 1) + np.searchsorted(bounds, request[rows], side="left")
    while True:
        names, counts = np.unique(label, return_counts=True)
        small = np.flatnonzero(counts < FEWEST)
        if not len(small) or len(names) == 1:
            return label
        k = int(small[-1])  # from the largest jobs down
        label[label == names[k]] = names[k - 1] if k else names[1]


def _spread(values: Floats | Ints) -> list[float]:
    """A few of the values, at even steps of their rank: round numbers that are popular stay so."""
    few = min(CHOICES, len(values))
    ranks = ((np.arange(few) + 0.5) / few * len(values)).astype(np.int64)
    return [float(value) for value in np.sort(values)[ranks]]


def _means(values: Floats | Ints, parts: int) -> list[float]:
    """Means of equal parts of the sorted values: the longest sessions are few, but hold many of the jobs."""
    return [float(part.mean()) for part in np.array_split(np.sort(values), min(parts, len(values)))]


# -- Site --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeKind:
    """Nodes that have the same.

    Parameters
    ----------
    nodes
        Their numbers; at least one.
    cores, memory, gpus
        What each has: at least one core; memory [bytes], in a file text like ``"64G"``, 0 where it does not count;
        GPUs that `gres` does not name.
    features
        Names of what jobs may ask for besides.
    gres
        What else each has, in Slurm's words: ``"gpu:a100:2,gpu:t4:4,nvme:1"``.
    weight
        Jobs are on nodes of low weights first; >= 0.

    Raises
    ------
    InvalidInput
        When an amount is out of its bounds.
    """

    nodes: tuple[int, ...]
    cores: int
    memory: int = 0
    gpus: int = 0
    features: tuple[str, ...] = ()
    gres: str = ""
    weight: int = 1

    def __post_init__(self) -> None:
        least = min(self.cores - 1, self.memory, self.gpus, self.weight)
        most = max(self.weight, *_amounts(self.cores, self).values())
        if not self.nodes or least < 0 or most * len(self.nodes) >= 2**62:
            raise InvalidInput(
                f"{len(self.nodes)} nodes of {self.cores} cores, {self.memory} bytes, {self.gpus} GPUs and weight "
                f"{self.weight}: at least a node and a core, nothing below 0, and less than 2^62 of anything, expected"
            )


def _amounts(cores: int, each: NodeKind | JobClass) -> dict[str, int]:
    """What a node, or each unit of a job, has, by the names of resources.

    Raises
    ------
    InvalidInput
        When `gres` cannot be read.
    """
    found, others = gres(each.gres)
    if others:
        raise InvalidInput(f"gres {shortened(each.gres)}: names and numbers such as 'gpu:a100:2,nvme:1' expected")
    return {"cores": cores, "memory": each.memory, **found, "gpus": each.gpus + found.get("gpus", 0)}


def _as_gres(amounts: Mapping[str, int]) -> dict[str, Any]:
    """`gpus` and `gres` of what has, or asks for, such amounts.

    >>> _as_gres({"gpus": 3, "gpus:a100": 2, "gres/nvme": 1})
    {'gpus': 1, 'gres': 'gpu:a100:2,nvme:1'}
    """
    rest = dict(amounts)
    for name, amount in amounts.items():
        if ":" in name:
            rest[name.partition(":")[0]] -= amount
    words = {name.removeprefix("gres/").replace("gpus:", "gpu:", 1): amount for name, amount in rest.items()}
    return {"gpus": words.pop("gpus", 0), "gres": ",".join(f"{word}:{each}" for word, each in words.items() if each)}


@dataclass(frozen=True)
class SiteWindow:
    """A time for which a site keeps nodes from jobs: an `asa.lab.core.cluster.NodeWindow`, its times perhaps dates.

    Parameters
    ----------
    start, end
        Seconds on the clock of the workload, or ISO dates and times, in UTC unless they name a zone; both the same.

    Raises
    ------
    InvalidInput
        When they are neither, or it does not end after it has begun.
    """

    start: float | str
    end: float | str
    nodes: tuple[int, ...] = ()
    name: str = ""
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        dates = [isinstance(each, str) for each in (self.start, self.end)]
        if dates[0] != dates[1] or not self._second(self.start, 0.0) < self._second(self.end, 0.0):
            raise InvalidInput(
                f"window {shortened(self.name)} has start {shortened(self.start)} and end {shortened(self.end)}: two "
                "times in seconds, or two dates such as '2026-11-27T08:00', the end after the start, expected"
            )

    def on_clock(self, epoch: float) -> NodeWindow:
        """The window on a clock that reads 0 at `epoch` [s since 1970]; NaN where that is not known.

        Raises
        ------
        InvalidInput
            When it has dates, and the clock does not.
        """
        if isinstance(self.start, str) and np.isnan(epoch):
            raise InvalidInput(
                f"window {shortened(self.name)} has the date {self.start}, and the jobs have none (an SWF log has them "
                "by UnixStartTime): give seconds after the clock's 0"
            )
        return NodeWindow(
            self._second(self.start, epoch), self._second(self.end, epoch), self.nodes, self.name, self.users
        )

    @staticmethod
    def _second(given: float | str, epoch: float) -> float:
        if not isinstance(given, str):
            return float(given)
        return np.nan if given.isdecimal() else moment(given, datetime.UTC) - epoch


@dataclass(frozen=True)
class SiteModel:
    """A site: its machine, its users' jobs, and its batch system's settings.

    Users come in sessions, in which they submit the same job one or more times. Sessions begin as a Poisson process
    whose rate follows the hours of the week and, beyond that, swings: its logarithm wanders about (an
    Ornstein-Uhlenbeck process).

    Parameters
    ----------
    nodes, cores_per_node
        The machine: nodes, and the cores of those that are of none of the `kinds`; >= 1.
    load
        Work offered per core and second, in the mean over a workload; > 0.
    classes
        Which jobs come: a mixture; none larger than the machine.
    week
        Rate of sessions in equal parts of the week from Monday midnight on, relative to each other; >= 0.
    gap_s
        Mean time between the jobs of a session [s]; >= 0.
    alike
        Share of the jobs of a session that run as long as its first; in [0, 1].
    swing
        Standard deviation of the logarithm of the rate beyond the cycle; >= 0.
    swing_s
        Time [s] after which the correlation of these swings has fallen to 1/e; > 0.
    even_s
        In every stretch of this length [s] the same work is submitted (but for cycle and swings), because users have
        budgets; 0 where chance alone decides.
    users
        How many there are, with Zipf's law of activity; >= 1.
    dispatcher, priority
        Specs of what starts the jobs and in which order, as `asa.lab.simulator.run.simulate` takes them.
    partitions
        By name, the first is the default; empty where the machine has none. In a file their nodes are a list of hosts
        as Slurm writes it, where the nodes are n0, n1 ...
    windows
        When nodes are kept from jobs; in a file their nodes are such a list, too.
    qos
        By name, the first is the default; empty where users have no limits.
    accounts
        By name. Its own users, who are numbers, are in all but `ROOT` and those of partitions in turn; a job that is
        too large for its account is in the one that allows most.
    requeue_delay_s, safe_limits
        As in `asa.lab.core.cluster.Cluster`.
    power
        What each node draws; None where that is not known.
    intensity
        How much CO2 a kilowatt-hour stands for [g/kWh], or a file as `asa.metrics.intensity.read_intensity` takes
        it; None where that is not known.
    failures
        How often nodes fail by chance; None: never.
    kinds
        What nodes have that differ; memory of all nodes, or of none. In a file their nodes are such a list, too.
    """

    name: str
    nodes: int
    cores_per_node: int
    load: float
    classes: tuple[JobClass, ...]
    week: tuple[float, ...] = (1.0,)
    gap_s: float = 60.0
    alike: float = 0.5
    swing: float = 0.0
    swing_s: float = 2 * DAY
    even_s: float = 0.0
    users: int = 100
    dispatcher: str = "easy"
    priority: str = "fifo"
    note: str = ""
    partitions: Mapping[str, Partition] = field(default_factory=dict, hash=False)
    windows: tuple[SiteWindow, ...] = ()
    qos: Mapping[str, Qos] = field(default_factory=dict, hash=False)
    accounts: Mapping[str, ClusterAccount] = field(default_factory=dict, hash=False)
    requeue_delay_s: float = 0.0
    power: NodePower | None = None
    intensity: float | str | None = None
    failures: NodeFailures | None = None
    kinds: tuple[NodeKind, ...] = ()
    safe_limits: bool = True

    def __post_init__(self) -> None:
        Cycle(self.week, WEEK)
        if self.nodes < 1 or self.cores_per_node < 1 or self.users < 1:
            raise InvalidInput(
                f"site {self.name!r} has {self.nodes} nodes of {self.cores_per_node} cores and {self.users} users: "
                "at least one of each expected"
            )
        if max(self.nodes, self.users) > MOST_NODES or self.cores >= LARGEST:
            raise InvalidInput(
                f"site {self.name!r} has {self.nodes} nodes of {self.cores_per_node} cores and {self.users} users: at "
                f"most {MOST_NODES:,} nodes and users, and less than {LARGEST:.1e} cores, expected"
            )
        if not self.classes:
            raise InvalidInput(f"site {self.name!r} has no job classes: at least one expected")
        if (most := max(max(each.cores) for each in self.classes)) > self.cores:
            raise InvalidInput(f"site {self.name!r} has jobs of {most} cores, more than its machine's {self.cores}")
        for name, low, high in (
            ("load", 1e-9, np.inf),
            ("gap_s", 0, np.inf),
            ("alike", 0, 1),
            ("swing", 0, np.inf),
            ("swing_s", 1e-9, np.inf),
            ("even_s", 0, np.inf),
        ):
            value = getattr(self, name)
            if not low <= value <= high or value == np.inf:
                raise InvalidInput(f"site {self.name!r} has {name} {value!r}: from {low:g} to {high:g} expected")
        cluster = self.cluster(epoch=0.0)  # which checks partitions and windows
        for each in self.classes:
            self._check_partition(each, cluster)
            if self.qos or each.qos:
                self._check_qos(each)

    @property
    def cores(self) -> int:
        own = sum(len(kind.nodes) * (kind.cores - self.cores_per_node) for kind in self.kinds)
        return self.nodes * self.cores_per_node + own

    def _check_partition(self, jobs: JobClass, cluster: Cluster) -> None:
        """Refuse a class of jobs that its partition would, or that no nodes have room for."""
        where = jobs.partition or next(iter(self.partitions), "")
        if where and where not in self.partitions:
            own = ", ".join(self.partitions) or "none"
            raise InvalidInput(f"site {self.name!r} has jobs for partition {where!r}: its own are {own}")
        for name, amount in _amounts(jobs.unit, jobs).items():
            if amount and name != "memory" and name not in cluster.resources:
                own = ", ".join(cluster.resources)
                raise InvalidInput(f"site {self.name!r} has jobs with {shortened(name)}: its nodes have {own}")
        cores, longest_s = _most_cores(jobs, cluster), self.partitions[where].max_time_s if where else np.inf
        if max(jobs.cores) > cores or max(jobs.walltime_s) > longest_s:
            who = f"partition {where!r}, which" if where else "a machine that"
            raise InvalidInput(
                f"site {self.name!r} has jobs of {max(jobs.cores)} cores and {max(jobs.walltime_s):g} s for {who} "
                f"allows {cores} cores and {longest_s:g} s"
            )

    def _check_qos(self, jobs: JobClass) -> None:
        """Refuse a class of jobs that its QOS would."""
        name = jobs.qos or next(iter(self.qos))
        if name not in self.qos:
            raise InvalidInput(
                f"site {self.name!r} has jobs with QOS {shortened(name)}: its own are {', '.join(self.qos) or 'none'}"
            )
        longest_s = self.qos[name].max_time_s
        if longest_s is not None and max(jobs.walltime_s) > longest_s:
            asked = f"jobs of {max(jobs.walltime_s):g} s with QOS {name!r}"
            raise InvalidInput(f"site {self.name!r} has {asked}, which allows {longest_s:g} s")
        units, amounts = max(jobs.cores) // jobs.unit, _amounts(jobs.unit, jobs)
        for what in RESOURCES:
            needed = units * amounts[what]
            for key in (f"max_{what}_per_user", f"grp_{what}", f"max_{what}"):
                if (most := getattr(self.qos[name], key)) is not None and most < needed:
                    raise InvalidInput(
                        f"site {self.name!r} has jobs of {needed} {what} with QOS {name!r}, which allows {most}"
                    )

    @property
    def longest_s(self) -> float:
        """Longest time that its users request [s]."""
        return max(max(each.walltime_s) for each in self.classes)

    def cluster(self, epoch: float = np.nan) -> Cluster:
        """The machine, for jobs whose clock reads 0 at `epoch` [s since 1970]; NaN where that is not known.

        Raises
        ------
        InvalidInput
            When it has windows or intensities with dates, and the clock does not tell its own; when the file of
            intensities cannot be read.
        """
        windows = tuple(window.on_clock(epoch) for window in self.windows)
        grid = None if self.intensity is None else intensity_of(self.intensity, epoch)
        made = replace(
            self.machine,
            partitions=self.partitions,
            windows=windows,
            qos=self.qos,
            accounts=self.accounts,
            requeue_delay_s=self.requeue_delay_s,
            safe_limits=self.safe_limits,
            power=self.power,
            intensity=grid,
            failures=self.failures,
        )
        weights = np.ones(self.nodes, dtype=np.int64)
        for kind in self.kinds:
            weights[list(kind.nodes)] = kind.weight
        return made.by_weight(weights) if weights.min() < weights.max() else made

    @property
    def machine(self) -> Cluster:
        """Its nodes alone, in the order of their numbers."""
        if not self.kinds:
            return Cluster.of(self.nodes, self.cores_per_node)
        named = [node for kind in self.kinds for node in kind.nodes]
        if not 0 <= min(named) <= max(named) < self.nodes or len({*named}) < len(named):
            raise InvalidInput(f"kinds must name nodes between 0 and {self.nodes - 1}, each of them once at most")
        if any(kind.memory for kind in self.kinds) and (
            len(named) < self.nodes or not all(kind.memory for kind in self.kinds)
        ):
            raise InvalidInput("kinds have memory of some nodes: of all of them, or of none, expected")
        amounts = [_amounts(kind.cores, kind) for kind in self.kinds]
        resources = resources_in(amounts)
        capacity, features = np.zeros((self.nodes, len(resources)), dtype=np.int64), dict[str, tuple[int, ...]]()
        capacity[:, 0] = self.cores_per_node
        for kind, has in zip(self.kinds, amounts, strict=True):
            capacity[list(kind.nodes)] = [has.get(name, 0) for name in resources]
            features |= {name: (*features.get(name, ()), *kind.nodes) for name in kind.features}
        return Cluster(capacity, resources, features=features)

    def workload(self, duration_s: float, seed: int) -> Workload:
        """Jobs submitted in [0, `duration_s`) that offer the site's load over that time, to within the last job.

        Time 0 is a Monday's midnight, on an empty machine: leave the first days out of what you count.

        Raises
        ------
        InvalidInput
            When the duration is not above 0, or so long that there would be more than 10 million sessions.
        """
        if not 0 < duration_s < np.inf:
            raise InvalidInput(f"a workload over {duration_s!r} s: a finite time above 0 expected")
        rng = np.random.default_rng(seed)
        drawn = self._drawn(self.load * self.cores * duration_s, rng)
        sessions = int(drawn.session[-1]) + 1
        rate = self._rate(duration_s, rng)
        begin = rate.clock(self._places(drawn, duration_s, rng) * rate.operational(duration_s))
        gaps = np.where(np.diff(drawn.session, prepend=-1) == 0, rng.exponential(self.gap_s, len(drawn.run)), 0.0)
        passed = np.cumsum(gaps)
        first = np.searchsorted(drawn.session, np.arange(sessions))
        submit = (begin[drawn.session] + passed - passed[first][drawn.session]) % duration_s
        user = rng.choice(self.users, size=sessions, p=zipf(self.users))[drawn.session]
        where: dict[str, Any] = {"labels": {}}
        for column, names in (("partition", list(self.partitions)), ("qos", list(self.qos))):
            code = [names.index(name) if (name := getattr(each, column)) else 0 for each in self.classes]
            if names:
                where[column], where["labels"][column] = np.array(code)[drawn.kind], tuple(names)
        codes, asked = coded([each.constraint for each in self.classes])
        if asked:
            where["constraint"], where["labels"]["constraint"] = codes[drawn.kind], asked
        machine = self.machine
        demands, kind = np.unique([_need(each, machine) for each in self.classes], axis=0, return_inverse=True)
        used = [column for column in range(demands.shape[1]) if demands[:, column].any()]
        if accounts := tuple(name for name, each in self.accounts.items() if name != ROOT and not each.partition):
            most, group = self._most_cores(accounts), user % len(accounts)
            where["group"] = np.where(drawn.cores > most[group], most.argmax(), group)
            where["labels"]["group"] = accounts
        return Workload.of(
            submit=np.minimum(submit, np.nextafter(duration_s, 0)),
            run=drawn.run,
            units=drawn.cores // np.array([each.unit for each in self.classes])[drawn.kind],
            demands=demands[:, used],
            resources=tuple(machine.resources[column] for column in used),
            kind=kind.reshape(-1)[drawn.kind],
            walltime=drawn.walltime,
            user=user,
            name=drawn.kind * self.users + user,
            **where,
        )

    def _most_cores(self, accounts: Sequence[str]) -> Ints:
        """How many cores these accounts allow a job of its own users."""
        cluster, found = self.cluster(epoch=0.0), []
        for name in accounts:
            limits = [cluster.account(each).grp_cores for each in cluster.levels(name)]
            limits.append(cluster.association(name, "").max_cores)
            found.append(min((most for most in limits if most is not None), default=self.cores))
        return np.array(found)

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = asdict(self)
        made |= {key: list(value) for key, value in made.items() if isinstance(value, tuple)}
        made["classes"] = [_said(each) for each in self.classes]
        made["partitions"] = {
            name: {**_said(each), "nodes": _hosts(each.nodes)} for name, each in self.partitions.items()
        }
        made["kinds"] = [{**_said(each), "nodes": _hosts(each.nodes)} for each in self.kinds]
        made["windows"] = [
            {**_said(each), **({"nodes": _hosts(each.nodes)} if each.nodes else {})} for each in self.windows
        ]
        made["qos"] = {name: _changed(each, Qos()) for name, each in self.qos.items()}
        made["accounts"] = {name: _of_account(each) for name, each in self.accounts.items()}
        if self.power is not None:
            made["power"] = {key: value for key, value in made["power"].items() if value is not None}
        for key, usual in (("requeue_delay_s", 0.0), ("safe_limits", True)):
            if made[key] == usual:
                del made[key]
        added = ("partitions", "windows", "qos", "accounts", "power", "intensity", "failures", "kinds")
        return {key: value for key, value in made.items() if key not in added or value not in (None, {}, [])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SiteModel:
        """A site from what `to_dict` gave.

        Raises
        ------
        InvalidInput
            When a value is missing, not known, of another type, or out of its bounds.
        """
        try:
            given = dict(values)
            given["classes"] = tuple(_make(JobClass, _with_bytes(each)) for each in given.get("classes", ()))
            given["kinds"] = tuple(
                _on_nodes(NodeKind, f"kinds[{place}]", _with_bytes(each))
                for place, each in enumerate(_list(given, "kinds"))
            )
            given["partitions"] = {
                name: _on_nodes(Partition, f"partition {shortened(name)}", each)
                for name, each in dict(given.get("partitions", {})).items()
            }
            given["windows"] = tuple(
                _on_nodes(SiteWindow, f"windows[{place}]", each, all_nodes=True)
                for place, each in enumerate(_list(given, "windows"))
            )
            given["qos"] = {
                name: _named(Qos, f"QOS {shortened(name)}", _with_bytes(each))
                for name, each in dict(given.get("qos", {})).items()
            }
            given["accounts"] = {
                name: _account(f"account {shortened(name)}", each)
                for name, each in dict(given.get("accounts", {})).items()
            }
            if "power" in given:
                given["power"] = _named(NodePower, "power", given["power"])
            if "failures" in given:
                given["failures"] = _named(NodeFailures, "failures", given["failures"])
            made: SiteModel = _make(cls, given)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"this is no site model: {error}") from error
        return made

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> SiteModel:
        """A site from a JSON file, beside which the file of its intensities is looked for."""
        try:
            values = parse_json(Path(path).read_bytes())
            if isinstance(file := values.get("intensity"), str):
                values["intensity"] = str(Path(path).parent / file)
            return cls.from_dict(values)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {cause(error)}") from error
        except (ValueError, AttributeError, InvalidInput) as error:
            said = str(error).removeprefix("this is no site model: ")
            raise InvalidInput(f"{path} holds no site model: {said}") from error

    def _drawn(self, work: float, rng: np.random.Generator) -> Drawn:
        """Whole sessions that have this much work [core-seconds] together, the last one cut short."""
        shares = np.array([each.share for each in self.classes])
        mean = float(shares @ [each.mean_work for each in self.classes] / shares.sum())
        sessions = int(1.1 * work / max(mean, 1.0)) + 16
        while sessions <= 10_000_000:
            drawn = draw(self.classes, sessions, rng, self.alike)
            done = np.cumsum(drawn.cores * drawn.run)
            if done[-1] >= work:
                enough = int(np.searchsorted(done, work)) + 1
                return drawn.first(enough)
            sessions *= 2
        raise InvalidInput(f"site {self.name!r} would have more than 10 million sessions: ask for a shorter workload")

    def _places(self, drawn: Drawn, duration_s: float, rng: np.random.Generator) -> Floats:
        """When sessions begin, in shares of the whole operational time: anywhere in their stretch."""
        stretches = max(1, round(duration_s / self.even_s)) if self.even_s else 1
        work = np.bincount(drawn.session, drawn.cores * drawn.run)
        before = np.cumsum(work) - work
        place: Floats = (np.floor(before / work.sum() * stretches) + rng.random(len(work))) / stretches
        return place

    def _rate(self, duration_s: float, rng: np.random.Generator) -> Cycle:
        """How the rate of sessions goes over the whole time, hour by hour."""
        hours = int(np.ceil(duration_s / HOUR))
        week = Cycle(self.week, WEEK)
        weights = np.diff(week.operational(np.arange(hours + 1) * HOUR))
        if self.swing:
            weights = weights * np.exp(self.swing * _wander(hours, HOUR / self.swing_s, rng))
        if not weights.any():
            weights = np.ones(hours)  # all within hours that the week leaves empty
        return Cycle(tuple(weights.tolist()), hours * HOUR)


def _wander(steps: int, decay: float, rng: np.random.Generator) -> Floats:
    """A stationary Gaussian process of variance 1 whose correlation falls by exp(-decay) a step."""
    keep = np.exp(-decay)
    fresh = rng.standard_normal(steps) * np.sqrt(1 - keep**2)
    place, found = float(rng.standard_normal()), np.empty(steps)
    for step in range(steps):
        place = keep * place + fresh[step]
        found[step] = place
    return found


def _said(each: JobClass | NodeKind | Partition | SiteWindow) -> dict[str, Any]:
    """What a file says of it: all fields but those that say nothing."""
    made: dict[str, Any] = asdict(each)
    made |= {key: list(value) for key, value in made.items() if isinstance(value, tuple)}
    for key, value in _SAYS_NOTHING.items():
        if made.get(key) == value:
            del made[key]
    if memory := int(made.get("memory", 0)):
        made["memory"] = _bytes_in_words(memory)
    return {key: value for key, value in made.items() if value not in ("", None, np.inf, [])}


def _bytes_in_words(count: int) -> str:
    return f"{count}B" if count % 2**20 else f"{count // 2**20}M"


_SAYS_NOTHING = {"exempt_s": 0.0, "unit": 1, "memory": 0, "gpus": 0, "weight": 1}
"""Values that a file leaves out, besides empty ones."""


def _with_bytes(values: Any) -> Any:
    """What a file says of something that has memory, or a limit of it, with that as a number."""
    if not isinstance(values, Mapping):
        return values
    found = {key: value for key, value in values.items() if "memory" in key and (type(value) is not int or value)}
    return {**values, **{key: in_bytes(value) for key, value in found.items()}}


def _need(jobs: JobClass, machine: Cluster) -> Ints:
    """What a unit of a class takes of the machine's resources, shape (resources,)."""
    asked = _amounts(jobs.unit, jobs)
    return np.array([asked.get(name, 0) for name in machine.resources], dtype=np.int64)


def _most_cores(jobs: JobClass, cluster: Cluster) -> int:
    """How many cores a job of a class could have, whatever its sizes are."""
    number = cluster.partition_number(jobs.partition)
    nodes = cluster.allowed(number, jobs.constraint)
    most = cluster.all_partitions[number].max_nodes if cluster.partitions else 0
    return jobs.unit * cluster.most_units(_need(jobs, cluster), nodes, max_nodes=most)


def _changed(each: Any, usual: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from the usual one's."""
    changed = {key: value for key, value in asdict(each).items() if value != getattr(usual, key)}
    return {key: _bytes_in_words(value) if "memory" in key and value else value for key, value in changed.items()}


def _of_account(account: ClusterAccount) -> dict[str, Any]:
    """What a file says of an account."""
    made = _changed(account, ClusterAccount())
    if account.user_limits:
        made["user_limits"] = {user: _changed(each, Association()) for user, each in account.user_limits.items()}
    return made


def _account(who: str, values: Any) -> ClusterAccount:
    """An account from what a file says."""
    given = dict(_with_bytes(values)) if isinstance(values, Mapping) else values
    if isinstance(values, Mapping) and isinstance(limits := values.get("user_limits"), Mapping):
        given["user_limits"] = {
            user: _named(Association, f"{who}, user {shortened(user)}", _with_bytes(each))
            for user, each in limits.items()
        }
    made: ClusterAccount = _named(ClusterAccount, who, given)
    return made


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    found = values.get(key, [])
    if not isinstance(found, list):
        raise ValueError(f"{key} is {shortened(found)}: a list expected")
    return found


def _on_nodes(kind: Any, who: str, values: Mapping[str, Any], *, all_nodes: bool = False) -> Any:
    """A partition or a window from what a file says, its nodes as a list of hosts; none stands for `all_nodes`."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{who} is {shortened(values)}: a JSON object expected")
    given, found = dict(values), []
    if "nodes" in given or not all_nodes:
        hosts = given.get("nodes")
        if not isinstance(hosts, str):
            raise ValueError(f"{who} has nodes {shortened(hosts)}: a list of hosts such as 'n[0-3]' expected")
        for host in expand(hosts):
            if not (host[:1] == "n" and host[1:].isdecimal() and host[1:].isascii()):
                raise ValueError(f"{who} has node {host!r}: n0, n1 ... expected")
            found.append(int(host[1:]))
    try:
        return _make(kind, {**given, "nodes": found})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{who}: {error}") from error


def _named(kind: Any, who: str, values: Any) -> Any:
    """A dataclass of this kind from what a file says; errors name it `who`."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{who} is {shortened(values)}: a JSON object expected")
    try:
        return _make(kind, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{who}: {error}") from error


def _hosts(nodes: Sequence[int]) -> str:
    """Numbers of nodes as a list of hosts.

    >>> _hosts([0, 1, 2, 7])
    'n[0-2,7]'
    """
    runs: list[list[int]] = []
    for node in nodes:
        if runs and node == runs[-1][1] + 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    return f"n[{','.join(f'{first}-{last}' if last > first else str(first) for first, last in runs)}]"


def _make(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass of this kind; lists become tuples."""
    known = {item.name for item in fields(kind)}
    if unknown := set(values) - known:
        raise ValueError(f"{shortened(min(unknown))} is none of {', '.join(sorted(known))}")
    needed = [item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise ValueError(f"there is no {', no '.join(missing)}: {', '.join(needed)} expected")
    for item in fields(kind):
        if (wanted := _JSON.get(str(item.type))) and item.name in values:
            given = values[item.name]
            items = given if "tuple" in str(item.type) else [given]
            if not isinstance(items, list | tuple) or not all(type(each) in wanted for each in items):
                raise ValueError(f"{item.name} is {shortened(given)}: {str(item.type).split(' | None')[0]} expected")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


_JSON = {
    "int": (int,), "int | None": (int,), "float": (int, float), "float | None": (int, float),
    "float | str": (int, float, str), "float | str | None": (int, float, str),
    "str": (str,), "tuple[int, ...]": (int,), "tuple[float, ...]": (int, float), "tuple[str, ...]": (str,),
    "bool": (bool,), "Mapping[str, int]": (dict,), "Mapping[str, Association]": (dict,),
}  # fmt: skip
"""What JSON has for a field of this kind, or its items; true is no number."""


# -- Sites ------------------------------------------------------------------------------------------------------------

_LITTLE = (0.01, 0.05, 0.12, 0.25, 0.45, 0.7, 1.0)
_HALF = (0.02, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""How much of what they request jobs use; the first is what logs show, the second what keeps UPPMAX's queue steady."""
_WORKDAYS = tuple(
    (1.0 if day < 5 else 0.7) * (0.7 if hour < 7 else 1.4 if 9 <= hour < 18 else 1.0)
    for day in range(7)
    for hour in range(24)
)


def _hours(*hours: float) -> tuple[float, ...]:
    return tuple(hour * HOUR for hour in hours)


HPC2N = SiteModel(
    name="hpc2n",
    nodes=602,
    cores_per_node=28,
    load=0.775,
    classes=(
        JobClass(0.41, (1, 2, 4, 7, 14), _hours(2.5, 15, 30, 60), _LITTLE, (1, 1, 2, 4)),
        JobClass(0.38, (28, 28, 56, 84), _hours(2.5, 7.5, 15, 30), _LITTLE, (1, 1, 1, 2)),
        JobClass(0.12, (84, 112, 140, 224, 280), _hours(1.25, 5, 15, 30), _LITTLE, (1, 1, 2)),
        JobClass(0.08, (448, 560, 840, 1120), _hours(1.25, 5, 15), _LITTLE),
    ),
    week=_WORKDAYS,
    swing=0.055,
    swing_s=0.3 * DAY,
    dispatcher="easy",
    note="chosen so that jobs wait as in Table 1 of the ASA paper",
)
"""HPC2N's Kebnekaise: a volatile, short queue."""
UPPMAX = SiteModel(
    name="uppmax",
    nodes=486,
    cores_per_node=20,
    load=0.963,
    classes=(
        JobClass(0.35, (1, 1, 2, 4, 8), _hours(8, 36, 72, 144), _HALF, (1, 1, 1, 2)),
        JobClass(0.26, (20, 20, 20, 40), _hours(8, 36, 72, 108), _HALF),
        JobClass(0.24, (80, 100, 160, 200), _hours(4, 8, 12), _HALF),
        JobClass(0.15, (640,), _hours(2, 4, 8), _HALF),
    ),
    even_s=3.5 * DAY,
    dispatcher="backfill:depth=1,limit=100",
    note="chosen so that jobs wait as in Table 1 of the ASA paper",
)
"""UPPMAX's Rackham: a long queue that changes slowly."""
SITES = {"hpc2n": HPC2N, "uppmax": UPPMAX}


def site(name: str) -> SiteModel:
    """A site model by its name, or from the file of that name.

    Raises
    ------
    UnknownName
        When there is neither.
    InvalidInput
        When the file is not there, or holds no site model.

    Examples
    --------
    >>> site("uppmax").cluster()
    <Cluster of 486 nodes: 9720 cores>
    """
    if name in SITES:
        return SITES[name]
    if Path(name).is_file():
        return SiteModel.read(name)
    if "/" in name or Path(name).suffix:
        raise InvalidInput(
            f"there is no file {name!r}: a site model is one of {', '.join(SITES)}, or a file that `asa calibrate` made"
        )
    raise UnknownName("site", name, SITES)


# -- Fit --------------------------------------------------------------------------------------------------------------

PAUSE = 1200.0
"""Longest time [s] between two jobs of a session."""
HOURS = 168


def fit_site(
    log: Workload, cluster: Cluster, name: str, *, dispatcher: str = "easy", priority: str = "fifo"
) -> SiteModel:
    """A model of the site that this log comes from. It says nothing yet of how long jobs wait there.

    What is measured: the mixture of jobs, by size and request; the offered load; the rate of sessions by hour of the
    week; how many jobs a session has, how quickly they follow each other and how alike they run; and how far the daily
    number of sessions strays from the cycle beyond chance, and for how long.

    Parameters
    ----------
    log
        At least 100 jobs over at least a day, none that the machine would refuse; time 0 is taken to be a Monday's
        midnight (another day only moves the week).
    cluster
        The machine; where it has partitions or QOS, each has a mixture of its own.
    dispatcher, priority
        Settings of the batch system, which a log does not tell.

    Raises
    ------
    InvalidInput
        When the log is too small or has a job that is too large.

    Notes
    -----
    A session is a row of jobs of one user with the same size and request, each within 20 minutes of the one before.
    Jobs of unknown users are sessions of their own. Swings are measured by the method of moments: the variance of daily
    sessions relative to the cycle, less that of a Poisson process, and its correlation from one day to the next.
    """
    if len(log) < 100 or span(log) < DAY:
        raise InvalidInput(
            f"a log of {len(log)} jobs over {span(log) / DAY:.2g} days is too small for a model: "
            "at least 100 jobs and a day expected"
        )
    if (most := int(log.cores.max())) > cluster.cores:
        raise InvalidInput(
            f"the log has jobs of {most} cores, more than the machine's {cluster.cores}: give the machine that the log "
            "is from, or leave those jobs out"
        )
    where, place = _where(log, cluster)
    session, kinds = sessions(log, place), _kinds(cluster)
    _, first = np.unique(session, return_index=True)
    begin = np.sort(log.submit[first])
    cycle = measure(begin, WEEK, HOURS) if span(log) >= WEEK else measure(begin, DAY, 24)
    swing, swing_s = _swings(begin, cycle)
    gap, alike = _inside(log, session)
    return SiteModel(
        name=name,
        nodes=cluster.nodes,
        cores_per_node=max(kinds, key=lambda kind: len(kind.nodes)).cores if kinds else cluster.cores // cluster.nodes,
        load=round(offered_load(log, cluster.cores), 6),
        classes=tuple(
            _with_room(
                replace(each, share=round(each.share * float(np.mean(place[first] == code)), 6), **asked), cluster
            )
            for code, asked in enumerate(where)
            for each in measure_classes(
                log.take(place == code), np.unique(session[place == code], return_inverse=True)[1]
            )
        ),
        week=cycle.weights * (HOURS // len(cycle.weights)),
        gap_s=gap,
        alike=alike,
        swing=swing,
        swing_s=swing_s,
        users=max(1, len(np.unique(log.user[log.user != UNKNOWN]))),
        dispatcher=dispatcher,
        priority=priority,
        note=f"measured on {len(log)} jobs over {span(log) / DAY:.4g} days",
        partitions=cluster.partitions,
        qos=cluster.qos,
        accounts=cluster.accounts,
        requeue_delay_s=cluster.requeue_delay_s,
        safe_limits=cluster.safe_limits,
        kinds=kinds,
    )


def _with_room(jobs: JobClass, cluster: Cluster) -> JobClass:
    """The class; without memory if the largest of its jobs would have no room with as much as its others ask for."""
    return replace(jobs, memory=0) if jobs.memory and max(jobs.cores) > _most_cores(jobs, cluster) else jobs


def _kinds(cluster: Cluster) -> tuple[NodeKind, ...]:
    """All nodes by what they have; none where they are alike, and have but cores."""
    if cluster.uniform and len(cluster.resources) == 1 and not cluster.features:
        return ()
    names: list[list[str]] = [[] for _ in range(cluster.nodes)]
    for name, nodes in cluster.features.items():
        for node in nodes:
            names[node].append(name)
    found: dict[tuple[tuple[int, ...], tuple[str, ...]], list[int]] = {}
    for node, has in enumerate(map(tuple, cluster.capacity.tolist())):
        found.setdefault((has, tuple(names[node])), []).append(node)
    made = []
    for (has, own), alike in found.items():
        amounts = dict(zip(cluster.resources, has, strict=True))
        given: dict[str, Any] = {"cores": amounts.pop("cores"), "memory": amounts.pop("memory", 0)}
        made.append(NodeKind(tuple(alike), features=own, **given, **_as_gres(amounts)))
    return tuple(made)


def _where(log: Workload, cluster: Cluster) -> tuple[list[dict[str, Any]], Ints]:
    """Where jobs go and what they ask for besides cores, as far as the machine has that, and the number of each job's.

    Jobs with GPUs or other Gres are in as many equal parts as their cores and these divide into, others in single
    cores. Memory is the median of those that are alike in all else.
    """
    there = {"partition": cluster.partitions, "qos": cluster.qos, "constraint": cluster.features}
    columns = [column for column, names in there.items() if names]
    held = {
        name: log.units * log.demands[log.kind, place]
        for place, name in enumerate(log.resources)
        if name in cluster.resources
    }
    memory, _ = held.pop("memory", np.zeros(len(log), dtype=np.int64)), held.pop("cores")
    parts = np.gcd.reduce([log.cores, *held.values()])
    codes = np.stack(
        [*(getattr(log, column) for column in columns), *(each // parts for each in (log.cores, *held.values()))]
    )
    _, first, place = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    return [
        {
            **{column: log.label(column, row) for column in columns},
            "unit": int(log.cores[row] // parts[row]),
            **_as_gres({name: int(each[row] // parts[row]) for name, each in held.items()}),
            "memory": int(np.median((memory // parts)[place == code])),
        }
        for code, row in enumerate(first.tolist())
    ], place


def sessions(log: Workload, place: Ints | None = None) -> Ints:
    """Number of each job's session, shape (n,), from 0 on; jobs of two places, as far as these are given, have none in
    common."""
    place = np.zeros(len(log), dtype=np.int64) if place is None else place
    order = np.lexsort((np.arange(len(log)), log.user))
    user, submit, cores = log.user[order], log.submit[order], log.cores[order]
    request = np.nan_to_num(log.walltime[order], nan=-1.0)
    same = np.zeros(len(log), dtype=bool)
    same[1:] = (user[1:] == user[:-1]) & (user[1:] != UNKNOWN) & (np.diff(submit) <= PAUSE)
    same[1:] &= (cores[1:] == cores[:-1]) & (request[1:] == request[:-1]) & (np.diff(place[order]) == 0)
    found = np.empty(len(log), dtype=np.int64)
    found[order] = np.cumsum(~same) - 1
    return found


def _inside(log: Workload, session: Ints) -> tuple[float, float]:
    """Mean time between jobs of a session [s], and the share of its jobs that run as long as each other.

    Two in a row do so (to 10 %) when both are of that share, hence the root.
    """
    order = np.lexsort((np.arange(len(log)), session))
    follows = np.flatnonzero(np.diff(session[order]) == 0)
    if not len(follows):
        return 0.0, 0.0
    gaps = log.submit[order][follows + 1] - log.submit[order][follows]
    run = np.log(log.run[order] + 10.0)  # ten seconds, so that very short jobs are alike
    alike = np.abs(run[follows + 1] - run[follows]) < np.log(1.1)
    return round(float(gaps.mean()), 3), round(float(np.sqrt(alike.mean())), 4)


def _swings(begin: Floats, cycle: Cycle) -> tuple[float, float]:
    """Standard deviation of the logarithm of the rate beyond the cycle, and how long [s] a swing lasts."""
    first = np.floor(begin[0] / DAY)
    days = int(np.floor(begin[-1] / DAY) - first)  # the last one is not whole
    counts = np.bincount(np.floor(begin / DAY - first).astype(np.int64))[:days].astype(np.float64)
    shape = np.diff(cycle.operational((first + np.arange(days + 1)) * DAY))
    expected = shape / max(shape.sum(), 1e-9) * counts.sum()
    kept = expected > 1
    if kept.sum() < 14:
        return 0.0, 2 * DAY
    ratio = counts[kept] / expected[kept] - 1
    beyond = float((ratio**2).mean() - (1 / expected[kept]).mean())
    if beyond <= 0:
        return 0.0, 2 * DAY
    next_day = float(np.clip((ratio[1:] * ratio[:-1]).mean() / beyond, np.exp(-2.0), np.exp(-1 / 14)))
    return round(float(np.sqrt(np.log1p(beyond))), 4), round(-DAY / np.log(next_day), 1)
