"""A pool's directory: private, whole, and the same for all who come to it."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.pool_directory import AGENT_NAME, MASTER_NAME, ROLES, MasterAddress, PoolDirectory

HERE = MasterAddress(("n1", "10.0.0.1"), 5050, True, 4711, "m1")


@pytest.fixture
def directory(tmp_path: Path) -> PoolDirectory:
    return PoolDirectory.create(tmp_path / "pool", "test")


def test_nobody_else_can_read_any_of_it(directory: PoolDirectory) -> None:
    directory.publish(HERE)
    for path in [directory.path, *directory.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_each_role_has_a_secret_of_its_own(directory: PoolDirectory) -> None:
    tokens = [directory.token(role) for role in ROLES]
    assert len(set(tokens)) == len(ROLES) and all(len(bytes.fromhex(token)) == 32 for token in tokens)


def test_who_comes_early_can_see_that_it_is_not_whole(tmp_path: Path) -> None:
    assert not PoolDirectory(tmp_path / "pool").is_whole()
    assert PoolDirectory.create(tmp_path / "pool", "test").is_whole()


def test_making_it_again_changes_nothing(directory: PoolDirectory) -> None:
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    assert PoolDirectory.create(directory.path, "test") == directory
    assert {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()} == before


def test_a_secret_that_others_could_read_is_not_used(directory: PoolDirectory) -> None:
    directory.token_file("agent").chmod(0o640)
    with pytest.raises(StateError, match="chmod 600"):
        directory.token("agent")


def test_the_address_is_that_of_the_last_master(directory: PoolDirectory) -> None:
    assert directory.master() is None
    newer = MasterAddress(("n2",), 1, False, 1, "m2")
    directory.publish(HERE)
    assert directory.master() == HERE
    directory.publish(newer)
    directory.withdraw(HERE)
    assert directory.master() == newer
    directory.withdraw(newer)
    assert directory.master() is None


def test_a_damaged_address_says_what_to_do(directory: PoolDirectory) -> None:
    directory.publish(HERE)
    (directory.path / "master.json").write_text("{}")
    with pytest.raises(StateError, match="remove it and start the master again"):
        directory.master()


@pytest.mark.parametrize("name", [MASTER_NAME, AGENT_NAME])
def test_tls_is_for_this_pool_and_this_name_only(directory: PoolDirectory, tmp_path: Path, name: str) -> None:
    stranger = PoolDirectory.create(tmp_path / "other", "other")
    assert handshake(directory.server_context(name), directory.client_context(), name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(directory.server_context(name), stranger.client_context(), name)
    other = {MASTER_NAME: AGENT_NAME, AGENT_NAME: MASTER_NAME}[name]
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(directory.server_context(name), directory.client_context(), other)


def test_without_certificates_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        PoolDirectory(tmp_path).client_context()


@pytest.mark.parametrize("name", ["ca.pem", "driver.pem"])
def test_damaged_certificates_say_what_to_do(directory: PoolDirectory, name: str) -> None:
    (directory.path / "tls" / name).write_text("nonsense")
    with pytest.raises(StateError, match="remove that directory, then start the master and its agents again"):
        directory.client_context() if name == "ca.pem" else directory.server_context(MASTER_NAME)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """The version that both agree on; no sockets needed."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(down, up, server_hostname=name)
    other = server.wrap_bio(up, down, server_side=True)
    for _ in range(10):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return one.version()
