"""One certificate authority per run, and the mutual TLS 1.3 that driver, nodes and dask's processes speak under it.

`create` signs one certificate for each role and forgets the authority's key: no other can be signed. The role is in
the certificate's extended key usage, so a node's certificate cannot pose as the driver, nor the driver's as a node.
Task libraries whose workers also talk to one another have a third role, which may listen and connect, but not under
the driver's name.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import StateError
from asa.security.files import check_private, private_directory, write_private

if TYPE_CHECKING:
    from distributed.security import Security

DRIVER_NAME, WORKER_NAME = "asa-driver", "asa-worker"
"""The names in certificates of those who listen: a node gives one as ``server_hostname``, whatever host that is on."""

CLOCK_SKEW = timedelta(days=1)
LIFETIME = timedelta(days=30)


def create(directory: Path, run: str, *, now: float | None = None) -> None:
    """Write ``ca.pem`` for a run, and ``driver.pem``, ``worker.pem``, ``node.pem`` (key and certificate in one file).

    Keys are ECDSA on P-256. Files that are there already are replaced.

    Parameters
    ----------
    directory
        Made with mode 0700 when missing.
    run
        The run's name, for people who look into a certificate.
    now
        Time of signing [s since the epoch]; by default the machine's clock. Certificates hold from `CLOCK_SKEW` before
        it, for nodes whose clock is behind, to `LIFETIME` after it.

    Raises
    ------
    StateError
        When the directory is not private or cannot be written.
    """
    private_directory(directory)
    for name, pem in certificates(run, time.time() if now is None else now).items():
        write_private(directory / name, pem)


def certificates(run: str, now: float) -> dict[str, bytes]:
    """PEM texts by file name, as `create` writes them; the authority's key is forgotten."""
    # Here, because these imports cost 70 ms, and those who only load certificates need none of them.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    listen, connect = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
    signed_at = datetime.fromtimestamp(now, UTC)
    issuer_key = ec.generate_private_key(ec.SECP256R1())

    def name_of(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])  # no longer: RFC 5280, appendix A.1

    def sign(subject: x509.Name, key: ec.EllipticCurvePublicKey, *more: x509.ExtensionType) -> bytes:
        authority = subject == issuer
        usage = x509.KeyUsage(
            digital_signature=not authority,
            key_cert_sign=authority,
            crl_sign=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(signed_at - CLOCK_SKEW)
            .not_valid_after(signed_at + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(usage, critical=True)
            # Strict verification asks for both key identifiers.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM)

    issuer = name_of(f"asa run {run}")
    files = {"ca.pem": sign(issuer, issuer_key.public_key())}
    for role, usages in {"driver": [listen], "worker": [listen, connect], "node": [connect]}.items():
        key, name = ec.generate_private_key(ec.SECP256R1()), f"asa-{role}"
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = sign(name_of(name), key.public_key(), x509.ExtendedKeyUsage(usages), alternative)
        files[f"{role}.pem"] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate
    return files


def driver_context(directory: Path, own: str = "driver.pem") -> ssl.SSLContext:
    """What the driver listens with, or another who has a certificate for that: TLS 1.3, only for nodes of this run."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, directory, own)
    # A ticket arrives after the handshake: a peer that closes without having read it would reset the connection.
    context.num_tickets = 0
    return context


def node_context(directory: Path) -> ssl.SSLContext:
    """What a node connects with: TLS 1.3, and only within this run; pass ``server_hostname=DRIVER_NAME``, say."""
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


def dask_security(directory: Path) -> Security:
    """Mutual TLS 1.3 for dask: any node of the run may listen and connect, and no other process. Imports dask."""
    from distributed.security import Security

    authority, own = (str(check_private(directory / name)) for name in ("ca.pem", "worker.pem"))
    make: Callable[..., Security] = Security  # it is not typed
    return make(
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_ca_file=authority,
        tls_scheduler_cert=own,
        tls_worker_cert=own,
        tls_client_cert=own,
    )
