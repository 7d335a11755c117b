"""What Slurm says of itself: nodes, partitions, QOS, accounts, priorities and backfill, as the simulator has them.

From one file with the text of these commands, in any order; the last two may be left out where there is no accounting::

    scontrol show config
    scontrol --all show partition
    scontrol show node
    sacctmgr --parsable2 show qos
    sacctmgr --parsable2 show assoc format=Cluster,Account,ParentName,User,Share,GrpJobs,...

The last one's columns are `ASSOCIATION`; of those after ``Share`` any may be missing.

What decides which job starts when, and has no counterpart in the simulator, is named setting by setting.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput, cause
from asa.core.hostlist import expand
from asa.lab.core.cluster import (
    FROM_ABOVE,
    MOST_NODES,
    ROOT,
    Association,
    Cluster,
    ClusterAccount,
    Partition,
    Qos,
    resources_in,
)
from asa.lab.core.files import LARGEST, shortened
from asa.lab.traces.accounting import gres, gres_column, seconds

MOST_BYTES = 2**26
"""Largest file that is read; ten thousand nodes come to 10^7 bytes."""

ASSOCIATION = (
    "Cluster", "Account", "ParentName", "User", "Share", "GrpJobs", "GrpSubmit", "GrpTRES", "MaxJobs", "MaxSubmit",
    "MaxTRES", "GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESMins", "MaxWall", "Partition",
)  # fmt: skip
"""Columns to ask for of ``sacctmgr show assoc``."""

_NOTHING = {"", "(null)", "N/A", "NONE", "NO", "0", "none", "None", "No", "no"}
_SETTING = re.compile(r"(\w[\w.\[\]/]{0,80})\s+=\s?(.*)")
_AWAY = re.compile(r"DOWN|DRAIN|FAIL|MAINT|NOT_RESP|\*")
_ENDLESS = {"UNLIMITED", "INFINITE"}
_SHOWN = 200  # letters of what is said of a setting
_NEVER = 10**12  # s, a half-life after which usage has not decayed

# -- What has no influence, and which values say nothing --------------------------------------------------------------

_CONFIG = {
    "BurstBufferType": (), "CompleteWait": ("0 sec",), "DependencyParameters": (), "JobSubmitPlugins": (),
    "MCSPlugin": ("mcs/none",), "NodeFeaturesPlugins": (), "OverTimeLimit": ("0 min",),
    "PreemptParameters": (), "SelectType": ("select/cons_tres", "select/cons_res"),
    "SelectTypeParameters": ("CR_CORE", "CR_CPU", "CR_CORE_MEMORY", "CR_CPU_MEMORY"), "SuspendTime": ("INFINITE",),
    "TopologyPlugin": ("topology/none", "topology/default", "topology/flat"), "Licenses": (),
}  # fmt: skip
"""Settings of the whole that decide which job starts when, with the values that say what the simulator does."""
_CONFIG_OF_PRIORITY = {
    "FairShareDampeningFactor": ("1",), "PriorityFavorSmall": (), "PrioritySiteFactorPlugin": (),
    "PriorityUsageResetPeriod": (), "PriorityWeightAssoc": (), "PriorityWeightTRES": (),
}  # fmt: skip
"""The same of the multifactor priority."""
_LATE = (
    "batch_sched_delay", "bf_continue", "bf_max_time", "bf_resolution", "bf_window_linear",
    "bf_yield_interval", "bf_yield_rpc_cnt", "bf_yield_sleep", "defer", "defer_batch", "max_rpc_cnt",
    "sched_interval", "sched_max_job_start", "sched_min_interval",
)  # fmt: skip
"""Parameters that say how often Slurm looks at its queue, and how exactly."""

_LATER_S = 0.003
"""How much later than after `bf_interval` the backfill scheduler looks again [s]: it sleeps for so long between two
passes, which were 1 to 4 ms further apart (docs/lab/accuracy.md). So they drift past those of the main scheduler."""
_PARTITION = {
    "AllowGroups": ("ALL",), "AllowAccounts": ("ALL",), "AllowQos": ("ALL",), "AllocNodes": ("ALL",), "QoS": (),
    "ExclusiveUser": (), "Exclusive": (), "LLN": (), "MinNodes": ("1",), "MaxCPUsPerNode": ("UNLIMITED",),
    "MaxCPUsPerSocket": ("UNLIMITED",), "RootOnly": (), "ReqResv": (), "OverSubscribe": (),
    "OverTimeLimit": (), "State": ("UP",), "SelectTypeParameters": (), "JobDefaults": (), "Alternate": (),
    "DenyAccounts": (), "DenyQos": (), "DenyGroups": (), "Topology": (),
}  # fmt: skip
_PARTITION_OTHERS = {
    "PartitionName", "Nodes", "MaxTime", "DefaultTime", "MaxNodes", "PriorityTier", "Default",  # read
    "PriorityJobFactor", "PreemptMode", "GraceTime",  # read, or named, where there is such a priority or preemption
    "DisableRootJobs", "Hidden", "TotalCPUs", "TotalNodes", "TRES", "TRESBillingWeights", "DefMemPerNode",
    "DefMemPerCPU", "MaxMemPerNode", "MaxMemPerCPU", "CpuBind", "NodeSets", "ResumeTimeout", "SuspendTimeout",
    "SuspendTime", "PowerDownOnIdle",
}  # fmt: skip
_QOS = {
    "UsageFactor": ("1", "1.000000"), "LimitFactor": ("1.000000",),
    "Flags": ("DenyOnLimit", "NoDecay", "DenyOnLimit,NoDecay"),
}  # fmt: skip
_QOS_OTHERS = {
    "Name", "ID", "Description", "Priority", "Preempt", "PreemptMode", "PreemptExemptTime", "GraceTime",
}  # fmt: skip
_MINUTES = {
    "GrpTRESMins": "grp_{}_minutes", "GrpTRESRunMins": "grp_{}_run_minutes", "GrpWall": "grp_wall_minutes",
    "MaxTRESMins": "max_{}_minutes",
}  # fmt: skip
_QOS_LIMITS = {
    "MaxJobsPU": "max_jobs_per_user", "MaxSubmitPU": "max_submit_jobs_per_user", "MaxTRESPU": "max_{}_per_user",
    "GrpJobs": "grp_jobs", "GrpSubmit": "grp_submit_jobs", "GrpTRES": "grp_{}", "MaxTRES": "max_{}",
    "MaxWall": "max_time_s", **_MINUTES,
}  # fmt: skip
_ASSOCIATION_LIMITS = {
    "GrpJobs": "grp_jobs", "GrpSubmit": "grp_submit_jobs", "GrpTRES": "grp_{}", "MaxJobs": "max_jobs",
    "MaxSubmit": "max_submit_jobs", "MaxTRES": "max_{}", "MaxWall": "max_time_s", **_MINUTES,
}  # fmt: skip
_TRES = {"cpu": "cores", "node": "nodes", "mem": "memory", "gres/gpu": "gpus"}
_TRES_OF_MINUTES = {"cpu": "core", "gres/gpu": "gpu"}
_BYTES = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([KMGTP]?)")


@dataclass(frozen=True)
class SlurmSite:
    """A machine as Slurm runs it.

    Parameters
    ----------
    cluster
        The nodes under their names, those of the lowest weight first, with GPUs by type, other Gres and features, and
        with memory where Slurm counts it; the partitions (the default one first), the QOS (``normal`` first), and the
        accounts where shares count.
    dispatcher, priority
        As `asa.lab.simulator.run.simulate` takes them.
    not_simulated
        What Slurm does besides, one setting or a few alike in each text.
    away
        Numbers of the nodes that take no jobs now.
    """

    cluster: Cluster
    dispatcher: str
    priority: str
    not_simulated: tuple[str, ...]
    away: tuple[int, ...] = ()


def read_slurm(path: str | Path) -> SlurmSite:
    """The site that a file describes, see the top of this module.

    Raises
    ------
    InvalidInput
        When the file cannot be read, has more than `MOST_BYTES`, lacks one of the first three, or a value in it is
        none.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {cause(error)}") from error
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"{path} has more than {MOST_BYTES:,} bytes: what scontrol and sacctmgr show expected")
    try:
        return parse_slurm(data.decode("utf-8", errors="backslashreplace"))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def parse_slurm(text: str) -> SlurmSite:
    """As `read_slurm`, of the text."""
    config, partitions, nodes, services, associations = _sections(text)
    for what, found in (("config", config), ("partition", partitions), ("node", nodes)):
        if not found:
            raise InvalidInput(f"there is nothing of `scontrol show {what}` in it: expected, with the other two")
    said: list[str] = []
    weights = {
        name: _whole(each.get("Weight", "1"), f"node {shortened(name)} has Weight", 32) for name, each in nodes.items()
    }
    nodes = {name: nodes[name] for name in sorted(nodes, key=weights.__getitem__)}  # as Slurm takes them
    machine = _machine(nodes, said, memory="MEMORY" in config.get("SelectTypeParameters", "").upper())
    said += _unrecorded(machine, config)
    names = machine.names
    made = _partitions(partitions, names, said)
    enforced = config.get("AccountingStorageEnforce", "").split(",")
    timed = "limits" in enforced and _timed(config, [*services.values(), *associations], said)
    qos = _qos(services, limits="limits" in enforced, said=said)
    made, qos = _preemption(config, partitions, services, made, qos, said)
    priority = _priority(config, partitions, qos, said, timed=timed)
    own = [each for each in associations if each["Cluster"] == config.get("ClusterName", each["Cluster"])]
    accounts = _accounts(own, made, shares="fairshare=" in priority, limits="limits" in enforced, said=said)
    if not (any(map(_changes, qos.values())) or "qos=" in priority):
        qos = {}  # it changes nothing
    longest = max((each.max_time_s for each in made.values()), default=math.inf)
    dispatcher = _dispatcher(config, longest, said)
    said += _others("", config, _CONFIG)
    cluster = replace(
        machine,
        partitions=made,
        qos=qos,
        accounts=accounts,
        safe_limits="safe" in enforced,
        requeue_delay_s=_requeue_delay(config),
    )
    return SlurmSite(cluster, dispatcher, priority, tuple(dict.fromkeys(each[:_SHOWN] for each in said)), _away(nodes))


