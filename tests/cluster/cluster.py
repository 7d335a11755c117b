"""A real Slurm cluster on this host: bring it up in a directory of its own, talk to it, take it down."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.cluster import accounting, daemons, freezer, host, layout, processes
from tests.cluster.config import REST_USER, ClusterConfig
from tests.cluster.processes import Process

_READY = ("IDLE", "MIXED", "ALLOCATED")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up, or was."""

    config: ClusterConfig

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client of this cluster, SLURM_CONF in it."""
        return daemons.environment(self.config)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return self.config.nodes

    @property
    def version(self) -> tuple[int, ...]:
        """Slurm's, such as (22, 5, 8)."""
        return tuple(map(int, re.findall(r"\d+", self.run("sinfo", "--version"))))

    def run(self, *command: str, user: str | None = None, check: bool = True, timeout: float = 30) -> str:
        """Run a client command such as ``squeue`` in the base directory and return what it printed.

        Raises
        ------
        subprocess.CalledProcessError
            If it fails and `check` is set; the notes carry its error output.
        subprocess.TimeoutExpired
            If it takes longer than `timeout` [s].
        """
        done = subprocess.run(
            [daemons.program(command[0]), *command[1:]],
            env=self.env,
            cwd=self.config.base,
            user=user,
            extra_groups=None if user is None else [],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            error.add_note(done.stderr)
            raise error
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """State of each node as the controller shows it now, such as ``IDLE`` or ``IDLE+DRAIN``."""
        lines = self.run("scontrol", "--oneliner", "show", "nodes").splitlines()
        return {fields["NodeName"]: fields["State"] for fields in map(parse_oneliner, lines)}

    def job(self, job_id: str) -> dict[str, str]:
        """Fields of a job by name; empty once the controller has forgotten it."""
        line = self.run("scontrol", "--oneliner", "show", "job", job_id, check=False)
        return parse_oneliner(line)

    def await_nodes(self, *nodes: str, timeout: float = 30) -> None:
        """Wait until nodes (all of them if none is named) can take jobs.

        Raises
        ------
        daemons.DaemonError
            If one cannot within `timeout` [s]; the message has the states and the last words of its daemon.
        """
        names = nodes or self.nodes

        def late() -> list[str]:
            states = self.node_states()
            return [name for name in names if states[name] not in _READY]

        if not processes.wait_until(lambda: not late(), timeout) and (names_late := late()):
            words = daemons.last_words(self.config, daemons.slurmd_name(names_late[0]))
            problem = f"{', '.join(names_late)} not ready after {timeout} s: {self.node_states()}"
            raise daemons.DaemonError(f"{problem}; the last words of the first:\n{words}")


def parse_oneliner(line: str) -> dict[str, str]:
    """Fields of one line of ``scontrol --oneliner show``.

    Examples
    --------
    >>> parse_oneliner("NodeName=n1 State=IDLE+DRAIN Comment=")
    {'NodeName': 'n1', 'State': 'IDLE+DRAIN', 'Comment': ''}
    """
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def up(config: ClusterConfig) -> Cluster:
    """Start a cluster and wait until all of its nodes are idle; if that fails, nothing is left running.

    Raises
    ------
    RuntimeError
        If it cannot be started here at all.
    FileExistsError
        If the base directory holds something already.
    daemons.DaemonError
        If a daemon does not come up.
    """
    reason = host.obstacle(database=config.database, rest=config.rest)
    if reason is not None:
        raise RuntimeError(reason)
    accounting.make_users((*config.users, *([REST_USER] if config.rest else [])))
    layout.make(config)
    cluster = Cluster(config)
    try:
        daemons.start_munged(config)
        if config.database:
            accounting.start(config)
        daemons.start_slurmctld(config)
        for node in config.nodes:
            daemons.start_slurmd(config, node)
        cluster.await_nodes()
        if config.rest:
            daemons.start_slurmrestd(config)
    except BaseException as error:
        down(config)
        error.add_note(f"the logs are in {config.base}/log")
        raise
    return cluster


def down(config: ClusterConfig) -> None:
    """End everything that belongs to a cluster; harmless when it has ended already. Files stay."""
    front = ["slurmrestd", "slurmctld", *map(daemons.slurmd_name, config.nodes)]
    daemons.stop(config, front, grace=5)  # all at once: a slurmd without its controller takes long to end
    end_jobs(config, *config.nodes)
    for name in ("slurmdbd", "mariadbd", "munged"):
        daemons.stop(config, [name], grace=15)


def end_jobs(config: ClusterConfig, *nodes: str) -> None:
    """Kill every process of every job on nodes whose daemon has ended, and remove their control groups.

    Raises
    ------
    TimeoutError
        If new ones keep coming, or a group cannot be emptied.
    """
    groups = [freezer.node_group(Path(config.cgroup_root, "freezer"), node) for node in nodes]
    for _attempt in range(20):
        found = _job_processes(config, nodes, groups)
        if not found:
            break
        for group in groups:
            freezer.thaw(group)
        processes.end(found, grace=0)
    else:
        raise TimeoutError(f"jobs on {', '.join(nodes)} kept starting processes while they were killed")
    for group in groups:
        if not processes.wait_until(partial(freezer.remove, group), 5):
            raise TimeoutError(f"{group} still has members: {freezer.members(group)}")


def load(base: Path) -> Cluster:
    """The cluster that was started in a directory, whether it is still up or not.

    Raises
    ------
    FileNotFoundError
        If none was.
    """
    return Cluster(layout.read(base))


@contextmanager
def running(config: ClusterConfig) -> Iterator[Cluster]:
    """A cluster that is up inside the with block and down after it; its files stay."""
    cluster = up(config)
    try:
        yield cluster
    finally:
        down(config)


def _job_processes(config: ClusterConfig, nodes: tuple[str, ...], groups: list[Path]) -> list[Process]:
    def ours(environment: Mapping[str, str]) -> bool:
        conf, node = environment.get("SLURM_CONF"), environment.get("SLURMD_NODENAME")
        return conf == str(config.slurm_conf) and node in nodes

    in_groups = (processes.find(pid) for group in groups for pid in freezer.members(group))
    return [*processes.with_environment(ours), *(process for process in in_groups if process is not None)]
