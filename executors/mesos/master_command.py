"""``asa master``: run a pool's master, by hand or, for a pool that several runs share, on demand."""

from __future__ import annotations

import argparse
import math
import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from asa.core.command import CommandResult, port
from asa.log.messages import VARIABLE
from asa.security.files import cannot
from asa.web.hosts import LOOPBACK
from executors.mesos.pool_directory import MasterAddress, PoolDirectory

IDLE_S = 60.0
"""After how long without a run and an agent it ends [s]."""

LOG = "master.log"


class MasterCommand:
    """Run a master in the foreground, until a signal ends it."""

    help = "run the master of a pool of nodes, until Ctrl-C or SIGTERM"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--directory",
            type=Path,
            required=True,
            help="the pool's, which all nodes must see; made if missing",
        )
        parser.add_argument("--host", help="address to listen on (all; without TLS or authentication, loopback)")
        parser.add_argument("--port", type=port, default=0, help="port to listen on (any)")
        parser.add_argument(
            "--plain-http", action="store_true", help="no TLS, for clients that know none; only for this machine"
        )
        parser.add_argument(
            "--no-authentication", action="store_true", help="let EVERY user of this machine run tasks as you"
        )
        parser.add_argument(
            "--offer-timeout",
            type=_seconds,
            metavar="S",
            help="take an offer back after so many seconds (never)",
        )
        parser.add_argument(
            "--idle",
            type=_seconds,
            metavar="S",
            default=math.inf,
            help="end after so many seconds without a framework and an agent (never)",
        )

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Serve; returns once a signal has come."""
        # imported late: the command line stays quick
        from executors.mesos.master.server import MasterService
        from executors.mesos.master.state import MasterOptions
        from executors.mesos.sharing import OrphanWatch

        directory = PoolDirectory.create(options.directory.absolute(), options.directory.name)
        service = MasterService(
            directory,
            MasterOptions(offer_timeout_s=options.offer_timeout, user=pwd.getpwuid(os.geteuid()).pw_name),
            tls=not options.plain_http,
            authenticate=not options.no_authentication,
            host=options.host,
            port=options.port,
            idle_s=options.idle,
        )
        text = "the master has ended"
        try:
            service.start()
            _announce(directory, service.address, authenticate=not options.no_authentication)
            with OrphanWatch(directory):
                service.wait()
            text += f": for {options.idle:g} s it had neither a framework nor an agent"
        except KeyboardInterrupt:
            pass
        finally:
            service.close()
        return CommandResult({"directory": str(directory.path), **asdict(service.address)}, text)


def _announce(directory: PoolDirectory, address: MasterAddress, *, authenticate: bool) -> None:
    """Where it is; the tokens' directory is no secret, its content is."""
    scheme, host = ("https" if address.tls else "http"), address.hosts[0]
    where = f"[{host}]" if ":" in host else host
    lines = [f"master of {directory.path} at {scheme}://{where}:{address.port}"]
    if authenticate:
        lines.append(f"tokens are in {directory.token_file('')}")
    else:
        lines.append("WITHOUT AUTHENTICATION: every user of this machine can run programs as you")
    print("\n".join(lines), file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text}")
    return seconds


def start_master(directory: PoolDirectory, *, local: bool, withheld: Collection[str] = ()) -> None:
    """Start one that outlives us; where there is one already, the new one ends at once.

    Parameters
    ----------
    local
        Whether all nodes are this machine.
    withheld
        Variables of our environment that it is not to have.

    Raises
    ------
    StateError
        When its log in the pool's directory cannot be written.
    """
    words = [sys.executable, "-P", "-m", "asa", "master", "--directory", str(directory.path), "--idle", str(IDLE_S)]
    words += ["--host", LOOPBACK] if local else []
    words += ["--log-level", os.environ[VARIABLE]] if VARIABLE in os.environ else []
    path = directory.path / LOG
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot("write", path, error) from error
    try:
        env = {name: value for name, value in os.environ.items() if name not in withheld}
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True, env=env
        )
    finally:
        os.close(log)
    threading.Thread(target=process.wait, name="asa-master-end", daemon=True).start()  # so that it leaves no zombie
