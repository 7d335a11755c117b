"""A machine under Slurm and its queue as they are now, as the simulator has them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asa.backends.slurm.backend import NOT_ELIGIBLE
from asa.backends.slurm.commands import DELIMITER, parse_time, parse_wall_time, rows
from asa.backends.slurm.words import state_of_word
from asa.core.arrays import Ints
from asa.core.decision import NodeRun
from asa.core.errors import BackendError, InvalidInput
from asa.core.hostlist import expand
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster, NodeWindow, Partition
from asa.lab.core.workload import Workload
from asa.lab.forecast.twin import Snapshot
from asa.lab.traces.accounting import coded, gres, tres
from asa.lab.traces.slurm import ASSOCIATION, SlurmSite, parse_slurm

AGAIN_S = 600.0
"""Nodes, partitions, limits and reservations are read again after so long [s]."""

MACHINE = (
    ("scontrol", "show", "config"),
    ("scontrol", "--all", "show", "partition"),
    ("scontrol", "--all", "show", "node"),
)
LIMITS = (
    ("sacctmgr", "--parsable2", "show", "qos"),
    ("sacctmgr", "--parsable2", "show", "assoc", f"format={','.join(ASSOCIATION)}"),
)
RESERVATIONS = ("scontrol", "--all", "--oneliner", "show", "reservation")
FIELDS = (
    "ArrayJobID", "ArrayTaskID", "UserName", "Account", "Partition", "QOS", "State", "Reason", "PriorityLong",
    "NumCPUs", "NumNodes", "NumTasks", "TimeLimit", "SubmitTime", "StartTime", "EndTime", "tres-alloc", "tres-per-job",
    "tres-per-node", "tres-per-task", "OverSubscribe", "NodeList", "Feature", "Name",
)  # fmt: skip
BEHIND = "|/|"
"""Stands behind features, which may have the usual delimiter between them, and before the name."""
QUEUE = (
    "squeue", "--noheader", "--all", "--array",
    "--Format=" + ",".join(f"{name}:{BEHIND if name == 'Feature' else DELIMITER}" for name in FIELDS),
)  # fmt: skip

_NOTHING = ("", "N/A", "None", "Unknown", "(null)", "NONE")
_HIDDEN = {
    "jobs": "jobs of other users", "nodes": "nodes", "partitions": "partitions", "accounts": "limits of accounts",
    "users": "limits of users", "reservations": "reservations",
}  # fmt: skip
"""What the words of ``PrivateData`` keep from ordinary users."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as squeue shows it; `cores` and so on are those of all its nodes, `gres` GPUs and other Gres by name."""

    key: str
    fields: Mapping[str, str]
    runs: bool
    cores: int
    nodes: int
    memory: int
    gres: Mapping[str, int]
    hosts: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Into how many equal parts it falls: one for each node, where that comes out even; else what may be put
        anywhere, such as tasks."""
        amounts = self.cores, *self.gres.values()
        whole = self.runs or self.nodes > 1 or self.exclusive
        tasks = int(self.fields["NumTasks"]) if self.fields["NumTasks"].isdecimal() else 1
        for parts in (self.nodes if whole else tasks, tasks):
            if parts >= (self.nodes if whole else 1) and not any(amount % parts for amount in amounts):
                return parts
        return math.gcd(*amounts)

    @property
    def exclusive(self) -> bool:
        """Whether it asks for its nodes alone."""
        return self.fields["OverSubscribe"] in ("NO", "EXCLUSIVE")


class SlurmQueue:
    """Looks at a Slurm: one call for the queue, and six more now and then for what seldom changes.

    Parameters
    ----------
    ask
        Says what a command of Slurm's prints.
    now
        The time [s since the epoch].
    """

    def __init__(self, ask: Callable[[Sequence[str]], str], now: Callable[[], float]) -> None:
        self._ask, self._now = ask, now
        self._read, self._left_out = -math.inf, list[str]()
        self._site: SlurmSite | None = None

    def look(self) -> Snapshot:
        """The machine and its queue.

        Raises
        ------
        BackendError
            When Slurm does not answer.
        InvalidInput
            When what it says of the machine cannot be read, or it shows no nodes.
        """
        if self._site is None or self._now() >= self._read + AGAIN_S:
            self._site = self._machine()
            self._read = self._now()
        text = self._ask(QUEUE)
        return snapshot(self._now(), self._site, text, self._left_out)

    def _machine(self) -> SlurmSite:
        texts = [self._ask(command) for command in MACHINE]
        config = {
            name.strip(): value.strip() for name, _, value in (line.partition("=") for line in texts[0].split("\n"))
        }
        hidden = {word.strip() for word in config.get("PrivateData", "").split(",")}
        self._left_out = [f"{what} that Slurm hides (PrivateData)" for word, what in _HIDDEN.items() if word in hidden]
        if "limits" in config.get("AccountingStorageEnforce", "") or config.get("PreemptType") == "preempt/qos":
            for what, command in zip(("limits of QOS", "limits of accounts"), LIMITS, strict=True):
                texts.append(self._perhaps(what, command))
        site = parse_slurm("\n".join(texts))
        if site.cluster.has_budgets:
            self._left_out.append("what was used before of GrpTRESMins and GrpWall")
        windows, others = parse_reservations(self._perhaps("reservations", RESERVATIONS), site.cluster.names)
        self._left_out += others
        self._left_out += [each for each in site.not_simulated if not each.startswith(_NOT_OF_MACHINES)]
        return replace(site, cluster=replace(site.cluster, windows=windows))

    def _perhaps(self, what: str, command: Sequence[str]) -> str:
        try:
            return self._ask(command)
        except BackendError as error:
            self._left_out.append(f"{what} ({command[0]}: {str(error).splitlines()[0][:80]})")
            return ""


_NOT_OF_MACHINES = (
    "AccountingStorageTRES", "State of", "Priority", "Scheduler", "shares", "bf_", "sched_", "batch_sched", "defer",
)  # fmt: skip
"""Beginnings of what the simulator lacks that makes no difference here: queues stand in the order that Slurm shows."""


def parse_reservations(text: str, names: Sequence[str]) -> tuple[tuple[NodeWindow, ...], list[str]]:
    """The windows that ``scontrol --oneliner show reservation`` describes, and which reservations cannot be read."""
    number, found, others = {name: place for place, name in enumerate(names)}, list[NodeWindow](), list[str]()
    for line in text.splitlines():
        each = dict(word.split("=", 1) for word in reversed(line.split()) if "=" in word)
        if (name := each.get("ReservationName", "")) == "":
            continue
        begin, end = parse_time(each.get("StartTime", "")), parse_time(each.get("EndTime", ""))
        hosts = [] if each.get("Nodes", "") in _NOTHING else expand(each["Nodes"])
        nodes = tuple(number[host] for host in hosts if host in number)
        if begin is None or end is None or not nodes:
            others.append(f"reservation {name[:40]}")
            continue
        if each.get("Accounts", "") not in _NOTHING:
            others.append(f"that accounts may use reservation {name[:40]}")
        users = () if each.get("Users", "") in _NOTHING else tuple(each["Users"].split(","))
        found.append(NodeWindow(begin, max(end, begin + 1.0), nodes, name, users))
    return tuple(found), others


def snapshot(now: float, site: SlurmSite, text: str, left_out: Sequence[str] = ()) -> Snapshot:
    """The machine with its queue, from what `QUEUE` prints; times [s since the epoch].

    Jobs that run on several nodes are taken to have as much on each, where that comes out even. A job that waits for
    several partitions has the first of them that is there. Nodes that take no jobs have what runs on them, and no more.
    """
    cluster, said = site.cluster, Counter[str]()
    number = {name: place for place, name in enumerate(cluster.names)}
    found = [job for row in rows(text, "squeue", len(FIELDS) - 1) if (job := _job(row, number)) is not None]
    jobs = [job for job in found if job.runs] + sorted((job for job in found if not job.runs), key=_order)
    partition = [_first(job.fields["Partition"].split(","), cluster.partitions, said) for job in jobs]
    qos = [_first([job.fields["QOS"]], cluster.qos, said) for job in jobs]
    constraint = [_constraint(job.fields["Feature"], cluster, said) for job in jobs]
    units = np.array([job.parts for job in jobs], dtype=np.int64)
    needs = np.array(
        [_needs(job, count, cluster, place) for job, count, place in zip(jobs, units.tolist(), partition, strict=True)],
        dtype=np.int64,
    ).reshape(-1, len(cluster.resources))
    demands, kind = np.unique(needs, axis=0, return_inverse=True)
    nodes = tuple(_spread(job.hosts, count) for job, count in zip(jobs, units.tolist(), strict=True) if job.runs)
    columns: dict[str, Any] = {"partition": partition, "qos": qos}
    labels = {"partition": tuple(cluster.partitions), "qos": tuple(cluster.qos)}
    for column, texts in (
        ("user", [job.fields["UserName"] for job in jobs]),
        ("group", [job.fields["Account"] for job in jobs]),
        ("name", [job.fields["Name"] for job in jobs]),
        ("constraint", constraint),
    ):
        columns[column], labels[column] = coded(texts)
    walltime = [parse_wall_time(job.fields["TimeLimit"]) or math.nan for job in jobs]
    started = [min(parse_time(job.fields["StartTime"]) or now, now) for job in jobs if job.runs]
    return Snapshot(
        now,
        _as_it_is(site, nodes, needs),
        Workload.of(
            submit=np.full(len(jobs), now),
            run=np.nan_to_num(walltime, nan=0.0),
            walltime=walltime,
            units=units,
            kind=kind.reshape(-1),
            demands=demands if len(demands) else np.zeros((1, len(cluster.resources))),
            resources=cluster.resources,
            per_node=[
                int(not job.runs and (job.nodes > 1 or job.exclusive) and job.parts == job.nodes) for job in jobs
            ],
            labels=labels,
            **columns,
        ),
        np.array([min(parse_time(job.fields["SubmitTime"]) or now, now) for job in jobs], dtype=np.float64),
        np.array(started, dtype=np.float64),
        nodes,
        tuple(job.key for job in jobs),
        (*left_out, *(f"{what} of {count:,} jobs" for what, count in said.items())),
    )


def _job(row: Sequence[str], number: Mapping[str, int]) -> SlurmJob | None:
    """A job that runs, or waits and may start; None for another one."""
    *others, last = row
    feature, _, name = last.partition(BEHIND)
    fields = dict(zip(FIELDS, (*others, feature, name.removesuffix(DELIMITER)), strict=True))
    hosts = [] if fields["NodeList"] in _NOTHING else expand(fields["NodeList"])
    state = state_of_word(fields["State"], holds_nodes=bool(hosts))
    runs = state is JobState.RUNNING and bool(hosts)
    waits = state is JobState.PENDING and fields["Reason"] not in NOT_ELIGIBLE and fields["PriorityLong"] != "0"
    if not (runs or waits):
        return None
    held = tres(fields["tres-alloc"])
    known = tuple(number[host] for host in hosts if host in number)
    cores, nodes, memory = (int(held.pop(name, 0)) for name in ("cores", "nodes", "memory"))
    nodes = len(known) if runs else max(nodes, _whole(fields["NumNodes"]), 1)
    array, index = fields["ArrayJobID"], fields["ArrayTaskID"]
    return SlurmJob(
        key=f"{array}_{index}" if index.isdecimal() else array,
        fields=fields,
        runs=runs,
        cores=max(cores, _whole(fields["NumCPUs"]), 1),
        nodes=nodes,
        memory=memory,
        gres=_gres(held, fields, nodes),
        hosts=known,
    )


def _gres(held: Mapping[str, float], fields: Mapping[str, str], nodes: int) -> dict[str, int]:
    """What a job has, or asks for, of GPUs and other Gres; of what accounting does not count, what it asks for."""
    found = {name: int(amount) for name, amount in held.items() if amount}
    for field, times in (("job", 1), ("node", nodes), ("task", _whole(fields["NumTasks"]))):
        words = fields[f"tres-per-{field}"].replace("gres/", "").replace("gres:", "")
        for name, amount in gres(words)[0].items():
            found[name] = max(found.get(name, 0), times * amount)
    return found


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 11 else 0


def _order(job: SlurmJob) -> Any:
    """The highest priority first, then as they were submitted."""
    submitted = parse_time(job.fields["SubmitTime"]) or 0.0
    return -_whole(job.fields["PriorityLong"]), submitted, [int(part) for part in re.findall(r"\d+", job.key)]


def _first(names: Sequence[str], known: Mapping[str, object], said: Counter[str]) -> int:
    """The number of the first of these names that is known, or -1."""
    if not known:
        return -1
    found = next((name for name in names if name in known), None)
    if len(names) > 1:
        said["all partitions but the first"] += 1
    return -1 if found is None else list(known).index(found)


def _constraint(text: str, cluster: Cluster, said: Counter[str]) -> str:
    if text in _NOTHING:
        return ""
    try:
        cluster.allowed(0, text)
    except InvalidInput:
        said[f"constraint {text[:40]}"] += 1
        return ""
    return text


def _needs(job: SlurmJob, parts: int, cluster: Cluster, partition: int) -> list[int]:
    """What each part takes of what nodes have; a part of a job that has its nodes alone takes all cores of one."""
    amounts = {"cores": job.cores // parts, "memory": -(-job.memory // parts)}
    amounts |= {name: amount // parts for name, amount in job.gres.items()}
    if job.exclusive and not job.runs:
        cores = cluster.capacity[list(cluster.all_partitions[max(partition, 0)].nodes), 0]
        enough = cores[cores >= amounts["cores"]]
        amounts["cores"] = int(enough.min()) if len(enough) else amounts["cores"]
    return [amounts.get(name, 0) for name in cluster.resources]


def _spread(hosts: Sequence[int], units: int) -> tuple[NodeRun, ...]:
    """So many units on these nodes, as evenly as it goes."""
    each, more = divmod(units, max(len(hosts), 1))
    return tuple(NodeRun(host, host, each + (k < more)) for k, host in enumerate(hosts) if each + (k < more))


def _as_it_is(site: SlurmSite, nodes: Sequence[Sequence[NodeRun]], needs: Ints) -> Cluster:
    """The machine with room for all that runs; nodes that take no jobs have no more than that, and are in no partition
    that has others."""
    cluster, used = site.cluster, np.zeros_like(site.cluster.capacity)
    for runs, need in zip(nodes, needs, strict=False):
        for first, _, count in runs:
            used[first] += count * need
    capacity, away = np.maximum(cluster.capacity, used), {*site.away}
    capacity[list(away)] = used[list(away)]
    if not away:
        return replace(cluster, capacity=capacity)
    every = cluster.partitions or {"all": Partition(tuple(range(cluster.nodes)))}
    partitions = {
        name: replace(each, nodes=tuple(node for node in each.nodes if node not in away) or each.nodes)
        for name, each in every.items()
    }
    return replace(cluster, capacity=capacity, partitions=partitions)
