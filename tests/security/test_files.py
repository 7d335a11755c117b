import errno
import os
import stat

import pytest

from asa.core.errors import StateError
from asa.security.files import check_private, private_directory, write_private


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
