"""What a test cluster is, and its configuration files: pure functions from one frozen dataclass to text."""

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Literal, get_args

Regime = Literal["fifo", "multifactor", "limits", "accrue-always"]
ProcessTracking = Literal["cgroup", "linuxproc"]
REGIMES: tuple[Regime, ...] = get_args(Regime)

CLUSTER_NAME = "asa"
ACCOUNT = "asa"
DATABASE_NAME = "slurm_acct"
DATABASE_USER = "slurm"
REST_USER = "asa-rest"
"""Who runs slurmrestd: it refuses root, and since 26.05 nobody, too."""
ORDINARY_USERS = ("asa-ann", "asa-ben")
"""Names for users that submit jobs, see `ClusterConfig.users`."""
PARTITIONS = ("main", "share")
LOOPBACK = "127.0.0.1"

_UNIX_PATH_LIMIT = 107  # sun_path holds 108 bytes, the last of them NUL
_FEATURES = re.compile(r"[a-z0-9,]*")
_GPUS = re.compile(r"([a-z][a-z0-9]*:)?[1-9](\+([a-z][a-z0-9]*:)?[1-9])*")
_GRES = re.compile(r"([a-z]+:[1-9][0-9]*)?")
_SEEN_BY = {"a100": "nvidia_gpu_env", "mi300": "amd_gpu_env", "max": "intel_gpu_env"}
"""By which variables jobs learn which devices are theirs, as ``AutoDetect`` would have it; all, of other types."""
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]+")  # Slurm splits at blanks and commas, and expands %

