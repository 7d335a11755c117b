"""The daemons of a cluster: how each is called, started, known to be ready, and ended."""

import os
import shlex
import shutil
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from tests.cluster import processes
from tests.cluster.config import LOOPBACK, REST_USER, ClusterConfig
from tests.cluster.processes import Process

_PATH = os.pathsep.join(("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
_TAIL = 15  # lines of a log shown when a daemon does not come up
_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp


class DaemonError(RuntimeError):
    """A daemon ended early or did not become ready in time; the message ends with the last lines it wrote."""


def program(name: str) -> str:
    """The path of an installed program.

    Raises
    ------
    FileNotFoundError
        If it is not installed; the message names it.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: see tests/cluster/install-debian.sh")
    return found


def missing(*, database: bool, rest: bool) -> list[str]:
    """Names of the programs that a cluster needs and that are not installed."""
    names = ["munged", "slurmctld", "slurmd", "slurmstepd", "sbatch", "scontrol"]
    names += ["mariadbd", "mariadb-install-db", "slurmdbd", "sacctmgr"] if database else []
    names += ["slurmrestd"] if rest else []
    return [name for name in names if shutil.which(name, path=_PATH) is None]


def environment(config: ClusterConfig) -> dict[str, str]:
    """The environment of daemons and clients: nothing is inherited, so that only the configuration counts."""
    return {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": "/", "SLURM_CONF": str(config.slurm_conf)}


def start_munged(config: ClusterConfig) -> None:
    """Start the authentication service and wait until it answers."""
    munge = config.munge_socket.parent
    options = {
        "socket": config.munge_socket,
        "key-file": munge / "key",
        "seed-file": munge / "seed",
        "pid-file": munge / "pid",
        "log-file": config.base / "log" / "munged.log",
    }
    # --force: a directory that only root may enter is a warning then, not an error
    argv = [program("munged"), "--foreground", "--force"]
    spawn(config, "munged", argv + [f"--{key}={value}" for key, value in options.items()])
    await_ready(config, "munged", lambda: _accepts(config.munge_socket), timeout=10)


def start_slurmctld(config: ClusterConfig) -> None:
    """Start the controller and wait until it listens."""
    spawn(config, "slurmctld", _where_named(config, config.hostname, [program("slurmctld"), "-D"]))
    await_ready(config, "slurmctld", lambda: listening(config.ports.slurmctld), timeout=30)


def start_slurmd(config: ClusterConfig, node: str) -> None:
    """Start a node's daemon without waiting for it; its jobs inherit the node's name in their environment."""
    argv = _where_named(config, node, [program("slurmd"), "-D", "-N", node])
    spawn(config, slurmd_name(node), argv, SLURMD_NODENAME=node)


def _where_named(config: ClusterConfig, host: str, argv: list[str]) -> list[str]:
    """The same command where this host is called so, and nodes are found by name, if they have names of their own."""
    if not config.named:
        return argv
    hosts = shlex.quote(str(config.base / "etc" / "hosts"))
    script = f'hostname "$0" && mount --bind {hosts} /etc/hosts && exec "$@"'
    return [program("unshare"), "--uts", "--mount", "sh", "-c", script, host, *argv]


def start_slurmrestd(config: ClusterConfig) -> None:
    """Start the REST service as a user of its own (it refuses to run as root) and wait until it listens."""
    address = f"{LOOPBACK}:{config.ports.slurmrestd}"
    argv = [program("slurmrestd"), "-a", "rest_auth/jwt", "-u", REST_USER, address]
    spawn(config, "slurmrestd", argv, SLURM_JWT="daemon")
    await_ready(config, "slurmrestd", lambda: listening(config.ports.slurmrestd), timeout=10)


def slurmd_name(node: str) -> str:
    """What the daemon of a node is called here."""
    return f"slurmd-{node}"


def spawn(config: ClusterConfig, name: str, argv: list[str], **variables: str) -> None:
    """Start a daemon in the foreground mode of its own and note its process in the cluster's directory."""
    output = Path(config.base, "log", f"{name}.out")
    process = processes.spawn(argv, output=output, env=environment(config) | variables)
    _note(config, name).write_text(f"{process.pid} {process.started}\n")


def await_ready(config: ClusterConfig, name: str, ready: Callable[[], bool], timeout: float) -> None:
    """Wait until a daemon is ready.

    Raises
    ------
    DaemonError
        If it ends first, or is not ready within `timeout` [s].
    """
    process = noted(config)[name]
    processes.wait_until(lambda: ready() or not process.running, timeout)
    if process.running and ready():
        return
    problem = f"was not ready after {timeout} s" if process.running else "ended while starting"
    raise DaemonError(f"{name} {problem}; its last words:\n{last_words(config, name)}")


def noted(config: ClusterConfig) -> dict[str, Process]:
    """The daemons that were started and not ended by us, whether they still run or not."""
    notes = Path(config.base, "run").glob("*.process")
    return {note.stem: Process(*map(int, note.read_text().split())) for note in notes}


def stop(config: ClusterConfig, names: Iterable[str], grace: float) -> None:
    """End daemons by name, all at once; a name that was not started is passed over."""
    known = noted(config)
    chosen = [name for name in names if name in known]
    processes.end((known[name] for name in chosen), grace=grace)
    for name in chosen:
        _note(config, name).unlink(missing_ok=True)


def last_words(config: ClusterConfig, name: str) -> str:
    """The last lines of a daemon's log and of its output."""
    lines: list[str] = []
    for suffix in ("log", "out"):
        path = Path(config.base, "log", f"{name}.{suffix}")
        with suppress(FileNotFoundError):
            last = path.read_text(errors="replace").splitlines()[-_TAIL:]
            lines += [f"  {path.name}: {line}" for line in last]
    return "\n".join(lines) or "  (it wrote nothing)"


def listening(port: int) -> bool:
    """Whether something listens on a TCP port, found out without connecting to it."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                _index, local, _remote, state, *_rest = line.split()
                if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return True
    return False


def _accepts(path: os.PathLike[str]) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(os.fspath(path)) == 0


def _note(config: ClusterConfig, name: str) -> Path:
    return Path(config.base, "run", f"{name}.process")
