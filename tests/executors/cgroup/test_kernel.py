"""Groups of the kernel, against files. What the kernel makes of it is for the suite of `conformance`."""

from __future__ import annotations

import errno
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
from executors.cgroup.dutycycle import DutyCycle
from executors.cgroup.group import GroupUsage, Quotas
from executors.cgroup.kernel import V1, V2, V1Group, V2Group
from executors.mesos.agent.containers import Unlimited
from tests.executors.cgroup.fake import V1_FILES, V2_FILES, fill, said

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


@pytest.mark.parametrize(
    ("mount", "group"), [("31 30 0:27 / /cg rw - cgroup2 none rw", "0::/../other"),
                         ("31 30 0:27 /job /cg rw - cgroup2 none rw", "0::/job7")],
    ids=["outside the name space", "begins alike"],
)  # fmt: skip
def test_groups_that_no_mount_shows_are_left_out(mount: str, group: str) -> None:
    assert kernel.own_groups(mount, group) == {}


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


def test_a_process_that_cannot_enter_does_not_run(tmp_path: Path) -> None:
    argv = kernel.enter_groups([tmp_path / "missing"], ["touch", str(tmp_path / "ran")])
    assert subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 125
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", ".a", "a" * 129, "ü"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(StateError, match="cannot name a group"):
        kernel.checked_name(name)


def test_writing_never_makes_a_file_and_names_what_was_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"cannot write '5' to .*/cpu.max: No such file"):
        kernel.write_file(tmp_path / "cpu.max", "5")
    assert not kernel.try_write(tmp_path / "cpu.max", "5")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert kernel.read_file(tmp_path / "x") == ""
    assert kernel.read_counters(tmp_path / "x") == {}
    assert kernel.read_number(tmp_path / "x") is None
    (tmp_path / "max").write_text("max\n")
    assert kernel.read_number(tmp_path / "max") is None
    assert kernel.members([tmp_path / "x"]) == []
    with pytest.raises(IsADirectoryError):
        kernel.read_file(tmp_path)


def test_a_group_that_is_held_for_a_moment_goes(tmp_path: Path) -> None:
    (tmp_path / "asa/space/name").mkdir(parents=True)
    held = tmp_path / "asa/space/name/held"
    held.touch()
    assert not kernel.remove_group(tmp_path / "asa/space/name", patience_s=0.0)
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
            patch.setattr(kernel, "PATIENCE_S", 0.05)
            kernel.kill_members([tmp_path])
        assert process.wait() == -9
    assert os.path.exists(tmp_path / "cgroup.procs")


def test_tidying_takes_groups_that_are_empty_and_old(tmp_path: Path) -> None:
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


# ------------------------------------------------------- versions 1 and 2


def test_version_1_writes_period_quota_shares_and_memory(one: dict[str, Path]) -> None:
    quotas = V1(one, "space")
    group = quotas.group("c1", weight=2.0, cores=0.25, memory=1 << 30)
    cpu, memory = (one[name] / "asa/space/c1" for name in ("cpu", "memory"))
    assert said(cpu, "cpu.shares") == "2048"
    assert said(cpu, "cpu.cfs_period_us") == "100000"
    assert said(cpu, "cpu.cfs_quota_us") == "25000"
    assert said(memory, "memory.limit_in_bytes") == said(memory, "memory.memsw.limit_in_bytes") == str(1 << 30)
    group.limit(None)
    assert said(cpu, "cpu.cfs_quota_us").startswith("-1")
    assert [word for word in group.wrap(["true"]) if "cgroup.procs" in word] == [
        f"{cpu}/cgroup.procs",
        f"{memory}/cgroup.procs",
    ]


def test_a_weight_changes_and_nothing_else(one: dict[str, Path], two: Path) -> None:
    first = V1(one, "space").group("c1", weight=2.0, cores=0.25, memory=None)
    first.weigh(4.0)
    cpu = one["cpu"] / "asa/space/c1"
    assert (said(cpu, "cpu.shares"), said(cpu, "cpu.cfs_quota_us")) == ("4096", "25000")
    (two / "cgroup.type").unlink()
    second = V2(two, "space").group("c1", weight=1.0, cores=0.25, memory=None)
    second.weigh(2.0)
    made = two / "asa/space/c1"
    assert (said(made, "cpu.weight"), said(made, "cpu.max")) == ("79", "25000 100000")


