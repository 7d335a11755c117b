"""What this host offers a cluster: programs, free ports, a directory, a way to track processes."""

import fcntl
import os
import random
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from tests.cluster import daemons, freezer
from tests.cluster.config import LOOPBACK, ClusterConfig, Ports

_LOWEST_PORT = 10000
_BLOCK = 64  # ports; each process keeps those of all its clusters, and several suites may run at a time


def configure(base: Path | None = None, *, nodes: int = 4, **fields: Any) -> ClusterConfig:
    """Choose what a cluster on this host needs: a directory, free ports, and how processes are tracked.

    Parameters
    ----------
    base
        Where; a new directory among the temporary ones if None.
    nodes
        Number of nodes.
    **fields
        Further fields of `ClusterConfig`, taken as they are.
    """
    where = base or Path(tempfile.gettempdir(), f"asa-slurm-{secrets.token_hex(4)}")
    group = freezer.usable()
    chosen: dict[str, Any] = {
        "base": PurePosixPath(where.absolute()),
        "hostname": socket.gethostname(),
        "ports": _free_ports(nodes),
        "process_tracking": "linuxproc" if group is None else "cgroup",
        "named": open_mpi() >= 6,  # it takes nodes of one name for one node
    }
    if group is not None:
        chosen["cgroup_root"] = str(group.parent)
    return ClusterConfig(**(chosen | fields))


def open_mpi() -> int:
    """Major version of the Open MPI whose mpirun is on PATH; 0 without one."""
    if shutil.which("mpirun") is None:
        return 0
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=30).stdout
    found = re.search(r"\(Open MPI\) (\d+)", said)
    return int(found[1]) if found else 0


def obstacle(*, database: bool = False, rest: bool = False) -> str | None:
    """Why such a cluster cannot be started here, or None."""
    if os.geteuid() != 0:
        return "a Slurm test cluster needs root: its daemons start jobs for other users"
    absent = daemons.missing(database=database, rest=rest)
    if absent:
        return f"not installed: {', '.join(absent)} (`python -m tests.cluster install all` does it)"
    return None


def _free_ports(nodes: int) -> Ports:
    # Below the range of outgoing connections, if there is room, so that none takes a port before its daemon.
    outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = outgoing if outgoing > 2 * _LOWEST_PORT else 65536
    # From a block of its own: two clusters may choose at the same time, before either's daemons listen.
    blocks = range(_LOWEST_PORT, end - _BLOCK, _BLOCK)
    first = next(filter(_reserve, random.SystemRandom().sample(blocks, len(blocks))))
    found: list[int] = []
    with ExitStack() as held:
        for port in range(first, first + _BLOCK):
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind((LOOPBACK, port))
                found.append(port)
    slurmctld, slurmdbd, mariadb, slurmrestd, *slurmd = found[: nodes + 4]
    return Ports(slurmctld, tuple(slurmd), slurmdbd, mariadb, slurmrestd)


def _reserve(first: int) -> bool:
    """Whether this block of ports is this process's, until it ends."""
    folder = Path(tempfile.gettempdir(), f"asa-test-ports-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT, 0o600)  # stays open
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True