# Submission order alone decides under "fifo". The others compare ages and differ in what stops a clock.
_PRIORITY: dict[Regime, dict[str, str]] = {
    "fifo": {"PriorityType": "priority/basic"},
    "multifactor": {},
    "limits": {"AccountingStorageEnforce": "limits"},
    "accrue-always": {"PriorityFlags": "ACCRUE_ALWAYS"},
}
_AGE_ONLY = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "100000",
    "PriorityMaxAge": "0-00:10:00",
    "PriorityCalcPeriod": "1",  # one minute is the shortest that Slurm takes
}


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on the loopback interface, all different."""

    slurmctld: int
    slurmd: tuple[int, ...]
    slurmdbd: int
    mariadb: int
    slurmrestd: int


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One Slurm cluster whose nodes are all this host.

    Parameters
    ----------
    base
        Directory that holds everything the cluster writes; absolute, and short enough for UNIX sockets in it.
    hostname
        What the ``hostname`` command prints.
    ports
        One slurmd port for each node.
    cores_per_node
        Declared cores; they may exceed the host's, and no job is bound to any of them.
    threads_per_core
        Hardware threads of each core, each of which Slurm counts as a CPU: `cores_per_node` is a multiple of it, and a
        job has whole cores.
    memory_per_node
        Declared memory [bytes], at least 1 MiB; not enforced.
    regime
        How pending jobs are ordered; all but ``fifo`` need `database`: without it every age counts the same.
    process_tracking
        ``cgroup`` ends every process of a job; ``linuxproc`` works anywhere but misses those that detach.
    cgroup_root
        Below which directory the freezer of cgroup v1 is mounted; used with ``cgroup`` only.
    database
        Also run slurmdbd and the MariaDB that it writes to.
    rest
        Also run slurmrestd, authenticated by JSON web tokens; it needs `database`.
    users
        Who may submit besides root; made where the system does not know them. With any, the base directory may be
        entered (not listed) by everybody.
    min_job_age
        How long the controller remembers an ended job [s], at least 2; it forgets up to ten seconds later.
    cred_expire
        Life of a job credential [s], at least 5; a requeued job is not eligible for this long.
    node_timeout
        Silence after which a node counts as down [s], at least 5.
    lanes
        Also have a partition for each node by itself, see `ClusterConfig.lane`.
    named
        Each node calls itself by its name, not by this host's (``hostname``), as real nodes do.
    whole
        Also have a partition ``whole`` that gives a node to one job only, with all its cores.
    tiers
        Also have three partitions of which one gives way: ``core`` and ``low``, which share the first half of the
        nodes, and ``long``, which has the others. Jobs in ``low`` may take an hour at most, and are requeued when one
        in ``core`` needs their nodes.
    gpus
        GPUs of each node, from the first on, as Slurm's ``Gres`` counts them: ``("a100:2", "2")`` are two nodes with
        two each, the second's without a type; ``"a100:1+t4:2"`` is a node of two types. Their device files are null
        devices. ``a100`` is NVIDIA's, ``mi300`` AMD's, ``max`` Intel's.
    gres
        What else each node has of Gres, such as ``nvme:2``, from the first on; "" for nothing.
    features
        Names of the features of each node, with commas between them, from the first on; "" for none.
    settings
        Further lines of slurm.conf as (key, value); they replace lines of the same key.

    Raises
    ------
    ValueError
        If a field is out of its bounds; the message names it.
    """

    base: PurePosixPath
    hostname: str
    ports: Ports
    cores_per_node: int = 8
    threads_per_core: int = 1
    memory_per_node: int = 4 * 2**30
    regime: Regime = "fifo"
    process_tracking: ProcessTracking = "linuxproc"
    cgroup_root: str = "/sys/fs/cgroup"
    database: bool = False
    rest: bool = False
    users: tuple[str, ...] = ()
    min_job_age: int = 300
    cred_expire: int = 5
    node_timeout: int = 10
    lanes: bool = False
    named: bool = False
    whole: bool = False
    tiers: bool = False
    gpus: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        numbers = [self.ports.slurmctld, *self.ports.slurmd, self.ports.slurmdbd, self.ports.mariadb]
        numbers.append(self.ports.slurmrestd)
        checks = {
            f"base {str(self.base)!r}: use an absolute path of letters, digits and . _ + - only": (
                _PLAIN_PATH.fullmatch(str(self.base)) and ".." not in self.base.parts
            ),
            "ports: expected a slurmd port for 1 to 64 nodes": 1 <= len(self.ports.slurmd) <= 64,
            f"ports {numbers}: expected different numbers from 1 to 65535": (
                len(set(numbers)) == len(numbers) and all(0 < n < 65536 for n in numbers)
            ),
            f"cores_per_node {self.cores_per_node}: expected at least 1": self.cores_per_node >= 1,
            f"threads_per_core {self.threads_per_core}: expected a divisor of cores_per_node": (
                self.threads_per_core >= 1 and self.cores_per_node % self.threads_per_core == 0
            ),
            f"memory_per_node {self.memory_per_node}: expected at least 1 MiB": self.memory_per_node >= 2**20,
            f"regime {self.regime!r}: expected one of {', '.join(REGIMES)}": self.regime in REGIMES,
            f"regime {self.regime!r} needs database=True: without slurmdbd all ages count the same": (
                self.regime == "fifo" or self.database
            ),
            "rest needs database=True: slurmrestd ends without slurmdbd": self.database or not self.rest,
            f"gpus {self.gpus}: expected a number of 1 or more, or TYPE:NUMBER, for as many nodes as there are": (
                len(self.gpus) <= len(self.ports.slurmd) and all(map(_GPUS.fullmatch, self.gpus))
            ),
            f"gres {self.gres}: expected NAME:NUMBER, for as many nodes as there are": (
                len(self.gres) <= len(self.ports.slurmd) and all(map(_GRES.fullmatch, self.gres))
            ),
            f"features {self.features}: expected letters, digits and commas, for as many nodes as there are": (
                len(self.features) <= len(self.ports.slurmd) and all(map(_FEATURES.fullmatch, self.features))
            ),
            f"min_job_age {self.min_job_age}: expected at least 2 s": self.min_job_age >= 2,
            f"cred_expire {self.cred_expire}: expected at least 5 s": self.cred_expire >= 5,
            f"node_timeout {self.node_timeout}: expected at least 5 s": self.node_timeout >= 5,
        }
        for problem, fine in checks.items():
            if not fine:
                raise ValueError(problem)
        excess = len(str(self._longest_socket)) - _UNIX_PATH_LIMIT
        if excess > 0:
            raise ValueError(f"base {str(self.base)!r} is {excess} characters too long for UNIX sockets")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes.

        They contain the controller's port, so that no two clusters that are up have a name in common: Slurm
        keeps each node's jobs in a control group named after the node alone.
        """
        return tuple(f"c{self.ports.slurmctld}n{k}" for k in range(1, len(self.ports.slurmd) + 1))

    def devices(self, node: str) -> tuple[PurePosixPath, ...]:
        """Device files of a node's GPUs."""
        return tuple(self.base / "gpus" / node / f"nvidia{device}" for device in range(len(self.types(node))))

    def types(self, node: str) -> tuple[str, ...]:
        """Type of each of a node's GPUs; "" for none."""
        number = self.nodes.index(node)
        parts = self.gpus[number].split("+") if number < len(self.gpus) else []
        return tuple(part.rpartition(":")[0] for part in parts for _ in range(int(part.rpartition(":")[2])))

    def lane(self, number: int) -> str:
        """Name of the partition that has only the node of this number, from 0 on; there are such with `lanes`."""
        return f"lane{number}"

    @property
    def slurm_conf(self) -> PurePosixPath:
        """The file that SLURM_CONF has to name."""
        return self.base / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> PurePosixPath:
        """Where munged listens."""
        return self.base / "munge" / "socket"

    @property
    def jwt_key(self) -> PurePosixPath:
        """The key that signs the tokens of slurmrestd's callers."""
        return self.base / "state" / "jwt.key"

    @property
    def _longest_socket(self) -> PurePosixPath:
        # slurmstepd's, for an eight-digit job and the step ID of a batch script
        node = self.nodes[-1]
        return self.base / "spool" / node / f"{node}_12345678.4294967291"