Fields = dict[str, str]


def _sections(text: str) -> tuple[Fields, dict[str, Fields], dict[str, Fields], dict[str, Fields], list[Fields]]:
    """The configuration; partitions, nodes and QOS by name; associations. Where a name comes twice in one of them, the
    first counts: texts of people, such as the reason for which a node is down, come last."""
    config: Fields = {}
    blocks: dict[str, dict[str, Fields]] = {"PartitionName": {}, "NodeName": {}}
    services: dict[str, Fields] = {}
    associations: list[Fields] = []
    block: Fields | None = None
    heading: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        kind, _, rest = line.partition("=")
        if kind in blocks:
            name = rest.split(None, 1)[0] if rest.split() else ""
            if not name or name in blocks[kind]:
                raise InvalidInput(f"line {number}: {kind} {shortened(name)} is empty, or there twice: a name expected")
            block = blocks[kind][name] = {}
        if block is not None and (kind in blocks or line[:1] in (" ", "\t")):
            for word in line.split():
                key, is_setting, value = word.partition("=")
                if is_setting:
                    block.setdefault(key, value)
            continue
        block = None
        if found := _SETTING.match(line):
            config.setdefault(found[1], found[2].strip())
        elif line.startswith(("Name|", "Cluster|")):
            heading = line.strip().split("|")
        elif heading and "|" in line:
            row = line.strip("\r\n").split("|")
            if heading[0] == "Cluster":
                associations.append(_association(number, heading, row))
                continue
            if len(row) != len(heading) or not row[0] or row[0] in services:
                raise InvalidInput(
                    f"line {number}: {shortened(line)} is no QOS, or one that was there: {len(heading)} fields with "
                    "'|' between them, a new name first, expected"
                )
            services[row[0]] = dict(zip(heading, row, strict=True))
    return config, blocks["PartitionName"], blocks["NodeName"], services, associations


