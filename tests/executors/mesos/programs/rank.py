"""A rank of a program that runs on several nodes at once, as with MPI.

    rank.py RANK SIZE DIRECTORY

All meet at rank 0, over TCP, and go on when the last has come. Each then writes its file, and ends when there is a file
``end``. Those of one attempt, which their agents tell by the names of the tasks, do not meet those of another.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path


def meet(rank: int, size: int, place: Path) -> None:
    if rank == 0:
        with socket.create_server(("127.0.0.1", 0)) as server:
            draft = place.with_suffix(".draft")
            draft.write_text(str(server.getsockname()[1]))
            draft.rename(place)
            others = [server.accept()[0] for _ in range(size - 1)]
        for other in others:
            other.sendall(b"!")
        return
    while not place.exists():
        time.sleep(0.01)
    with socket.create_connection(("127.0.0.1", int(place.read_text()))) as connection:
        if connection.recv(1) != b"!":
            sys.exit("rank 0 has ended")


def main(rank: int, size: int, directory: Path) -> None:
    attempt = os.environ["MESOS_EXECUTOR_ID"].rpartition(".")[0]
    meet(rank, size, directory / f"{attempt}.place")
    (directory / f"{attempt}.rank{rank}").touch()
    while not (directory / "end").exists():
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
