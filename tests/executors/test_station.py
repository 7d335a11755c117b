from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, StateError
from asa.core.ports import RunContext
from executors.hub import HubExecutor, listen
from executors.wire import RENDEZVOUS, ChannelListener


class FakeProxy:
    """Stands proxy, and has tasks launched while it gets ready."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.station, self.closed = error, HubExecutor("m:C"), 0
        self.published = False

    def __call__(self, context: RunContext, listener: ChannelListener) -> FakeProxy:
        self.file: Path = context.directory / RENDEZVOUS
        return self

    def front(self, listener: ChannelListener) -> ChannelListener:
        return listener

    def wait(self) -> None:
        self.published = self.file.exists()
        self.station.launch([], "a")
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed += 1


def station(proxy: FakeProxy) -> HubExecutor:
    proxy.station = HubExecutor("m:C", proxy=lambda context, listener: proxy(context, listener))
    return proxy.station


def test_nodes_may_come_and_be_given_tasks_while_a_proxy_gets_ready(context: RunContext) -> None:
    proxy = FakeProxy()
    made = station(proxy)
    made.start(context, lambda events: None)
    assert proxy.published and not proxy.closed
    made.close()
    made.close()
    assert proxy.closed == 1 and not proxy.file.exists()


def test_when_it_does_not_get_ready_nothing_is_left(context: RunContext) -> None:
    proxy = FakeProxy(ValueError("no port"))
    made = station(proxy)
    with pytest.raises(ValueError, match="no port"):
        made.start(context, lambda events: None)
    assert proxy.closed == 1 and not proxy.file.exists()
    with pytest.raises(InvalidInput, match="start"):
        made.launch([], "a")


def test_a_new_drivers_address_stays(context: RunContext) -> None:
    first, second = HubExecutor("m:C"), HubExecutor("m:C")
    first.start(context, lambda events: None)
    second.start(context, lambda events: None)
    address = (context.directory / RENDEZVOUS).read_bytes()
    first.close()
    assert (context.directory / RENDEZVOUS).read_bytes() == address
    second.close()
    assert not (context.directory / RENDEZVOUS).exists()


def test_a_directory_that_takes_no_socket_is_named(context: RunContext, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(StateError, match=rf"cannot make a socket in {gone}: No such file .* Set ASA_STATE_DIR"):
        listen(replace(context, directory=gone))
    (tmp_path / "hub-1.sock").mkdir()
    with pytest.raises(StateError, match=rf"cannot make a socket in {tmp_path}: Is a directory"):
        listen(replace(context, directory=tmp_path))
