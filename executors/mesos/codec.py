"""Bytes on the wire: v1 JSON, and RecordIO, in which every message stands behind its length in decimal digits.

References
----------
Apache Mesos, *Scheduler HTTP API* and ``include/mesos/v1/*.proto``, whose field names and JSON mapping are followed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from asa.web.errors import HTTPError

Message = dict[str, Any]
"""A v1 message as JSON: enums are names, bytes are base64, what is not set is absent."""

LARGEST = 64 << 20
"""Longest message that is taken [bytes]."""

DEEPEST = 100
"""How deep a message may be nested; as deep as .proto messages may be."""

_DIGITS_MOST = len(str(LARGEST))


class BadMessage(HTTPError, ValueError):
    """What a peer sent is no message; the text says what was expected. Where it was a request, it is refused (400)."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, reason)


def encode(message: Message) -> bytes:
    """Compact JSON on one line, in ASCII: some clients count characters, and some split at newlines.

    >>> encode({"type": "HEARTBEAT"})
    b'{"type":"HEARTBEAT"}'
    """
    return _ENCODER.encode(message).encode()


def frame(message: Message) -> bytes:
    """A message as a record of a stream.

    >>> frame({"type": "HEARTBEAT"})
    b'20\\n{"type":"HEARTBEAT"}'
    """
    body = encode(message)
    return b"%d\n%b" % (len(body), body)


def decode(body: bytes | bytearray | memoryview) -> Message:
    """The message in `body`. Fields that are null are as good as absent and left out, wherever they are.

    Raises
    ------
    BadMessage
        When it is no JSON object, holds a number that JSON does not have or a text that is none (half of a surrogate
        pair), or is nested too deeply.
    """
    text = bytes(body)
    try:
        found = _DECODER.decode(text.decode())
        if not isinstance(found, dict):
            raise BadMessage(f"expected a JSON object, found {type(found).__name__}")
        if text.count(b"{") + text.count(b"[") > DEEPEST:
            _check_depth(found)
        if b"\\ud" in text or b"\\uD" in text:
            _UNESCAPED.encode(found).encode()
        return _without_nulls(found) if b"null" in text else found
    except RecursionError:
        raise BadMessage("the JSON object is nested too deeply") from None
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise BadMessage(f"a text holds {half}, half of a surrogate pair, without its other half") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are such
        raise error if isinstance(error, BadMessage) else BadMessage(f"no JSON: {error}") from None


def _no_number(name: str) -> Any:
    raise BadMessage(f'{name} is no JSON number; an unlimited scalar is written {{"value":"Infinity"}}')


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # 1e999, say: it could be read, but not written any more
        _no_number(digits[:50])
    return number


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
_UNESCAPED = json.JSONEncoder(ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)


def _check_depth(found: Message) -> None:
    """What can just be read could not be written any more inside another message."""
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        items = chain.from_iterable(part.values() if type(part) is dict else part for part in level)
        level = [item for item in items if type(item) is dict or type(item) is list]
        if not level:
            return
    raise BadMessage(f"the JSON object is nested more than {DEEPEST} levels deep")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


class Records:
    """Takes a stream apart into messages, however its bytes arrive.

    Parameters
    ----------
    largest
        Longest record that is taken [bytes].

    Examples
    --------
    >>> records = Records()
    >>> list(records.feed(b'20\\n{"type":"HEART')), list(records.feed(b'BEAT"}'))
    ([], [{'type': 'HEARTBEAT'}])
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._held = bytearray()
        self._length: int | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes.

        Raises `BadMessage` when a length is no number or too large, or a record is no message; the stream cannot be
        read any further.
        """
        self._held += data
        at = 0
        while True:
            if self._length is None:
                end = self._held.find(b"\n", at, at + _DIGITS_MOST + 1)
                if end < 0:
                    if len(self._held) - at > _DIGITS_MOST:
                        raise BadMessage(f"expected a record's length, found {bytes(self._held[at : at + 20])!r}")
                    break
                self._length = self._checked(bytes(self._held[at:end]))
                at = end + 1
            if len(self._held) - at < self._length:
                break
            body = bytes(self._held[at : at + self._length])
            at += self._length
            self._length = None
            yield decode(body)
        del self._held[:at]

    def _checked(self, digits: bytes) -> int:
        if not digits.isdigit() or int(digits) > self._largest:
            raise BadMessage(f"expected a record's length of at most {self._largest} bytes, found {digits[:20]!r}")
        return int(digits)


def kind_of(record: bytes) -> str:
    """The type of the message in a record.

    >>> kind_of(frame({"type": "HEARTBEAT"}))
    'HEARTBEAT'
    """
    return record.partition(b'"type":"')[2].partition(b'"')[0].decode()
