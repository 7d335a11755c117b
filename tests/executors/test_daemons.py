import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.testing.executors import is_gone, wait_for
from executors.remote import LauncherDaemons
from executors.wire import CommandEnded, StartCommand
from tests.waiting import until


class Told(list[CommandEnded]):
    """What was reported."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def daemons(told: Told) -> Iterator[LauncherDaemons]:
    daemons = LauncherDaemons(told.append)
    yield daemons
    daemons.close()


def until_told(daemons: LauncherDaemons, told: Told) -> CommandEnded:
    def is_told() -> bool:
        daemons.reap()
        return bool(told)

    until(is_told)
    return told.pop()


def lingering(file: Path) -> str:
    """A command that never ends, nor does its child, whose process number it leaves."""
    return f"sleep 1000 & echo $! >{file}.new; mv {file}.new {file}; wait"


def test_a_command_is_for_a_shell_and_its_end_is_told(daemons: LauncherDaemons, told: Told, tmp_path: Path) -> None:
    daemons.start(
        StartCommand(5, f'A=$B; export A; printenv A >"{tmp_path}/a"; exit 3', {**os.environ, "B": "two words"})
    )
    assert until_told(daemons, told) == CommandEnded(5, 3)
    assert (tmp_path / "a").read_text() == "two words\n"


def test_what_is_the_nodes_own_stays_so(
    daemons: LauncherDaemons, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "here")
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    daemons.start(StartCommand(1, f'env >"{tmp_path}/env"', {"PATH": os.environ["PATH"]}))
    until_told(daemons, told)
    names = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert names["SLURMD_NODENAME"] == "here"
    assert not names.keys() & {"SLURM_PROCID", "OMP_NUM_THREADS"}, "of the supervisor's step; what the launcher lacks"


def test_one_that_cannot_be_started(daemons: LauncherDaemons, told: Told) -> None:
    daemons.start(StartCommand(1, "true", {"LONG": "x" * (1 << 22)}))
    assert told == [CommandEnded(1, 127)]


def test_one_is_ended_with_all_that_it_has_started(daemons: LauncherDaemons, told: Told, tmp_path: Path) -> None:
    for number in (1, 2):
        daemons.start(StartCommand(number, lingering(tmp_path / str(number)), dict(os.environ)))
    first, second = (wait_for(tmp_path / str(number)) for number in (1, 2))
    daemons.stop(1)
    assert told == [CommandEnded(1, -9)]
    assert is_gone(first) and Path(f"/proc/{second}").exists()
    daemons.stop(1)
    assert len(told) == 1, "it has ended"


def test_what_a_daemon_leaves_ends_with_it(daemons: LauncherDaemons, told: Told, tmp_path: Path) -> None:
    daemons.start(StartCommand(1, lingering(tmp_path / "pid").removesuffix("wait"), dict(os.environ)))
    assert until_told(daemons, told) == CommandEnded(1, 0)
    assert is_gone(wait_for(tmp_path / "pid"))


def test_all_end_with_their_supervisor_even_when_it_is_killed(tmp_path: Path) -> None:
    script = f"""
import os, threading
from executors.remote import LauncherDaemons
from executors.wire import StartCommand
LauncherDaemons(print).start(StartCommand(1, {lingering(tmp_path / "pid")!r}, dict(os.environ)))
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", script]) as supervisor:
        child = wait_for(tmp_path / "pid")
        supervisor.kill()
    assert is_gone(child)
