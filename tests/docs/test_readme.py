"""README.md's commands, as somebody types them who has just cloned the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from asa.log.rundir import list_runs
from tests.definitions import ROOT
from tests.docs.blocks import follow, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of this checkout that git knows, and nothing else."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "clone" / name)
    return tmp_path / "clone"


def typed(command: str, clone: Path) -> str:
    """What a shell prints, in the clone, for somebody with an empty home."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ASA_", "PYTHON", "VIRTUAL_ENV"))}
    env["HOME"] = str(clone.parent)
    words = ["bash", "-ec", f"exec 2>&1\n{command}"]
    done = subprocess.run(words, cwd=clone, env=env, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}"
    return done.stdout


def test_it_is_installed_as_the_readme_says(clone: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", (clone / "README.md").read_text(), re.M | re.S)
    (install,) = (block for block in blocks if "pip install" in block)
    assert install.splitlines()[-1].startswith("asa doctor")
    (clone / "workflow.py").write_text("import asa\n\nworkflow = asa.stage(len)('abc')\n")
    install = install.replace("asa doctor ", "asa doctor || [ $? -eq 1 ] ")  # where there is sbatch without a cluster
    said = typed(f"{install}asa run workflow.py --backend local --quiet", clone)
    assert "works: workflows on this machine" in said and said.splitlines()[-1] == "3"


def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    """On this machine in place of a cluster, with the run's name for RUN."""
    (block,) = (step.text for step in steps((ROOT / "README.md").read_text()) if "asa resume RUN" in step.text)
    bare = re.sub(r" +#.*", "", block).replace("slurm:partition=core", "local")
    first, *others = re.split(r"\n| {2,}(?=asa )", bare.strip())
    assert [each.split()[1] for each in (first, *others)] == ["run", "status", "logs", "explain", "resume", "quote"]
    (tmp_path / "workflow.py").write_text(
        "import asa\n\n@asa.stage()\ndef hello(name):\n    print('hello', name)\n    return name.upper()\n\n"
        "workflow = hello('world')\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    assert follow(f"```console\n$ {first}\n...'WORLD'...\n```\n", tmp_path, environment) == 1
    (run,) = list_runs(tmp_path / "state")
    said = {"status": "succeeded", "logs": "hello world", "explain": "hello", "resume": "WORLD", "quote": "core-hours"}
    typed = (f"$ {each.replace('RUN', run.name)}\n...{said[each.split()[1]]}...\n" for each in others)
    assert follow(f"```console\n{''.join(typed)}```\n", tmp_path, environment) == len(said)


def test_make_demo_writes_a_report(clone: Path) -> None:
    assert "make demo" in (clone / "README.md").read_text()
    said = typed("make demo", clone)
    assert "succeeded" in said or "open demo-output/montage.html" in said
    assert "<svg" in (clone / "demo-output" / "montage.html").read_text()
