from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from asa.core.errors import AsaError, InvalidInput, UnknownName
from asa.workflows.settings import load_workflow
from asa.workflows.stage import Node

SOURCE = """
import asa
from beside_it import OFFSET

imported = []
imported.append(1)

@asa.stage
def double(x):
    return 2 * x + OFFSET

workflow = double(3)
several = {"a": double(1), "b": [double(2)]}
number = 5

def main(count, factor=1):
    return double.map([factor] * int(count))

def nothing():
    return None

def broken():
    raise OSError("no such catalogue")

def refuses():
    raise asa.AsaError("refused in its own words")
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "beside_it.py").write_text("OFFSET = 100\n")
    (tmp_path / "flow.py").write_text(SOURCE)
    yield str(tmp_path / "flow.py")
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "beside_it" or name.startswith("asa_file_"):
            module = sys.modules.pop(name)
            if name.startswith("asa_file_"):
                cloudpickle.unregister_pickle_by_value(module)


def test_the_name_workflow_is_the_default(file: str) -> None:
    node = load_workflow(file)
    assert isinstance(node, Node)
    assert node.stage.function(3) == 106


def test_any_name_any_structure_of_nodes(file: str) -> None:
    assert set(load_workflow(f"{file}:several")) == {"a", "b"}


def test_a_function_is_called_with_the_arguments(file: str) -> None:
    node = load_workflow(f"{file}:main", {"count": "2", "factor": 7})
    assert node.args == ([7, 7],)


def test_a_stage_is_called_too(file: str) -> None:
    assert load_workflow(f"{file}:double", {"x": 4}).kwargs == {"x": 4}


def test_its_functions_travel_by_value(file: str, tmp_path: Path) -> None:
    """A process that cannot import the file runs them; what stands beside it is imported there."""
    (tmp_path / "function.pkl").write_bytes(cloudpickle.dumps(load_workflow(file).stage.function))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(3))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "function.pkl")],
        env={"PYTHONPATH": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "106\n"
    assert pickle.loads((tmp_path / "function.pkl").read_bytes())(1) == 102


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"there is no file 'flw.py': give the path of a Python file, as in 'asa run"
    ):
        load_workflow("flw.py:main")
    with pytest.raises(InvalidInput, match="there is no file"):
        load_workflow(str(tmp_path))


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    (tmp_path / "flow.txt").write_text("workflow = 5")
    with pytest.raises(InvalidInput, match=r"flow.txt is not a Python file: its name must end in .py"):
        load_workflow(str(tmp_path / "flow.txt"))


def test_no_such_name(file: str) -> None:
    with pytest.raises(UnknownName, match="'mian': did you mean 'main'"):
        load_workflow(f"{file}:mian")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("number", {}, "is int, no workflow: bind 'number' to what calling a stage returns, or to a function that"),
        ("nothing", {}, "is NoneType, no workflow"),
        ("workflow", {"x": 1}, "is no function, so it takes no --set"),
        ("main", {}, "missing 1 required positional argument: 'count': give what it needs with --set NAME=VALUE"),
        ("main", {"count": 1, "cuont": 2}, "unexpected keyword argument 'cuont'"),
        ("broken", {}, "flow.py:broken raised OSError: no such catalogue"),
    ],
)
def test_what_is_no_workflow(file: str, name: str, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_workflow(f"{file}:{name}", arguments)
    assert said in str(caught.value)


def test_what_the_users_code_refuses_comes_through(file: str) -> None:
    with pytest.raises(AsaError, match=r"^refused in its own words$"):
        load_workflow(f"{file}:refuses")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def (", "own.py raised SyntaxError: invalid syntax (own.py, line 1)"),
        ("import no_such_module", "own.py raised ModuleNotFoundError: No module named 'no_such_module'\n  File "),
        ("x = 1\n\n\nlist(3)", ", line 4, in <module>\n    list(3)"),
        ("def workflow(n=1):\n    return list(n)", ", line 2, in workflow\n    return list(n)"),
    ],
)
def test_what_the_users_code_raises_is_told_from_its_own_lines_on(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(InvalidInput) as caught:
        load_workflow(str(tmp_path / "own.py"))
    assert said in str(caught.value)
    assert "asa/workflows" not in str(caught.value)
    assert "--set" not in str(caught.value)


def test_a_file_that_names_no_workflow_is_told_how_to(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def mosaic(): ...")
    with pytest.raises(InvalidInput, match=r"own.py binds no 'workflow': bind it to .* as in .*own.py:mosaic$"):
        load_workflow(str(tmp_path / "own.py"))
    (tmp_path / "own.py").write_text("")
    with pytest.raises(InvalidInput, match=r"as in .*own.py:main$"):
        load_workflow(str(tmp_path / "own.py"))
