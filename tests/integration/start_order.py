"""Who keeps a place in the queue: one experiment for each way to hold a job back, side by side on one cluster.

Each experiment has a lane, a partition of one node that something fills. Of two users one submits C0, C1 and C2, the
other P, which is held back and let go; in the end the lane is emptied and the four start one after the other::

    C0   P   C1   P is held back, unless it came so   P is let go   C2   the lane is emptied

P *kept* its place when it starts between C0 and C1, *lost* it when it starts after C1, and has the *worst* place after
C2. An element of an array has its place from the first element's submission on, which fills the lane: before C0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from asa.backends.slurm import array
from asa.backends.slurm.words import SlurmOptions
from asa.core.job import JobRequest, Resources
from tests.cluster.cluster import Cluster
from tests.cluster.config import ORDINARY_USERS

OTHERS, OWN = ORDINARY_USERS
COMPETITORS = ("C0", "C1", "C2")
_RUN_S = 2
GAP_S = 3.0  # between submissions; Slurm counts ages in whole seconds
PATIENCE_S = 60.0
POLL_S = 0.5
TICK_S = 90.0  # Slurm counts priorities anew, and looks at whole queues, once a minute
# Once, half a minute after it has started, a controller lets all jobs go that it has found impossible: until it finds
# them so again they are not, and under `priority/basic` they have lost their place and are not looked at again.
AMNESTY_S = 35.0

_FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "Reason", "AccrueTime", "PriorityLong", "StartTime")
_UNSET = ("N/A", "Unknown")
_HELD_BACK = ("Dependency", "BeginTime", "JobHeldUser", "JobArrayTaskLimit", "BadConstraints")
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Technique:
    """How P is held back, and let go.

    Parameters
    ----------
    options
        Of its submission.
    at_once, aged, free
        What is told scontrol as soon as P is submitted, once C1 has come, and to let P go. ``{job}``, ``{parent}`` and
        ``{node}`` stand for P, for a job that waits (P's owner's), and for the lane's node.
    parent_ends
        The parent's end lets P go.
    heads
        There is no C0: Slurm looks at constraints of the first job of a queue, under ``priority/basic`` at no other's.
    array
        P is the second element of an array of which one element runs at a time; the first one fills the lane.
    """

    options: Command = ()
    at_once: Command = ()
    aged: Command = ()
    free: Command = ()
    parent_ends: bool = False
    heads: bool = False
    array: bool = False

    @property
    def needs_parent(self) -> bool:
        return any("{parent}" in word for word in self.options + self.at_once + self.aged)


def _update(setting: str) -> Command:
    return ("update", "JobId={job}", setting)


_DEPENDS, _FREE = _update("Dependency=afterok:{parent}"), _update("Dependency=")

TECHNIQUES: dict[str, Technique] = {
    "nothing": Technique(),
    "dependency, at submission": Technique(("--dependency=afterok:{parent}",), free=_FREE),
    "dependency, at submission, until the parent ends": Technique(
        ("--dependency=afterany:{parent}",), parent_ends=True
    ),
    "dependency, once aged": Technique(aged=_DEPENDS, free=_FREE),
    "dependency and a begin time at hand, at submission": Technique(
        ("--begin=now+2", "--dependency=afterok:{parent}"), free=_FREE
    ),
    "begin time at hand, and a dependency before it": Technique(("--begin=now+2",), at_once=_DEPENDS, free=_FREE),
    "begin time, at submission, then moved to now": Technique(("--begin=now+1hour",), free=_update("StartTime=now")),
    "begin time, once aged": Technique(aged=_update("StartTime=now+1hour"), free=_update("StartTime=now")),
    "hold, at submission": Technique(("--hold",), free=("release", "{job}")),
    "hold, once aged": Technique(aged=("hold", "{job}"), free=("release", "{job}")),
    "nice 1,000,000, then 0": Technique(("--nice=1000000",), free=_update("Nice=0")),
    "longer wall time, then shorter": Technique(("--time=20",), free=_update("TimeLimit=1")),
    "all nodes excluded, then none": Technique(
        aged=_update("ExcNodeList={node}"), free=_update("ExcNodeList="), heads=True
    ),
    "array throttle `%1`, then wider": Technique(array=True, free=("update", "JobId={array}", "ArrayTaskThrottle=2")),
    "array throttle `%1`, until the first element ends": Technique(array=True),
}

_ALWAYS, _AGES = ("kept",) * 4, ("kept", "lost", "lost", "kept")
REGIMES = ("fifo", "multifactor", "limits", "accrue-always")
EXPECTED: dict[str, tuple[str, ...]] = {  # by regime; docs/queue-age.md shows it
    "nothing": _ALWAYS,
    "dependency, at submission": _AGES,
    "dependency, at submission, until the parent ends": _AGES,
    "dependency, once aged": ("kept", "kept", "lost", "kept"),
    "dependency and a begin time at hand, at submission": ("kept", "kept", "lost", "kept"),
    "begin time at hand, and a dependency before it": ("kept", "kept", "lost", "kept"),
    "begin time, at submission, then moved to now": ("kept", "worst", "lost", "kept"),
    "begin time, once aged": ("kept", "kept", "lost", "kept"),
    "hold, at submission": ("lost", "lost", "lost", "kept"),
    "hold, once aged": ("lost", "kept", "lost", "kept"),
    "nice 1,000,000, then 0": _ALWAYS,
    "longer wall time, then shorter": _ALWAYS,
    "all nodes excluded, then none": ("lost", "kept", "kept", "kept"),
    "array throttle `%1`, then wider": _ALWAYS,
    "array throttle `%1`, until the first element ends": _ALWAYS,
}

SIZES = {"alike": (2, 2, 2, 2), "none smaller than the one before": (1, 2, 2, 4), "unlike": (2, 1, 4, 1)}
"""Cores of the elements of arrays of which one element runs at a time, on a node of four."""
WEIGHTS: dict[str, dict[str, str]] = {
    "sizes do not count": {},
    "PriorityWeightQOS and PriorityWeightPartition": {
        "PriorityWeightQOS": "50000",
        "PriorityWeightPartition": "50000",
    },
    "PriorityWeightJobSize": {"PriorityWeightJobSize": "100000"},
    "PriorityWeightTRES of CPUs": {"PriorityWeightTRES": "CPU=100000"},
}
_IN_ORDER = dict.fromkeys(SIZES, "0 1 2 3")
_BY_SIZE = {"alike": "0 1 2 3", "none smaller than the one before": "3 1 2 0", "unlike": "2 0 1 3"}
ORDERS: dict[str, dict[str, str]] = {name: _IN_ORDER if number < 2 else _BY_SIZE for number, name in enumerate(WEIGHTS)}
"""By what counts and by their sizes, the order in which they start."""


@dataclass(frozen=True, slots=True)
class Row:
    """How Slurm shows a job; times as it writes them, "" for those it has not."""

    state: str
    reason: str
    ages_since: str
    priority: int
    start: str


@dataclass
class Lane:
    """One experiment: its technique, and the jobs that were submitted, by what they are."""

    name: str
    technique: Technique
    partition: str
    node: str
    jobs: dict[str, str] = field(default_factory=dict)

    @property
    def competitors(self) -> tuple[str, ...]:
        """The other user's jobs, in the order in which they come."""
        return COMPETITORS[self.technique.heads :]

    def fill(self, words: Command) -> list[str]:
        """A command about this lane's jobs."""
        named = self.jobs | {"job": self.jobs.get("P", ""), "array": self.jobs.get("P", "").partition("_")[0]}
        return [word.format(node=self.node, **named) for word in words]


