"""The page's server with all it needs: a socket, a file with the link, and a thread of its own to run in."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from asa.core.errors import InvalidInput, StateError
from asa.dashboard.access import Access
from asa.dashboard.site import Site
from asa.dashboard.sources import Sources
from asa.security.files import check_private, private_directory
from asa.web.hosts import is_loopback
from asa.web.loop_thread import LoopThread
from asa.web.server import Listener, listening_socket

LOOPBACK = "127.0.0.1"

_CLOSING_S = 1.0


@dataclass(frozen=True)
class Address:
    """Where a dashboard listens, and the file in which the link is that opens it."""

    host: str
    port: int
    scheme: str
    file: Path

    @property
    def url(self) -> str:
        """The page, without the code that opens it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Dashboard:
    """Serves the page of a state directory; a context manager.

    Parameters
    ----------
    state
        The state directory.
    name
        The run or queue that the page shows first, or a beginning of it; "" for the newest run.
    host
        The name or address to listen on; other machines reach it only over TLS.
    port
        0 for any.
    certificate
        File with a private key and a certificate (PEM, mode 0600) to speak TLS with; None for plain HTTP.

    Raises
    ------
    InvalidInput
        When other machines could reach it without TLS.
    RunNotFound
        When there is no such run or queue.
    StateError
        When the certificate cannot be used.
    """

    def __init__(
        self, state: Path, name: str = "", *, host: str = LOOPBACK, port: int = 0, certificate: Path | None = None
    ) -> None:
        if certificate is None and not is_loopback(host):
            raise InvalidInput(
                f"without TLS one listens on loopback only, not on {host or 'all addresses'}: leave the host out and "
                "come through ssh, or give a certificate"
            )
        self._sources = Sources(state)
        self._opens = self._sources.find(name)
        self._state, self._host, self._port = state, host, port
        self._context = None if certificate is None else _context(certificate)
        self._thread = LoopThread[None]("asa-dashboard")
        self._stopped: asyncio.Future[None] | None = None
        self._address: Address | None = None
        self._access: Access | None = None

    @property
    def address(self) -> Address:
        """Where it listens; raises `StateError` before it was started."""
        if self._address is None:
            raise StateError("the dashboard listens nowhere yet: start it first")
        return self._address

    @property
    def link(self) -> str:
        """Opens the page, once; for the eyes of whoever started it only."""
        assert self._access is not None
        return self._access.link

    @property
    def shows(self) -> str:
        """The name of what the page shows first."""
        return self._opens[1]

    def start(self) -> None:
        """Listen, and write the link.

        Raises
        ------
        StateError
            When the port or the file cannot be had.
        """
        self._thread.start(self._serve)

    def wait(self, timeout: float | None = None) -> None:
        """Until it has ended.

        Raises
        ------
        TimeoutError
            After `timeout` [s].
        """
        self._thread.wait(timeout)

    def close(self) -> None:
        """Listen no more; links and open pages are of no use from now on."""
        if self._thread:
            self._thread.tell(self._hear)
            self._thread.join()
            if self._access is not None:
                self._access.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------- its own thread

    def _hear(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def _serve(self, started: Future[None]) -> None:
        self._stopped = asyncio.get_running_loop().create_future()
        with listening_socket(self._host, self._port) as sock:
            scheme, port = "http" if self._context is None else "https", sock.getsockname()[1]
            links = private_directory(self._state / "dashboard")
            self._address = Address(self._host, port, scheme, links / f"link-{os.getpid()}-{port}")
            self._access = Access(self._address.file, self._address.url, time.monotonic)
            site = Site(self._sources, self._access, self._host, scheme, self._opens)
            listener = Listener(site.admit, "the dashboard")
            site.authenticated = listener.authenticated
            await listener.listen(sock, self._context)
            started.set_result(None)
            warming = asyncio.create_task(site.warm())
            await self._stopped
            warming.cancel()
            site.end()
            await listener.close(_CLOSING_S)


def _context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(check_private(certificate))
    except OSError as error:  # ssl.SSLError is one
        raise StateError(f"the certificate in {certificate} cannot be used: {error}") from error
    return context
