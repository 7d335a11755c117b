"""One task in many processes: the launcher's command line, its environment, and what came of the ranks.

The launcher starts ``python -m executors.worker FOLDER`` in every rank (`executors.worker.run_rank`).
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import CommandFailed
from asa.core.launch import Launch
from asa.core.task import ending, lacks
from asa.security.files import private_directory, write_private
from executors.node import outside_ranks
from executors.processes import kill_bearers
from executors.wire import OrderOutcome, TaskOrder

if TYPE_CHECKING:
    from asa.core.task import Secrets

log = logging.getLogger(__name__)

ORDER = "order"
"""File in the folder of a launched order: what its ranks are to do."""
SEALED, HALF = "ASA_SEALED", "half"
"""Variable with one half of an order's secrets, and the file with the other: they are the exclusive or of the two."""

_PATIENCE_S = 60.0
_AGAIN_S = 0.05

# The pool has counted the cores already, and a launcher knows nothing of what else runs on the node.
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",  # its own default, by core, fills the first node
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
# Open MPI up to 4 and from 5 on, MPICH, Intel MPI: each by the variables for its options.
_SLOTS_FILE = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
_LINES_FILE = ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE")
_SHELL = (
    "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)  # fmt: skip
_BY_SHELL = {
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_ras": "^slurm",  # it would use whatever the job holds
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # ... and daemons start daemons
    "OMPI_MCA_orte_leave_session_attached": "1",  # ... and daemons leave the session in which we find them
    "PRTE_MCA_plm": "ssh",
    "PRTE_MCA_ras": "^slurm",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_prte_leave_session_attached": "1",
    "HYDRA_LAUNCHER": "rsh",
    "I_MPI_HYDRA_BOOTSTRAP": "rsh",
    "I_MPI_HYDRA_BRANCH_COUNT": "0",  # as no_tree_spawn
}


def prefix(launch: Launch, nodes: int, hosts: Sequence[str], ranks: Sequence[int] = ()) -> list[str]:
    """The words that come before a program.

    Parameters
    ----------
    nodes
        How many nodes to use.
    hosts
        Their names; none to leave them to the launcher.
    ranks
        How many on each of them; none for as many on one as on another.

    Examples
    --------
    >>> prefix(Launch(("mpirun", "--quiet"), ranks=4, cores=1), 1, ["n1"])
    ['mpirun', '--quiet', '-np', '4']
    >>> " ".join(prefix(Launch(("srun",), ranks=4, cores=1), 2, ["n1", "n2"], [1, 3])[2:6])
    '--ntasks=4 --cpus-per-task=1 --distribution=arbitrary --nodelist=n1,n2,n2,n2'
    """
    program, *options = launch.words
    if launch.kind != "srun":
        return [program, *options, "-np", str(launch.ranks)]
    size = [f"--ntasks={launch.ranks}", f"--cpus-per-task={launch.cores}"]
    if len(set(ranks)) > 1:  # each host as often as it has ranks; from 24.11 on srun takes no number of nodes beside it
        size += ["--distribution=arbitrary"]
        hosts = [host for host, count in zip(hosts, ranks, strict=True) for _ in range(count)]
    else:
        size[1:1] = [f"--nodes={nodes}", f"--ntasks-per-node={max(_shares(launch.ranks, nodes))}"]
    where = [f"--nodelist={','.join(hosts)}"] if hosts else []
    # the supervisors of the job hold its cores, and share them with steps that are willing to
    return [program, "--overlap", *size, *where, "--kill-on-bad-exit=1", *options]


def environment(launch: Launch, environ: Mapping[str, str], root: bool) -> dict[str, str]:
    """What the launcher is to find in its environment, made from `environ`.

    Parameters
    ----------
    root
        Whether we are root, whom Open MPI refuses otherwise.

    Raises
    ------
    CommandFailed
        When srun is to be used outside a job of Slurm.
    """
    found = outside_ranks(environ)
    if launch.kind == "srun":
        if "SLURM_JOB_ID" not in found:
            raise CommandFailed(
                "launcher='srun' works inside an allocation of Slurm only, and this is none: run with backend='slurm', "
                "or say launcher='mpirun'"
            )
        return found
    if root:
        found |= dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    return _OPEN_MPI | found


def remote(slots: str, lines: str, shell: str) -> dict[str, str]:
    """Variables that give ``mpirun`` its nodes, and how to reach them; the user's own are of no use here.

    Parameters
    ----------
    slots, lines
        Files that name a node on each line: with ``slots=`` and the number of its ranks, for Open MPI, which takes a
        node that is there but once to have as many slots as cores; and once for each of its ranks.
    shell
        Program to start where it would start ``ssh``.
    """
    files = dict.fromkeys(_SLOTS_FILE, slots) | dict.fromkeys(_LINES_FILE, lines)
    return _BY_SHELL | files | dict.fromkeys(_SHELL, shell)


def _shares(ranks: int, nodes: int) -> list[int]:
    least, more = divmod(ranks, nodes)
    return [least + (node < more) for node in range(nodes)]


@contextmanager
def how(order: TaskOrder, values: str, program: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Prefix and environment for an order of this process, while its launcher runs; raises what `environment` does.

    Parameters
    ----------
    values, program
        As for `run`; with further arguments, the program becomes that command, with the order's secrets.
    """
    launch = order.launch
    assert launch, "a plain order is called, not launched"
    words = prefix(launch, order.nodes, order.hosts, order.ranks)
    variables = environment(launch, os.environ, os.geteuid() == 0)
    with _sealed(order.secrets, values, program) as (unsealing, sealed), _reached(order, values) as reached:
        yield words + unsealing, variables | sealed | reached


@contextmanager
def _sealed(hidden: Secrets | None, values: str, program: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Words before a rank's own, and variables of the launcher, that give ranks secrets: `worker.with_secrets`."""
    if hidden is None:
        yield [], {}
        return
    folder = private_directory(Path(values, f"sealed-{secrets.token_hex(8)}"))
    try:
        data = json.dumps(dict(hidden.variables)).encode()
        half = secrets.token_bytes(len(data))
        write_private(folder / HALF, half)
        sealed = bytes(a ^ b for a, b in zip(half, data, strict=True)).hex()
        yield [sys.executable, "-P", "-m", program, str(folder)], {SEALED: sealed}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _reached(order: TaskOrder, values: str) -> Iterator[dict[str, str]]:
    """Variables that say to a launcher other than srun where the order's nodes are."""
    launch = order.launch
    assert launch
    if launch.kind == "srun":
        yield {}
        return
    # By the name that it has for itself: no launcher needs a remote shell to this node then.
    names = (socket.gethostname(), *order.hosts[1:])
    counts = dict(zip(names, order.ranks or _shares(launch.ranks, order.nodes), strict=False))
    slots = "".join(f"{name} slots={count}\n" for name, count in counts.items())
    lines = "".join(f"{name}\n" * count for name, count in counts.items())
    shell = [sys.executable, "-P", "-m", "executors.remote", os.path.dirname(values), str(order.ticket)]
    shell.append(",".join(order.hosts[1:]))
    text = f'#!/bin/sh\nexec {shlex.join(shell)} "$@"\n'
    with _in_memory(slots) as first, _in_memory(lines) as second, _in_memory(text) as program:
        try:
            yield remote(first, second, program)
        finally:
            kill_bearers(program)  # ranks here, and shells to those elsewhere, that a killed launcher has left


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """The path of a file that other processes of ours can read and execute, and that ends with us.

    Launchers take words apart at spaces and colons, which no such path has.
    """
    descriptor = os.memfd_create("asa")
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


def run(order: TaskOrder, values: str, program: str) -> OrderOutcome:
    """Have every rank call the order's function: the outcome of rank 0, or of the first to fail.

    The function is not loaded here: a module that it needs may be one that makes its process a rank.

    Parameters
    ----------
    values
        Directory, in the run's, that all nodes see; what the ranks need is in a folder of it for as long as they run.

    Raises
    ------
    CommandFailed
        When the launcher cannot be started.
    StateError
        When the folder cannot be written.
    """
    started = time.time()
    folder = private_directory(Path(values, f"ranks-{secrets.token_hex(8)}"))
    try:
        plain = order._replace(launch=None, secrets=None)
        write_private(folder / ORDER, pickle.dumps((plain, os.getcwd(), sys.path, values)))
        with how(order, values, program) as (words, variables):
            argv = [*words, sys.executable, "-P", "-m", program, str(folder)]
            try:
                code = subprocess.run(argv, stdin=subprocess.DEVNULL, env=variables, check=False).returncode
            except OSError as error:
                raise CommandFailed(
                    f"{words[0]} cannot be started: {error.strerror}: is it installed on the nodes, and on PATH?"
                ) from None
            log.info("%s: exit code %d after %.3f s", shlex.join(argv), code, time.time() - started)
        outcomes = read_outcomes(folder, patience_s=0.0 if code else _PATIENCE_S)
        return _verdict(order, outcomes, words[0], code)._replace(started=started, ended=time.time())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(order: TaskOrder, outcome: OrderOutcome, cpu_s: float, peak: int) -> OrderOutcome:
    """An outcome with what all ranks took: processor time [s], and the most memory on one node [bytes], as if all had
    taken what the one did whose outcome it is, unless all ran below this process, which took so much."""
    if not outcome.source or order.launch is None:
        return outcome
    ranks, here = order.launch.ranks, max(order.ranks or _shares(order.launch.ranks, order.nodes or 1))
    if order.nodes != 1 or order.launch.kind == "srun":
        cpu_s = ranks * outcome.cpu_s
    return outcome._replace(cpu_s=cpu_s, peak=max(peak, here * outcome.peak))


def read_outcomes(folder: Path, patience_s: float) -> dict[int, OrderOutcome]:
    """The outcomes that ranks have written; a network file system may show that of rank 0 a little later."""
    deadline = time.monotonic() + patience_s
    while not (folder / "0").exists() and time.monotonic() < deadline:
        time.sleep(_AGAIN_S)
        os.listdir(folder)
    return {int(path.name): pickle.loads(path.read_bytes()) for path in folder.iterdir() if path.name.isdecimal()}


def _verdict(order: TaskOrder, outcomes: Mapping[int, OrderOutcome], program: str, code: int) -> OrderOutcome:
    assert order.launch
    failed = {rank: outcome for rank, outcome in outcomes.items() if outcome.value is None}
    if failed:  # the others may have failed because of the first
        rank = min(failed, key=lambda rank: failed[rank].ended)
        error = f"rank {rank} of {order.launch.ranks}: {failed[rank].error}"
        return failed[rank]._replace(error=error)
    if code == 0 and 0 in outcomes:
        return outcomes[0]
    what = "a rank was killed, or could not be started" if code else "rank 0 left no result"
    return OrderOutcome(
        order.ticket, 0.0, 0.0, None, f"CommandFailed: {program} {ending(code)}: {what}; see its output",
        cause=lacks("", code), exit=code,
    )  # fmt: skip
