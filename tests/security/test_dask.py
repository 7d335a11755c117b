from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from asa.core.errors import StateError
from asa.security.ca import create

pytestmark = pytest.mark.slow  # importing dask takes a second


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    create(tmp_path / "tls", "run")
    return tmp_path / "tls"


def test_all_roles_of_dask_speak_tls_13_and_show_a_certificate(certificates: Path) -> None:
    pytest.importorskip("distributed")
    from asa.security.dask import dask_security

    security = dask_security(certificates)
    assert security.require_encryption
    for context in (
        security.get_listen_args("scheduler")["ssl_context"],
        security.get_connection_args("worker")["ssl_context"],
        security.get_connection_args("client")["ssl_context"],
    ):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3 and context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("name", ["ca.pem", "worker.pem"])
def test_certificates_that_others_can_read_or_that_are_missing_are_refused(certificates: Path, name: str) -> None:
    pytest.importorskip("distributed")
    from asa.security.dask import dask_security

    (certificates / name).chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        dask_security(certificates)
    (certificates / name).unlink()
    with pytest.raises(StateError, match=name):
        dask_security(certificates)