def test_version_1_bounds_all_together_whenever_that_is_made(one: dict[str, Path]) -> None:
    base, quotas = one["cpu"] / "asa/space", V1(one, "space")
    quotas.bound(0.3)
    assert not base.exists()
    fill(base, V1_FILES["cpu"])
    quotas.group("c1", weight=1.0, cores=0.25, memory=None)
    assert (said(base, "cpu.cfs_quota_us"), said(base, "cpu.cfs_period_us")) == ("5000", "16667")
    fill(base, V1_FILES["cpu"])  # as one that was removed and made again
    quotas.group("c2", weight=1.0, cores=0.35, memory=None)
    assert said(base, "cpu.cfs_quota_us") == "5000"
    quotas.bound(0.2)
    assert (said(base, "cpu.cfs_quota_us"), said(base, "cpu.cfs_period_us")) == ("5000", "25000")
    for name in ("c1", "c2"):
        assert said(base / name, "cpu.cfs_quota_us").startswith("-1"), "a larger one would be refused"


def test_version_1_needs_no_bound_within_a_lower_one(one: dict[str, Path]) -> None:
    around = fill(one["cpu"], V1_FILES["cpu"], cpu_cfs_quota_us="10000\n", cpu_cfs_period_us="50000\n")
    base, quotas = fill(around / "asa/space", V1_FILES["cpu"]), V1(one, "space")
    quotas.bound(0.3)
    assert said(base, "cpu.cfs_quota_us") == "-1", "it has 0.2 as it is"
    quotas.bound(0.1)
    assert (said(base, "cpu.cfs_quota_us"), said(base, "cpu.cfs_period_us")) == ("5000", "50000")


def test_an_agent_without_a_bound_takes_away_that_of_an_earlier_one(one: dict[str, Path], two: Path) -> None:
    base = fill(one["cpu"] / "asa/space", V1_FILES["cpu"], cpu_cfs_quota_us="30000\n", cpu_cfs_period_us="100000\n")
    V1(one, "space").group("c1", weight=1.0, cores=None, memory=None)
    assert said(base, "cpu.cfs_quota_us").startswith("-1")
    base = fill(two / "asa/space", V2_FILES, cpu_max="30000 100000\n")
    (two / "cgroup.type").unlink()
    V2(two, "space").group("c1", weight=1.0, cores=None, memory=None)
    assert said(base, "cpu.max").startswith("max 100000")


def test_version_2_bounds_all_together_whenever_that_is_made(two: Path) -> None:
    (two / "cgroup.type").unlink()
    base, quotas = two / "asa/space", V2(two, "space")
    quotas.bound(0.3)
    assert not base.exists()
    quotas.group("c1", weight=1.0, cores=0.5, memory=None)
    assert said(base, "cpu.max") == "5000 16667"
    assert said(base / "c1", "cpu.max") == "50000 100000"
    quotas.bound(0.2)
    assert said(base, "cpu.max") == "5000 25000"


@pytest.mark.parametrize("quotas", [DutyCycle("space"), Unlimited()])
def test_other_means_cannot_bound_all_together(quotas: Quotas) -> None:
    with pytest.raises(StateError, match=f"fraction of the processor cannot be kept here by '{quotas.name}'"):
        quotas.bound(0.3)


def test_version_1_without_a_memory_controller_passes_over_the_limit(one: dict[str, Path]) -> None:
    group = V1({"cpu": one["cpu"]}, "space").group("c1", weight=1.0, cores=None, memory=1)
    assert group.usage().memory_limit is None


def test_version_1_takes_back_a_group_that_was_refused(one: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: Path, text: str) -> None:
        for entry in file.parent.iterdir():
            entry.unlink()  # the kernel's own files never keep a group from being removed
        raise StateError("no")

    monkeypatch.setattr("executors.cgroup.kernel.write_file", refuse)
    with pytest.raises(StateError, match="no"):
        V1({"cpu": one["cpu"]}, "space").group("c1", weight=1.0, cores=None, memory=None)
    assert not (one["cpu"] / "asa").exists()


def test_version_1_makes_a_group_once_where_controllers_share_a_hierarchy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, make, made = {"cpu": tmp_path, "cpuacct": tmp_path}, kernel.make_v1_group, []

    def note(base: Path, name: str) -> None:
        made.append(base / name)
        make(base, name)
        fill(base / name, V1_FILES["cpu"])

    monkeypatch.setattr(kernel, "make_v1_group", note)
    group = V1(own, "space").group("c1", weight=1.0, cores=0.5, memory=None)
    assert made == [tmp_path / "asa/space/c1"]
    assert [word for word in group.wrap(["true"]) if "cgroup.procs" in word] == [f"{made[0]}/cgroup.procs"]


