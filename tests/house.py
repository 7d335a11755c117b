"""The source tree as modules and imports, for the laws of `test_structure.py`; ``python -m tests.house`` prints sizes.

An import through a string is an import: a string that names one of our modules, alone or as ``"module:Object"``, is an
arrow to it. The entry points in ``setup.cfg`` are not: that is how upper floors are found.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("asa", "executors", "coscheduler")
TARGET = re.compile(rf"({'|'.join(PRODUCT)})(\.\w+)+(:\w+)?")


@dataclass(frozen=True)
class Module:
    """A file: its dotted name, its text, and what it is made of."""

    name: str
    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def package(self) -> str:
        """The package that the file belongs to."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def classes(self) -> list[str]:
        return [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def matches(self, name: str) -> bool:
        """Whether the module tells objects of this class from others, by ``match`` or ``isinstance``."""
        told = [ast.unparse(node.cls) for node in ast.walk(self.tree) if isinstance(node, ast.MatchClass)]
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        told += [ast.unparse(call.args[1]) for call in calls if ast.unparse(call.func) == "isinstance"]
        return any(re.search(rf"\b{name}\b", text) for text in told)


def load(*tops: str) -> dict[str, Module]:
    """Modules below these folders, by dotted name."""
    found = {}
    for top in tops:
        for path in sorted(ROOT.glob(f"{top}/**/*.py")):
            words = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(words[:-1] if words[-1] == "__init__" else words)
            found[name] = Module(name, path, path.read_text())
    return found


def imports(module: Module, known: Mapping[str, Module], *, for_types: bool = True) -> set[str]:
    """Modules that a module imports, by statement or through a string.

    Parameters
    ----------
    for_types
        Whether imports for annotations alone count, too.
    """
    found: set[str] = set()
    for node in _nodes(module.tree, for_types):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and TARGET.fullmatch(node.value):
            found |= {node.value.partition(":")[0]} - GROUPS  # those are called like packages
    return (found & known.keys()) - {module.name}


def _nodes(tree: ast.AST, for_types: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not for_types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _nodes(node, for_types)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of two or more that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(arrows) + 1000))
    for name in arrows:
        if name not in order:
            visit(name)
    return found


def importers(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, others in arrows.items():
        for other in others:
            found[other].add(name)
    return found


def entry_points() -> dict[str, dict[str, str]]:
    """Group -> name -> target, as `setup.cfg` declares them."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    found: dict[str, dict[str, str]] = {}
    for group, text in parser["options.entry_points"].items():
        pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
        found[group] = {name.strip(): target.strip() for name, target in pairs}
    return found


GROUPS = entry_points().keys()


def room(name: str) -> str:
    """The package as docs/design.md lists it: ``asa.core``, ``asa.lab.simulator``, ``executors.mesos`` ..."""
    words = name.split(".")
    return ".".join(words[: 3 if words[:2] == ["asa", "lab"] else 2]) if words[0] != "coscheduler" else "coscheduler"


def sizes(modules: Iterable[Module]) -> dict[str, tuple[int, int]]:
    """Package -> modules, lines."""
    found: dict[str, tuple[int, int]] = {}
    for module in modules:
        key = room(module.package) if module.package not in PRODUCT else module.package
        count, lines = found.get(key, (0, 0))
        found[key] = count + 1, lines + module.lines
    return found


def main() -> None:
    product, tests = load(*PRODUCT), load("tests")
    for name, (count, lines) in sorted(sizes(product.values()).items()):
        print(f"{name:24} {count:4} modules {lines:6} lines")
    for name, modules in ("product", product), ("tests", tests):
        longest = max(modules.values(), key=lambda module: module.lines)
        total = sum(module.lines for module in modules.values())
        print(f"{name:24} {len(modules):4} modules {total:6} lines; the longest, {longest.name}, {longest.lines}")


if __name__ == "__main__":
    main()
