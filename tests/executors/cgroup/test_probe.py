from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import kernel, probe
from executors.cgroup.group import GroupUsage
from executors.cgroup.probe import Found
from tests.executors.cgroup.fake import V2_FILES, fill


class Pretended:
    """Quotas whose groups leave out what a test says."""

    name, why = "pretended", "for tests"

    def __init__(self, *, enters: bool = True, runs: bool = True, kills: bool = True) -> None:
        self.enters, self.runs, self.kills = enters, runs, kills
        self.process = 0
        self.closed = 0

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Pretended:
        return self

    def recover(self, name: str, pid: int) -> None: ...
    def sweep(self, keep: object) -> None: ...
    def limit(self, cores: float | None) -> None: ...
    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        return tuple(argv) if self.runs else ("/bin/sh", "-c", "echo not allowed >&2; exit 125")

    def adopt(self, pid: int) -> None:
        self.process = pid

    def usage(self) -> GroupUsage:
        return GroupUsage(0.0, 0.0, None, None, None, None, None, 1, 1)

    def starved(self) -> bool:
        return False

    def pids(self) -> list[int]:
        return [self.process] if self.enters else []

    def kill(self) -> None:
        if self.kills:
            subprocess.run(["kill", "-9", str(self.process)], stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self.closed += 1


def test_means_that_do_everything_are_taken() -> None:
    quotas = Pretended()
    probe.attempt(quotas)
    assert quotas.closed == 1


@pytest.mark.parametrize(
    ("quotas", "reason"),
    [
        (Pretended(enters=False), "is not in it"),
        (Pretended(runs=False), "not allowed"),
        (Pretended(kills=False), "does not end when the group is killed"),
    ],
)
def test_means_that_do_not_are_refused_and_leave_nothing(
    quotas: Pretended, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PATIENCE_S", 0.05)
    with pytest.raises(StateError, match=reason):
        probe.attempt(quotas)
    assert quotas.closed == 1


def test_an_unknown_means_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match="expected one of cgroup v2, cgroup v1, systemd scopes, duty cycle"):
        probe.best("space", only="cgroup v3")


def test_when_nothing_works_every_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "means", lambda *_, **__: iter([Found("a", None, "no"), Found("b", None, "never")]))
    with pytest.raises(StateError, match=r"a: no; b: never\): go on without them"):
        probe.best("space")
    *others, last = probe.rows()
    assert [row["ok"] for row in others] == [None, None]
    assert last == {"what": "cpu quotas", "ok": False, "found": "none: containers run without limits"}


def test_nothing_is_tried_beyond_the_first_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def means(*_: object, **__: object) -> Iterator[Found]:
        yield Found("a", None, "no")
        yield Found("b", Pretended(), "for tests")
        raise AssertionError("went on")

    monkeypatch.setattr(probe, "means", means)
    assert probe.best("space").name == "pretended"
    assert [(row["what"], row["ok"], row["found"]) for row in probe.rows()] == [
        ("cpu quotas: a", None, "passed over: no"),
        ("cpu quotas", True, "b: for tests"),
    ]


def test_something_works_on_this_machine() -> None:
    *_, last = probe.rows()
    assert last["what"] == "cpu quotas"
    assert last["ok"]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake group of version 2 that other processes are in, too."""
    own = fill(tmp_path / "slurm", (*V2_FILES, "cgroup.type"), cgroup_procs="4711\n")
    (own / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(kernel, "own_groups", lambda mounts, groups: {"": own})
    return own


def test_a_group_of_slurms_is_left_alone(own: Path) -> None:
    (found,) = probe.means("space", only="cgroup v2")
    assert found == Found("cgroup v2", None, f"{own} belongs to Slurm, which finds a job's processes by it")


def test_a_gentle_look_moves_no_process(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "claimed_by", lambda group: None)
    (found,) = probe.means("space", only="cgroup v2", gentle=True)
    assert found.quotas is not None and found.why == f"cpu, memory below {own}"
    assert sorted(path.name for path in own.iterdir() if path.is_dir()) == []