def _association(number: int, heading: Sequence[str], row: Sequence[str]) -> Fields:
    """A row of ``show assoc``."""
    if len(row) != len(heading) or not {*ASSOCIATION[:5]} <= {*heading}:
        raise InvalidInput(
            f"line {number}: {shortened('|'.join(row))} is no association: what `sacctmgr --parsable2 show assoc "
            f"format={','.join(ASSOCIATION)}` prints expected"
        )
    return dict(zip(heading, row, strict=True))


def _machine(nodes: Mapping[str, Fields], said: list[str], *, memory: bool) -> Cluster:
    if len(nodes) > MOST_NODES:
        raise InvalidInput(f"{len(nodes):,} nodes: at most {MOST_NODES:,} expected")
    amounts, features, others, mixed = list[dict[str, int]](), dict[str, list[int]](), Counter[str](), 0
    for place, (name, each) in enumerate(nodes.items()):
        who = f"node {shortened(name)} has"
        cores = _whole(each.get("CPUEfctv") or each.get("CPUTot", ""), f"{who} CPUTot")
        if not cores:
            raise InvalidInput(f"{who} CPUTot 0: at least one expected")
        mebibytes = 0
        if memory:
            kept = _whole(each.get("MemSpecLimit", "0"), f"{who} MemSpecLimit")
            mebibytes = max(_whole(each.get("RealMemory", ""), f"{who} RealMemory") - kept, 1)
        has, rest = gres(each.get("Gres", ""))
        others.update(rest)
        mixed += sum(name.startswith("gpus:") and amount < has["gpus"] for name, amount in has.items()) > 0
        amounts.append({"cores": cores, "memory": mebibytes * 2**20, **has})
        words = each.get("ActiveFeatures", "")
        for feature in [] if words in _NOTHING else words.split(","):
            features.setdefault(feature, []).append(place)
    if mixed:
        said.append(f"which GPUs jobs have that name no type, on {mixed:,} nodes of several types (any that are left)")
    said += [f"Gres={each} of {count:,} nodes" for each, count in others.items()]
    if away := _away(nodes):
        said.append(f"State of {len(away):,} nodes, which take no jobs now")
    resources = resources_in(amounts)
    said += [f"that {name} are parts of GPUs" for name in resources if name in ("gres/shard", "gres/mps")]
    return Cluster(
        np.array([[has.get(name, 0) for name in resources] for has in amounts], dtype=np.int64),
        resources,
        names=tuple(nodes),
        features={name: tuple(places) for name, places in features.items()},
    )