def test_version_1_makes_again_what_another_agent_has_just_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, refusals = Path.mkdir, [FileNotFoundError()] * 3

    def make(directory: Path, *args: object, **options: bool) -> None:
        if refusals:
            raise refusals.pop()
        mkdir(directory, **options)

    monkeypatch.setattr(Path, "mkdir", make)
    kernel.make_v1_group(tmp_path / "asa/space", "c1")
    assert (tmp_path / "asa/space/c1").is_dir()
    refusals.extend([FileNotFoundError()] * 20)
    with pytest.raises(StateError, match=r"cannot make the group .*/asa/other/c1"):
        kernel.make_v1_group(tmp_path / "asa/other", "c1")


def test_version_1_adds_up_what_the_files_say(tmp_path: Path) -> None:
    stat = "nr_periods 9\nnr_throttled 4\nthrottled_time 1500000000\n"
    cpu = fill(tmp_path / "cpu", V1_FILES["cpu"], cpu_stat=stat, tasks="1\n2\n3\n", cgroup_procs="1\n2\n")
    account = fill(tmp_path / "cpuacct", ())
    (account / "cpuacct.usage_user").write_text("2500000000\n")
    (account / "cpuacct.usage_sys").write_text("500000000\n")
    memory = fill(tmp_path / "memory", V1_FILES["memory"], memory_stat="rss 5\ntotal_rss 7\n")
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    group = V1Group({"cpu": cpu, "cpuacct": account, "memory": memory})
    assert group.usage() == GroupUsage(2.5, 0.5, 9, 4, 1.5, 7, None, 2, 3)
    for held, text in ((1 << 20, "1048576"), (None, "-1")):
        group.hold_memory(held)
        assert said(memory, "memory.soft_limit_in_bytes").startswith(text)
    V1Group({"cpu": cpu}).hold_memory(1)


def test_version_1_on_a_kernel_that_counts_in_ticks(tmp_path: Path) -> None:
    cpu = fill(tmp_path / "cpu", V1_FILES["cpu"])
    (cpu / "cpuacct.stat").write_text(f"user {3 * os.sysconf('SC_CLK_TCK')}\nsystem 0\n")
    assert V1Group({"cpu": cpu, "cpuacct": cpu}).usage().user_s == 3.0


def test_version_2_clears_its_own_group_and_passes_controllers_on(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[Path, str]] = []

    def offer(file: Path, text: str) -> bool:
        moved.append((file, text))
        (two / "cgroup.procs").write_text("")  # as the kernel does
        return True

    monkeypatch.setattr("executors.cgroup.kernel.try_write", offer)
    quotas = V2(two, "space")
    assert quotas.processes_to_move() == 1
    group = quotas.group("c1", weight=1.0, cores=1.5, memory=1 << 20)
    assert moved[0] == (two / "asa.self/cgroup.procs", "4711")
    for directory in (two, two / "asa", two / "asa/space"):
        assert said(directory, "cgroup.subtree_control") == "+cpu +memory"
    around = str(kernel.weight_of(kernel.node_shares()))
    assert [text for file, text in moved if file.name == "cpu.weight"] == [around, around]
    made = two / "asa/space/c1"
    assert said(made, "cgroup.subtree_control") == "", "the container's own group holds processes"
    assert said(made, "cpu.max") == "150000 100000"
    assert said(made, "cpu.weight") == "39"
    assert said(made, "memory.max") == str(1 << 20)
    group.limit(None)
    assert said(made, "cpu.max").startswith("max 100000")


def test_version_2_moves_no_process_twice_and_none_in_the_root_group(two: Path) -> None:
    (two / "cgroup.subtree_control").write_text("cpu memory\n")
    assert V2(two, "space").processes_to_move() == 0
    assert V2(two / kernel.ASIDE, "space").processes_to_move() == 0, (
        "an agent that runs in the group aside belongs to the one around it"
    )
    (two / "cgroup.subtree_control").write_text("")
    (two / "cgroup.type").unlink()
    assert V2(two, "space").processes_to_move() == 0


def test_version_2_gives_up_on_processes_that_do_not_move(two: Path) -> None:
    with pytest.raises(StateError, match=r"do not move to .*asa.self: 4711"):
        V2(two, "space").group("c1", weight=1.0, cores=None, memory=None)


