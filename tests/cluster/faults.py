"""Things that go wrong on a cluster, done on purpose; each has happened, or raises, within a bounded time."""

import signal
import time
from pathlib import Path

from tests.cluster import cluster as clusters
from tests.cluster import daemons
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until

_SAVING_S = 2.0  # from when the controller looks at its jobs until they are written, at most


def restart_controller(cluster: Cluster, *, kill9: bool = False) -> None:
    """Stop and start slurmctld, and wait until it answers.

    It knows its jobs at once, but hears of its nodes, and starts jobs, only some four seconds later
    (`Cluster.await_nodes` waits for that).

    Parameters
    ----------
    kill9
        End it by SIGKILL, so that it saves nothing: jobs submitted in the last five seconds or so are lost, and their
        numbers are given out again; jobs that started then may be started a second time, for which the node is
        drained (`await_saved` waits until neither happens). Otherwise it saves its state.
    """
    daemons.stop(cluster.config, ["slurmctld"], grace=0 if kill9 else 10)
    daemons.start_slurmctld(cluster.config)
    if not wait_until(lambda: "is UP" in cluster.run("scontrol", "ping", check=False), 30):
        words = daemons.last_words(cluster.config, "slurmctld")
        raise daemons.DaemonError(f"slurmctld does not answer 30 s after its restart; its last words:\n{words}")


def await_saved(cluster: Cluster, timeout: float = 30) -> None:
    """Wait until the controller has saved how its jobs are now, one of which must run or wait.

    It saves them at most every five seconds, when something has changed since the *second* in which it did so last: a
    job that started in that second is saved when something else changes. So something is changed until it is.

    Raises
    ------
    daemons.DaemonError
        If it has not within `timeout` [s].
    """
    saved = Path(cluster.config.base, "state", "job_state")
    job = cluster.run("squeue", "--noheader", "--format=%A").split()[0]
    began = time.time()

    def later() -> bool:
        cluster.run("scontrol", "update", f"JobId={job}", f"AdminComment={time.time()}")
        return saved.stat().st_mtime > began + _SAVING_S

    if not wait_until(later, timeout, poll=0.5):
        raise daemons.DaemonError(f"slurmctld did not save its jobs within {timeout} s: {saved} is older")


def kill_node(cluster: Cluster, name: str) -> None:
    """Crash a node: its daemon, job steps and jobs end at once; the controller is not told.

    With the shortest `node_timeout` it shows the node as down, and fails or requeues its jobs, 26 s later.
    """
    _check(cluster, name)
    daemons.stop(cluster.config, [daemons.slurmd_name(name)], grace=0)
    clusters.end_jobs(cluster.config, name)


def revive_node(cluster: Cluster, name: str) -> None:
    """Bring a crashed or drained node back, and wait until it can take jobs."""
    _check(cluster, name)
    if not _runs(cluster, name):
        daemons.start_slurmd(cluster.config, name)
    elif "DRAIN" in cluster.node_states()[name]:
        cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    cluster.await_nodes(name)


def drain(cluster: Cluster, name: str, reason: str = "test") -> None:
    """Let a node take no further jobs; those on it go on."""
    _check(cluster, name)
    cluster.run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def heal(cluster: Cluster) -> None:
    """Have the controller and all nodes as they were, whatever was done to them, and wait until they can take jobs."""
    notes = daemons.noted(cluster.config)
    notes["slurmctld"].signal(signal.SIGCONT)
    if not notes["slurmctld"].running:
        restart_controller(cluster)
    for node in cluster.nodes:
        if not _runs(cluster, node):
            daemons.start_slurmd(cluster.config, node)
    for name, state in cluster.node_states().items():
        if any(word in state for word in ("DOWN", "DRAIN", "FAIL")):
            cluster.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
    cluster.await_nodes(timeout=90)


def _check(cluster: Cluster, name: str) -> None:
    if name not in cluster.nodes:
        raise ValueError(f"node {name!r}: expected one of {', '.join(cluster.nodes)}")


def _runs(cluster: Cluster, name: str) -> bool:
    process = daemons.noted(cluster.config).get(daemons.slurmd_name(name))
    return process is not None and process.running
