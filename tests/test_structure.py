"""What the design promises of the code as a whole."""

from __future__ import annotations

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("asa", "executors", "coscheduler")
LINES, BODY, POSITIONAL = 400, 40, 5
"""At most: lines of a module, lines of a function's body without its docstring, positional parameters."""


def modules(*folders: str) -> Iterator[tuple[str, str]]:
    """Name and text of each module in these folders."""
    for folder in folders:
        for path in sorted(ROOT.glob(f"{folder}/**/*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_rooms_are_small() -> None:
    lengths = sorted(len(text.splitlines()) for _, text in modules(*PACKAGES))
    assert statistics.median(lengths) <= 130
    assert lengths[int(0.9 * len(lengths))] < 300


def test_no_module_is_two() -> None:
    found = [(name, len(text.splitlines())) for name, text in modules(*PACKAGES, "examples", "benchmarks", "tests")]
    problems = [f"{name}: {lines} lines" for name, lines in found if lines > LINES]
    assert not problems, "\n".join(problems)


def test_functions_are_short_and_take_few_things_by_position() -> None:
    """But for compiled ones: calls cost time there, and keyword-only parameters are not to be had."""
    compilers = functions((ROOT / "asa/core/compiled.py").read_text())
    exempt = {function.name for function in compilers if not function.name.startswith("_")}
    problems = []
    for name, text in modules(*PACKAGES, "examples", "benchmarks"):
        for function in functions(text):
            if not exempt.isdisjoint(ast.unparse(decorator) for decorator in function.decorator_list):
                continue
            if (lines := length(function)) > BODY:
                problems.append(f"{name}:{function.lineno} {function.name}: {lines} lines")
            if (count := positional(function)) > POSITIONAL:
                problems.append(f"{name}:{function.lineno} {function.name}: {count} positional parameters")
    assert not problems, "\n".join(problems)


def functions(text: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body; what a dataclass writes itself is not here."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters that may be given by position, but for `self` and `cls`."""
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_importing_asa_loads_nothing_heavy() -> None:
    heavy = {
        "numpy",
        "torch",
        "ortools",
        "dask",
        "distributed",
        "matplotlib",
        "pandas",
        "cryptography",
        "requests",
        "rich",
    }
    code = f"import asa, sys; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_supervisor_loads_nothing_heavy() -> None:
    heavy = {"numpy", "cryptography", "cloudpickle", "asyncio", "dask", "asa.workflows"}
    code = f"import executors.supervisor, sys; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
