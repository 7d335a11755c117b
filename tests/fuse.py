"""File systems in user space, made with nothing but the kernel: one that never answers, one that cannot be mapped.

``python -m tests.fuse DIRECTORY MOUNT`` serves the second: what is in DIRECTORY, opened with ``FOPEN_DIRECT_IO``, so
that no file in it can be mapped shared, as on some network file systems.

References
----------
fuse(4); include/uapi/linux/fuse.h, protocol 7.31.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.waiting import until

_DEVICE = "/dev/fuse"
_DETACH = 2


def _mounted(place: Path) -> int:
    """The kernel's end of a new mount there.

    Raises
    ------
    OSError
        When that is not allowed.
    """
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if ctypes.CDLL(None, use_errno=True).mount(b"asa", os.fsencode(place), b"fuse", 0, options.encode()):
        os.close(device)
        raise OSError(ctypes.get_errno(), "cannot mount")
    return device


def _unmount(place: Path) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(place), _DETACH)


def _needed(place: Path) -> int:
    place.mkdir()
    try:
        return _mounted(place)
    except OSError as error:
        pytest.skip(f"NO FILE SYSTEM IN USER SPACE: {_DEVICE} AND THE RIGHT TO MOUNT ARE NEEDED ({error})")


@contextmanager
def unmappable(directory: Path, place: Path) -> Iterator[Path]:
    """What is in `directory`, at `place`, where no file can be mapped shared."""
    os.close(_needed(place))  # whether that is allowed
    _unmount(place)
    words = [sys.executable, "-m", "tests.fuse", str(directory), str(place)]
    with subprocess.Popen(words, cwd=Path(__file__).parents[1]) as server:
        try:
            until(lambda: os.path.ismount(place) or server.poll() is not None)
            assert server.poll() is None
            yield place
        finally:
            _unmount(place)
            server.kill()


# ---------------------------------------------------------------- the server

_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_MAX_WRITE = 1 << 17
_DIRECT_IO, _BIG_WRITES = 1, 1 << 5
_BY_HANDLE = 1


class Server:
    """Passes on what the kernel asks; one request at a time."""

    def __init__(self, device: int, directory: str) -> None:
        self._device = device
        self._nodes = {1: os.open(directory, os.O_PATH)}
        self._known: dict[tuple[int, int], int] = {}
        self._counts: dict[int, int] = {}
        self._operations: dict[int, Callable[[int, bytes], bytes | None]] = {
            1: self._lookup, 2: self._forget, 3: self._getattr, 4: self._setattr, 5: self._readlink, 6: self._symlink,
            8: self._mknod, 9: self._mkdir, 10: self._unlink, 11: self._rmdir, 12: self._rename, 13: self._link,
            14: self._open, 15: self._read, 16: self._write, 17: self._statfs, 18: self._release, 20: self._fsync,
            25: self._nothing, 26: self._init, 27: self._open, 28: self._readdir, 29: self._release, 30: self._fsync,
            34: self._nothing, 35: self._create, 36: self._no_answer, 42: self._batch_forget, 45: self._rename2,
        }  # fmt: skip

    def serve(self) -> None:
        """Until it is unmounted."""
        while True:
            try:
                request = os.read(self._device, _MAX_WRITE + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                raise
            _, opcode, unique, node, *_ = _IN.unpack_from(request)
            number, answer = 0, None
            try:
                answer = self._operations.get(opcode, self._unknown)(node, request[_IN.size :])
            except OSError as error:
                number, answer = error.errno or errno.EIO, b""
            if answer is not None:
                with suppress(FileNotFoundError):  # who asked has been killed
                    os.write(self._device, _OUT.pack(_OUT.size + len(answer), -number, unique) + answer)

    def _unknown(self, node: int, body: bytes) -> bytes:
        raise OSError(errno.ENOSYS, "not here")

    def _nothing(self, node: int, body: bytes) -> bytes:
        return b""

    def _no_answer(self, node: int, body: bytes) -> None: ...

    def _init(self, node: int, body: bytes) -> bytes:
        return struct.pack("=IIIIHHIIHHII24x", 7, 31, 1 << 17, _BIG_WRITES, 16, 12, _MAX_WRITE, 1, 0, 0, 0, 0)

    # ------------------------------------------------------- names

    def _path(self, node: int) -> str:
        return f"/proc/self/fd/{self._nodes[node]}"

    def _entry(self, parent: int, name: bytes) -> bytes:
        opened = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._nodes[parent])
        found = os.fstat(opened)
        key = found.st_dev, found.st_ino
        if key in self._known:
            os.close(opened)
        else:
            self._known[key] = opened + 1
            self._nodes[opened + 1] = opened  # held open, so neither number belongs to anything else meanwhile
        node = self._known[key]
        self._counts[node] = self._counts.get(node, 0) + 1
        return struct.pack("=QQQQII", node, 0, 0, 0, 0, 0) + _attributes(found)

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(node, _name(body))

    def _forget(self, node: int, body: bytes) -> None:
        self._drop(node, struct.unpack_from("=Q", body)[0])

    def _batch_forget(self, node: int, body: bytes) -> None:
        (count, _) = struct.unpack_from("=II", body)
        for number in range(count):
            self._drop(*struct.unpack_from("=QQ", body, 8 + 16 * number))

    def _drop(self, node: int, times: int) -> None:
        if node == 1:
            return
        self._counts[node] -= times
        if not self._counts[node]:
            found = os.fstat(self._nodes[node])
            del self._known[found.st_dev, found.st_ino], self._counts[node]
            os.close(self._nodes.pop(node))

    def _mknod(self, node: int, body: bytes) -> bytes:
        mode, device, _, _ = struct.unpack_from("=IIII", body)
        os.mknod(_name(body[16:]), mode, device, dir_fd=self._nodes[node])
        return self._entry(node, _name(body[16:]))

    def _mkdir(self, node: int, body: bytes) -> bytes:
        mode, _ = struct.unpack_from("=II", body)
        os.mkdir(_name(body[8:]), mode, dir_fd=self._nodes[node])
        return self._entry(node, _name(body[8:]))

    def _unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(_name(body), dir_fd=self._nodes[node])
        return b""

    def _rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(_name(body), dir_fd=self._nodes[node])
        return b""

    def _rename(self, node: int, body: bytes, skipped: int = 8) -> bytes:
        (target,) = struct.unpack_from("=Q", body)
        old, new, *_ = body[skipped:].split(b"\0")
        os.rename(old, new, src_dir_fd=self._nodes[node], dst_dir_fd=self._nodes[target])
        return b""

    def _rename2(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("=QI", body)[1]:
            raise OSError(errno.EINVAL, "no flags here")
        return self._rename(node, body, 16)

    def _link(self, node: int, body: bytes) -> bytes:
        (old,) = struct.unpack_from("=Q", body)
        os.link(self._path(old), _name(body[8:]), dst_dir_fd=self._nodes[node], follow_symlinks=True)
        return self._entry(node, _name(body[8:]))

    def _symlink(self, node: int, body: bytes) -> bytes:
        name, target, *_ = body.split(b"\0")
        os.symlink(target, name, dir_fd=self._nodes[node])
        return self._entry(node, name)

    def _readlink(self, node: int, body: bytes) -> bytes:
        return os.readlink(b"", dir_fd=self._nodes[node])

    # ------------------------------------------------------- files

    def _getattr(self, node: int, body: bytes) -> bytes:
        flags, _, handle = struct.unpack_from("=IIQ", body)
        found = os.fstat(handle if flags & _BY_HANDLE else self._nodes[node])
        return struct.pack("=QII", 0, 0, 0) + _attributes(found)

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, handle, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = struct.unpack_from(
            "=IIQQQQQQIIIIIIII", body
        )
        path = self._path(node)
        if valid & 1:
            os.chmod(path, mode & 0o7777)
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(handle if valid & 1 << 6 else path, size)
        if valid & 48:
            now = valid & (1 << 7 | 1 << 8)
            os.utime(path, ns=None if now else (atime * 10**9 + atime_ns, mtime * 10**9 + mtime_ns))
        found = os.fstat(self._nodes[node])
        return struct.pack("=QII", 0, 0, 0) + _attributes(found)

    def _open(self, node: int, body: bytes) -> bytes:
        flags, _ = struct.unpack_from("=II", body)
        opened = os.open(self._path(node), flags & ~(os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL | os.O_APPEND))
        return struct.pack("=QII", opened, _DIRECT_IO, 0)

    def _create(self, node: int, body: bytes) -> bytes:
        flags, mode, _, _ = struct.unpack_from("=IIII", body)
        name = _name(body[16:])
        opened = os.open(name, (flags | os.O_CREAT) & ~os.O_APPEND, mode, dir_fd=self._nodes[node])
        return self._entry(node, name) + struct.pack("=QII", opened, _DIRECT_IO, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("=QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("=QQI", body)
        return struct.pack("=II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _release(self, node: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("=Q", body)[0])
        return b""

    def _fsync(self, node: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("=Q", body)[0])
        return b""

    def _readdir(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("=QQI", body)
        answer = b""
        for position, name in enumerate(sorted(os.listdir(handle))[offset:], offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("=QQII", 0xFFFFFFFF, position, len(raw), 0) + raw
            entry += b"\0" * (-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _statfs(self, node: int, body: bytes) -> bytes:
        found = os.statvfs(self._path(node))
        return struct.pack(
            "=QQQQQIIII24x", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree,
            found.f_bsize, found.f_namemax, found.f_frsize, 0,
        )  # fmt: skip


def _name(body: bytes) -> bytes:
    return body.split(b"\0", 1)[0]


def _attributes(found: os.stat_result) -> bytes:
    times = [divmod(each, 10**9) for each in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    return _ATTR.pack(
        found.st_ino, found.st_size, found.st_blocks, *(seconds for seconds, _ in times), *(part for _, part in times),
        found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, 4096, 0,
    )  # fmt: skip


if __name__ == "__main__":
    os.umask(0)
    Server(_mounted(Path(sys.argv[2])), sys.argv[1]).serve()