def _away(nodes: Mapping[str, Fields]) -> tuple[int, ...]:
    """Numbers of the nodes that take no jobs; those that are powered down do."""
    states = (re.sub(r"POWER\w*", "", each.get("State", "")) for each in nodes.values())
    return tuple(place for place, state in enumerate(states) if _AWAY.search(state))


def _unrecorded(machine: Cluster, config: Fields) -> list[str]:
    """What nodes have, and Slurm does not record of jobs."""
    recorded = {gres_column(each.removeprefix("gres/")) for each in config.get("AccountingStorageTRES", "").split(",")}
    lacking = [name for name in machine.resources[1:] if name != "memory" and name not in recorded]
    if not lacking or "AccountingStorageTRES" not in config:
        return []
    return [f"AccountingStorageTRES is without {', '.join(lacking)} (sacct does not say which jobs ask for them)"]


def _partitions(given: Mapping[str, Fields], names: Sequence[str], said: list[str]) -> dict[str, Partition]:
    """The partitions, the default one first; none where one has all nodes and no limits, and is alone."""
    number, made = {name: place for place, name in enumerate(names)}, {}
    for name in sorted(given, key=lambda each: given[each].get("Default") != "YES"):
        each, who = given[name], f"partition {shortened(name)} has"
        said += _others(f"partition {name}: ", each, _PARTITION, _PARTITION_OTHERS)
        hosts = each.get("Nodes", "")
        nodes = [] if hosts in _NOTHING else [number[host] for host in expand(hosts) if host in number]
        if not nodes:
            said.append(f"partition {name} (it has none of the nodes)")
            continue
        longest = _time(each.get("MaxTime", "UNLIMITED"), f"{who} MaxTime")
        text = each.get("DefaultTime", "NONE")
        usual = None if text in _NOTHING else min(_time(text, f"{who} DefaultTime"), longest)
        most = each.get("MaxNodes", "UNLIMITED")
        made[name] = Partition(
            tuple(nodes),
            max_time_s=longest,
            default_time_s=usual,
            max_nodes=0 if most in _ENDLESS else _whole(most, f"{who} MaxNodes"),
            tier=_whole(each.get("PriorityTier", "1"), f"{who} PriorityTier"),
        )
    if not made:
        raise InvalidInput("no partition has any of the nodes: what `scontrol show` says of one cluster expected")
    plain = Partition(tuple(range(len(names))))
    alone = len(made) == 1 and replace(*made.values(), default_time_s=None, tier=1) == plain
    return {} if alone else made


