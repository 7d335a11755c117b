"""The command line where its surroundings are not as usual: names of files, terminals, readers, signals, disks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import InvalidInput
from asa.workflows.settings import load_workflow

FLOW = """
import asa

@asa.stage(walltime="5m", run_time="10s")
def throw(x):
    import random
    return x + random.Random(1).randint(1, 1)

workflow = throw.map([1, 2])
"""

HOME = Path(asa.__file__).parents[1]
"""Where our packages are found."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(HOME))
    return tmp_path / "state"


def command(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """What a command said, in a process of its own that finds modules in the working directory first."""
    options = {"capture_output": True, "text": True, "timeout": 120, "check": False} | more
    return subprocess.run([sys.executable, "-m", "asa", *words], **options)


# -- Files named like modules of Python's -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "logging", "signal"])
def test_a_workflow_may_be_called_like_a_module_of_pythons(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(FLOW)
    done = command("run", f"{name}.py", "--quiet", "--backend", "local:cores=1")
    assert (done.returncode, done.stdout) == (0, "[2, 3]\n"), done.stderr


@pytest.mark.slow
def test_a_comparison_in_several_processes_of_a_file_called_like_a_module_of_pythons(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "selectors.py").write_text(FLOW)
    words = ["--seeds", "2", "--days", "1", "--strategies", "per-stage", "--processes", "2"]
    done = command("compare", "selectors.py", *words, "--no-oracle", "--quiet")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "selectors" in done.stdout


@pytest.mark.parametrize("use", ["from wave import solve", "import wave\nwave.solve()"])
def test_a_module_beside_the_workflow_with_a_name_of_pythons_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wave.py").write_text("def solve(): ...")
    (tmp_path / "flow.py").write_text(use)
    with pytest.raises(InvalidInput, match=r"wave.py is not imported, since a module of Python's has that name"):
        load_workflow("flow.py")
