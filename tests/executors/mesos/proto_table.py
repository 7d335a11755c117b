"""The v1 API as a table: which fields its messages have, of what types, and which words its enums.

The .proto files of Mesos say that; ``v1_api.txt`` has it on one line for each message and enum, for those that can be
reached from calls, events and answers. To write it anew::

    python -m tests.executors.mesos.proto_table MESOS/include/mesos/v1 > tests/executors/mesos/v1_api.txt

A field is written as its name, ``!`` required, ``?`` optional, ``*`` repeated or ``%`` a map from texts, and its type.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOTS = ("scheduler.Call", "scheduler.Event", "executor.Call", "executor.Event", "master.Call", "master.Response")
ROOTS += ("master.Event", "agent.Call", "agent.Response", "agent.ProcessIO")
NUMBERS = frozenset(("double", "float", "int32", "int64", "uint32", "uint64"))
PLAIN = NUMBERS | {"bool", "bytes", "string", "google.protobuf.Duration"}
TABLE = Path(__file__).with_name("v1_api.txt")

_MARKS = {"required": "!", "optional": "?", "repeated": "*", "map": "%"}
_NOISE = re.compile(r"/\*.*?\*/|//[^\n]*|\[[^\]]*\]|\b(option|import|syntax|reserved)\b[^;{]*;", re.DOTALL)
_PIECES = re.compile(
    r"(?:(?P<begin>message|enum|oneof)\s+(?P<of>\w+)\s*\{)"
    r"|map\s*<\s*string\s*,\s*(?P<value>[\w.]+)\s*>\s*(?P<map>\w+)\s*=[^;]*;"
    r"|(?:(?P<label>required|optional|repeated)\s+)?(?P<type>[\w.]+)\s+(?P<field>\w+)\s*=[^;]*;"
    r"|(?P<word>\w+)\s*=\s*\d+\s*;|(?P<end>\})|package\s+mesos\.v1\.?(?P<package>[\w.]*)\s*;"
)


class Field(NamedTuple):
    """A field of a message: ``!?*%``, and the full name of its type."""

    mark: str
    type: str


class Api(NamedTuple):
    """Messages with their fields, and enums with their words, by full name without ``mesos.v1``."""

    messages: dict[str, dict[str, Field]]
    enums: dict[str, tuple[str, ...]]


def read(text: str) -> Api:
    """The table in `text`."""
    found = Api({}, {})
    for line in text.splitlines():
        name, mark, rest = line.partition(":")
        if mark:
            fields = (re.fullmatch(r"(\w+)([!?*%])([\w.]+)", word) for word in rest.split())
            found.messages[name] = {one[1]: Field(one[2], one[3]) for one in fields if one}
        else:
            name, _, rest = line.partition("=")
            found.enums[name] = tuple(rest.split())
    return found


def lines(root: Path) -> Iterator[str]:
    """The table of the .proto files below `root`."""
    messages: dict[str, dict[str, Field]] = {}
    enums: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.proto")):
        _parse(_NOISE.sub(" ", path.read_text()), messages, enums)
    names = messages.keys() | enums.keys()
    left, seen = list(ROOTS), set[str]()
    while left:
        if (name := left.pop()) not in seen and name not in PLAIN:
            seen.add(name)
            for key, one in messages.get(name, {}).items():
                messages[name][key] = one._replace(type=_resolved(one.type, name, names))
                left.append(messages[name][key].type)
    for name in sorted(seen):
        if name in enums:
            yield f"{name}= {' '.join(enums[name])}"
        else:
            yield f"{name}: {' '.join(key + one.mark + one.type for key, one in messages[name].items())}".rstrip()


def _parse(text: str, messages: dict[str, dict[str, Field]], enums: dict[str, list[str]]) -> None:
    inside: list[str] = []  # names of what is open; a oneof has none of its own
    package = ""
    for piece in _PIECES.finditer(text):
        here = ".".join(filter(None, (package, *inside)))
        if piece["package"] is not None:
            package = piece["package"]
        elif piece["begin"]:
            inside.append("" if piece["begin"] == "oneof" else piece["of"])
            name = ".".join(filter(None, (here, inside[-1])))
            if piece["begin"] == "message":
                messages[name] = {}
            elif piece["begin"] == "enum":
                enums[name] = []
        elif piece["end"]:
            inside.pop()
        elif piece["word"]:
            enums[here].append(piece["word"])
        elif piece["map"]:
            messages[here][piece["map"]] = Field("%", piece["value"])
        else:
            messages[here][piece["field"]] = Field(_MARKS[piece["label"] or "optional"], piece["type"])


def _resolved(type: str, within: str, names: set[str]) -> str:
    if type in PLAIN:
        return type
    short = type.removeprefix("mesos.").removeprefix("v1.")
    scope = within.split(".")
    while scope and ".".join((*scope, short)) not in names:
        scope.pop()
    found = ".".join((*scope, short))
    if found not in names:
        raise ValueError(f"{within} has a field of type {type}, which is nowhere")
    return found


if __name__ == "__main__":
    print(*lines(Path(sys.argv[1])), sep="\n")
