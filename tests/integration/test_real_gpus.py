"""NVIDIA's GPUs of this machine, where there are any: each task computes on its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from asa.log.gpus import found
from tests.integration.real_gpu_flows import Cuda

FLOWS = Path(__file__).with_name("real_gpu_flows.py")
HALF = 1 << 33
"""Words in 32 GiB."""


def obstacle() -> str:
    try:
        return "" if Cuda().count else "this machine has no NVIDIA GPU that works"
    except OSError as error:
        return f"NVIDIA's driver: {error}"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "there is one"),
    pytest.mark.timeout(200),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


def run(flow: str, *options: str, code: int = 0) -> object:
    """What the workflow comes to, and the exit code that is expected."""
    words = [sys.executable, "-m", "asa", "run", f"{FLOWS}:{flow}", "--backend", "local", *options]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert ended.returncode == code, ended.stderr
    return ast.literal_eval(next(line for line in reversed(ended.stdout.splitlines()) if line[:1] in "[(0123456789"))


def test_they_are_found() -> None:
    assert len(found({})) == Cuda().count


@pytest.mark.parametrize("executor", ["local", "mesos", "dask"])
def test_each_task_computes_on_its_own(executor: str, tmp_path: Path) -> None:
    values = run("tasks", "--executor", executor, "--set", f"folder={tmp_path}")
    assert isinstance(values, list)
    assert [value for _, value in values] == [0, 1, 2, 3]
    assert {len(names) for names, _ in values} == {1}


@pytest.mark.parametrize("executor", ["local", "mesos", "dask"])
def test_a_task_without_gpus_sees_none_beside_one_with_some(executor: str, tmp_path: Path) -> None:
    options = "--strategy", "big-job", "--executor", executor, "--set", f"folder={tmp_path}"
    assert run("beside", *options) == 0


def test_where_no_stage_asks_for_gpus_tasks_see_all() -> None:
    assert run("plain") == Cuda().count


def test_the_memory_of_a_task_that_was_ended_is_free_for_the_next() -> None:
    assert run("held", "--set", f"words={HALF}", code=3) == ("Failed", 7)
