"""``asa agent``, or ``python -P -m executors.mesos.agent`` in a batch job: the agent of one node.

Exit codes: 0 sent away by the master or an operator, or its allocation has ended; 75 no master, or no driver of its
run, for too long (``EX_TEMPFAIL``); 128 + n ended by signal n; 1 it could not be started, 2 wrong options.

Its arguments hold no secret: those are in the pool's directory.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import hashlib
import math
import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.command import CommandResult, port
from asa.core.errors import AsaError, InvalidInput, StateError
from asa.core.units import MIB
from asa.log.gpus import usable
from asa.log.messages import VARIABLE, add_log_level, log_to_terminal, notify
from executors import node
from executors.cgroup import probe
from executors.cgroup.group import Quotas
from executors.mesos.agent.containers import AGENT_HOST, AgentHost, Unlimited
from executors.mesos.agent.state import AgentOptions
from executors.mesos.agent.storage import WorkDirectory, own_place, remove_abandoned
from executors.mesos.codec import Message
from executors.mesos.pool_directory import PoolDirectory
from executors.mesos.resources import CAPACITY, LEAST_CPUS, Resources, scalars

if TYPE_CHECKING:
    from executors.mesos.agent.service import AgentService
    from executors.mesos.agent.shim import ForkedShim

PATIENCE_S = 600.0
"""How long an agent looks for a master in vain by default [s]; masters wait as long for agents."""
ORPHAN_GRACE_S = 60.0
"""How long tasks go on by default when their agent has died [s], so that it can be started again by hand."""

_LOOK_S = 0.05
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class AgentCommand:
    """Run the agent of this node, in the foreground."""

    help = "offer this node to a pool's master, and run what it sends"

    def __init__(self, shim: ForkedShim | None = None) -> None:
        self._shim = shim

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--directory", type=Path, required=True, help="the pool's directory")
        parser.add_argument(
            "--cores", type=int, metavar="N", help="cores to offer at most (all that this process may use)"
        )
        together = "cores of the processor that all its containers together may use (as many as it offers)"
        parser.add_argument("--capacity", type=float, metavar="CORES", help=together)
        parser.add_argument(
            "--memory", type=int, metavar="BYTES", help="memory that goes with so many cores (all there is)"
        )
        parser.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs to offer (none)")
        shown = "shown to frameworks; may be repeated"
        parser.add_argument("--attribute", action="append", default=[], metavar="NAME=VALUE", help=shown)
        parser.add_argument(
            "--ends", type=float, metavar="EPOCH", help="when the allocation ends, in seconds since 1970"
        )
        parser.add_argument("--lasts", type=float, metavar="S", help="or how long it lasts (as Slurm says)")
        margin = "seconds before that to stop everything; 0 leaves that to the batch system (15)"
        parser.add_argument("--margin", type=float, metavar="S", help=margin)
        parser.add_argument("--name", help="the node's name (Slurm's, or the host's)")
        parser.add_argument("--work", type=Path, metavar="DIR", help="directory on a local disk (a temporary one)")
        parser.add_argument("--quotas", help="how CPU limits are kept, as `asa doctor` calls it, or none (the best)")
        parser.add_argument("--host", help="address on which operators are listened to (all; without TLS, loopback)")
        parser.add_argument("--port", type=port, default=0, help="port for operators (any)")
        patience = f"seconds to look for a master in vain ({PATIENCE_S:g})"
        parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="S", help=patience)
        orphans = f"seconds for which tasks go on when the agent has died and is not started again ({ORPHAN_GRACE_S:g})"
        parser.add_argument("--orphan-grace", type=float, default=ORPHAN_GRACE_S, metavar="S", help=orphans)
        released = "end well when there is no master and this file is there: who asked for the allocation is gone"
        parser.add_argument("--released", type=Path, metavar="FILE", help=released)
        parser.add_argument("--plain-http", action="store_true", help="no TLS: for this machine alone")
        parser.add_argument("--no-authentication", action="store_true", help="no tokens: for this machine alone")

    def run(self, options: argparse.Namespace) -> CommandResult:
        directory = PoolDirectory(options.directory.absolute())
        if not appears(directory, options.patience):
            from executors.mesos.agent.service import NO_MASTER

            text = f"no pool was made in {directory.path} for {options.patience:g} s: asa master makes one"
            return CommandResult({"master": None}, text, NO_MASTER)
        name, key, held = _hold(options)
        given = agent_options(options, name)
        sweep()
        try:
            with ThreadPoolExecutor(1) as beside:  # to try them is to wait for the kernel, mostly
                trying = beside.submit(copy_context().run, _quotas, options, key, given.resources.scalar("cpus"))
                from executors.mesos.agent.service import NO_MASTER

                gc.enable()  # what has been loaded stays: a batch job's agent has not had it looked through
                quotas = trying.result()
        except BaseException:
            if options.work is None:
                held.remove()
            held.release()
            raise
        service = agent_service(options, given, quotas, held, self._shim)
        code, number = _run(service, f"agent {name}", quotas.name)
        if number:
            return CommandResult({"signal": number}, f"the agent was ended by signal {number}", 128 + number)
        if code == NO_MASTER:
            text = f"no master for {options.patience:g} s, or no driver of its run for as long as that may be away"
            return CommandResult({"master": None}, text, code)
        return CommandResult({}, "", code)


def agent_service(
    options: argparse.Namespace,
    given: AgentOptions,
    quotas: Quotas,
    held: WorkDirectory,
    shim: ForkedShim | None = None,
    host: AgentHost = AGENT_HOST,
) -> AgentService:
    """The agent that the command line asks for, in a work directory that is held."""
    from executors.mesos.agent.service import AgentService

    return AgentService(
        PoolDirectory(options.directory.absolute()),
        given,
        quotas,
        work=held,
        tls=not options.plain_http,
        authenticate=not options.no_authentication,
        host=options.host,
        port=options.port,
        keep=options.work is not None,
        patience_s=options.patience,
        orphan_grace_s=options.orphan_grace,
        space="" if quotas.name == Unlimited.name else _space(directory_key(options, given.hostname)),
        released=options.released,
        shim=shim,
        node=host,
    )


def _directories() -> tuple[Path, str]:
    """Where agents of this user have their directories on this machine, and what the names of these begin with."""
    return Path(node.scratch(os.environ)), f"asa-agent-{os.geteuid()}-"


def sweep() -> list[Path]:
    """Remove what killed agents of this user have left on this machine; for `asa clean`, too."""
    return remove_abandoned(*_directories())


def _hold(options: argparse.Namespace) -> tuple[str, str, WorkDirectory]:
    """The agent's name, its key, and its work directory, held before anything is tried in its name space.

    Another agent of the same job may work on this machine: where Flux has several brokers on one host, each of them is
    a node. Then the name gets the task's rank.
    """
    scratch, prefix = _directories()
    names = [options.name] if options.name else node.names(os.environ)
    while True:
        name = names.pop(0)
        key = directory_key(options, name)
        held = WorkDirectory((options.work or own_place(scratch / f"{prefix}{key}")).absolute())
        try:
            held.hold()
            return name, key, held
        except StateError:
            if not names or options.work:
                raise


def appears(directory: PoolDirectory, patience_s: float, host: AgentHost = AGENT_HOST) -> bool:
    """Wait for the pool's directory: a batch job may start before its driver has made it, or on a slow file system."""
    deadline = host.monotonic() + patience_s
    while not directory.is_whole():
        if host.monotonic() >= deadline:
            return False
        host.sleep(_LOOK_S)
    return True


