"""What is still to be said: in order, in batches that the master takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.agent import link
from executors.mesos.agent.link import Outbox
from executors.mesos.codec import decode, encode
from executors.mesos.messages import message

SIZES = st.lists(st.integers(0, 300), max_size=50)


@given(SIZES, st.integers(1, 7), st.integers(1, 500))
def test_all_is_said_in_order_and_no_batch_is_too_large(sizes: list[int], most: int, bytes_most: int) -> None:
    items = [message("MESSAGE", data="x" * size, number=number) for number, size in enumerate(sizes)]
    said, box = [], Outbox()
    for item in items:
        box.put(item)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "BATCH_MOST", most)
        patch.setattr(link, "BATCH_BYTES", bytes_most)
        while box:
            batch = decode(box.batch())
            assert batch["type"] == "BATCH"
            found = batch["batch"]["items"]
            assert 0 < len(found) <= most and sum(len(encode(item)) for item in found[:-1]) < bytes_most
            said += found
    assert said == items
    with pytest.raises(IndexError):
        box.batch()


def test_it_is_full_by_number_or_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "UNSENT_MOST", 3)
    monkeypatch.setattr(link, "UNSENT_BYTES", 100)
    box, pong = Outbox(), message("PONG")
    for _ in range(3):
        box.put(pong)
    assert not box.is_full
    box.put(pong)
    assert box.is_full
    assert decode(box.take()) == pong and not box.is_full
    box.put(message("MESSAGE", data="x" * 90))
    box.take()
    assert box.is_full
    box.clear()
    assert not box and not box.is_full
