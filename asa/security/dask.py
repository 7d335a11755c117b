"""What dask's scheduler, workers and clients speak under a run's certificates. Importing this module imports dask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from ssl import TLSVersion

from distributed.security import Security

from asa.security.files import check_private

_OWN = "worker.pem"  # of the one role that may both listen and connect


def dask_security(certificates: Path) -> Security:
    """Mutual TLS 1.3 under the run's own authority: any node of the run may listen and connect, and nobody else.

    Parameters
    ----------
    certificates
        Directory, on a file system that nodes share, which `asa.security.ca.create` has filled.

    Raises
    ------
    StateError
        When the certificates are missing, or open to other users.
    """
    authority, own = (str(check_private(certificates / name)) for name in ("ca.pem", _OWN))
    make: Callable[..., Security] = Security  # it is not typed
    return make(
        require_encryption=True,
        tls_min_version=TLSVersion.TLSv1_3,
        tls_ca_file=authority,
        tls_scheduler_cert=own,
        tls_worker_cert=own,
        tls_client_cert=own,
    )
