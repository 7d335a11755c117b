from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from asa.backends.local import Program
from asa.core.job import JobRequest, Resources


def sh(token: str, script: str, workdir: Path) -> JobRequest:
    return JobRequest(token, Resources(), 60.0, ("sh", "-c", script), str(workdir))


def test_a_wrapper_that_is_told_to_go_twice_runs_its_program_once(tmp_path: Path) -> None:
    program = Program.spawn(sh("a", "echo again >>ran", tmp_path), tmp_path / "exit")
    program.go()
    program.go()
    deadline = time.monotonic() + 60
    while program.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert (tmp_path / "ran").read_text() == "again\n"
    program.kill()  # there is nobody any more
    later = Program(program.identity, tmp_path / "exit")  # as the next driver finds it
    later.kill()
    assert later.poll() == program.poll()


def test_arguments_that_no_program_can_have_leave_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="null byte"):
        Program.spawn(sh("a", "echo \0", tmp_path), tmp_path / "exit")
    assert os.listdir("/proc/self/fd") == before
