from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from executors.cgroup import kernel

MOUNTS = """\
22 27 0:21 / /proc rw,nosuid - proc proc rw
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 /jobs /sys/fs/cgroup/memory\\040here rw shared:9 master:2 - cgroup cgroup rw,memory
35 30 0:31 /other /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
"""
GROUPS = "5:freezer:/job7\n4:memory:/jobs/7\n3:cpu,cpuacct:/job7\n1:name=systemd:/x\n0::/a:b\n"


def test_where_the_own_groups_are() -> None:
    at = Path("/sys/fs/cgroup")
    assert kernel.own_groups(MOUNTS, GROUPS) == {
        "": at / "unified/a:b",
        "cpu": at / "cpu,cpuacct/job7",
        "cpuacct": at / "cpu,cpuacct/job7",
        "memory": at / "memory here/7",
    }, "what no mount shows is left out: freezer"


def test_a_group_outside_the_name_space_is_not_ours() -> None:
    assert kernel.own_groups("31 30 0:27 / /cg rw - cgroup2 none rw", "0::/../other") == {}


def test_a_mount_of_a_group_that_only_begins_alike() -> None:
    assert kernel.own_groups("31 30 0:27 /job /cg rw - cgroup2 none rw", "0::/job7") == {}


@given(st.floats(0.001, 1024))
def test_quotas_are_never_below_what_the_kernel_takes_and_never_above_what_is_meant(cores: float) -> None:
    quota = kernel.quota_us(cores)
    assert quota >= kernel.LEAST_US
    assert quota <= max(kernel.LEAST_US, cores * kernel.PERIOD_US + 0.5)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_weights_grow_with_the_weight_and_stay_in_the_kernels_bounds(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 2 <= kernel.shares(low) <= kernel.shares(high) <= 262_144
    assert 1 <= kernel.weight_of(kernel.shares(low)) <= kernel.weight_of(kernel.shares(high)) <= 10_000


@pytest.mark.parametrize("shell", ["bash", None])
def test_entering_writes_to_every_group_and_becomes_the_program(
    shell: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shell is None:
        monkeypatch.setattr("shutil.which", lambda name: None)
    groups = [tmp_path / "one two", tmp_path / "three"]
    for group in groups:
        group.mkdir()
    argv = kernel.enter_groups(
        groups, [sys.executable, "-c", "import os, sys; print(os.getpid(), sys.argv[1:])", "--", "a b"]
    )
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate()
        assert said == f"{process.pid} ['--', 'a b']\n"
    for group in groups:
        assert (group / "cgroup.procs").read_text() == "0\n", "0 is the process that writes"


def test_who_cannot_enter_does_not_run(tmp_path: Path) -> None:
    argv = kernel.enter_groups([tmp_path / "missing"], ["touch", str(tmp_path / "ran")])
    assert subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 125
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", ".a", "a" * 129, "ü"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(StateError, match="cannot name a group"):
        kernel.checked_name(name)


def test_writing_never_makes_a_file_and_says_what_was_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"cannot write '5' to .*/cpu.max: No such file"):
        kernel.write_file(tmp_path / "cpu.max", "5")
    assert not kernel.try_write(tmp_path / "cpu.max", "5")
    assert not list(tmp_path.iterdir())


def test_reading_what_is_gone(tmp_path: Path) -> None:
    assert kernel.read_file(tmp_path / "x") == ""
    assert kernel.read_counters(tmp_path / "x") == {}
    assert kernel.read_number(tmp_path / "x") is None
    (tmp_path / "max").write_text("max\n")
    assert kernel.read_number(tmp_path / "max") is None
    assert kernel.members([tmp_path / "x"]) == []


def test_what_cannot_be_read_for_another_reason_is_no_empty_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        kernel.read_file(tmp_path)


def test_a_group_that_is_held_for_a_moment_goes(tmp_path: Path) -> None:
    (tmp_path / "asa/space/name").mkdir(parents=True)
    held = tmp_path / "asa/space/name/held"
    held.touch()
    timer = threading.Timer(0.02, held.unlink)
    timer.start()
    assert kernel.remove_group(tmp_path / "asa/space/name", patience_s=60.0)
    timer.join()


def test_members_of_groups_made_inside_count_and_strangers_do_not(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("12\n3\n")
    (tmp_path / "a/b/cgroup.procs").write_text("7\n0\n3\n")
    assert kernel.members([tmp_path]) == [3, 7, 12]


def test_removing_takes_the_inner_groups_and_the_empty_ones_around(tmp_path: Path) -> None:
    (tmp_path / "asa/space/name/inner").mkdir(parents=True)
    (tmp_path / "asa/space/other").mkdir()
    assert kernel.remove_group(tmp_path / "asa/space/name")
    assert (tmp_path / "asa/space/other").exists()
    assert kernel.remove_group(tmp_path / "asa/space/other")
    assert not (tmp_path / "asa").exists()
    assert kernel.remove_group(tmp_path / "asa/space/other"), "gone already"


def test_a_group_that_does_not_go_is_told(tmp_path: Path) -> None:
    (tmp_path / "asa/space/name").mkdir(parents=True)
    (tmp_path / "asa/space/name/file").write_text("")
    assert not kernel.remove_group(tmp_path / "asa/space/name", patience_s=0.0)


def test_a_group_that_cannot_be_made(tmp_path: Path) -> None:
    kernel.make_group(tmp_path, "a")
    with pytest.raises(StateError, match=r"there is a group .*/a already"):
        kernel.make_group(tmp_path, "a")
    with pytest.raises(StateError, match="cannot make the group"):
        kernel.make_group(tmp_path / "none", "a")


def test_killing_ends_what_the_files_name_and_is_patient(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        (tmp_path / "cgroup.procs").write_text(f"{process.pid}\n")
        # a fake group does not lose its dead: only patience ends this
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "_PATIENCE_S", 0.05)
            kernel.kill_members([tmp_path])
        assert process.wait() == -9
    assert os.path.exists(tmp_path / "cgroup.procs")


def test_tidying_takes_what_is_empty_and_old(tmp_path: Path) -> None:
    top = tmp_path / "asa"
    for name in ("old/empty", "old/full", "new/empty", "gone/empty"):
        (top / name).mkdir(parents=True)
    (top / "old/full/cgroup.procs").write_text("1\n")
    for name in ("old/empty", "old/full", "gone/empty", "gone"):
        os.utime(top / name, (0, 0))
    kernel.remove_stale(top)
    assert sorted(path.name for path in top.glob("*/*")) == ["empty", "full"]
    assert (top / "new/empty").exists()
    assert (top / "old/full").exists()
    kernel.remove_stale(tmp_path / "missing")
