"""``python -m tests.cluster up|down|status|install``: a real Slurm cluster on this host."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster import cluster, daemons, host, layout
from tests.cluster.config import REGIMES


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (RuntimeError, OSError, ValueError, TimeoutError, subprocess.SubprocessError) as error:
        print(f"tests.cluster: {error}", *getattr(error, "__notes__", []), sep="\n", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    users = tuple(filter(None, options.users.split(",")))
    database = options.database or options.rest or options.regime != "fifo"
    reason = host.obstacle(database=database, rest=options.rest)
    if reason is not None:
        raise RuntimeError(reason)
    config = host.configure(
        options.base,
        nodes=options.nodes,
        cores_per_node=options.cores_per_node,
        regime=options.regime,
        database=database,
        rest=options.rest,
        users=users,
        min_job_age=options.min_job_age,
        settings=tuple(options.set),
    )
    cluster.up(config)
    print(f"SLURM_CONF={config.slurm_conf}")
    return 0


def _down(options: argparse.Namespace) -> int:
    base = _base(options)
    try:
        config = layout.read(base)
    except FileNotFoundError:
        print(f"nothing to end in {base}", file=sys.stderr)
        return 0
    cluster.down(config)
    if not options.keep:
        layout.remove(config)
    return 0


def _status(options: argparse.Namespace) -> int:
    known = cluster.load(_base(options))
    notes = daemons.noted(known.config)
    for name, process in sorted(notes.items()):
        print(f"{name:24} {process.pid:8} {'running' if process.running else 'ended'}")
    if "slurmctld" not in notes or not notes["slurmctld"].running:
        print("down")
        return 1
    for node, state in known.node_states().items():
        print(f"{node:24} {state}")
    return 0


def _install(options: argparse.Namespace) -> int:
    script = Path(__file__).with_name("install-debian.sh")
    return subprocess.run(["sh", str(script), *options.groups]).returncode


def _base(options: argparse.Namespace) -> Path:
    if options.base is not None:
        return Path(options.base)
    named = os.environ.get("SLURM_CONF")
    if not named:
        raise ValueError("which cluster? Give --base DIR, or set SLURM_CONF to what `up` printed")
    return Path(named).parent.parent


def _setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not (key and found):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--base", type=Path, metavar="DIR", help="the cluster's own directory")

    up = commands.add_parser("up", parents=[where], help="start a cluster; prints SLURM_CONF=FILE")
    up.add_argument("--nodes", type=int, default=4, metavar="N")
    up.add_argument("--cores-per-node", type=int, default=8, metavar="C")
    up.add_argument("--regime", choices=REGIMES, default="fifo", help="all but fifo imply --database")
    up.add_argument("--database", action="store_true", help="also run mariadbd and slurmdbd")
    up.add_argument("--rest", action="store_true", help="also run slurmrestd; implies --database")
    up.add_argument("--users", default="", metavar="A,B", help="who may submit besides root; made if missing")
    up.add_argument("--min-job-age", type=int, default=300, metavar="S", help="when to forget ended jobs [s]")
    up.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf"
    )
    up.set_defaults(command=_up)

    down = commands.add_parser("down", parents=[where], help="end a cluster and delete its directory")
    down.add_argument("--keep", action="store_true", help="leave the files")
    down.set_defaults(command=_down)

    status = commands.add_parser("status", parents=[where], help="show daemons and nodes")
    status.set_defaults(command=_status)

    install = commands.add_parser("install", help="install the Debian packages (root)")
    install.add_argument("groups", nargs="*", metavar="GROUP", help="cluster database rest examples mpi all")
    install.set_defaults(command=_install)
    return parser


if __name__ == "__main__":
    sys.exit(main())
