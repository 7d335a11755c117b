"""The certificates of a run, made from nothing. Nothing else imports `cryptography`: to load them takes none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(days=1)
LIFETIME = timedelta(days=30)
ROLES = {
    "driver": [ExtendedKeyUsageOID.SERVER_AUTH],
    "worker": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
    "node": [ExtendedKeyUsageOID.CLIENT_AUTH],
}
"""What each role's certificate is for: to listen, to connect. Files are written in this order."""


def certificates(run: str, now: float) -> dict[str, bytes]:
    """PEM texts by file name: ``ca.pem``, and key with certificate for each role. The authority's key is forgotten.

    Parameters
    ----------
    run
        The run's name, for people who look into a certificate.
    now
        Time of signing [s since the epoch]. Certificates hold from `CLOCK_SKEW` before it to `LIFETIME` after it.
    """
    signed_at = datetime.fromtimestamp(now, UTC)
    issuer_key = ec.generate_private_key(ec.SECP256R1())
    issuer = _name(f"asa run {run}")

    def sign(subject: x509.Name, key: ec.EllipticCurvePublicKey, *more: x509.ExtensionType) -> bytes:
        authority = subject == issuer
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(signed_at - CLOCK_SKEW)
            .not_valid_after(signed_at + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(_usage(authority), critical=True)
            # Strict verification asks for both key identifiers.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(issuer_key, SHA256()).public_bytes(Encoding.PEM)

    files = {"ca.pem": sign(issuer, issuer_key.public_key())}
    for role, usages in ROLES.items():
        key, name = ec.generate_private_key(ec.SECP256R1()), f"asa-{role}"
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = sign(_name(name), key.public_key(), x509.ExtendedKeyUsage(usages), alternative)
        files[f"{role}.pem"] = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate
    return files


def _name(common: str) -> x509.Name:
    longest = 64  # RFC 5280, appendix A.1
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:longest])])


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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
