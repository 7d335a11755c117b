"""Command lines and answers. That systemd does as is asked, `make test-cgroup2` tells: it boots a machine with one."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from executors.cgroup import kernel, systemd
from executors.cgroup.systemd import Systemd, SystemdGroup
from tests.executors.cgroup.fake import V2_FILES, fill, said

LOGIN = Path("/sys/fs/cgroup/user.slice/user-7.slice/session-3.scope")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a pretended systemctl was asked; it answers with the file `answer`, or refuses with the file `refuse`."""
    script = f"""#!/bin/sh
echo "$@" >>{tmp_path}/asked
[ ! -e {tmp_path}/refuse ] || {{ cat {tmp_path}/refuse >&2; exit 1; }}
cat {tmp_path}/answer 2>/dev/null || true
"""
    for name in ("systemctl", "systemd-run"):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "asked"


def test_a_group_is_a_scope_with_quota_weight_and_memory(asked: Path) -> None:
    group = Systemd(LOGIN, "pool", {}).group("c1", weight=0.5, cores=0.25, memory=1 << 20)
    assert group.wrap(["true", "-x"]) == (
        "systemd-run",
        "--user",
        "--scope",
        "--quiet",
        "--collect",
        "--unit=asa:pool:c1.scope",
        "--property=CPUWeight=20",
        "--property=CPUQuota=25%",
        "--property=MemoryMax=1048576",
        "--property=MemorySwapMax=0",
        "--",
        "true",
        "-x",
    )


def test_a_limit_before_the_start_goes_along_with_it(asked: Path) -> None:
    group = SystemdGroup("asa:p:c.scope", systemd.properties(1.0, 0.5, None))
    group.limit(0.75)
    assert "--property=CPUQuota=75%" in group.wrap(["true"])
    assert "--property=CPUQuota=50%" not in group.wrap(["true"])
    group.limit(None)
    assert not [word for word in group.wrap(["true"]) if "CPUQuota" in word]
    assert not asked.exists()


def test_a_limit_reaches_a_running_scope_and_one_that_was_changed_while_it_started(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "group_of", lambda pid, unit: tmp_path)
    group = SystemdGroup("asa:p:c.scope", systemd.properties(1.0, 0.5, None))
    group.limit(0.75)
    group.adopt(os.getpid())
    group.limit(None)
    assert asked.read_text().splitlines() == [
        "--user --no-pager set-property --runtime asa:p:c.scope CPUQuota=75%",
        "--user --no-pager set-property --runtime asa:p:c.scope CPUQuota=",
    ]


def test_a_weight_goes_along_with_the_start_or_reaches_a_running_scope(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "group_of", lambda pid, unit: tmp_path)
    group = SystemdGroup("asa:p:c.scope", systemd.properties(1.0, 0.5, None))
    group.weigh(0.5)
    assert [word for word in group.wrap(["true"]) if "CPU" in word] == [
        "--property=CPUQuota=50%",
        "--property=CPUWeight=20",
    ]
    group.limit(0.75)
    group.adopt(os.getpid())
    group.weigh(1.0)
    assert asked.read_text().splitlines() == [
        "--user --no-pager set-property --runtime asa:p:c.scope CPUWeight=20 CPUQuota=75%",
        "--user --no-pager set-property --runtime asa:p:c.scope CPUWeight=39",
    ]


def test_scopes_cannot_be_kept_to_a_fraction_together(asked: Path) -> None:
    with pytest.raises(StateError, match="fraction of the processor cannot be kept here by 'systemd scopes'"):
        Systemd(LOGIN, "pool", {}).bound(0.3)


def test_a_scope_that_has_ended_is_empty(asked: Path) -> None:
    group = SystemdGroup("asa:p:c.scope", ())
    group.adopt(4_194_305)  # no such process
    group.limit(0.5)
    assert not asked.exists(), "no process is there to be limited"
    assert group.pids() == []
    assert group.usage().processes == 0
    group.close()


