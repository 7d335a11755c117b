"""A connection to a master: what is heard, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from executors.mesos.agent.link import connect_to_master

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def told(answer: bytes, hear: Callable[[bytes], object] | None) -> tuple[int, str]:
    """Ask a master that answers with these bytes, in one piece, and goes on listening: the status, and the end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(answer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        line = await connect_to_master("127.0.0.1", server.sockets[0].getsockname()[1], None, None, hear)
        try:
            async with asyncio.timeout(10):
                found = await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")
                if hear is None:
                    return found.status, found.text
                await asyncio.wait([line.broken])
        finally:
            line.close()
        return found.status, str(line.broken.exception())


def test_an_answer() -> None:
    answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nlater"
    assert asyncio.run(told(answer, None)) == (503, "later")


def test_what_comes_together_with_the_end_of_a_stream_is_heard() -> None:
    heard: list[bytes] = []
    ended = asyncio.run(told(HEAD + chunk(b"one") + chunk(b"two") + END, heard.append))
    assert (b"".join(heard), ended) == (b"onetwo", (200, "the master has ended it"))


def test_what_answers_with_headers_without_end_is_no_master() -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % number for number in range(1000)) + b"\r\n"
    with pytest.raises(OSError, match="no HTTP"):
        asyncio.run(told(answer, None))


def test_a_line_that_broke_before_the_answer_takes_no_request_any_more() -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n{}")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            line = await connect_to_master("127.0.0.1", server.sockets[0].getsockname()[1], None, None, None)
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionResetError, match="the master has closed it"):
                    await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")
                with pytest.raises(ConnectionResetError, match="the connection is gone"):
                    await line.post("POST / HTTP/1.1\r\nHost: a\r\n", b"{}")

    asyncio.run(main())


@pytest.mark.parametrize("junk", [b"zz\r\n", b"\0\0\0\0"])
def test_what_comes_before_nonsense_is_heard(junk: bytes) -> None:
    heard: list[bytes] = []
    status, end = asyncio.run(told(HEAD + chunk(b"one") + junk, heard.append))
    assert (b"".join(heard), status) == (b"one", 200)
    assert end.startswith("what came is no HTTP")
