"""What idle streams with heartbeats cost a server in memory: ours beside a library.

python benchmarks/http_streams.py [asa aiohttp] [--streams 2000] [--tls]

Each server is a process of its own that answers every request with a stream, and writes a heartbeat on each every
`BEAT_S`. The growth of its resident memory is measured from the first stream on, after each stream has had three
heartbeats. aiohttp need not be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEAT_S = 5.0
BEAT = b'20\n{"type":"HEARTBEAT"}'
REQUEST = (
    b"POST /api/v1/scheduler HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)
KINDS = ("asa", "aiohttp")
WARM = 20  # streams before the measurement: what is loaded once is not counted


def server_context(certificate: str) -> ssl.SSLContext | None:
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.load_cert_chain(certificate)
    return context


async def serve_asa(sock: socket.socket, certificate: str) -> None:
    from asa.web.server import Admission, Answer, Heartbeats, Listener, Request, ResponseStream, StreamResponse

    heartbeats = Heartbeats(BEAT_S, BEAT)

    def answer(request: Request) -> Answer:
        stream = ResponseStream(request.connection, heartbeats.discard, beating=True)
        heartbeats.add(stream)
        return StreamResponse(stream)

    def admit(request: Request) -> Admission:
        listener.authenticated(request.connection)
        return Admission(1 << 20, answer)

    listener = Listener(admit, "the server")
    await listener.listen(sock, server_context(certificate))
    await heartbeats.run()


async def serve_aiohttp(sock: socket.socket, certificate: str) -> None:
    from aiohttp import web

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            await asyncio.sleep(BEAT_S)
            await response.write(BEAT)

    app = web.Application()
    app.router.add_post("/api/v1/scheduler", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, sock, ssl_context=server_context(certificate), backlog=4096).start()
    await asyncio.Event().wait()


def serve(kind: str, port_file: str, certificate: str) -> None:
    sock = socket.create_server(("127.0.0.1", 0), backlog=4096)
    Path(port_file).write_text(str(sock.getsockname()[1]))
    if kind == "asa":
        asyncio.run(serve_asa(sock, certificate))
    else:
        asyncio.run(serve_aiohttp(sock, certificate))


def resident(pid: int) -> int:
    """Resident memory of a process [bytes]."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Clients:
    """Open streams; everything that comes is read, and heartbeats are counted."""

    def __init__(self, port: int, tls: bool) -> None:
        self.port, self.selector = port, selectors.DefaultSelector()
        self.context = None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.beats: dict[socket.socket, int] = {}

    def open(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self.port))
        if self.context is not None:
            sock = self.context.wrap_socket(sock)
        sock.sendall(REQUEST)
        head = b""
        while b"\r\n\r\n" not in head:  # servers may limit connections whose first request they have not seen
            head += sock.recv(1 << 14)
        sock.setblocking(False)
        self.beats[sock] = 0
        self.selector.register(sock, selectors.EVENT_READ)

    def read(self, timeout: float) -> None:
        for key, _ in self.selector.select(timeout):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            try:
                data = sock.recv(1 << 14)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            assert data, "the server has closed a stream"
            self.beats[sock] += data.count(b"HEARTBEAT")

    def until(self, beats: int) -> None:
        for sock in self.beats:
            self.beats[sock] = 0
        deadline = time.monotonic() + (beats + 5) * BEAT_S
        while min(self.beats.values()) < beats:
            assert time.monotonic() < deadline, f"some streams have had no {beats} heartbeats"
            self.read(1.0)


def measure(kind: str, streams: int, tls: bool, directory: Path) -> float:
    """Growth of the server's memory for each stream [bytes]."""
    certificate = ""
    if tls:
        certificate = str(directory / "driver.pem")
    port_file = directory / "port"
    port_file.unlink(missing_ok=True)
    server = subprocess.Popen([sys.executable, __file__, "--serve", kind, str(port_file), certificate])
    try:
        while not port_file.exists() or not port_file.read_text():
            time.sleep(0.05)
        clients = Clients(int(port_file.read_text()), tls)
        for _ in range(WARM):
            clients.open()
        clients.until(1)
        before = resident(server.pid)
        for number in range(streams):
            clients.open()
            if number % 20 == 0:
                clients.read(0)
        clients.until(3)
        return (resident(server.pid) - before) / streams
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.tls:
            from asa.security.ca import create

            create(Path(name) / "tls", "benchmark")
            directory = Path(name) / "tls"
        else:
            directory = Path(name)
        for kind in options.kinds:
            if importlib.util.find_spec(kind) is None:
                print(f"| {kind} | is not installed |")
                continue
            grown = measure(kind, options.streams, options.tls, directory)
            print(f"| {kind} | {'TLS' if options.tls else 'plain'} | {grown / 1000:.1f} kB |", flush=True)


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:5])
    else:
        main()
