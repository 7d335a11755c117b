"""Damage to real texts and bytes, for tests that whatever comes from outside is read or refused.

All of it follows from the random numbers, so that a seed is a case.
"""

from __future__ import annotations

import copy
import json
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Stream = TypeVar("Stream", str, bytes)

WORDS = (
    "", " ", "0", "-1", "1", "999999999999999999999", "9" * 5000, "1e400", "nan", "inf", "-inf", "\u00b2", "1_0",
    "0-99999999", "[0-99999999]", "n[1-", "]", "[", ":", "|", ",", "=", "+", "%", "\r", "\n", "\x00", "\x1c", "\u2028",
    "\ufffd", "N/A", "UNLIMITED", "12_x", "12_[0-99999999%1]", "gpu:9999999999999999999", "{" * 2000, "[" * 100_000,
    "\\ud800", '"\\udfff"', "NaN", "Infinity", "null", "true", "{}", "[]", '""', "1E999",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**32 - 1, 2**64, -(2**64), 10**400, 1e308, -1e308, 0.5, float("nan"), float("inf"), "", "-1",
    "\u00b2", "9" * 5000, "\ud800", "n[0-99999999]", "0-99999999", "a b", "x" * 2000, [], {}, [None], [[[[]]]],
    {"number": "x", "set": 1}, {"set": True, "infinite": False, "number": 10**30},
)  # fmt: skip
LONGEST_S = 5.0
"""Most time of the processor that one input may take [s]; a millisecond is usual."""


def garbled(text: Stream, rng: random.Random) -> Stream:
    """The text with one to four pieces left out, doubled, moved, or replaced by what is none of it."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(text))
        stop = min(len(text), start + int(rng.expovariate(0.15)))
        kind = rng.randrange(6)
        if kind == 0:
            text = text[:start] + text[stop:]
        elif kind == 1:
            text = text[:stop] + text[start:]
        elif kind == 2:
            other = rng.randint(0, len(text))
            text = text[:start] + text[other : other + stop - start] + text[stop:]
        elif kind == 3 and rng.random() < 0.2:
            text = text[:start]
        elif kind == 4:
            sign = chr(rng.randrange(rng.choice((256, 0x3000))))
            text = text[:start] + _alike(text, sign) + text[stop:]
        else:
            text = text[:start] + _alike(text, rng.choice(WORDS)) + text[stop:]
    return text


def _alike(text: Stream, word: str) -> Any:
    return word if isinstance(text, str) else word.encode()


def changed(value: Any, rng: random.Random) -> Any:
    """A JSON value of which one to three parts are left out or replaced by something of another kind."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        holder, key = None, None
        inner = value
        while isinstance(inner, dict | list) and inner and (holder is None or rng.random() < 0.85):
            holder, key = inner, rng.choice([*inner] if isinstance(inner, dict) else range(len(inner)))
            inner = inner[key]
        if holder is None:
            return copy.deepcopy(rng.choice(VALUES))
        if rng.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def refused_or_read(read: Callable[[Stream], object], given: Stream, allowed: type[Exception]) -> bool:
    """Whether it was read; raises, with the input, what is not `allowed`, and when it has taken too long."""
    before = time.thread_time()
    try:
        read(given)
        taken = True
    except allowed:
        taken = False
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} for {given[:3000]!r}") from error
    spent = time.thread_time() - before
    assert spent < LONGEST_S, f"{spent:.1f} s for {given[:3000]!r}"
    return taken


def http_request(url: str, method: str, path: str, body: bytes, **headers: str) -> bytes:
    """A request as it is sent; after its answer the connection ends."""
    named = {"Host": url.rpartition("/")[2], "Content-Length": str(len(body)), "Connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answers_to_damaged(
    url: str, make: Callable[[], bytes], rng: random.Random, count: int, until_s: float, half_close: bool = True
) -> dict[int, int]:
    """How often a server has answered with which status, to requests that `make` returns and of which every other is
    damaged, until a time [s, monotonic]; raises, with the request, where that is an error of the server's.

    Unless we `half_close` a connection after the request, a server that waits for more of it is given up soon.
    """
    host, port = url.rpartition("/")[2].split(":")
    found: dict[int, int] = {}
    for _ in range(count):
        if time.monotonic() > until_s:
            break
        data = make()
        if rng.random() < 0.5:
            data = garbled(data, rng)
        with (
            socket.create_connection((host, int(port)), timeout=30 if half_close else 0.1) as stream,
            suppress(ConnectionError, *([] if half_close else [TimeoutError])),
        ):
            stream.sendall(data)  # the server may have hung up before the end
            if half_close:
                stream.shutdown(socket.SHUT_WR)
            head = stream.recv(64)
            if head.startswith(b"HTTP/1.1 "):
                status = int(head[9:12])
                found[status] = found.get(status, 0) + 1
                assert status < 500 or status in (501, 503, 505), f"{head!r} for {data[:3000]!r}"
    return found
