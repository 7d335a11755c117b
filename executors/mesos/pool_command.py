"""``asa pool``: look at a pool of agents, and change what it gives to whom."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from asa.core.command import CommandResult, table
from asa.core.errors import BackendError, InvalidInput, UnknownName
from asa.log.rundir import RunDirectory, state_directory
from executors.mesos import pool_rows
from executors.mesos.codec import BadMessage
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, WRITER, PoolDirectory

_RESOURCES = ("cpus", "disk", "gpus", "mem")


class PoolCommand:
    """Show a pool's nodes, allocations, containers, frameworks or quotas; set quotas and limits; drain a node."""

    help = "show a pool of agents and change its quotas"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
        for name, (help, _) in _LOOKS.items():
            _where(parts.add_parser(name, help=help, description=help))
        quota = parts.add_parser("set-quota", help="limit what the frameworks of a role may have together")
        quota.add_argument("role")
        quota.add_argument("limits", nargs="*", metavar="NAME=AMOUNT", help="cpus=8 mem=4096; none for no limit")
        limit = parts.add_parser("limit", help="change how much CPU a container may have, for a while")
        limit.add_argument("node", help="the agent's id or its host name")
        limit.add_argument("container", help="the container's id")
        limit.add_argument("cpus", type=float, help="at most so many cores")
        limit.add_argument("--lease", type=float, default=60.0, metavar="S", help="for so long [s]; 0 ends it now")
        drain = parts.add_parser("drain", help="give a node no more tasks, and end those it has")
        drain.add_argument("node", help="the agent's id or its host name")
        drain.add_argument("--grace", type=float, metavar="S", help="how long a task may take to end at most [s]")
        drain.add_argument("--gone", action="store_true", help="the node is to leave for good then")
        for part in (quota, limit, drain):
            _where(part)

    def run(self, options: argparse.Namespace) -> CommandResult:
        directory = _directory(options)
        if options.run and directory.master() is None:
            raise BackendError(
                f"{directory.path} has no master: the run is over, or not as far yet (`asa explain {options.run}`)",
                transient=True,
            )
        role = READER if options.what in _LOOKS else WRITER
        with Operator(directory, role) as operator:
            try:
                if options.what in _LOOKS:
                    rows = _LOOKS[options.what][1](operator)
                    return CommandResult({"rows": rows}, table(rows, "there are none"))
                return CommandResult({"rows": []}, _CHANGES[options.what](operator, options))
            except BadMessage as error:
                raise BackendError(f"the pool has answered with what makes no sense: {error}") from error


def _where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--directory", metavar="DIR", help="the pool's directory")
    group.add_argument("--run", metavar="RUN", help="the pool that this run, or the one whose name begins so, has made")
    group.add_argument("--name", default="default", help="the pool's name, for one in the state directory")
    parser.add_argument("--json", metavar="OUT", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _directory(options: argparse.Namespace) -> PoolDirectory:
    if options.directory:
        path = Path(options.directory).expanduser()
    elif options.run:
        path = RunDirectory.open(state_directory(), options.run).path / "pool"
    elif options.name in ("", ".", "..") or "/" in options.name:
        raise InvalidInput(f"{options.name!r} is no name of a pool: give a directory with --directory")
    else:
        path = state_directory() / "pools" / options.name
    if not path.is_dir():
        raise InvalidInput(f"there is no pool in {path}: start one with asa master, or say which with --directory")
    return PoolDirectory(path)


def _set_quota(operator: Operator, options: argparse.Namespace) -> str:
    limits = dict(_limit(word) for word in options.limits)
    operator.set_quota(options.role, limits)
    shown = ", ".join(f"{name} {amount:g}" for name, amount in limits.items())
    return f"role {options.role} may have {f'at most {shown}' if limits else 'as much as there is'}"


def _limit(word: str) -> tuple[str, float]:
    name, equals, amount = word.partition("=")
    if name and equals and name not in _RESOURCES:
        raise UnknownName("resource", name, _RESOURCES)  # the master would keep it, and it would limit nothing
    try:
        number = float(amount)
        if name and equals and 0 <= number < math.inf:
            return name, number
    except ValueError:
        pass
    raise InvalidInput(f"expected a limit such as cpus=8, found {word!r}")


def _update_limits(operator: Operator, options: argparse.Namespace) -> str:
    operator.update_limits(_agent(operator, options.node), options.container, options.cpus, options.lease)
    if options.lease == 0:
        return f"container {options.container} may have what it had"
    return f"container {options.container} may have {options.cpus:g} cores for {options.lease:g} s"


def _drain(operator: Operator, options: argparse.Namespace) -> str:
    agent = _agent(operator, options.node)
    operator.drain(agent, options.grace, mark_gone=options.gone)
    return f"{options.node} gets no more tasks" + (" and leaves once it has none" if options.gone else "")


def _agent(operator: Operator, name: str) -> str:
    """The id of the agent that has this id or host name."""
    names: list[tuple[str, str]] = [(row["agent"], row["node"]) for row in pool_rows.nodes(operator)]
    found = [agent for agent, node in names if name in (agent, node)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{agent} ({node})" for agent, node in names) or "none"
    raise InvalidInput(f"{'no' if not found else 'more than one'} agent is called {name!r}; there are {known}")


_LOOKS: dict[str, tuple[str, Callable[[Operator], list[pool_rows.Row]]]] = {
    "nodes": ("the nodes of all allocations", pool_rows.nodes),
    "allocations": ("the allocations that the nodes belong to", pool_rows.allocations),
    "containers": ("what runs on the nodes, and how much it was throttled", pool_rows.containers),
    "frameworks": ("who takes the pool's resources", pool_rows.frameworks),
    "quota": ("quotas of roles", pool_rows.quota),
}
_CHANGES: dict[str, Callable[[Operator, argparse.Namespace], str]] = {
    "set-quota": _set_quota,
    "limit": _update_limits,
    "drain": _drain,
}
