"""Workflows whose tasks compute on NVIDIA's GPUs, through the driver's library alone."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import asa

WORDS = 1 << 20
NO_DEVICE = 100


class Cuda:
    """What the driver's library shows this process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        if (code := self.library.cuInit(0)) not in (0, NO_DEVICE):
            raise RuntimeError(f"cuInit: error {code}")
        count = ctypes.c_int()
        self.count = count.value if code == NO_DEVICE else self._value("cuDeviceGetCount", count)

    def _value(self, name: str, value: ctypes.c_int, *given: object) -> int:
        self.call(name, ctypes.byref(value), *given)
        return value.value

    def call(self, name: str, *given: object) -> None:
        if code := getattr(self.library, name)(*given):
            raise RuntimeError(f"{name}: error {code}")

    def names(self) -> list[str]:
        found = []
        for number in range(self.count):
            name = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid", name, number)
            found.append(bytes(name).hex())
        return found

    def fill(self, words: int, value: int) -> int:
        """Have the first GPU fill so many words of its memory; the last of them."""
        context, memory, last = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * words))
        self.call("cuMemsetD32_v2", memory, ctypes.c_uint32(value), ctypes.c_size_t(words))
        self.call("cuMemcpyDtoH_v2", ctypes.byref(last), ctypes.c_uint64(memory.value + 4 * (words - 1)), 4)
        return last.value


@asa.stage(gpus=1, cores=2, walltime="5m")
def compute(index: int, folder: str) -> tuple[list[str], int]:
    """The task's GPUs, each of which no other task has meanwhile, and what they computed."""
    cuda = Cuda()
    held = [Path(folder, name) for name in cuda.names()]
    for path in held:
        path.touch(exist_ok=False)
    value = cuda.fill(WORDS, index)
    time.sleep(0.5)
    for path in held:
        path.unlink()
    return cuda.names(), value


@asa.stage(gpus=1, walltime="5m", timeout="20s", on_error="continue")
def hold(words: int) -> int:
    """Has most of a GPU's memory until its time is over."""
    Cuda().fill(words, 1)
    time.sleep(600)
    return 0


@asa.stage(walltime="5m")
def count(*_after: object) -> int:
    return Cuda().count


def tasks(folder: str, number: int = 4) -> object:
    return compute.map(range(number), folder=folder)


def beside(folder: str) -> object:
    """A task without GPUs after one that has some."""
    return count(compute(0, folder))


def plain() -> object:
    return count()


@asa.stage(gpus=1, accepts_failed=True, walltime="5m")
def after(words: int, _first: object) -> int:
    return Cuda().fill(words, 7)


@asa.stage(accepts_failed=True, walltime="1m")
def both(first: object, second: int) -> tuple[str, int]:
    return type(first).__name__, second


def held(words: int) -> object:
    """The memory of a task that was ended is free for the next."""
    first = hold(words)
    return both(first, after(words, first))