def _qos(given: Mapping[str, Fields], *, limits: bool, said: list[str]) -> dict[str, Qos]:
    """The QOS, ``normal`` first; only what Slurm enforces, and the simulator has, is in them."""
    made = {}
    for name in sorted(given, key=lambda each: each != "normal"):
        each = given[name]
        who = f"QOS {shortened(name)} has"
        found, others = _limits(each, _QOS_LIMITS, who)
        said += _others(f"QOS {name}: ", others, _QOS, _QOS_OTHERS, all_of_them=True)
        if not limits and found:
            said.append(f"QOS {name}: limits (AccountingStorageEnforce has none enforced)")
            found = {}
        found["decays"] = "NoDecay" not in each.get("Flags", "").split(",")
        made[name] = Qos(priority=_whole(each.get("Priority", "") or "0", f"{who} Priority"), **found)
    return made


def _limits(each: Fields, columns: Mapping[str, str], who: str) -> tuple[dict[str, Any], Fields]:
    """What these columns say, by the names of limits here; and what else all columns say."""
    found: dict[str, Any] = {}
    others = dict(each)
    for column, key in columns.items():
        text, others[column] = each.get(column, ""), ""
        if "TRES" in column:
            parts = dict(part.partition("=")[::2] for part in text.split(",") if part)
            known = _TRES_OF_MINUTES if column in _MINUTES else _TRES
            for tres, name in known.items():
                if tres in parts:
                    read = _bytes if tres == "mem" else _minutes if column in _MINUTES else _whole
                    found[key.format(name)] = read(parts[tres], f"{who} {column} {tres}")
            others[column] = ",".join(f"{tres}={value}" for tres, value in parts.items() if tres not in known)
        elif column in ("MaxWall", "GrpWall"):
            if (longest_s := _time(text or "UNLIMITED", f"{who} {column}", none=True)) < math.inf:
                found[key] = longest_s if column == "MaxWall" else int(longest_s // 60)
        elif text:
            found[key] = _whole(text, f"{who} {column}")
    return found, others


def _timed(config: Fields, rows: Sequence[Fields], said: list[str]) -> bool:
    """Whether these have limits of time. Of those of what is used in all, Slurm's basic priority counts nothing."""
    in_all = [each for each in rows if each.get("GrpTRESMins") or each.get("GrpWall")]
    if in_all and config.get("PriorityType", "priority/basic") == "priority/basic":
        said.append("GrpTRESMins and GrpWall (priority/basic counts no time)")
        for each in in_all:
            each.update(GrpTRESMins="", GrpWall="")
    elif in_all and "safe" not in config.get("AccountingStorageEnforce", "").split(","):
        said.append("that jobs end when GrpTRESMins or GrpWall is used up (AccountingStorageEnforce has no safe)")
    return any(each.get(column) for each in rows for column in _MINUTES)


def _minutes(text: str, what: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 19):
        raise InvalidInput(f"{what} {shortened(text)}: a whole number of minutes from 0 to 10^18 expected")
    return int(text)


def _bytes(text: str, what: str) -> int:
    """An amount of memory as sacctmgr prints it, in MiB where it says no unit."""
    found = _BYTES.fullmatch(text)
    amount = 2.0 ** (10 + 10 * "KMGTP".index(found[2] or "M")) * float(found[1]) if found else math.inf
    if amount >= 2**62:
        raise InvalidInput(f"{what} {shortened(text)}: an amount of memory such as 64G expected")
    return round(amount)


def _accounts(
    associations: Sequence[Fields], partitions: Mapping[str, Partition], *, shares: bool, limits: bool, said: list[str]
) -> dict[str, ClusterAccount]:
    """The accounts with their users, and one for each association of a user that has a partition: ``bio:ann:gpu``. None
    where neither shares nor limits count."""
    if shares and not associations:
        said.append("shares of accounts and users (sacctmgr show assoc was not given: all have equal ones)")
    if limits and not any({*_ASSOCIATION_LIMITS} <= {*each} for each in associations):
        said.append("limits of accounts and associations")
    found: dict[str, dict[str, Any]] = {}
    others = Counter[str]()
    for each in associations:
        name, user, partition = each["Account"], each["User"], each.get("Partition", "")
        if partition and partitions and partition not in partitions:
            continue
        account = found.setdefault(name, {"users": {}, "user_limits": {}})
        what = f"account {shortened(name)}" + (f", user {shortened(user)}" if user else "")
        share = 1
        if each["Share"] != "parent":
            share = _whole(each["Share"], f"{what} has Share")
        elif shares:
            said.append(f"{what}: Fairshare=parent (one share is taken)")
        own, rest = _limits(each, _ASSOCIATION_LIMITS, f"{what} has") if limits else ({}, {})
        others.update(f"{key}={value}" for key, value in rest.items() if key[:3] in ("Grp", "Max") and value)
        if user and partition and partitions:
            only = {"shares": share, "parent": name, "partition": partition, "users": {user: 1}}
            found[f"{name}:{user}:{partition}"] = own | only
        elif user and user not in account["users"]:
            account["users"][user], account["user_limits"][user] = share, Association(**own)
        elif not user:
            account |= own | ({"shares": share, "parent": each["ParentName"] or ROOT} if name != ROOT else {})
    said += [f"{text} of {count:,} associations" for text, count in others.items()]
    there = {name: Partition((0,)) for name in partitions}
    made = {name: ClusterAccount(**each) for name, each in found.items()}
    tree = replace(Cluster.of(1), partitions=there, accounts=made)
    made = {name: _without_inherited(tree, name) for name in found}
    return made if shares or replace(tree, accounts=made).has_limits else {}


def _without_inherited(tree: Cluster, name: str) -> ClusterAccount:
    """An account without the limits that it and its users have from above: sacctmgr shows them as their own."""
    account = tree.accounts[name]
    above = Association() if name == ROOT else tree.association(account.parent, "")
    users = {user: _unlike(each, tree.association(name, "")) for user, each in account.user_limits.items()}
    own: ClusterAccount = _unlike(account, above)
    return replace(own, user_limits={user: each for user, each in users.items() if each.has_limits})


def _unlike(own: Association, above: Association) -> Any:
    """The same without those limits for each user that are as above."""
    return replace(own, **{name: None for name in FROM_ABOVE if getattr(own, name) == getattr(above, name)})


_MODES = {"REQUEUE": "requeue", "CANCEL": "cancel"}


def _preemption(
    config: Fields,
    partitions: Mapping[str, Fields],
    services: Mapping[str, Fields],
    made: dict[str, Partition],
    qos: dict[str, Qos],
    said: list[str],
) -> tuple[dict[str, Partition], dict[str, Qos]]:
    """Partitions and QOS with who preempts whom."""
    kind, usual = config.get("PreemptType", "preempt/none"), config.get("PreemptMode", "OFF")
    exempt_s = _exempt(config.get("PreemptExemptTime", ""), "PreemptExemptTime is")

    def mode(text: str, who: str, grace: str) -> str:
        words = {*text.upper().split(",")} - {"GANG", "WITHIN"}
        word = words.pop() if len(words) == 1 else text
        if word not in {*_MODES, "OFF", "DISABLED"}:
            said.append(f"{who}PreemptMode={text} (its jobs are not preempted)")
        elif word in _MODES and grace not in {*_NOTHING, "00:00:00"}:
            said.append(f"{who}GraceTime={grace} (jobs are preempted at once)")
        return _MODES.get(word, "")

    if kind == "preempt/partition_prio":
        for name, each in made.items():
            own = partitions[name]
            found = mode(own.get("PreemptMode", usual), f"partition {name}: ", own.get("GraceTime", ""))
            made[name] = replace(each, preempt_mode=found, exempt_s=exempt_s if found else 0.0)
    elif kind == "preempt/qos":
        lists = {name: [*filter(None, services[name].get("Preempt", "").split(","))] for name in qos}
        for name in dict.fromkeys(other for others in lists.values() for other in others):
            if name in qos:
                own = services[name]
                text = own.get("PreemptMode") or "cluster"
                found = mode(usual if text == "cluster" else text, f"QOS {name}: ", own.get("GraceTime", ""))
                of_qos = _exempt(own.get("PreemptExemptTime", ""), f"QOS {shortened(name)} has PreemptExemptTime")
                qos[name] = replace(qos[name], preempt_mode=found, exempt_s=(of_qos or exempt_s) if found else 0.0)
        for name, others in lists.items():
            lower = tuple(other for other in others if other in qos and qos[other].preempt_mode)
            qos[name] = replace(qos[name], preempts=lower)
    elif kind not in ("preempt/none", "(null)"):
        said.append(f"PreemptType={kind}")
    return made, qos


def _exempt(text: str, what: str) -> float:
    return 0.0 if text in _NOTHING or text in _ENDLESS else _time(text, what, none=True)


def _requeue_delay(config: Fields) -> float:
    """How long Slurm keeps back a job that was requeued [s]: until its credential is void."""
    given = dict(word.strip().partition("=")[::2] for word in config.get("AuthInfo", "").split(","))
    return 1.0 + _whole(given.get("cred_expire") or "120", "cred_expire is")


def _changes(qos: Qos) -> bool:
    """Whether a QOS has more than a priority."""
    return replace(qos, priority=0) != Qos()


def _priority(
    config: Fields, partitions: Mapping[str, Fields], qos: Mapping[str, Qos], said: list[str], *, timed: bool
) -> str:
    """The order of the queue; with how often time is counted, where that is `timed`."""
    if config.get("PriorityType", "priority/basic") == "priority/basic":
        return "fifo"
    if config["PriorityType"] != "priority/multifactor":
        said.append(f"PriorityType={config['PriorityType']} (fifo is taken)")
        return "fifo"
    weights = {
        name: _whole(config.get(f"PriorityWeight{key}", "0"), f"PriorityWeight{key} is")
        for name, key in (("age", "Age"), ("size", "JobSize"), ("fairshare", "FairShare"), ("qos", "QOS"))
    }
    if not any(each.priority for each in qos.values()):
        weights["qos"] = 0  # all are equal
    said += _others("", config, _CONFIG_OF_PRIORITY)
    flags = set(config.get("PriorityFlags", "").split(",")) - _NOTHING
    tree = weights["fairshare"] and "NO_FAIR_TREE" not in flags
    if weights["fairshare"] and not tree:
        said.append("shares under NO_FAIR_TREE (all users have equal ones)")
    factors = {each.get("PriorityJobFactor", "1") for each in partitions.values()}
    if config.get("PriorityWeightPartition", "0") not in _NOTHING and len(factors) > 1:
        said.append("PriorityJobFactor of partitions")
    said += [f"PriorityFlags={flag}" for flag in sorted(flags - {"ACCRUE_ALWAYS", "NO_FAIR_TREE", "FAIR_TREE"})]
    enforced = config.get("AccountingStorageEnforce", "")
    regime = "accrue-always" if "ACCRUE_ALWAYS" in flags else "limits" if "limits" in enforced else "multifactor"
    times = {
        name: _time(config.get(key, "7-00:00:00"), f"{key} is", none=True)
        for name, key in (("max_age_s", "PriorityMaxAge"), ("half_life_s", "PriorityDecayHalfLife"))
    }
    options = [f"{name}={weight}" for name, weight in weights.items() if weight or name == "age"]
    options += [f"{name}={min(value or _NEVER, _NEVER):.0f}" for name, value in times.items()]
    if weights["fairshare"] or timed:
        period_s = _time(config.get("PriorityCalcPeriod", "00:05:00"), "PriorityCalcPeriod is")
        options += [f"calc_period_s={period_s:.0f}", *(["tree=true"] if tree else [])]
    return f"multifactor:{','.join(options)},regime={regime}"


def _dispatcher(config: Fields, longest_s: float, said: list[str]) -> str:
    """How the queue is gone through; see docs/lab/accuracy.md for what agrees with which."""
    kind = config.get("SchedulerType", "sched/backfill")
    if kind == "sched/builtin":
        return "fcfs"
    if kind != "sched/backfill":
        said.append(f"SchedulerType={kind} (sched/backfill is taken)")
    words = config.get("SchedulerParameters", "")
    given = {} if words in _NOTHING else dict(word.strip().partition("=")[::2] for word in words.split(",") if word)
    shown = {key: f"{key}={value}" if value else key for key, value in given.items()}
    interval = given.pop("bf_interval", "") or "30"
    if interval == "-1":
        return "fcfs"
    depth = _whole(given.pop("bf_job_part_count_reserve", "0") or "0", "bf_job_part_count_reserve is")
    limit = _whole(given.pop("bf_max_job_test", "0") or "0", "bf_max_job_test is")
    window = _whole(given.pop("bf_window", "1440") or "1440", "bf_window is")
    if late := [shown[key] for key in given if key in _LATE]:
        said.append(f"{', '.join(late)} (the simulator looks at its queue once a second)")
    said += [f"SchedulerParameters={shown[key]}" for key in given if key not in _LATE]
    options = {"interval": f"{max(_whole(interval, 'bf_interval is'), 1) + _LATER_S}s"}
    if limit:
        options["limit"] = f"{limit}"
    if 60 * window < longest_s:
        options["window"] = f"{max(window, 1)}m"
    return f"backfill:{','.join(f'{key}={value}' for key, value in {'depth': depth or 'inf', **options}.items())}"


def _others(
    who: str,
    given: Fields,
    known: Mapping[str, Iterable[str]],
    others: Iterable[str] = (),
    *,
    all_of_them: bool = False,
) -> list[str]:
    """Settings with a value that says something, but for the `others`; without any, those that are known only."""
    unread = [key for key in given if key not in others] if others or all_of_them else list(known)
    return [
        f"{who}{key}={given[key]}"
        for key in unread
        if given.get(key, "") not in _NOTHING and given[key] not in known.get(key, ())
    ]


def _whole(text: str, what: str, bits: int = 31) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 11 and int(text) < 2**bits):
        raise InvalidInput(f"{what} {shortened(text)}: a whole number from 0 to 2^{bits} expected")
    return int(text)


def _time(text: str, what: str, *, none: bool = False) -> float:
    """A time [s], infinite for none; 0 only where that is one."""
    found: Any = math.inf if text in _ENDLESS else seconds(text)
    if not (found == math.inf and text in _ENDLESS) and not (0 <= found < LARGEST and (found > 0 or none)):
        raise InvalidInput(f"{what} {shortened(text)}: a time such as 1-00:00:00, or UNLIMITED, expected")
    return float(found)
