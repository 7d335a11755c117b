"""``asa dashboard``: the live page of a run."""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from pathlib import Path

from asa.core.command import CommandResult, port
from asa.log.messages import notify
from asa.log.rundir import state_directory

_DEFAULT_PORT = 8765


class DashboardCommand:
    """Serve a page that shows runs as they go on, and as they were."""

    help = "serve a page that shows a run as it goes on, or replays it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", metavar="RUN", nargs="?", default="",
            help="run or co-scheduled queue to show first (the newest run; without runs, the newest queue)",
        )  # fmt: skip
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1; others need TLS)")
        parser.add_argument("--port", type=port, help=f"port to listen on ({_DEFAULT_PORT}, or any if that is in use)")
        parser.add_argument("--certificate", type=Path, metavar="FILE", help="PEM file with key and certificate: TLS")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.dashboard.site import Dashboard  # here: the page of options needs no sockets

        chosen = _free_port(options.host) if options.port is None else options.port
        state, certificate = state_directory(), options.certificate
        service = Dashboard(state, options.run, host=options.host, port=chosen, certificate=certificate)
        with service:
            with contextlib.suppress(KeyboardInterrupt):
                _announce(service.link, service.address.url, service.address.file, service.shows)
                service.wait()
            where = {"url": service.address.url, "shows": service.shows}
        return CommandResult(where, "the dashboard has ended")


def _announce(link: str, url: str, file: Path, shows: str) -> None:
    """Where it is. The link is a secret, if for one use only: it is shown to eyes, and goes into no log."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    notify(f"dashboard of {shows} at {url}" if shows else f"dashboard at {url}: there are no runs yet")
    if sys.stderr.isatty():
        notify(f"open {link}")
    notify(f"the link that opens it, for one use at a time, is in {file}")
    notify(f"from elsewhere: ssh -N -L {port}:{host}:{port} {socket.gethostname()}")


def _free_port(host: str) -> int:
    """The usual port, so that links and tunnels stay the same; 0, any, where that is in use."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, _DEFAULT_PORT))
        except OSError:
            return 0
    return _DEFAULT_PORT
