from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httptools")


def answer(code: str, *path: Path) -> str:
    """What a fresh interpreter prints."""
    program = f"import sys; sys.path[:0] = {[str(part) for part in path]!r}\n" + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


HIDE = """
import importlib.abc, importlib.util
original = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "http_parser" else original(name, *rest)
"""
ENABLE = "from executors.mesos.compat import enable_pymesos\n"


def test_nothing_is_registered_before_it_is_asked_for() -> None:
    code = "import executors.mesos.compat, sys; print('http_parser' in sys.modules)"
    assert answer(code) == "False"


def test_the_stand_in_is_registered_when_the_real_one_is_absent() -> None:
    code = (
        HIDE + ENABLE + "print(enable_pymesos(), enable_pymesos())\n"
        "from http_parser.http import HttpParser\nimport http_parser\n"
        "print(HttpParser.__module__, http_parser.http.HttpParser is HttpParser)"
    )
    assert answer(code).split() == ["True", "True", "executors.mesos.compat", "True"]


@pytest.mark.parametrize("imported", [False, True])
def test_the_real_one_is_left_alone(tmp_path: Path, imported: bool) -> None:
    real = tmp_path / "http_parser"
    real.mkdir()
    (real / "__init__.py").write_text("")
    (real / "http.py").write_text("class HttpParser: pass")
    code = ("import http_parser\n" if imported else "") + ENABLE + "print(enable_pymesos(), enable_pymesos())\n"
    assert answer(code + "import http_parser.http; print(http_parser.http.__file__)", tmp_path).split() == [
        "False",
        "False",
        str(real / "http.py"),
    ]


@pytest.mark.mesos
def test_pymesos_can_be_imported() -> None:
    pytest.importorskip("addict", reason="pymesos is not installed")
    code = ENABLE + "enable_pymesos()\nimport pymesos; print(pymesos.MesosSchedulerDriver.__name__)"
    assert answer(code) == "MesosSchedulerDriver"
