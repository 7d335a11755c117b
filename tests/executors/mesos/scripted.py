"""A server that sends what a test gives it, and remembers what it received."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web

from executors.mesos.codec import frame
from tests.waiting import DEADLINE_S, until

Message = dict[str, Any]


def subscribed(framework: str = "F1", heartbeat_s: float = 15.0) -> Message:
    payload = {"framework_id": {"value": framework}, "heartbeat_interval_seconds": heartbeat_s}
    return {"type": "SUBSCRIBED", "subscribed": payload | {"master_info": {"id": "M", "version": "1.11.0"}}}


class Scripted:
    """Answers SUBSCRIBE with a stream that begins with `greeting`, and other calls with `status(call)`."""

    def __init__(self, greeting: Message | None = None, context: ssl.SSLContext | None = None) -> None:
        self.greeting = subscribed() if greeting is None else greeting
        self.subscriptions: list[Message] = []
        self.calls: list[Message] = []
        self.heads: list[dict[str, str]] = []
        self.entry: Callable[[], web.Response | None] = lambda: None
        self.status: Callable[[Message], tuple[int, str] | None] = lambda call: (202, "")
        self.connections = 0
        self.streams: list[tuple[web.StreamResponse, web.BaseRequest]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._listens.wait(DEADLINE_S)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kinds(self) -> list[str]:
        return [call["type"] for call in self.calls]

    def say(self, *messages: Message) -> None:
        """Each as a record and a chunk of its own."""
        for message in messages:
            self.raw(frame(message))

    def raw(self, data: bytes) -> None:
        until(lambda: self.streams, "a stream")
        asyncio.run_coroutine_threadsafe(self.streams[-1][0].write(data), self._loop).result(DEADLINE_S)

    def cut(self) -> None:
        """Break the stream off."""
        _, request = until(lambda: self.streams, "a stream").pop()
        assert request.transport
        self._loop.call_soon_threadsafe(request.transport.abort)

    async def _serve(self) -> None:
        runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, self._socket, ssl_context=self._context).start()
        self._listens.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"version": "1.11.0"})
        call = json.loads(await request.content.read())
        self.heads.append(dict(request.headers) | {"": request.path})
        if call["type"] != "SUBSCRIBE":
            self.calls.append(call)
            answer = self.status(call)
            if answer is None:
                await self._ended.wait()
                return web.Response(status=500)
            return web.Response(status=answer[0], text=answer[1])
        self.subscriptions.append(call)
        if (odd := self.entry()) is not None:
            return odd
        stream = web.StreamResponse(headers={"Mesos-Stream-Id": f"s{len(self.subscriptions)}"})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        await stream.write(frame(self.greeting))
        self.streams.append((stream, request))
        await self._ended.wait()
        return stream