def lanes(cluster: Cluster, names: Iterable[str]) -> list[Lane]:
    """One lane for each technique; a technique may be named again."""
    nodes = enumerate(cluster.nodes)
    return [
        Lane(name, TECHNIQUES[name], cluster.config.lane(number), node)
        for name, (number, node) in zip(names, nodes, strict=True)
    ]


def run(cluster: Cluster, lanes: Sequence[Lane]) -> list[str]:
    """What became of each P: ``kept``, ``lost``, ``worst``, or the order in which the jobs started.

    Raises
    ------
    AssertionError
        When Slurm does not do in time what is waited for.
    """
    experiment = _Experiment(cluster, lanes)
    experiment.fill()
    experiment.compete("C0")
    experiment.submit()
    experiment.compete("C1")
    experiment.hold_back()
    experiment.let_go()
    experiment.compete("C2")
    experiment.empty()
    return [experiment.outcome(lane) for lane in lanes]


def elements(cluster: Cluster) -> dict[str, str]:
    """By `SIZES`, the order in which the elements of an array start that was behind a job that filled its lane.

    Raises
    ------
    AssertionError
        When Slurm does not do in time what is waited for.
    """
    found = [Lane(name, Technique(), cluster.config.lane(at), cluster.nodes[at]) for at, name in enumerate(SIZES)]
    experiment = _Experiment(cluster, found)
    for lane in found:
        lane.jobs["filler"] = experiment.sbatch(lane.partition, OTHERS, "--exclusive", sleep=3600)
    experiment.reach("fill their lanes", "filler", lambda row: row.state == "RUNNING")
    for lane in found:
        first, *_ = sizes = SIZES[lane.name]
        several = f"{lane.partition},main"  # a partition whose factor is another one's half, and whose nodes are busy
        wanted = ("--array=0-3%1", "--begin=now+6", f"--ntasks={first}", f"--nodelist={lane.node}")
        number = experiment.sbatch(several, OWN, *wanted)
        lane.jobs |= {str(at): f"{number}_{at}" for at in range(len(sizes))}
        requests = [JobRequest(f"size{cores}", Resources(cores, unit=1), 60.0, ("true",)) for cores in sizes]
        for at, settings in array.edits(requests, SlurmOptions()):
            words = [word for word in settings if not word.startswith("StdOut=")]
            cluster.run("scontrol", "update", f"JobId={number}_{at}", *words, user=OWN)
    time.sleep(TICK_S)
    cluster.run("scancel", *(lane.jobs["filler"] for lane in found))
    experiment.reach("end", "3", lambda row: row.state in _ENDED, patience_s=120.0)
    experiment.reach("end", "0", lambda row: row.state in _ENDED, patience_s=120.0)
    rows = experiment.rows()
    return {lane.name: " ".join(sorted("0123", key=lambda at: rows[lane.jobs[at]].start)) for lane in found}


