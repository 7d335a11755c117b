from __future__ import annotations

import socket
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.dask.driver import DaskProxy
from executors.wire import Channel

pytestmark = pytest.mark.slow


def test_what_keeps_the_scheduler_from_listening_is_told_and_nodes_are_sent_away(tmp_path: Path) -> None:
    cluster = DaskProxy(str(tmp_path / "none"), "127.0.0.1", ("127.0.0.1",), None)
    with pytest.raises(StateError, match="none"):
        cluster.wait()
    cluster.close()
    ends = [socket.socketpair() for _ in ("node", "hub")]
    cluster.adopt(*(Channel(ours) for ours, _ in ends))
    assert [theirs.recv(1) for _, theirs in ends] == [b"", b""]
    for _, theirs in ends:
        theirs.close()