def test_version_2_adds_up_what_the_files_say(tmp_path: Path) -> None:
    stat = "user_usec 2500000\nsystem_usec 500000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1500000\n"
    directory = fill(
        tmp_path / "c1",
        V2_FILES,
        cpu_stat=stat,
        memory_stat="anon 7\nfile 9\n",
        memory_max="100\n",
        cgroup_procs="1\n2\n",
        cgroup_threads="1\n2\n3\n",
    )
    group = V2Group(directory)
    assert group.usage() == GroupUsage(2.5, 0.5, 9, 4, 1.5, 7, 100, 2, 3)
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    (directory / "memory.pressure").write_text(pressure)
    (directory / "cpu.pressure").write_text(pressure.replace("=1\n", "=1500000\n"))
    assert (group.usage().stalled_s, group.usage().waited_s) == (2.5, 1.5)
    (directory / "cpu.pressure").write_text(pressure.splitlines()[0])
    assert group.usage().waited_s is None, "older kernels do not say who has the processor"
    group.hold_memory(1 << 20)
    assert said(directory, "memory.high") == "1048576"
    group.hold_memory(None)
    assert said(directory, "memory.high").startswith("max")
    (directory / "memory.high").unlink()
    group.hold_memory(1)


def test_a_version_that_is_not_mounted_or_lacks_a_controller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no cpu controller of version 1 is mounted"):
        V1({"memory": Path("/")}, "space")
    with pytest.raises(StateError, match="no hierarchy of version 2 is mounted"):
        V2(None, "space")
    with pytest.raises(StateError, match="has no cpu controller"):
        V2(tmp_path, "space")


def test_a_group_that_was_not_delegated_is_refused(
    one: dict[str, Path], two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    for make in (lambda: V1(one, "space"), lambda: V2(two, "space")):
        with pytest.raises(StateError, match="not delegated"):
            make()


@pytest.mark.parametrize(
    ("own", "marked", "user", "by"),
    [
        ("/system.slice/agent.service", "/system.slice/agent.service", 0, None),
        ("/system.slice/agent.service", None, 0, "systemd"),
        ("/system.slice/slurmstepd.scope/job_1/step_0", "/system.slice/slurmstepd.scope", 0, "Slurm"),
        ("/user.slice/u/user@7.service/app.slice/x.scope", "/user.slice/u/user@7.service", 7, "systemd"),
        ("/user.slice/u/user@7.service/app.slice/x.scope", "/user.slice/u/user@7.service/app.slice/x.scope", 7, None),
        ("/user.slice/u/user@7.service/app.slice/x.scope", None, 7, "systemd"),
        ("/batch/job_1", None, 7, None),
        ("/system.slice/agent.service", None, None, None),
    ],
)
def test_groups_that_belong_to_systemd_or_slurm_are_claimed(
    own: str, marked: str | None, user: int | None, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without systemd (no user here), none does."""
    systemd = None if user is None else Path("/run/systemd/system")
    monkeypatch.setattr(Path, "exists", lambda path: path == systemd)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(kernel, "has_mark", lambda directory, mark: str(directory) == marked)
    who = kernel.claimed_by(Path(own))
    assert who is None if by is None else who is not None and who.startswith(by)


def test_version_1_leaves_a_jobs_processes_in_the_group_that_slurm_ends(one: dict[str, Path], tmp_path: Path) -> None:
    for place, used in (("freezer/slurm_n1/uid_0/job_7", False), ("freezer/else", True)):
        (tmp_path / place).mkdir(parents=True)
        assert ("freezer" in V1(one | {"freezer": tmp_path / place}, "space").why) is used


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
    monkeypatch.setattr(kernel, "PATIENCE_S", 0.02)  # a fake group does not lose its dead
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
    ("error", "text"),
    [
        (OSError(errno.EBUSY, "Device or resource busy"), r"below .*/job: it holds processes \(Device or"),
        (OSError(errno.EINVAL, "Invalid argument"), r"cannot pass controllers on below .*/job \(Invalid argument"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "cannot make the group .*/asa/space: it is removed again"),
    ],
)
def test_version_2_names_why_controllers_are_not_passed_on(
    two: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    (two / "cgroup.type").unlink()
    write = Path.write_text

    def refuse(path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control":
            raise error
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(StateError, match=text):
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
