"""A wheel of these sources, and an environment that has nothing of ours but it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.definitions import ROOT

PACKAGES = ("asa", "coscheduler", "executors")
_SOURCES = (*PACKAGES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.{what}(sys.argv[1]))"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and an sdist of a copy of the sources, and a wheel of that sdist; without a network, as `make wheel`
    does it."""
    pytest.importorskip("setuptools", reason="setuptools, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("built")
    tree = copied(folder / "tree")
    made = {"sdist": make("build_sdist", tree, folder / "sdist"), "wheel": make("build_wheel", tree, folder / "wheel")}
    with tarfile.open(made["sdist"]) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return made | {"again": make("build_wheel", unpacked, folder / "again")}


@pytest.fixture(scope="session")
def clean(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it."""
    return environment(built["wheel"], tmp_path_factory.mktemp("clean") / "env")


def copied(tree: Path, sources: Path = ROOT) -> Path:
    """A copy of the sources, without what Python has compiled."""
    tree.mkdir()
    for name in _SOURCES:
        source = sources / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, tree / name)
    return tree


def make(what: str, tree: Path, into: Path) -> Path:
    """What setuptools makes of sources: `build_wheel` or `build_sdist`."""
    into.mkdir()
    words = [sys.executable, "-c", _BUILD.format(what=what), str(into)]
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", *PACKAGES], cwd=tree, check=True)
    env = os.environ | {"SOURCE_DATE_EPOCH": "1790000000"}
    done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


def environment(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel in it; what it depends on is this one's, and ours is not."""
    run([sys.executable, "-m", "venv", str(folder)])
    run([str(folder / "bin" / "python"), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)])
    (libraries,) = folder.glob("lib/python*/site-packages")
    (libraries / "theirs.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own .pth files do not count
    return folder


def run(words: list[str], folder: Path | None = None) -> str:
    """Run it as somebody who knows nothing of these sources."""
    state = {} if folder is None else {"ASA_STATE_DIR": str(folder / "state"), "HOME": str(folder)}
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **state}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout
