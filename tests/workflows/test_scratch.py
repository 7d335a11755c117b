"""The node's own disk: private, gone with the task, and files that are copied there and back."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import InvalidInput, RunFailed
from executors.host import ScratchDisk

RUN = {"backend": "local:cores=2", "executor": "local"}


@pytest.fixture(autouse=True)
def _disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "disk"))
    monkeypatch.chdir(tmp_path / "work")


def _left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "disk").glob("asa-scratch-*"))


def test_each_task_has_its_own_and_nothing_is_left(tmp_path: Path) -> None:
    def write(number: int) -> tuple[str, int, int, list[str]]:
        folder = asa.scratch()
        before = os.listdir(folder)
        (folder / "file").write_text(str(number))
        return str(folder), stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid, before

    found = asa.run(asa.stage(write, cores=2).map(range(6)), state=tmp_path / "state", **RUN).result()
    for folder, mode, user, before in found:
        assert folder.startswith(str(tmp_path / "disk")) and mode == 0o700 and user == os.geteuid()
        assert before == [], "of the task before nothing is there"
    assert _left(tmp_path) == []


def test_what_a_killed_task_or_supervisor_left_goes_too(tmp_path: Path) -> None:
    def die(number: int) -> int:
        (asa.scratch() / "big").write_bytes(b"x" * 1000)
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(list(asa.scratch().parent.rglob("big")))

    stage = asa.stage(die, on_error="continue")
    with pytest.raises(RunFailed):
        asa.run(stage.map([0, 1]), state=tmp_path / "state", **RUN).result()
    assert _left(tmp_path) == []
    held = ScratchDisk(str(tmp_path / "disk"))
    dead = tmp_path / "disk" / f"asa-scratch-{os.geteuid()}-dead"
    dead.mkdir()
    for path in (dead, Path(held.path)):
        os.utime(path, (time.time() - 100,) * 2)
    ScratchDisk(str(tmp_path / "disk")).close()
    assert _left(tmp_path) == [Path(held.path)], "whose supervisor lives stays"
    held.close()


def test_files_are_staged_in_and_out_by_pattern(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        Path("data").mkdir(exist_ok=True)
        Path("data", name).write_text(name)

    def join(letter: str) -> list[str]:
        names = sorted(os.listdir("data"))
        Path("out").mkdir()
        Path("out", letter).write_text("".join(Path("data", name).read_text() for name in names))
        Path("temporary").touch()
        return [os.getcwd(), *names]

    stage = asa.stage(join, stage_in="data/{letter}*", stage_out=["out/{letter}"])
    (where, *names), others = asa.run(stage.map(["a", "b"]), state=tmp_path / "state", **RUN).result()
    assert where.startswith(str(tmp_path / "disk")) and names == ["a1", "a2"] and others[1:] == ["b1"]
    assert Path("out/a").read_text() == "a1a2" and Path("out/b").read_text() == "b1"
    assert sorted(os.listdir()) == ["data", "out"] and sorted(os.listdir("out")) == ["a", "b"]


def test_a_program_reads_and_writes_there(tmp_path: Path) -> None:
    Path("in.txt").write_text("hello")
    code = "import sys,os; open(sys.argv[2], 'w').write(open(sys.argv[1]).read().upper() + os.getcwd())"
    shout = asa.command(
        f"{sys.executable} -c \"{code}\" {{file}} {{out}}", outputs={"out": "{file.stem}.up"}, name="shout",
        stage_in="{file}", stage_out="{out}",
    )  # fmt: skip
    made = asa.run(shout(Path("in.txt")), state=tmp_path / "state", **RUN).result()
    assert made == Path("in.up") and made.read_text().startswith(f"HELLO{tmp_path / 'disk'}")


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"stage_in": "no-such*"}, "stage_in='no-such\\*': there is no"),
        ({"stage_out": "*.txt"}, "stage_out='\\*.txt': there is no"),
        ({"stage_in": "{nothing}"}, "cannot be filled in"),
    ],
)
def test_what_is_not_there_is_said(needs: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=words):
        asa.run(asa.stage(abs, **needs)(1), state=tmp_path / "state", **RUN).result()


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for needs, words in (
        ({"stage_out": "/etc/*"}, "below the directory"),
        ({"stage_out": "../*"}, "below the directory"),
        ({"stage_in": [7]}, "must be a pattern"),
        ({"stage_in": "*", "launcher": "srun"}, "without launcher="),
    ):
        with pytest.raises(InvalidInput, match=words):
            asa.stage(abs, **needs)
    with pytest.raises(InvalidInput, match="outside of a task"):
        asa.scratch()
