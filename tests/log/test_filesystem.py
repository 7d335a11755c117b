from pathlib import Path, PurePosixPath

import pytest

from asa.log import filesystem
from asa.log.filesystem import is_local, mount_of, parse_mounts

CLUSTER = """\
21 1 8:2 / / rw,relatime shared:1 - xfs /dev/sda2 rw,attr2
22 21 0:20 / /proc rw,nosuid shared:5 - proc proc rw
30 21 0:40 / /home rw shared:12 - nfs4 server:/export/home rw,vers=4.2
31 30 0:41 / /home/ann/scratch rw - lustre mds@tcp:/scratch rw
32 21 0:42 / /tmp rw shared:7 master:2 - tmpfs tmpfs rw
33 21 0:43 / /mnt/with\\040space rw - fuse.sshfs host:/ rw
34 21 0:44 / /new rw - never-heard-of it rw
35 21 8:3 / /hidden/below rw - ext4 /dev/sda3 rw
36 21 0:45 / /hidden rw - gpfs gpfs0 rw
37 32 0:46 / /tmp rw - beegfs beegfs_nodev rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "xfs"),
        ("/var/lib", "xfs"),
        ("/homes", "xfs"),
        ("/home/ann", "nfs4"),
        ("/home/ann/scratch/runs", "lustre"),
        ("/mnt/with space/x", "fuse.sshfs"),
        ("/new/x", "never-heard-of"),
        ("/hidden/below/x", "gpfs"),  # the ext4 below was covered by a later mount
        ("/tmp/x", "beegfs"),  # mounted over the tmpfs
    ],
)
def test_the_mount_that_a_path_is_on(path, kind):
    assert mount_of(PurePosixPath(path), parse_mounts(CLUSTER)).kind == kind


def test_in_a_changed_root_only_what_is_listed_is_known():
    mounts = parse_mounts("40 21 8:3 / /data rw - ext4 /dev/sda3 rw\n")
    assert mount_of(PurePosixPath("/data/x"), mounts).kind == "ext4"
    assert mount_of(PurePosixPath("/etc"), mounts) is None


def test_a_root_that_is_its_own_parent():
    mounts = parse_mounts("1 1 0:2 / / rw - rootfs rootfs rw\n21 1 8:2 / / rw - ext4 /dev/sda2 rw\n")
    assert mount_of(PurePosixPath("/x"), mounts).kind == "ext4"


@pytest.mark.parametrize(("path", "local"), [("/var", True), ("/home/ann", False), ("/new/x", False)])
def test_only_known_kinds_are_local(monkeypatch, path, local):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: CLUSTER)
    assert is_local(Path(path)) is local


def test_without_a_list_of_mounts_nothing_is_local(monkeypatch, tmp_path):
    def absent(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert is_local(tmp_path) is False


def test_links_are_followed(monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to("/proc/self")
    assert filesystem.is_local(tmp_path / "link" / "fd") is False
    assert filesystem.is_local(Path("/proc")) is False
