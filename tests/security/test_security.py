"""Certificates and private files."""

import errno
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time

import pytest

from asa.core.errors import StateError
from asa.security.ca import DRIVER_NAME, WORKER_NAME, create, dask_security, driver_context, node_context
from asa.security.files import check_private, private_directory, write_once, write_private


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "tls"
    create(directory, "montage-1")
    return directory


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stranger") / "tls"
    create(directory, "montage-1")
    return directory


def talk(server_context, client_context, name=DRIVER_NAME):
    """What client and server heard of one another, or the errors that each of them met."""
    server, client = socket.socketpair()
    server.settimeout(10)
    client.settimeout(10)
    heard = {}

    def speak(side, plain, context, **options):
        try:
            with context.wrap_socket(plain, **options) as secure:
                secure.sendall(side.encode())
                heard[side] = (secure.recv(10).decode(), secure.version())
        except OSError as error:
            heard[side] = error
        finally:
            plain.close()

    thread = threading.Thread(target=speak, args=("server", server, server_context), kwargs={"server_side": True})
    thread.start()
    speak("client", client, client_context, server_hostname=name)
    thread.join()
    return heard


def as_server(directory, own):
    """A context that listens with whatever certificate, as somebody with bad intentions would."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / own)
    return context


def as_client(directory, own=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(directory / "ca.pem")
    if own:
        context.load_cert_chain(directory / own)
    return context


def test_driver_and_node_of_one_run_talk(run):
    heard = talk(driver_context(run), node_context(run))
    assert heard == {"server": ("client", "TLSv1.3"), "client": ("server", "TLSv1.3")}


def test_node_of_another_run_is_refused(run, stranger):
    client = as_client(run)
    client.load_cert_chain(stranger / "node.pem")
    assert isinstance(talk(driver_context(run), client)["server"], ssl.SSLCertVerificationError)


def test_driver_of_another_run_is_refused(run, stranger):
    error = talk(driver_context(stranger), node_context(run))["client"]
    assert isinstance(error, ssl.SSLCertVerificationError)


def test_node_without_certificate_is_refused(run):
    error = talk(driver_context(run), as_client(run))["server"]
    assert isinstance(error, ssl.SSLError) and error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


def test_drivers_certificate_does_not_pass_for_a_node(run):
    error = talk(driver_context(run), as_client(run, "driver.pem"))["server"]
    assert isinstance(error, ssl.SSLCertVerificationError)
    assert "unsuitable certificate purpose" in error.verify_message


@pytest.mark.parametrize("name", [DRIVER_NAME, "asa-node"])
def test_nodes_certificate_does_not_pass_for_the_driver(run, name):
    error = talk(as_server(run, "node.pem"), node_context(run), name)["client"]
    assert isinstance(error, ssl.SSLCertVerificationError)
    assert "unsuitable certificate purpose" in error.verify_message


def test_supervisors_listen_for_nodes_of_their_run_and_do_not_pass_for_the_driver(run, stranger):
    listening = driver_context(run, "worker.pem")
    assert talk(listening, node_context(run), WORKER_NAME)["server"] == ("client", "TLSv1.3")
    assert isinstance(talk(listening, as_client(run))["server"], ssl.SSLError)
    for context, client, name in (
        (listening, node_context(run), DRIVER_NAME),
        (listening, node_context(stranger), WORKER_NAME),
        (driver_context(stranger, "worker.pem"), node_context(run), WORKER_NAME),
        (as_server(run, "node.pem"), node_context(run), WORKER_NAME),
    ):
        assert isinstance(talk(context, client, name)["client"], ssl.SSLError)


def test_workers_of_one_run_talk_to_one_another_whoever_calls(run, stranger):
    def context(protocol, directory):
        both = ssl.SSLContext(protocol)
        both.check_hostname, both.verify_mode = False, ssl.CERT_REQUIRED
        both.load_verify_locations(directory / "ca.pem")
        both.load_cert_chain(directory / "worker.pem")
        return both

    server, client = (context(protocol, run) for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    assert talk(server, client) == {"server": ("client", "TLSv1.3"), "client": ("server", "TLSv1.3")}
    assert isinstance(talk(context(ssl.PROTOCOL_TLS_SERVER, stranger), client)["client"], ssl.SSLCertVerificationError)
    assert isinstance(talk(server, context(ssl.PROTOCOL_TLS_CLIENT, stranger))["client"], ssl.SSLError)


def test_workers_certificate_does_not_pass_for_the_driver(run):
    error = talk(as_server(run, "worker.pem"), node_context(run))["client"]
    assert isinstance(error, ssl.SSLCertVerificationError)
    assert "Hostname mismatch" in error.verify_message


def test_the_drivers_name_is_checked(run):
    error = talk(driver_context(run), node_context(run), "login1")["client"]
    assert isinstance(error, ssl.SSLCertVerificationError)
    assert "Hostname mismatch" in error.verify_message


def test_node_must_name_the_driver(run):
    with pytest.raises(ValueError, match="server_hostname"):
        node_context(run).wrap_socket(socket.socket())


def test_older_tls_is_refused(run):
    client = node_context(run)
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert isinstance(talk(driver_context(run), client)["server"], ssl.SSLError)


@pytest.mark.parametrize(("signed_days_ago", "passes"), [(31, False), (29, True), (-0.9, True), (-1.1, False)])
def test_validity_with_slack_for_slow_clocks(tmp_path, signed_days_ago, passes):
    create(tmp_path / "tls", "run", now=time.time() - signed_days_ago * 86400)
    heard = talk(driver_context(tmp_path / "tls"), node_context(tmp_path / "tls"))
    assert isinstance(heard["client"], tuple) == passes


def test_files_are_private_and_the_authoritys_key_is_gone(run):
    assert {path.name for path in run.iterdir()} == {"ca.pem", "driver.pem", "worker.pem", "node.pem"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.iterdir()} == {0o600}
    assert b"PRIVATE KEY" not in (run / "ca.pem").read_bytes()


def test_long_run_names_fit(tmp_path):
    create(tmp_path / "tls", "r" * 200)
    assert (tmp_path / "tls" / "node.pem").exists()


def test_missing_damaged_and_open_files_are_named(tmp_path):
    directory = tmp_path / "tls"
    with pytest.raises(StateError, match=r"cannot look at .*ca\.pem"):
        node_context(directory)
    create(directory, "run")
    (directory / "node.pem").chmod(0o644)
    with pytest.raises(StateError, match=r"node\.pem is open to other users"):
        node_context(directory)
    (directory / "node.pem").chmod(0o600)
    (directory / "node.pem").write_bytes(b"nothing of the kind")
    with pytest.raises(StateError, match="cannot be used"):
        node_context(directory)


def test_loading_needs_no_cryptography(run):
    script = (
        "import sys; from pathlib import Path; from asa.security.ca import node_context, driver_context\n"
        "node_context(Path(sys.argv[1])); driver_context(Path(sys.argv[1]))\n"
        "sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, run], check=False).returncode == 0


@pytest.mark.slow  # importing dask takes a second
def test_all_roles_of_dask_speak_tls_13_and_show_a_certificate(run):
    pytest.importorskip("distributed")
    security = dask_security(run)
    assert security.require_encryption
    for context in (
        security.get_listen_args("scheduler")["ssl_context"],
        security.get_connection_args("worker")["ssl_context"],
        security.get_connection_args("client")["ssl_context"],
    ):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3 and context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ca.pem", "worker.pem"])
def test_dask_refuses_certificates_that_others_can_read_or_that_are_missing(tmp_path, name):
    pytest.importorskip("distributed")
    create(tmp_path / "tls", "run")
    (tmp_path / "tls" / name).chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        dask_security(tmp_path / "tls")
    (tmp_path / "tls" / name).unlink()
    with pytest.raises(StateError, match=name):
        dask_security(tmp_path / "tls")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_and_missing_parents_are_private(tmp_path):
    made = private_directory(tmp_path / "a" / "b" / "c")
    assert made == tmp_path / "a" / "b" / "c"
    assert [mode(path) for path in (made, made.parent, made.parent.parent)] == [0o700] * 3
    assert private_directory(made) == made


def test_a_generous_umask_opens_nothing(tmp_path):
    before = os.umask(0)
    try:
        directory = private_directory(tmp_path / "a" / "b")
        write_private(directory / "file", b"x")
    finally:
        os.umask(before)
    assert mode(directory) == mode(directory.parent) == 0o700
    assert mode(directory / "file") == 0o600


def test_a_parent_that_is_a_dangling_link_is_named(tmp_path):
    (tmp_path / "scratch").symlink_to(tmp_path / "not mounted")
    with pytest.raises(StateError, match="scratch"):
        private_directory(tmp_path / "scratch" / "asa")


def test_existing_parents_are_left_alone(tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    private_directory(tmp_path / "shared" / "mine")
    assert mode(tmp_path / "shared") == 0o755


@pytest.mark.parametrize("open_to_others", [0o750, 0o701, 0o777])
def test_directory_open_to_others_is_refused(tmp_path, open_to_others):
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(open_to_others)
    with pytest.raises(StateError, match=r"open to other users .*chmod 700"):
        private_directory(tmp_path / "d")


def test_a_directory_that_its_owner_cannot_enter_is_refused(tmp_path):
    (tmp_path / "shut").mkdir(0o600)
    with pytest.raises(StateError, match=r"shut is closed to yourself, too \(mode 600\): run chmod 700 .*shut"):
        private_directory(tmp_path / "shut")


def test_symbolic_links_are_refused(tmp_path):
    private_directory(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StateError, match=r"symbolic link: name the directory itself, .*/real"):
        private_directory(tmp_path / "link")
    write_private(tmp_path / "real" / "file", b"")
    (tmp_path / "link-to-file").symlink_to(tmp_path / "real" / "file")
    with pytest.raises(StateError, match="symbolic link: name the file itself"):
        check_private(tmp_path / "link-to-file")


def test_dangling_link_is_refused_and_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="symbolic link"):
        private_directory(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_wrong_kinds_are_refused(tmp_path):
    write_private(tmp_path / "file", b"")
    with pytest.raises(StateError, match="no directory"):
        private_directory(tmp_path / "file")
    with pytest.raises(StateError, match="cannot make the directory"):
        private_directory(tmp_path / "file" / "below")
    with pytest.raises(StateError, match="no file"):
        check_private(private_directory(tmp_path / "d"))
    with pytest.raises(StateError, match="cannot look at"):
        check_private(tmp_path / "absent")


def test_another_owner_is_refused(tmp_path, monkeypatch):
    directory = private_directory(tmp_path / "d")
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(StateError, match="belongs to user"):
        private_directory(directory)


@pytest.mark.parametrize("durable", [False, True])
def test_write_replaces_contents_and_leaves_no_draft(tmp_path, durable):
    write_private(tmp_path / "file", b"first", durable=durable)
    write_private(tmp_path / "file", b"second", durable=durable)
    assert (tmp_path / "file").read_bytes() == b"second"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_write_replaces_a_link_instead_of_following_it(tmp_path):
    (tmp_path / "target").write_bytes(b"untouched")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_private(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"untouched"
    assert (tmp_path / "link").read_bytes() == b"new" and not (tmp_path / "link").is_symlink()


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    write_private(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_full_disk_keeps_the_old_contents(tmp_path, monkeypatch):
    write_private(tmp_path / "file", b"old")

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StateError, match=r"cannot write .*/file: No space left on device.*ASA_STATE_DIR"):
        write_private(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_of_several_who_write_once_the_first_wins(tmp_path):
    path = tmp_path / "order"
    written = [threading.Thread(target=write_once, args=(path, bytes([number]) * 1000)) for number in range(8)]
    for thread in written:
        thread.start()
    for thread in written:
        thread.join()
    first = path.read_bytes()
    assert len(first) == 1000 and len(set(first)) == 1
    write_once(path, b"later")
    assert path.read_bytes() == first and [item.name for item in tmp_path.iterdir()] == ["order"]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(StateError, match="cannot write"):
        write_once(tmp_path / "absent" / "order", b"x")
