"""What our modules define, read from their text: nothing is imported."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("asa", "executors", "coscheduler", "tests", "benchmarks", "examples")


@functools.cache
def module(name: str) -> dict[str, ast.AST] | None:
    """What a module of ours defines or imports at its top, by name; None where there is no such module."""
    path = ROOT / name.replace(".", "/")
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    if not file.is_file():
        return {} if path.is_dir() else None
    found: dict[str, ast.AST] = {}
    todo: list[ast.AST] = list(ast.parse(file.read_text()).body)
    for node in todo:
        if isinstance(node, ast.If | ast.Try | ast.With):
            todo += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
            node.home = name
        else:
            found |= {item.id: node for item in ast.walk(node) if isinstance(item, ast.Name)}
    return found


def definition(dotted: str) -> ast.AST | None:
    """Where ``package.module.name`` is defined; for ``package.module.Class.member``, the class. None when it is not."""
    words = dotted.split(".")
    for length in range(len(words), 0, -1):
        there, rest = module(".".join(words[:length])), words[length:]
        if there is None:
            continue
        if not rest:
            return ast.Module([], [])
        node = there.get(rest[0])
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS):
            return definition(".".join([node.module, *rest]))
        if len(rest) > 1 and (not isinstance(node, ast.ClassDef) or rest[1] not in members(node)):
            return None
        return node
    return None


def members(node: ast.ClassDef) -> set[str]:
    names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    names |= {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}
    return names | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def parameters(node: ast.AST | None) -> dict[str, str] | None:
    """Parameters of a function or class with their annotations; ``**`` among them where it takes any. None: unknown."""
    if isinstance(node, ast.ClassDef):
        made = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        if not made and node.bases:
            return parameters(definition(f"{node.home}.{ast.unparse(node.bases[0])}"))
        if not made:
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            return {ast.unparse(item.target): ast.unparse(item.annotation) for item in fields}
        node = made[0]
    if not isinstance(node, ast.FunctionDef):
        return None
    taken = [item for item in [*node.args.args, *node.args.kwonlyargs] if item.arg != "self"]
    found = {item.arg: ast.unparse(item.annotation) if item.annotation else "Any" for item in taken}
    if node.args.kwarg is None:
        return found
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", ast.unparse(node.args.kwarg.annotation or ast.Constant(None)))
    return found | ({"**": "Any"} if unpacked is None else _keywords(node.home, unpacked[1]))


def _keywords(home: str, name: str) -> dict[str, str]:
    """Those of a `TypedDict`, and of what it inherits from, as a module sees it."""
    node = definition(f"{home}.{name}")
    if not isinstance(node, ast.ClassDef):
        return {}
    inherited = [_keywords(node.home, ast.unparse(base)) for base in node.bases]
    found = {name: kind for each in inherited for name, kind in each.items()}
    own = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return found | {ast.unparse(item.target): ast.unparse(item.annotation) for item in own}