def slurm_conf(config: ClusterConfig) -> str:
    """The text of slurm.conf."""
    base, ports = config.base, config.ports
    settings = {
        "ClusterName": CLUSTER_NAME,
        "SlurmctldHost": f"{config.hostname}({LOOPBACK})",
        "SlurmctldPort": str(ports.slurmctld),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",  # listen on the loopback interface only
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={config.munge_socket},cred_expire={config.cred_expire}",
        "StateSaveLocation": f"{base}/state",
        "SlurmdSpoolDir": f"{base}/spool/%n",
        "SlurmctldPidFile": f"{base}/run/slurmctld.pid",
        "SlurmdPidFile": f"{base}/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{base}/log/slurmctld.log",
        "SlurmdLogFile": f"{base}/log/slurmd-%n.log",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ProctrackType": f"proctrack/{config.process_tracking}",
        "TaskPlugin": "task/none",
        "TaskProlog": f"{base}/etc/task-prolog",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "5",
        "ReturnToService": "2",
        "SlurmdParameters": "config_overrides",  # believe the declared cores, not the host's
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerType": "sched/backfill",
        # the first alone shortens the start of a lone job; the others hasten backfill and planned starts
        "SchedulerParameters": "batch_sched_delay=0,bf_interval=1,bf_resolution=1",
        "MinJobAge": str(config.min_job_age),
        "KillWait": "5",
        "SlurmdTimeout": str(config.node_timeout),
        "SlurmctldTimeout": "30",
        "MessageTimeout": "10",
        "TCPTimeout": "2",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{base}/log/jobcomp.txt",
    }
    settings |= ({} if config.regime == "fifo" else _AGE_ONLY) | _PRIORITY[config.regime]
    if config.database:
        settings |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": LOOPBACK,
            "AccountingStoragePort": str(ports.slurmdbd),
            "AccountingStoragePass": str(config.munge_socket),  # AuthInfo's is not used for this connection
        }
    if config.rest:
        settings |= _jwt(config)
    if config.tiers:
        settings |= {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    if kinds := [*(["gpu"] if config.gpus else []), *sorted({each.partition(":")[0] for each in config.gres if each})]:
        settings["GresTypes"] = ",".join(kinds)
    settings |= dict(config.settings)
    return _text(settings) + "".join(f"{line}\n" for line in [*_nodes(config), *_partitions(config)])


def slurmdbd_conf(config: ClusterConfig, password: str) -> str:
    """The text of slurmdbd.conf; it holds the database's password, so the file must be for root only."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={config.munge_socket}",
        "DbdHost": "localhost",
        "DbdAddr": LOOPBACK,
        "DbdPort": str(config.ports.slurmdbd),
        "SlurmUser": "root",
        "PidFile": f"{config.base}/run/slurmdbd.pid",
        "LogFile": f"{config.base}/log/slurmdbd.log",
        "DebugLevel": "info",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": LOOPBACK,  # a number means TCP; "localhost" would mean the distribution's own socket
        "StoragePort": str(config.ports.mariadb),
        "StorageUser": DATABASE_USER,
        "StoragePass": password,
        "StorageLoc": DATABASE_NAME,
        "CommitDelay": "1",
    }
    return _text(settings | (_jwt(config) if config.rest else {}))


def task_prolog(config: ClusterConfig) -> str:
    """The script that each task of a job begins with: what it prints is added to the task's environment.

    Nodes have no folder for temporary files in common, as real ones have none. Open MPI's daemons clear what they find
    of their job in it when they begin: where several of one ``mpirun`` shared it, some lost theirs ("mkdir was unable",
    exit code 213), one in eleven times on a busy machine.
    """
    return f'#!/bin/sh\necho "export TMPDIR={config.base}/tmp/$SLURMD_NODENAME"\n'


def cgroup_conf(config: ClusterConfig) -> str:
    """The text of cgroup.conf: control groups serve to track jobs, never to confine them."""
    return _text(
        {
            "CgroupPlugin": "cgroup/v1",
            "CgroupAutomount": "no",
            "CgroupMountpoint": config.cgroup_root,
            "ConstrainCores": "no",
            "ConstrainRAMSpace": "no",
        }
    )


def gres_conf(config: ClusterConfig) -> str:
    """The text of gres.conf: one line for each device."""
    lines = []
    for node in config.nodes:
        for kind, device in zip(config.types(node), config.devices(node), strict=True):
            named = (f" Type={kind}" if kind else "") + (f" Flags={_SEEN_BY[kind]}" if kind in _SEEN_BY else "")
            lines.append(f"NodeName={node} Name=gpu{named} File={device}\n")
    return "".join(lines)


def _text(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _jwt(config: ClusterConfig) -> dict[str, str]:
    return {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={config.jwt_key}"}


def _nodes(config: ClusterConfig) -> list[str]:
    cores, threads = config.cores_per_node // config.threads_per_core, config.threads_per_core
    shape = f"CPUs={config.cores_per_node} Sockets=1 CoresPerSocket={cores} ThreadsPerCore={threads}"
    memory = config.memory_per_node // 2**20
    gres = []
    for gpus, more in zip_longest(config.gpus, config.gres, fillvalue=""):
        parts = [*(f"gpu:{part}" for part in gpus.split("+") if part), *([more] if more else [])]
        gres.append(f" Gres={','.join(parts)}" if parts else "")
    features = [f" Features={names}" if names else "" for names in config.features]
    return [
        f"NodeName={name} NodeHostname={config.hostname} NodeAddr={LOOPBACK} Port={port} {shape}"
        f" RealMemory={memory}{gpus}{names} State=UNKNOWN"
        for name, port, gpus, names in zip_longest(config.nodes, config.ports.slurmd, gres, features, fillvalue="")
    ]


def _partitions(config: ClusterConfig) -> list[str]:
    limits = "MaxTime=24:00:00 DefaultTime=00:05:00 State=UP"
    everywhere = f"Nodes={','.join(config.nodes)} {limits}"
    main, share = PARTITIONS
    return [
        f"PartitionName={main} {everywhere} Default=YES OverSubscribe=NO",
        f"PartitionName={share} {everywhere} Default=NO OverSubscribe=FORCE:4",
        *([f"PartitionName=whole {everywhere} Default=NO OverSubscribe=EXCLUSIVE"] if config.whole else []),
        *(_tiers(config.nodes, limits) if config.tiers else []),
        *(
            f"PartitionName={config.lane(number)} Nodes={node} {limits} Default=NO OverSubscribe=NO"
            for number, node in enumerate(config.nodes)
            if config.lanes
        ),
    ]


def _tiers(nodes: tuple[str, ...], limits: str) -> list[str]:
    """Partitions on halves of the nodes, of which one gives way to another."""
    half = (len(nodes) + 1) // 2
    first, others = ",".join(nodes[:half]), ",".join(nodes[half:])
    return [
        f"PartitionName=core Nodes={first} {limits} PriorityTier=10 PreemptMode=OFF",
        f"PartitionName=low Nodes={first} {limits.replace('24:00:00', '01:00:00')} PriorityTier=1 PreemptMode=REQUEUE",
        f"PartitionName=long Nodes={others} {limits} PriorityTier=10 PreemptMode=OFF",
    ]
