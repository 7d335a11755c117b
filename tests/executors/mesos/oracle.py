"""Whether a message is one of the v1 API: its fields known and of the right types, and none missing that it needs."""

from __future__ import annotations

import base64
import binascii
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.executors.mesos.proto_table import TABLE, Api, read

API: Api = read(TABLE.read_text())


def check(type: str, message: Any) -> None:
    """Fails, saying where, unless `message` is a proper one of this type: ``"scheduler.Event"``."""
    wrong = list(_wrong(type, message, type))
    assert not wrong, f"{wrong[:5]} in {message!r:.2000}"


def _wrong(type: str, found: Any, path: str) -> Iterator[str]:
    if type in API.messages:
        yield from _wrong_message(type, found, path)
    elif type in API.enums:
        if found not in API.enums[type]:
            yield f"{path}: {found!r} is none of {type}"
    elif not _PLAIN[type](found):
        yield f"{path}: {found!r:.100} is no {type}"


def _wrong_message(type: str, found: Any, path: str) -> Iterator[str]:
    fields = API.messages[type]
    if not isinstance(found, dict):
        yield f"{path}: {found!r:.100} is no object"
        return
    yield from (f"{path}.{name} is not known to {type}" for name in found.keys() - fields.keys())
    for name, (mark, inner) in fields.items():
        here, item = f"{path}.{name}", found.get(name)
        if name not in found:
            if mark == "!":
                yield f"{here} is missing"
        elif mark == "*" or mark == "%":
            if not isinstance(item, list if mark == "*" else dict):
                yield f"{here}: {item!r:.100} is no {'list' if mark == '*' else 'map'}"
                continue
            for key, one in item.items() if isinstance(item, dict) else enumerate(item or ()):
                yield from _wrong(inner, one, f"{here}[{key}]")
        else:
            yield from _wrong(inner, item, here)


def _is_whole(bits: int, signed: bool) -> Callable[[Any], bool]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda found: isinstance(found, int) and not isinstance(found, bool) and least <= found <= most


def _is_number(found: Any) -> bool:
    return (isinstance(found, int | float) and not isinstance(found, bool)) or found in ("Infinity", "-Infinity", "NaN")


def _is_base64(found: Any) -> bool:
    try:
        return isinstance(found, str) and base64.b64decode(found, validate=True) is not None
    except binascii.Error:
        return False


def _is_text(found: Any) -> bool:
    return isinstance(found, str)


_PLAIN: dict[str, Callable[[Any], bool]] = {
    "bool": lambda found: isinstance(found, bool),
    "bytes": _is_base64,
    "double": _is_number,
    "float": _is_number,
    "int32": _is_whole(32, signed=True),
    "int64": _is_whole(64, signed=True),
    "uint32": _is_whole(32, signed=False),
    "uint64": _is_whole(64, signed=False),
    "string": _is_text,
    "google.protobuf.Duration": lambda found: _is_text(found) and bool(re.fullmatch(r"-?\d+(\.\d+)?s", found)),
}


def made(type: str, rng: random.Random, words: Sequence[str], depth: int = 0) -> Any:
    """Any proper value of this type; texts are some of `words`."""
    if type in API.enums:
        return rng.choice(API.enums[type])
    if type not in API.messages:
        return _MADE[type](rng, words)
    found = {}
    for name, (mark, inner) in API.messages[type].items():
        if mark == "!" or (depth < _DEEPEST and rng.random() < 0.5):
            many = [made(inner, rng, words, depth + 1) for _ in range(rng.randint(0, 2))] if mark in "*%" else []
            if mark == "%":
                found[name] = {rng.choice(words): one for one in many}
            else:
                found[name] = many if mark == "*" else made(inner, rng, words, depth + 1)
    return found


_DEEPEST = 7
_MADE: dict[str, Callable[[random.Random, Sequence[str]], Any]] = {
    "bool": lambda rng, words: rng.random() < 0.5,
    "bytes": lambda rng, words: base64.b64encode(rng.randbytes(16)).decode(),
    "double": lambda rng, words: rng.choice([0.0, 0.5, 1.0, 2.0, 1e9, -1.0]),
    "float": lambda rng, words: rng.choice([0.0, 1.5]),
    "int32": lambda rng, words: rng.choice([0, 1, 5, -1, (1 << 31) - 1]),
    "int64": lambda rng, words: rng.choice([0, 1, 10**9, -1, (1 << 63) - 1]),
    "uint32": lambda rng, words: rng.choice([0, 1, (1 << 32) - 1]),
    "uint64": lambda rng, words: rng.choice([0, 1, (1 << 64) - 1]),
    "string": lambda rng, words: rng.choice(words),
    "google.protobuf.Duration": lambda rng, words: rng.choice(["0s", "1.5s", "-1s"]),
}
