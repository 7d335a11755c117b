"""What the design promises of the code as a whole."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("asa", "executors", "coscheduler")
LINES, BODY, POSITIONAL = 400, 40, 5
"""At most: lines of a module, lines of a function's body without its docstring, positional parameters."""
TABLE = re.compile(r"^```\n +modules +lines +imports.*?\n(.*?)^```$", re.M | re.S)
"""In docs/design.md: packages, modules, lines, and which others they import."""
IMPORT = re.compile(r"^\s*(?:from|import) ((?:asa|executors|coscheduler)(?:\.\w+)*)", re.M)
FOR_TYPES = re.compile(r"^if TYPE_CHECKING:.*?\n(?=\S)", re.M | re.S)


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
    compilers = functions((ROOT / "asa/lab/core/compiled.py").read_text())
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


def test_the_picture_of_packages_is_as_they_are() -> None:
    drawn = TABLE.search((ROOT / "docs/design.md").read_text())
    assert drawn, "docs/design.md has no table of packages"
    rows = {line.split()[0]: line.split()[1:] for line in re.sub(r"\n {20,}", " ", drawn[1]).splitlines()}
    texts: dict[str, list[str]] = {}
    for name, text in modules(*PACKAGES):
        texts.setdefault(package(name.split("/")[:-1]), []).append(text)
    assert sorted(rows) == sorted({*texts} - {"asa"})
    for name, (count, lines, *drawn_arrows) in rows.items():
        sizes = len(texts[name]), sum(text.count("\n") for text in texts[name])
        assert sizes == pytest.approx((int(count), int(lines)), rel=0.25), f"docs/design.md: {name} has grown"
        imported = {
            package(other.split(".")) for text in texts[name] for other in IMPORT.findall(FOR_TYPES.sub("", text))
        }
        assert sorted(drawn_arrows) == sorted(imported - {name, "asa", "core"}), f"docs/design.md: imports of {name}"


def package(words: list[str]) -> str:
    """The package below `asa` that a dotted name or a folder, word by word, belongs to, or the one beside `asa`."""
    return words[1] if words[0] == "asa" and len(words) > 1 else words[0]


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
