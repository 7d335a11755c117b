"""A pool's directory: where its master is, and what lets people and programs in. Mode 0700; files in it 0600.

::

    master.json        where the master listens
    tls/               ca.pem; driver.pem (the master listens with it); worker.pem (agents listen with it)
    tokens/ROLE        256 random bits for each role
    master.db          the master's journal
    agents/            what agents keep, on their own disks if that is where the directory is

A program gets this directory, never a secret. A token is sent as ``Authorization: Bearer TOKEN`` or, by clients that
know nothing else, as the password of ``Basic``. Each opens what its role may do and no more.
"""

from __future__ import annotations

import json
import secrets
import ssl
from dataclasses import asdict, dataclass
from pathlib import Path

from asa.core.errors import StateError
from asa.security.ca import create as create_authority
from asa.security.files import check_private, private_directory, write_private

FRAMEWORK, AGENT, READER, WRITER = "framework", "agent", "operator-read", "operator-write"
ROLES = (FRAMEWORK, AGENT, READER, WRITER)
"""Frameworks and their executors; agents; operators who look; operators who change."""

MASTER_NAME, AGENT_NAME = "asa-driver", "asa-worker"
"""Names in the certificates that master and agents listen with, whatever host they are on."""

_ADDRESS, _TLS, _TOKENS = "master.json", "tls", "tokens"


@dataclass(frozen=True)
class MasterAddress:
    """Where a server listens: the likeliest host first, on which is its process `pid`; `id` is new at each start."""

    hosts: tuple[str, ...]
    port: int
    tls: bool
    pid: int
    id: str


@dataclass(frozen=True)
class PoolDirectory:
    """The directory of one pool, which its owner alone can enter; on a cluster, one that all nodes see."""

    path: Path

    @classmethod
    def create(cls, path: Path, name: str) -> PoolDirectory:
        """Make the directory with certificates and tokens; what is there already is kept.

        Raises `StateError` when it is not private or cannot be written.
        """
        private_directory(path)
        if not (path / _TLS / "node.pem").exists():  # written last: who made them may have died meanwhile
            create_authority(path / _TLS, name)
        tokens = private_directory(path / _TOKENS)
        for role in ROLES:
            if not (tokens / role).exists():
                write_private(tokens / role, secrets.token_hex(32).encode())
        return cls(path)

    def is_whole(self) -> bool:
        """Whether all is there that `create` makes; a program that is too early waits for that."""
        return self.token_file(ROLES[-1]).exists()

    def token(self, role: str) -> str:
        """The secret of a role; raises `StateError` when there is none, or others could have read it."""
        path = check_private(self.token_file(role))
        return path.read_text().strip()

    def token_file(self, role: str) -> Path:
        """Where the secret of a role is: a path is no secret, its content is."""
        return self.path / _TOKENS / role

    def publish(self, address: MasterAddress) -> None:
        write_private(self.path / _ADDRESS, json.dumps(asdict(address)).encode())

    def withdraw(self, address: MasterAddress) -> None:
        """The master listens no more; a newer one's address stays."""
        if self.master() == address:
            (self.path / _ADDRESS).unlink(missing_ok=True)

    def master(self) -> MasterAddress | None:
        """Where the master listens, or did last; None when none has started yet.

        Raises `StateError` when the file is damaged, or others could have written it.
        """
        path = self.path / _ADDRESS
        if not path.exists():
            return None
        try:
            found = json.loads(check_private(path).read_bytes())
            return MasterAddress(tuple(found["hosts"]), found["port"], found["tls"], found["pid"], found["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(f"{path} is damaged ({error!r}): remove it and start the master again") from error

    def server_context(self, name: str) -> ssl.SSLContext:
        """What `MASTER_NAME` or `AGENT_NAME` listens with: TLS 1.3.

        Raises `StateError` when the certificates are missing, damaged, or open to other users.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # A ticket arrives after the handshake: a peer that closes without having read it would reset the connection.
        context.num_tickets = 0
        own = {MASTER_NAME: "driver.pem", AGENT_NAME: "worker.pem"}[name]
        try:
            context.load_cert_chain(check_private(self.path / _TLS / own))
        except OSError as error:  # ssl.SSLError is one
            raise self._unusable(error) from error
        return context

    def client_context(self) -> ssl.SSLContext:
        """What one connects with, to a server of this pool only: give `MASTER_NAME` or `AGENT_NAME` as its host name.

        Raises `StateError` when the authority's certificate is missing, damaged, or open to other users.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        try:
            context.load_verify_locations(check_private(self.path / _TLS / "ca.pem"))
        except OSError as error:
            raise self._unusable(error) from error
        return context

    def _unusable(self, error: OSError) -> StateError:
        return StateError(
            f"the certificates in {self.path / _TLS} cannot be used: {error}; remove that directory, then start the "
            "master and its agents again"
        )
