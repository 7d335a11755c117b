"""Tasks for conformance suites of executors: module-level functions that load nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from binascii import crc32
from pathlib import Path
from typing import Any


def echo(value: Any) -> Any:
    """What it is given."""
    return value


def fail(message: str) -> None:
    """Raises `ValueError`."""
    raise ValueError(message)


def shout(text: str) -> None:
    """Writes to standard error, then fails."""
    print(text, file=sys.stderr)
    raise RuntimeError("as asked")


def lock() -> Any:
    """Something that no pickle can take along."""
    return threading.Lock()


def hold(size: int) -> int:
    """Has so much memory for a moment [bytes]."""
    held = b"x" * size
    time.sleep(0.05)
    return len(held)


def start_and_hold(size: int) -> None:
    """Has a program that it starts hold so much memory [bytes]."""
    subprocess.run([sys.executable, "-S", "-c", f"x = b'x' * {size}"], check=True)


def spin(threads: int, cpu_s: float) -> float:
    """Keeps so many threads busy at the same time, each for so much processor time [s]; how many were, on average."""

    def work() -> None:
        data, until = bytes(1 << 20), time.thread_time() + cpu_s
        while time.thread_time() < until:
            crc32(data)  # lets other threads run meanwhile

    began, had = time.time(), time.process_time()
    spinning = [threading.Thread(target=work) for _ in range(threads)]
    for each in spinning:
        each.start()
    for each in spinning:
        each.join()
    return (time.process_time() - had) / (time.time() - began)


def die(code: int) -> None:
    """Ends its process at once."""
    os._exit(code)


def where() -> tuple[str, int]:
    """Working directory, and number of the process."""
    return os.getcwd(), os.getpid()


def meet(directory: str, number: int, others: int, patience_s: float = 20.0) -> bool:
    """Whether so many others were there at the same time, within `patience_s` [s]."""
    Path(directory, str(number)).touch()
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if len(os.listdir(directory)) >= others:
            return True
        time.sleep(0.005)
    return False


def alone(directory: str, seconds: float) -> bool:
    """Whether no other task was there for a while [s]."""
    place = Path(directory, "taken")
    try:
        place.touch(exist_ok=False)
    except FileExistsError:
        return False
    time.sleep(seconds)
    place.unlink()
    return True


def linger(file: str) -> None:
    """Writes its process number, and then never ends."""
    draft = Path(file + ".new")
    draft.write_text(str(os.getpid()))
    draft.rename(file)
    threading.Event().wait()


def await_file(file: str, go: str) -> int:
    """Writes its process number, which it returns once there is a file `go`."""
    draft = Path(file + ".new")
    draft.write_text(str(os.getpid()))
    draft.rename(file)
    while not os.path.exists(go):
        time.sleep(0.005)
    return os.getpid()
