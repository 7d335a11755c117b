"""The command line where its surroundings are not as usual: names of files, terminals, readers, signals, disks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import InvalidInput
from asa.log.rundir import RunDirectory
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


# -- Terminals that cannot show everything ----------------------------------------------------------------------------

WORDS = """
import asa

@asa.stage(name="größe", run_time="10s")
def size(x):
    print("naïve ✓")
    return "é" * x

@asa.stage(run_time="10s")
def bad(x):
    raise ValueError("keine Größe ✗")

workflow = size.map([1, 2])

def fails():
    return bad(1)
"""


@pytest.mark.parametrize("backend", ["local:cores=1", "sim:nodes=1,cores=2,warmup=0"])
def test_what_an_encoding_does_not_have_is_escaped_and_no_task_fails_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    (tmp_path / "flow.py").write_text(WORDS, encoding="utf-8")
    for name, value in (("LC_ALL", "C"), ("PYTHONIOENCODING", "ascii"), ("PYTHONUTF8", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    done = command("run", "flow.py", "--backend", backend, "--name", "words")
    assert (done.returncode, done.stdout) == (0, "['\\xe9', '\\xe9\\xe9']\n"), done.stderr
    assert "Traceback" not in done.stderr and "gr\\xf6\\xdfe: done" in done.stderr
    if backend.startswith("local"):
        shown = command("logs", "words")
        assert shown.stdout == "gr\\xf6\\xdfe[0] na\\xefve \\u2713\ngr\\xf6\\xdfe[1] na\\xefve \\u2713\n"
        failed = command("run", "flow.py:fails", "--backend", backend, "--quiet")
        assert failed.returncode == 1 and "keine Gr\\xf6\\xdfe \\u2717" in failed.stderr
    (run,) = (tmp_path / "state" / "runs").glob("words-*")
    assert "größe" in (run / "asa.log").read_text(encoding="utf-8")


def test_a_run_that_never_began_is_named_by_all_that_look_at_it(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "state", "dead")
    for words in ("status dead", "report dead -o out.html", "export dead", "export dead --format ro-crate"):
        done = command(*words.split())
        assert (done.returncode, "run dead never began" in done.stderr) == (1, True), words
    held = command("hold", "dead")
    assert (held.returncode, held.stdout) == (0, "run dead is held; to go on: asa release dead\n"), held.stderr
    done = command("cancel", "dead")
    assert (done.returncode, done.stdout) == (0, "run dead is cancelled: it had not begun\n"), done.stderr
    assert "never began" in command("export", "dead").stderr


# -- Signals ----------------------------------------------------------------------------------------------------------

INTERRUPTED_IN = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *where):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from asa.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["asa.core.registry", "asa.cli.look", "asa.log.database"])
def test_an_interrupt_while_a_command_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    words = [sys.executable, "-c", INTERRUPTED_IN.format(module=module), "waits"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (-signal.SIGINT, 130) and done.stderr in ("", "asa: interrupted\n")


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
@pytest.mark.parametrize("words", ["completion bash", "waits", "waits --json -"])
def test_an_output_that_takes_nothing_is_no_crash(words: str, where: str) -> None:
    line = f"{sys.executable} -P -m asa {words} >{where}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    said = "asa: error: No space left on device\n" if where == "/dev/full" else ""
    assert (done.returncode, done.stderr) == (int(bool(said)), said)


# -- Directories ------------------------------------------------------------------------------------------------------


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    line = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -P -m asa run {tmp_path}/flow.py"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    said = "asa: error: the working directory is gone: No such file or directory\n"
    assert (done.returncode, done.stderr) == (1, said)
