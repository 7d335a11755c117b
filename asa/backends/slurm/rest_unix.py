"""HTTP over a Unix socket, for requests."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError


class UnixAdapter(HTTPAdapter):
    """Sends every request that it is mounted for to one socket, whatever host the address names.

    Parameters
    ----------
    path
        Where the server listens.
    timeout_s
        How long to wait for the connection [s].
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Have urllib3 make connections to the socket."""
        path, timeout_s = self._path, self._timeout_s

        class Connection(HTTPConnection):
            def connect(self) -> None:
                self.sock = socket.socket(socket.AF_UNIX)
                try:
                    self.sock.settimeout(timeout_s)
                    self.sock.connect(str(path))
                except OSError as error:
                    self.close()
                    raise NewConnectionError(self, f"{path}: {error}") from error

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": Pool}