def test_scopes_that_dead_agents_left_are_found_by_name(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (asked.parent / "answer").write_text(
        "asa:pool:old.scope loaded active running /bin/sh\nasa:pool:kept.scope loaded active running x\n"
        "asa:pool2:other.scope loaded active running x\ninit.scope loaded active running x\n"
    )
    swept: list[str] = []
    quotas = Systemd(LOGIN, "pool", {})

    def recover(name: str, pid: int) -> None:
        swept.append(name)

    monkeypatch.setattr(quotas, "recover", recover)
    quotas.sweep({"kept"})
    assert swept == ["old"]
    assert "asa:pool:*.scope" in asked.read_text()


@pytest.mark.parametrize(
    ("own", "environ", "text"),
    [
        (LOGIN, {"SLURM_JOB_ID": "7"}, "out of the batch job .SLURM_JOB_ID is set"),
        (LOGIN, {"PBS_JOBID": "7"}, "out of the batch job .PBS_JOBID is set"),
        (Path("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"), {}, "no login session"),
        (None, {}, "no hierarchy of version 2 is mounted"),
    ],
)
def test_scopes_are_for_login_sessions(own: Path | None, environ: dict[str, str], text: str, asked: Path) -> None:
    with pytest.raises(StateError, match=text):
        Systemd(own, "pool", environ)


def test_no_systemd_for_this_user(asked: Path) -> None:
    (asked.parent / "refuse").write_text("Failed to connect to bus: No medium found\n")
    with pytest.raises(StateError, match="Failed to connect to bus"):
        Systemd(LOGIN, "pool", {})


def test_no_systemd_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(StateError, match="not installed"):
        Systemd(LOGIN, "pool", {})
    with pytest.raises(StateError, match="does not answer"):
        systemd.control("show")


@given(st.floats(0.0, 1e4))
def test_quotas_are_written_as_systemd_reads_them(cores: float) -> None:
    text = systemd.percent(cores)
    assert re.fullmatch(r"\d+(\.\d{1,2})?%", text)
    assert abs(float(text[:-1]) / 100 - max(0.01, cores)) <= 0.0001


@given(st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True), st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True))
def test_a_units_name_holds_space_and_container(space: str, name: str) -> None:
    assert systemd.names_in(f"{systemd.unit_of(space, name)} loaded", space) == [name]
    assert systemd.names_in(f"{systemd.unit_of(space + 'x', name)} loaded", space) == []


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake scope that this process is in, after a moment."""
    directory, looks = fill(tmp_path / "asa:p:c.scope", (*V2_FILES, "cgroup.kill", "memory.events")), list[int]()

    def group_of(pid: int, unit: str) -> Path | None:
        looks.append(pid)
        return directory if pid == os.getpid() and unit == directory.name and len(looks) > 1 else None

    monkeypatch.setattr(systemd, "group_of", group_of)
    return directory


def test_usage_is_known_after_a_scopes_end(scope: Path) -> None:
    group = SystemdGroup(scope.name, ())
    assert not group.starved()
    group.adopt(os.getpid())
    (scope / "cpu.stat").write_text("user_usec 2500000\nsystem_usec 500000\n")
    (scope / "memory.events").write_text("oom_kill 1\n")
    assert (group.usage().user_s, group.usage().system_s) == (2.5, 0.5)
    assert group.starved()
    group.kill()
    assert said(scope, "cgroup.kill") == "1"
    shutil.rmtree(scope)
    assert group.usage().user_s == 2.5
    assert group.pids() == []


@pytest.mark.parametrize("refused", [False, True])
def test_a_scope_that_its_first_process_has_left_is_killed_by_name(asked: Path, refused: bool) -> None:
    group = SystemdGroup("asa:p:c.scope", ())
    group.kill()
    assert not asked.exists(), "nothing was started"
    if refused:
        (asked.parent / "refuse").write_text("Unit asa:p:c.scope not loaded.\n")
    group.adopt(4_194_305)  # no such process
    group.kill()
    assert asked.read_text() == "--user --no-pager kill --signal=SIGKILL asa:p:c.scope\n"


def test_a_scope_of_an_earlier_agent_is_found_by_its_process_or_by_its_name(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotas = Systemd(LOGIN, "p", {})
    assert quotas.recover("c", os.getpid()) is None, "systemd knows no such scope"
    assert systemd.group_of(4_194_305, "asa:p:c.scope") is None
    directory = fill(tmp_path / "asa:p:c.scope", ("cgroup.procs",), cgroup_procs=f"{os.getpid()}\n")
    (tmp_path / "answer").write_text("/user.slice/asa:p:c.scope\n")
    seen = []

    def own_groups(mounts: str, groups: str) -> dict[str, Path]:
        seen.append(groups)
        return {"": directory}

    monkeypatch.setattr(kernel, "own_groups", own_groups)
    assert systemd.group_of(os.getpid(), "asa:p:other.scope") is None
    for pid in (os.getpid(), 4_194_305):
        group = quotas.recover("c", pid)
        assert group is not None
        assert group.pids() == [os.getpid()]
    assert "0::/user.slice/asa:p:c.scope" in seen
    (directory / "cgroup.procs").write_text("")
    assert quotas.recover("c", 4_194_305) is None, "no process is in it"


def test_scopes_that_are_left_are_ended(asked: Path, scope: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (asked.parent / "answer").write_text("asa:p:c.scope loaded active running /bin/sh\n")
    monkeypatch.setattr(systemd, "process_of", lambda unit: os.getpid())
    Systemd(LOGIN, "p", {}).sweep(())
    assert said(scope, "cgroup.kill") == "1"