def agent_options(options: argparse.Namespace, name: str, host: AgentHost = AGENT_HOST) -> AgentOptions:
    """What the command line asks for; ports and directories are filled in later."""
    cores, gpus = node.cores(options.cores, host.environ), usable(options.gpus, host.environ)
    memory = node.memory(options.memory and node.share(options.memory, options.cores or cores, cores), host.environ)
    margin_s = AgentOptions.margin_s if options.margin is None else options.margin or None
    if margin_s is not None and not 0 < margin_s < math.inf:
        raise InvalidInput(f"--margin {margin_s:g}: expected a number of seconds, or 0")
    return AgentOptions(
        hostname=name,
        port=0,
        resources=node_resources(cores, memory, len(gpus)),
        attributes=with_capacity(parse_attributes(options.attribute), options.capacity),
        directory="",
        environment=inherited_environment(host.environ),
        endpoint="",
        gpus=gpus,
        margin_s=margin_s,
        ends=allocation_end(options.ends, options.lasts, host.environ, host.time()),
        quotas=options.quotas != "none",
        user=getpass.getuser(),
    )


def _shown(options: AgentOptions) -> str:
    amounts = ((name, options.resources.scalar(name)) for name in ("cpus", "mem", "gpus"))
    return ", ".join(f"{name} {amount:g}" for name, amount in amounts if amount)


def directory_key(options: argparse.Namespace, name: str) -> str:
    """Distinguishes agents of one machine; the same when an agent is started again."""
    work = "" if options.work is None else str(options.work.absolute())
    job = next(filter(None, map(os.environ.get, ("SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID"))), "")
    parts = (str(options.directory.absolute()), work, name, *options.attribute, job)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _space(key: str) -> str:
    return f"agent-{key}"


def _quotas(options: argparse.Namespace, key: str, cores: float) -> Quotas:
    """By what means limits are kept; they keep all containers together to the agent's capacity from now on."""
    quotas = choose_quotas(options.quotas, key)
    if options.capacity is not None:
        bound_capacity(quotas, options.capacity, cores)
    return quotas


def choose_quotas(name: str | None, key: str) -> Quotas:
    """The means that was asked for by name, or else the best; without any that works, CPU limits are not kept."""
    if name == "none":
        return Unlimited()
    try:
        return probe.best(_space(key), name)
    except StateError as error:
        if name is not None:
            raise
        notify(f"CPU limits are not kept: {error}")
        return Unlimited()


