"""One certificate authority per run, and the mutual TLS 1.3 that driver and nodes speak under it.

`create` signs one certificate for each role and forgets the authority's key: nobody can sign another. The role is in
the certificate's extended key usage, so a node's certificate cannot pose as the driver, nor the driver's as a node.
Task libraries whose workers also talk to one another have a third role, which may listen and connect, but not under
the driver's name.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from asa.core.errors import StateError
from asa.security.files import check_private, private_directory, write_private

DRIVER_NAME = "asa-driver"
"""The name in the driver's certificate: a node gives it as ``server_hostname``, whatever host the driver is on."""


def create(directory: Path, run: str, *, now: float | None = None) -> None:
    """Write ``ca.pem`` for a run, and ``driver.pem``, ``worker.pem``, ``node.pem`` (key and certificate in one file).

    Keys are ECDSA on P-256. Certificates hold from a day ago, for nodes whose clock is behind, to 30 days ahead. Files
    that are there already are replaced.

    Parameters
    ----------
    directory
        Where to; made with mode 0700 when missing.
    run
        The run's name, for people who look into a certificate.
    now
        Time of signing [s since the epoch]; by default the machine's clock.

    Raises
    ------
    StateError
        When the directory is not private or cannot be written.
    """
    # Imported late: it costs 70 ms, and those who only load certificates need none of it.
    from asa.security.signing import certificates

    private_directory(directory)
    for name, pem in certificates(run, time.time() if now is None else now).items():
        write_private(directory / name, pem)


def driver_context(directory: Path) -> ssl.SSLContext:
    """What the driver listens with: TLS 1.3, and only for nodes of this run.

    Raises
    ------
    StateError
        When the run's certificates are missing, damaged, or open to other users.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, directory, "driver.pem")
    # A ticket arrives after the handshake: a peer that closes without having read it would reset the connection.
    context.num_tickets = 0
    return context


def node_context(directory: Path) -> ssl.SSLContext:
    """What a node connects with: TLS 1.3, and only to this run's driver; pass ``server_hostname=DRIVER_NAME``.

    Raises
    ------
    StateError
        When the run's certificates are missing, damaged, or open to other users.
    """
    return _context(ssl.PROTOCOL_TLS_CLIENT, directory, "node.pem")


def _context(protocol: int, directory: Path, own: str) -> ssl.SSLContext:
    authority, certificate = check_private(directory / "ca.pem"), check_private(directory / own)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate)
    except OSError as error:  # ssl.SSLError is one
        raise StateError(f"the certificates in {directory} cannot be used: {error}. Start the run anew") from error
    return context
