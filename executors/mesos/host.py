"""What masters, agents and scheduler drivers ask of the machine they run on, beyond what all do."""

from __future__ import annotations

import os
import random
import socket
import uuid
from pathlib import Path

from asa.web.server import listening_socket
from executors.host import Host
from executors.mesos import peer
from executors.mesos.journal import Journal


class PoolHost(Host):
    """The machine that this process runs on. Tests of the whole system put a simulated one in its place."""

    def uniform(self, least: float, most: float) -> float:
        """A number between these, by chance."""
        return random.uniform(least, most)

    def random_bytes(self, count: int) -> bytes:
        """Bytes that cannot be predicted."""
        return os.urandom(count)

    def new_id(self) -> str:
        """An id that nothing else has."""
        return str(uuid.UUID(bytes=self.random_bytes(16), version=4))

    def journal(self, path: Path, holds: str, *, outlasts: bool = True) -> Journal:
        """What a master or an agent must not forget, in this file; raises as `executors.mesos.journal.Journal` does."""
        return Journal(path, holds, outlasts=outlasts)

    def listening_socket(self, address: str, port: int) -> socket.socket:
        """Where HTTP clients connect; raises as `asa.web.server.listening_socket` does."""
        return listening_socket(address, port)

    def dial(self, address: str, port: int, timeout: float) -> socket.socket:
        """A connection to an HTTP server, made within `timeout` [s]; raises `OSError`."""
        found = socket.create_connection((address, port), timeout)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def is_ours(self, connection: socket.socket) -> bool:
        """Whether the process at the other end of a loopback connection belongs to our own user; raises `OSError`."""
        return peer.is_ours(*peer.ends(connection))


POOL_HOST = PoolHost()
