"""JSON and RecordIO, whole, in pieces and damaged."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.codec import BadMessage, Records, decode, encode, frame

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_null(item) for item in value.values())
    if isinstance(value, list):
        return any(has_null(item) for item in value)
    return value is None


@pytest.mark.slow
@given(st.lists(MESSAGES, max_size=5), st.data())
def test_a_stream_reads_the_same_however_it_is_cut(messages: list[dict[str, object]], data: st.DataObject) -> None:
    stream = b"".join(map(frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    records, found = Records(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += list(records.feed(stream[begin:end]))
    assert found == [decode(encode(message)) for message in messages]


@given(MESSAGES)
def test_what_is_sent_is_one_line_of_ascii(message: dict[str, object]) -> None:
    line = encode(message)
    assert line.isascii() and b"\n" not in line
    assert json.loads(line) == message


@given(MESSAGES)
def test_nulls_are_as_good_as_absent(message: dict[str, object]) -> None:
    assert not has_null(decode(encode(message)))


def test_nulls_are_left_out_and_nothing_else_is() -> None:
    assert decode(b'{"filters": null, "ids": [1, null, {"a": null, "b": "null"}]}') == {"ids": [1, {"b": "null"}]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"3",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b"\xff",
        b'{"a":' * 100_000,
        b'"text"',
    ],
)
def test_what_is_no_message_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(body)


@given(st.binary(max_size=200))
def test_nothing_else_than_bad_message_is_raised(noise: bytes) -> None:
    with suppress(BadMessage):
        assert all(isinstance(message, dict) for message in Records(largest=100).feed(noise))


@pytest.mark.parametrize("stream", [b"x\n{}", b"-1\n{}", b"101\n", b"99999999999999999999", b"\n{}", b" 2\n{}"])
def test_a_length_that_cannot_be_is_refused_at_once(stream: bytes) -> None:
    with pytest.raises(BadMessage, match="length"):
        list(Records(largest=100).feed(stream))


def test_what_came_before_the_damage_is_read() -> None:
    stream = Records().feed(b"2\n{}x\n")
    assert next(stream) == {}
    with pytest.raises(BadMessage):
        next(stream)
