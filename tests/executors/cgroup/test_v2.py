"""Version 2 against files: what goes wrong, and what earlier agents have left; see also `test_versions`."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.cgroup import kernel
from executors.cgroup.kernel import V2, V2Group
from tests.executors.cgroup.fake import V2_FILES, fill, said


def test_version_2_passes_controllers_on_once(two: Path) -> None:
    places = (two, two / "asa", two / "asa/space")
    for directory in places:
        fill(directory, V2_FILES, cgroup_subtree_control="cpu memory\n")
    V2(two, "space").group("c1", weight=1.0, cores=None, memory=None)
    assert {said(directory, "cgroup.subtree_control") for directory in places} == {"cpu memory\n"}


def test_version_2_enters_kills_and_removes_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = fill(tmp_path / "c1", ("cgroup.kill", "cgroup.freeze", "memory.events"), memory_events="oom_kill 0\n")
    group = V2Group(directory)
    assert f"{directory}/cgroup.procs" in group.wrap(["true"])
    assert not group.starved()
    (directory / "memory.events").write_text("oom 2\noom_kill 1\n")
    assert group.starved()
    group.kill()
    assert (said(directory, "cgroup.kill"), said(directory, "cgroup.freeze")) == ("1", "0")
    (directory / "cgroup.kill").unlink()
    monkeypatch.setattr(kernel, "_PATIENCE_S", 0.02)  # a fake group does not lose its dead
    with subprocess.Popen(["sleep", "1000"]) as process:
        (directory / "cgroup.procs").write_text(f"{process.pid}\n")
        assert group.pids() == [process.pid]
        group.kill()
        assert process.wait() == -9, "a kernel before 5.14"
    for file in directory.iterdir():
        file.unlink()
    group.close()
    assert not directory.exists()


def test_version_2_takes_back_a_group_that_was_refused(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (two / "cgroup.type").unlink()
    removed = []
    monkeypatch.setattr(kernel, "remove_group", removed.append)
    (two / "asa/space").mkdir(parents=True)
    (two / "asa/space/cpu.max").write_text(f"max {kernel.PERIOD_US}")
    write = kernel.write_file

    def refuse(file: Path, text: str) -> None:
        if file.name == "cpu.max" and file.parent.name == "c1":
            raise StateError("the kernel refuses")
        write(file, text)

    monkeypatch.setattr(kernel, "write_file", refuse)
    with pytest.raises(StateError, match="the kernel refuses"):
        V2(two, "space").group("c1", weight=1.0, cores=0.5, memory=None)
    assert removed == [two / "asa/space/c1"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EBUSY, "Device or resource busy"), r"below .*/job: it holds processes \(Device or"),
        (OSError(errno.EINVAL, "Invalid argument"), r"cannot pass controllers on below .*/job \(Invalid argument"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "cannot make the group .*/asa/space: it is removed again"),
    ],
)
def test_version_2_tells_why_controllers_are_not_passed_on(
    two: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, told: str
) -> None:
    (two / "cgroup.type").unlink()
    write = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            raise error
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(StateError, match=told):
        V2(two, "space").group("c1", weight=1.0, cores=None, memory=None)


def test_version_2_finds_and_sweeps_what_dead_agents_left(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas, base = V2(two, "space"), two / "asa/space"
    quotas.sweep(())
    for name in ("kept", "left"):
        os.makedirs(base / name)
    assert quotas.recover("none", os.getpid()) is None
    kept = quotas.recover("kept", os.getpid())
    assert kept is not None
    kept.kill()
    quotas.sweep({"kept"})
    assert [path.name for path in base.iterdir()] == ["kept"]
    elsewhere = two / "other/asa/space/moved"
    os.makedirs(elsewhere)
    (elsewhere / "cgroup.procs").write_text("4711\n")
    monkeypatch.setattr(kernel, "own_groups", lambda mounts, groups: {"": elsewhere})
    moved = quotas.recover("moved", os.getpid())
    assert moved is not None
    assert moved.pids() == [4711], "the group that its process is in"
    assert quotas.recover("moved", 4_194_305) is None, "it has ended"


def test_marks_of_systemd_are_attributes(tmp_path: Path) -> None:
    assert not kernel.has_mark(tmp_path, "user.delegate")
    try:
        os.setxattr(tmp_path, "user.delegate", b"1")
    except OSError:
        pytest.skip("a file system without such attributes")
    assert kernel.has_mark(tmp_path, "user.delegate")
