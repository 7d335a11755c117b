"""One task in many processes: the launcher's command line, its environment, and what came of the ranks."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from asa.core.errors import CommandFailed
from asa.core.launch import Launch
from asa.security.files import private_directory, write_private
from executors.wire import Order, Outcome

ORDER = "order"
"""File in the folder of a launched order: what its ranks are to do."""

_PATIENCE_S = 60.0
_AGAIN_S = 0.05

# What srun told its own tasks, of which the supervisor is one, would be taken for wishes by an srun inside; what an MPI
# launcher told its ranks would make those inside believe that they belong to it.
_OF_ANOTHER = re.compile(
    r"SLURM_(STEP.*|NTASKS.*|NPROCS|NNODES|TASKS_PER_NODE|CPUS_PER_TASK|TRES_PER_TASK|GTIDS|PROCID|LOCALID|NODEID|"
    r"TASK_PID|CPU_BIND.*|MEM_BIND.*|DISTRIBUTION|LAUNCH_NODE_IPADDR|SRUN_COMM_.*|KILL_BAD_EXIT|WAIT|EXPORT_ENV|"
    r"OVERLAP|EXACT)"
    r"|PMI_.*|PMIX_.*|OMPI_COMM_.*|OMPI_UNIVERSE_SIZE"
)
# The pool has counted the cores already, and a launcher knows nothing of what else runs on the node.
_OPEN_MPI = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


def prefix(launch: Launch, nodes: int, hosts: Sequence[str]) -> list[str]:
    """The words that come before a program.

    Parameters
    ----------
    nodes
        How many nodes to use.
    hosts
        Their names; none to leave them to the launcher.

    Examples
    --------
    >>> prefix(Launch(("mpirun", "--quiet"), ranks=4, cores=1), 1, ["n1"])
    ['mpirun', '--quiet', '-np', '4']
    """
    program, *options = launch.words
    if launch.kind != "srun":
        return [program, *options, "-np", str(launch.ranks)]
    size = [
        f"--ntasks={launch.ranks}",
        f"--nodes={nodes}",
        f"--ntasks-per-node={max(_shares(launch.ranks, nodes))}",
        f"--cpus-per-task={launch.cores}",
    ]
    where = [f"--nodelist={','.join(hosts)}"] if hosts else []
    # the supervisors of the job hold its cores, and share them with steps that are willing to
    return [program, "--overlap", *size, *where, "--kill-on-bad-exit=1", *options]


def environment(
    launch: Launch, nodes: int, hosts: Sequence[str], environ: Mapping[str, str], root: bool
) -> dict[str, str]:
    """What the launcher is to find in its environment, made from `environ`.

    ``mpirun`` reads from ``SLURM_*`` which nodes it has; by default those would be all of the job.

    Parameters
    ----------
    nodes, hosts
        As for `prefix`.
    root
        Whether we are root, whom Open MPI refuses otherwise.

    Raises
    ------
    CommandFailed
        When srun is to be used outside a job of Slurm.
    """
    found = {name: value for name, value in environ.items() if not _OF_ANOTHER.fullmatch(name)}
    in_slurm = "SLURM_JOB_ID" in found
    if launch.kind == "srun":
        if not in_slurm:
            raise CommandFailed(
                "launcher='srun' works inside an allocation of Slurm only, and this is none: run with backend='slurm', "
                "or say launcher='mpirun'"
            )
        return found
    if root:
        found |= dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    if in_slurm:
        names = dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST"), ",".join(hosts)) if hosts else {}
        counts = dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), str(nodes))
        per_node = ",".join(map(str, _shares(launch.ranks, nodes)))
        found |= names | counts | {"SLURM_TASKS_PER_NODE": per_node, "SLURM_OVERLAP": "1"}
    return _OPEN_MPI | found


def _shares(ranks: int, nodes: int) -> list[int]:
    least, more = divmod(ranks, nodes)
    return [least + (node < more) for node in range(nodes)]


def how(order: Order) -> tuple[list[str], dict[str, str]]:
    """Prefix and environment for an order of this process; raises what `environment` does."""
    launch = order.launch
    assert launch, "a plain order is called, not launched"
    where = order.nodes, order.hosts
    return prefix(launch, *where), environment(launch, *where, os.environ, os.geteuid() == 0)


def run(order: Order, values: str) -> Outcome:
    """Have every rank call the order's function: the outcome of rank 0, or of the first to fail.

    The function is not loaded here: a module that it needs may be one that makes its process a rank.

    Parameters
    ----------
    values
        Directory that all nodes see; what the ranks need is in a folder of it for as long as they run.

    Raises
    ------
    CommandFailed
        When the launcher cannot be started.
    StateError
        When the folder cannot be written.
    """
    started = time.time()
    words, variables = how(order)
    folder = private_directory(Path(values, f"ranks-{secrets.token_hex(8)}"))
    try:
        write_private(folder / ORDER, pickle.dumps((order._replace(launch=None), os.getcwd(), sys.path, values)))
        argv = [*words, sys.executable, "-P", "-m", "executors.rank", str(folder)]
        try:
            code = subprocess.run(argv, stdin=subprocess.DEVNULL, env=variables, check=False).returncode
        except OSError as error:
            raise CommandFailed(
                f"{words[0]} cannot be started: {error.strerror}: is it installed on the nodes, and on PATH?"
            ) from None
        outcomes = _outcomes(folder, patience_s=0.0 if code else _PATIENCE_S)
        return _verdict(order, outcomes, words[0], code)._replace(started=started, ended=time.time())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outcomes(folder: Path, patience_s: float) -> dict[int, Outcome]:
    """What ranks have left. A network file system may show what rank 0 wrote on another node a little later."""
    deadline = time.monotonic() + patience_s
    while not (folder / "0").exists() and time.monotonic() < deadline:
        time.sleep(_AGAIN_S)
        os.listdir(folder)
    return {int(path.name): pickle.loads(path.read_bytes()) for path in folder.iterdir() if path.name.isdecimal()}


def _verdict(order: Order, outcomes: Mapping[int, Outcome], program: str, code: int) -> Outcome:
    assert order.launch
    failed = {rank: outcome for rank, outcome in outcomes.items() if outcome.value is None}
    if failed:  # the others may have failed because of the first
        rank = min(failed, key=lambda rank: failed[rank].ended)
        error = f"rank {rank} of {order.launch.ranks}: {failed[rank].error}"
        return failed[rank]._replace(error=error)
    if code == 0 and 0 in outcomes:
        return outcomes[0]
    ending = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    what = "a rank was killed, or could not be started" if code else "rank 0 left no result"
    return Outcome(order.ticket, 0.0, 0.0, None, f"CommandFailed: {program} {ending}: {what}; see standard error")
