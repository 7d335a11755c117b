import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import daemons, freezer, processes


def start(tmp_path, script, **env):
    return processes.spawn(["/bin/sh", "-c", script], output=tmp_path / "out", env={"PATH": "/bin"} | env)


@pytest.fixture
def stubborn(tmp_path):
    process = start(tmp_path, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    assert processes.wait_until(lambda: (tmp_path / "out").read_text() == "ready\n", 10)
    yield process
    process.signal(signal.SIGKILL)


def test_output_is_kept_for_the_owner_only(tmp_path):
    process = start(tmp_path, "echo $WORD; echo bad >&2", WORD="good")
    assert processes.wait_until(lambda: not process.running, 10)
    assert (tmp_path / "out").read_text() == "good\nbad\n"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_a_zombie_has_ended():
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.find(child.pid) is None
    child.wait()


def test_a_zombie_whose_threads_go_on_has_not_ended(tmp_path):
    number = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # exit(2), which ends one thread only
    script = f"""
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({number}, 0)
"""
    process = processes.spawn([sys.executable, "-c", script], output=tmp_path / "out", env={})
    stat = Path(f"/proc/{process.pid}/stat")
    assert processes.wait_until(lambda: ") Z " in stat.read_text(), 10)
    assert process.running
    processes.end([process], grace=0)
    assert not process.running


def test_a_later_process_with_the_same_number_is_another():
    ours = processes.find(os.getpid())
    assert ours is not None
    assert ours.running
    assert not processes.Process(ours.pid, ours.started - 1).running


def test_end_is_gentle_first(tmp_path):
    process = start(tmp_path, "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done")
    assert processes.wait_until(lambda: (tmp_path / "out").read_text() == "ready\n", 10)
    processes.end([process], grace=10)
    assert (tmp_path / "out").read_text() == "ready\nbye\n"


def test_end_kills_what_does_not_end_by_itself(stubborn):
    processes.end([stubborn], grace=0.2)
    assert not stubborn.running


def test_end_says_which_process_outlived_its_bound(stubborn, monkeypatch):
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    with pytest.raises(TimeoutError, match=str(stubborn.pid)):
        processes.end([stubborn], grace=0.05, timeout=0.05)


def test_processes_are_found_by_environment_but_never_oneself(tmp_path):
    mark = f"{time.time_ns()}"
    process = start(tmp_path, "exec sleep 60", ASA_MARK=mark)
    try:
        # While the shell gives way to sleep, the process has no environment for a moment.
        assert processes.wait_until(
            lambda: processes.with_environment(lambda env: env.get("ASA_MARK") == mark) == [process], 5
        )
        assert os.getpid() not in {found.pid for found in processes.with_environment(lambda env: True)}
    finally:
        processes.end([process], grace=0)


def test_wait_until_gives_up():
    assert not processes.wait_until(lambda: False, 0.05)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        daemons.program("no-such-program")


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("cgroup /sys/fs/cgroup/freezer cgroup rw,nosuid,freezer 0 0\n", "/sys/fs/cgroup/freezer"),
        (
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup /cg/freezer cgroup rw,freezer 0 0\n",
            "/cg/freezer",
        ),
        ("cgroup /elsewhere cgroup rw,freezer 0 0\n", None),
        ("cgroup2 /sys/fs/cgroup/freezer cgroup2 rw,freezer 0 0\n", None),
        ("", None),
    ],
)
def test_where_the_freezer_is_mounted(mounts, expected):
    found = freezer.mount_point(mounts)
    assert (found and str(found)) == expected


def test_members_of_a_group_are_those_of_the_groups_below_too(tmp_path):
    job = tmp_path / "uid_0" / "job_1"
    job.mkdir(parents=True)
    for directory, pids in ((tmp_path, "1\n"), (tmp_path / "uid_0", ""), (job, "2\n3\n")):
        (directory / "cgroup.procs").write_text(pids)
    assert sorted(freezer.members(tmp_path)) == [1, 2, 3]


def test_a_freezer_that_cannot_be_written_is_not_usable(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup {tmp_path}/freezer cgroup rw,freezer 0 0\n")
    assert freezer.usable(mounts) is None
    (tmp_path / "freezer").mkdir()
    (tmp_path / "freezer" / "release_agent").touch()
    assert freezer.usable(mounts) == tmp_path / "freezer"
    assert [path.name for path in (tmp_path / "freezer").iterdir()] == ["release_agent"]
