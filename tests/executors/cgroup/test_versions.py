"""Versions 1 and 2 against files: what is written where. What the kernel makes of it, the conformance suite tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.cgroup import kernel
from executors.cgroup.dutycycle import DutyCycle
from executors.cgroup.group import GroupUsage, Quotas
from executors.cgroup.kernel import V1, V2, V1Group, V2Group
from executors.mesos.agent.containers import Unlimited
from tests.executors.cgroup.fake import V1_FILES, V2_FILES, fill, said


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


def test_version_1_leaves_what_is_bounded_around_it(one: dict[str, Path]) -> None:
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
def test_other_means_say_that_they_cannot(quotas: Quotas) -> None:
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


def test_version_1_on_a_kernel_that_counts_in_ticks(tmp_path: Path) -> None:
    cpu = fill(tmp_path / "cpu", V1_FILES["cpu"])
    (cpu / "cpuacct.stat").write_text(f"user {3 * os.sysconf('SC_CLK_TCK')}\nsystem 0\n")
    assert V1Group({"cpu": cpu, "cpuacct": cpu}).usage().user_s == 3.0


def test_version_1_where_it_is_not() -> None:
    with pytest.raises(StateError, match="no cpu controller of version 1 is mounted"):
        V1({"memory": Path("/")}, "space")


def test_version_1_where_it_is_somebody_elses(one: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StateError, match="not delegated"):
        V1(one, "space")


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


def test_version_2_does_not_move_anybody_twice(two: Path) -> None:
    (two / "cgroup.subtree_control").write_text("cpu memory\n")
    assert V2(two, "space").processes_to_move() == 0
    assert V2(two / kernel.ASIDE, "space").processes_to_move() == 0, (
        "an agent that runs in the group aside belongs to the one around it"
    )


def test_version_2_in_the_root_group_need_not_move(two: Path) -> None:
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
    assert V2Group(directory).usage() == GroupUsage(2.5, 0.5, 9, 4, 1.5, 7, 100, 2, 3)


def test_version_2_where_it_is_not(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no hierarchy of version 2 is mounted"):
        V2(None, "space")
    with pytest.raises(StateError, match="has no cpu controller"):
        V2(tmp_path, "space")


def test_version_2_where_it_is_somebody_elses(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StateError, match="not delegated"):
        V2(two, "space")


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
    ],
)
def test_who_else_a_group_belongs_to(
    own: str, marked: str | None, user: int, by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: path == Path("/run/systemd/system"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(kernel, "has_mark", lambda directory, mark: str(directory) == marked)
    who = kernel.claimed_by(Path(own))
    assert who is None if by is None else who is not None and who.startswith(by)


def test_without_systemd_nobody_needs_its_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert kernel.claimed_by(Path("/any")) is None


def test_version_1_leaves_a_jobs_processes_in_the_group_that_slurm_ends(one: dict[str, Path], tmp_path: Path) -> None:
    for place, used in (("freezer/slurm_n1/uid_0/job_7", False), ("freezer/else", True)):
        (tmp_path / place).mkdir(parents=True)
        assert ("freezer" in V1(one | {"freezer": tmp_path / place}, "space").why) is used