class _Experiment:
    def __init__(self, cluster: Cluster, lanes: Sequence[Lane]) -> None:
        self.cluster, self.lanes = cluster, lanes
        self.begun = time.monotonic()
        self.ages = cluster.config.regime != "fifo"

    def fill(self) -> None:
        """Something runs in each lane; P of an array waits already."""
        for lane in self.lanes:
            if lane.technique.needs_parent:
                lane.jobs["parent"] = self.sbatch("main", OWN, "--begin=now+1hour")
            if lane.technique.array:
                number = self.sbatch(lane.partition, OWN, "--array=0-1%1", "--begin=now+4", sleep=3600)
                lane.jobs |= {"filler": f"{number}_0", "P": f"{number}_1"}
            else:
                lane.jobs["filler"] = self.sbatch(lane.partition, OTHERS, sleep=3600)
        self.reach("fill their lanes", "filler", lambda row: row.state == "RUNNING")
        self._settle("P")

    def compete(self, name: str) -> None:
        """The other user's next job."""
        for lane in self.lanes:
            if name in lane.competitors:
                lane.jobs[name] = self.sbatch(lane.partition, OTHERS)
        self._settle(name)

    def submit(self) -> None:
        """P, unless it is in an array."""
        for lane in self.lanes:
            if "P" not in lane.jobs:
                lane.jobs["P"] = self.sbatch(lane.partition, OWN, *lane.fill(lane.technique.options))
                self._tell(lane, lane.technique.at_once)
        self._settle("P")

    def hold_back(self) -> None:
        """P has aged; where it is not held back yet, it may be now."""
        time.sleep(max(self.begun + AMNESTY_S - time.monotonic(), 0.0))
        for lane in self.lanes:
            self._tell(lane, lane.technique.aged)
        heads = [lane for lane in self.lanes if lane.technique.heads]
        self.reach("be found impossible", "P", lambda row: row.reason == "BadConstraints", heads, patience_s=TICK_S)
        time.sleep(GAP_S)

    def let_go(self) -> None:
        """P competes again."""
        for lane in self.lanes:
            self._tell(lane, lane.technique.free)
            if lane.technique.parent_ends:
                self.cluster.run("scancel", lane.jobs["parent"], user=OWN)
        free = [lane for lane in self.lanes if lane.technique.free or lane.technique.parent_ends]
        self.reach("be let go", "P", lambda row: row.state == "RUNNING" or row.reason not in _HELD_BACK, free)
        time.sleep(GAP_S)

    def empty(self) -> None:
        """Once Slurm has counted all priorities anew, the lanes are emptied, and the jobs start one after the other."""
        if self.ages:
            before = max(self.rows()[lane.jobs["C2"]].priority for lane in self.lanes)
            self.reach("be given another priority", "C2", lambda row: row.priority > before, patience_s=TICK_S)
        self.cluster.run("scancel", *(lane.jobs["filler"] for lane in self.lanes))
        for name in (*COMPETITORS, "P"):
            there = [lane for lane in self.lanes if name in lane.jobs]
            self.reach("end", name, lambda row: row.state in _ENDED, there, patience_s=120.0)

    def outcome(self, lane: Lane) -> str:
        """What became of P."""
        rows = self.rows()
        order = sorted((*lane.competitors, "P"), key=lambda name: rows[lane.jobs[name]].start)
        place = order.index("P") + (lane.technique.array or lane.technique.heads)
        others = tuple(name for name in order if name != "P") == lane.competitors
        return {1: "kept", 2: "lost", 3: "worst"}.get(place, "?") if others else " ".join(order)

    def _settle(self, name: str) -> None:
        """Slurm has looked at these jobs, and those that may age do."""

        def settled(row: Row) -> bool:
            return row.reason in _HELD_BACK or bool(row.reason and (row.ages_since or not self.ages))

        there = [lane for lane in self.lanes if name in lane.jobs]
        self.reach("be looked at", name, settled, there)
        time.sleep(GAP_S)

    def reach(
        self,
        what: str,
        name: str,
        reached: Callable[[Row], bool],
        lanes: Sequence[Lane] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Wait until this job has reached something, in all of these lanes (in all there are if None)."""
        wanted = {lane.jobs[name]: lane.name for lane in (self.lanes if lanes is None else lanes)}
        deadline = time.monotonic() + patience_s
        while late := self._late(wanted, reached):
            assert time.monotonic() < deadline, f"{name} did not {what}: {late}"
            time.sleep(POLL_S)

    def _late(self, wanted: Mapping[str, str], reached: Callable[[Row], bool]) -> dict[str, Row]:
        rows = self.rows()
        return {lane: rows[key] for key, lane in wanted.items() if not reached(rows[key])}

    def _tell(self, lane: Lane, words: Command) -> None:
        if words:
            self.cluster.run("scontrol", *lane.fill(words), user=OWN)

    def sbatch(self, partition: str, user: str, *options: str, sleep: int = _RUN_S) -> str:
        wanted = ["--parsable", f"--partition={partition}", "--ntasks=1", "--output=/dev/null"]
        limit = [] if any(option.startswith("--time") for option in options) else [f"--time={1 + sleep // 60}"]
        program = f"if [ ${{SLURM_ARRAY_TASK_ID:-0}} = 0 ]; then exec sleep {sleep}; else exec sleep {_RUN_S}; fi"
        return self.cluster.run("sbatch", *wanted, *limit, *options, f"--wrap={program}", user=user).strip()

    def rows(self) -> Mapping[str, Row]:
        wanted = ",".join(f"{name}:|" for name in _FIELDS)
        told = self.cluster.run("squeue", "--noheader", "--all", "--array", "--states=all", f"--Format={wanted}")
        return dict(_row(*line.split("|")[: len(_FIELDS)]) for line in told.splitlines() if line.strip())


def _row(array: str, index: str, state: str, reason: str, ages: str, priority: str, start: str) -> tuple[str, Row]:
    key = f"{array}_{index}" if index.isdigit() else array
    known = ["" if text in _UNSET else text for text in (ages, start)]
    return key, Row(state, "" if reason == "None" else reason, known[0], int(priority), known[1])


def documented(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Techniques and what becomes of P in each regime, from the table of docs/queue-age.md; and by what counts, the
    orders in which elements of arrays start."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] in TECHNIQUES:
            yield cells[0], tuple(cell.replace("*", "").split()[0] for cell in cells[1:])
        elif line.startswith("|") and cells[0] in WEIGHTS:
            yield cells[0], tuple(cells[1:])