def _run(service: AgentService, name: str, quotas: str) -> tuple[int, int]:
    """Wait for its end: its exit code, and the number of the signal that has ended it, or 0."""
    received = 0

    def stop(number: int, frame: object) -> None:
        nonlocal received
        if not received:
            received = number
            service.leave(f"it was ended by signal {number} ({signal.strsignal(number)})")

    service.start()
    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    notify(f"{name} offers {_shown(service.options)}; quotas: {quotas}")
    try:
        code = service.wait()
    finally:
        service.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return code, received


def main(words: Sequence[str] | None = None, shim: ForkedShim | None = None) -> int:
    """The same without the rest of the command line, which takes its time to load."""
    parser = argparse.ArgumentParser(prog="asa agent", description=AgentCommand.help)
    command = AgentCommand(shim)
    command.configure(parser)
    add_log_level(parser, os.environ.get(VARIABLE, "warning"))
    options = parser.parse_args(words)
    try:
        with log_to_terminal(options.log_level):
            result = command.run(options)
    except AsaError as error:
        notify(f"error: {error}")
        return 1
    if result.text:
        notify(result.text)
    return result.exit_code


_PORTS = (31000, 32000)  # those that Mesos' agents offer by default

# Credentials of batch systems and people, and variables that another agent has set.
_PRIVATE = re.compile(
    r"SLURM_JWT|MESOS_.*|LIBPROCESS_.*|.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY)(_.*)?",
)


def node_resources(cores: float, memory: int, gpus: int) -> Resources:
    """What an agent offers; `memory` is in bytes.

    >>> [name for name, amount in node_resources(4, 1 << 30, 0)]
    ['cpus', 'mem', 'ports']
    """
    return scalars(cpus=cores, mem=memory // MIB, gpus=gpus) + Resources({"ports": (_PORTS,)})


def allocation_end(given: float | None, lasts: float | None, environ: Mapping[str, str], now: float) -> float | None:
    """When the allocation ends [s since the epoch]: as given, as Slurm says, or so long after now.

    >>> allocation_end(None, 60.0, {}, 1000.0), allocation_end(None, 60.0, {"SLURM_JOB_END_TIME": "1050"}, 1000.0)
    (1060.0, 1050.0)
    >>> allocation_end(1040.0, 60.0, {"SLURM_JOB_END_TIME": "1050"}, 1000.0)
    1040.0
    """
    if given is not None:
        return given
    of_job = environ.get("SLURM_JOB_END_TIME", "")
    if of_job.isdecimal():
        return float(of_job)
    return None if lasts is None else now + lasts


def parse_attributes(pairs: Sequence[str]) -> list[Message]:
    """Mesos' Attributes from ``NAME=VALUE``; raises `InvalidInput` for what is none.

    >>> parse_attributes(["rack=r1"])
    [{'name': 'rack', 'type': 'TEXT', 'text': {'value': 'r1'}}]
    """
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals or not _is_text(pair):
            raise InvalidInput(f"--attribute {pair!r}: expected NAME=VALUE")
        found.append({"name": name, "type": "TEXT", "text": {"value": value}})
    return found


def _is_text(given: str) -> bool:
    """Whether it was valid UTF-8: other bytes of the command line are no text that messages could have."""
    return given.encode(errors="replace") == given.encode(errors="surrogatepass")


def inherited_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What containers find of the agent's environment: all but secrets.

    >>> inherited_environment({"PATH": "/bin", "SLURM_JWT": "x", "MY_API_KEY": "y", "AWS_SECRET_ACCESS_KEY": "z"})
    {'PATH': '/bin'}
    """
    return {name: value for name, value in environ.items() if not _PRIVATE.fullmatch(name.upper())}


def bound_capacity(quotas: Quotas, cores: float, most: float) -> None:
    """Keep all containers together to so many cores of the processor, of the `most` that the agent offers.

    Raises `InvalidInput` when that is no part of what the agent offers, and `StateError` when it cannot be kept here.
    """
    if not LEAST_CPUS <= cores <= most:
        raise InvalidInput(f"--capacity {cores:g}: expected from {LEAST_CPUS} to the {most:g} cores that are offered")
    try:
        quotas.bound(cores)
        probe.attempt(quotas)  # a kernel that refuses does so now, and not when the first container is to start
    except StateError as error:
        raise StateError(f"--capacity {cores:g}: {error}") from error


def with_capacity(given: Iterable[Message], cores: float | None) -> list[Message]:
    """An agent's attributes, with that of its capacity, if it has one; raises `InvalidInput` when the name is taken.

    >>> with_capacity([], 0.3)
    [{'name': 'capacity', 'type': 'SCALAR', 'scalar': {'value': 0.3}}]
    """
    found = list(given)
    if cores is None:
        return found
    if any(item["name"] == CAPACITY for item in found):
        raise InvalidInput(f"--attribute {CAPACITY}=...: expected another name, --capacity says this one")
    return [*found, {"name": CAPACITY, "type": "SCALAR", "scalar": {"value": cores}}]
