"""Streams as the API's documents and .proto files have them, byte for byte: ``golden/*.recordio``."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.codec import Records, frame
from executors.mesos.driver import of_scheduler

GOLDEN = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "golden").glob("*.recordio"))}
SCHEDULER = [
    None,
    "processHeartBeat",
    "resourceOffers",
    None,
    "offerRescinded",
    None,
    "statusUpdate",
    "frameworkMessage",
    "executorLost",
    "slaveLost",
    "error",
]


def apart(data: bytes) -> list[Any]:
    """The records as a very simple reader finds them, which trusts every byte."""
    found = []
    while data:
        length, _, rest = data.partition(b"\n")
        found.append(json.loads(rest[: int(length)]))
        data = rest[int(length) :]
    return found


def test_the_files_are_there() -> None:
    assert list(GOLDEN) == ["executor", "operator", "scheduler"]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_read_is_written_again_to_the_byte(name: str) -> None:
    messages = list(Records().feed(GOLDEN[name]))
    assert messages == apart(GOLDEN[name])
    assert b"".join(frame(message) for message in messages) == GOLDEN[name]


@given(st.sampled_from(list(GOLDEN)), st.lists(st.integers(0, 5000)))
def test_bytes_may_arrive_in_any_pieces(name: str, cuts: list[int]) -> None:
    data, records = GOLDEN[name], Records()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = (data[begin:end] for begin, end in itertools.pairwise(edges))
    assert [message for piece in pieces for message in records.feed(piece)] == apart(data)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_reader_that_looks_for_digits_at_the_beginning_of_what_is_left_reads_the_same(name: str) -> None:
    """As pymesos reads: text and lengths must be told apart, and there is no newline in a record."""
    data, found = GOLDEN[name], []
    while match := re.match(rb"\d+\n", data):
        end = match.end() + int(match[0])
        found.append(json.loads(data[match.end() : end]))
        assert b"\n" not in data[match.end() : end] and data[match.end() : end].isascii()
        data = data[end:]
    assert data == b"" and found == apart(GOLDEN[name])


def test_every_event_has_its_callback() -> None:
    found = [of_scheduler(event) for event in apart(GOLDEN["scheduler"])]
    assert [None if callback is None else callback.name for callback in found] == SCHEDULER
    assert found[8] is not None and found[8].arguments == ({"value": "e"}, {"value": "M1-S1"}, 9)
