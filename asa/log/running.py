"""What a task may ask while it runs: its checkpoints, how much time is left, and room on the node's own disk.

A worker says with `running` where a task is; programs, and processes that a task starts, learn it from variables.
"""

from __future__ import annotations

import errno
import glob
import inspect
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from asa.core.errors import InvalidInput
from asa.core.task import Checkpoints, Staging
from asa.security.files import private_directory, sync, sync_tree

if TYPE_CHECKING:
    import subprocess

CHECKPOINT, ENDS = "ASA_CHECKPOINT", "ASA_ENDS"
"""Variables of a task with checkpoints: its directory, and when it is ended with its allocation [s since the epoch]."""

SCRATCH = "ASA_SCRATCH"
"""Variable of a worker process: the directory on the node's own disk that its task may have."""

KEPT = 2
"""Versions of a checkpoint that are kept."""


class Paused(BaseException):
    """A task ends here for now, and goes on in another allocation."""


class Place(NamedTuple):
    """Where a task runs: until when [s since the epoch; 0 where that is not known], and its checkpoints, if any; and of
    the programs of its stage that have ended, the most memory of each [KiB]."""

    ends: float = 0.0
    checkpoints: Checkpoints | None = None
    reaped: Sequence[int] = ()


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def running(ends: float, checkpoints: Checkpoints | None, reaped: list[int] | None = None) -> Iterator[None]:
    """A task runs here meanwhile; `reap` adds to `reaped`."""
    token = _place.set(Place(ends, checkpoints, reaped if reaped is not None else []))
    variables = {} if checkpoints is None else {CHECKPOINT: checkpoints.directory, ENDS: repr(ends)}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        _place.reset(token)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def place() -> Place:
    """Where the task runs that asks; of no task outside of one."""
    if (found := _place.get()) is not None:
        return found
    directory, ends = os.environ.get(CHECKPOINT), os.environ.get(ENDS, "")
    with suppress(ValueError):
        return Place(float(ends or 0.0), None if directory is None else Checkpoints(directory))
    return Place()


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program of a stage. The kernel says of each child, as it is waited for, how much memory it has had."""
    if process.returncode is None:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if isinstance(reaped := place().reaped, list):
            reaped.append(used.ru_maxrss)


def time_left() -> float:
    """How long the task may still run where it is [s]; at least 0, and infinite where nothing ends it.

    A task of a stage with ``checkpoint=True`` goes on in another allocation after that; any other is lost.
    """
    ends = place().ends
    return max(0.0, ends - time.time()) if ends else math.inf


def checkpoint() -> Checkpoint:
    """The checkpoints of the task that asks: what it has saved, in this allocation or an earlier one.

    Raises
    ------
    InvalidInput
        When its stage has no ``checkpoint=True``, or this is no task.
    """
    if (found := place().checkpoints) is None:
        raise InvalidInput(
            "asa.checkpoint() is for tasks of stages that say checkpoint=True, as in @asa.stage(checkpoint=True)"
        )
    return Checkpoint(Path(found.directory))


def pause() -> NoReturn:
    """End the task here: it goes on from its last checkpoint in an allocation with more time.

    For a task that has saved all it can, with too little `time_left` for more; it is ended there anyway.
    """
    raise Paused


def scratch() -> Path:
    """A directory of the task's own on the disk of its node: fast, private, and gone when the task has ended.

    It is in ``$SLURM_TMPDIR`` or ``$TMPDIR`` of the job, else in ``/tmp``.

    Raises
    ------
    InvalidInput
        Where a task has none: it is a thread beside others, or a rank on another node, or this is no task.
    """
    path = Path(os.environ.get(SCRATCH, ""))
    if not path.is_absolute() or not path.parent.is_dir():
        raise InvalidInput(
            "asa.scratch() is for tasks in worker processes, on the node where they were started: not for threads "
            "(local:workers=threads), dask, ranks on other nodes, or outside of a task"
        )
    path.mkdir(0o700, exist_ok=True)
    return path


def arguments(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a function is called with, by name, and the outputs that a command has then; as far as that can be said."""
    try:
        found = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
        return found | {name: text.format_map(found) for name, text in getattr(function, "outputs", {}).items()}
    except (TypeError, ValueError, LookupError, AttributeError):  # it will say so itself, when it is called
        return dict(kwargs)


@contextmanager
def staged(staging: Staging | None, values: Mapping[str, Any]) -> Iterator[None]:
    """Run in the task's scratch directory, with what is staged in; what is staged out comes back when all went well.

    Raises
    ------
    InvalidInput
        When no file matches a pattern, or that cannot be filled in.
    """
    if staging is None:
        yield
        return
    from asa.log.files import Draft  # here: few stages have files staged

    home, there = Path.cwd(), scratch()
    for pattern in staging.into:
        for name in _matching("stage_in", pattern, values, home):
            target = there / (Path(name).name if os.path.isabs(name) else name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(home / name, target)
    os.chdir(there)
    try:
        yield
        for pattern in staging.out:
            for name in _matching("stage_out", pattern, values, there):
                draft = Draft((home / name).parent, Path(name).name)
                try:
                    shutil.copy2(there / name, draft.path)
                    draft.place()
                finally:
                    draft.drop()
    finally:
        os.chdir(home)


def _matching(option: str, pattern: str, values: Mapping[str, Any], folder: Path) -> list[str]:
    """Files that match, and those in directories that do, as names from `folder` on."""
    try:
        filled = pattern.format_map(values)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise InvalidInput(f"{option}={pattern!r} cannot be filled in: {error!r}: name an argument in braces") from None
    found: list[str] = []
    for name in sorted(glob.glob(filled, root_dir=folder, recursive=True)):
        path = folder / name
        inside = (str(Path(name, each.relative_to(path))) for each in sorted(path.rglob("*")) if each.is_file())
        found += inside if path.is_dir() else [name]
    if not found:
        raise InvalidInput(f"{option}={pattern!r}: there is no {filled!r} in {folder}")
    return list(dict.fromkeys(found))


class Checkpoint:
    """Versions of what a task needs to go on: each is a directory, and whole, or not there at all.

    Parameters
    ----------
    path
        The task's private directory; made if it is not there. What programs write there is theirs.

    Examples
    --------
    >>> import tempfile
    >>> saved = Checkpoint(Path(tempfile.mkdtemp()))
    >>> saved.last
    >>> with saved.save() as folder:
    ...     _ = (folder / "step").write_text("7")
    >>> (saved.last / "step").read_text()
    '7'
    """

    def __init__(self, path: Path) -> None:
        self.path = private_directory(path)

    @property
    def last(self) -> Path | None:
        """The last version that is whole; None before the first."""
        numbers = _versions(self.path)
        return self._version(max(numbers)) if numbers else None

    @contextmanager
    def save(self) -> Iterator[Path]:
        """A new directory to write a version into, which is the last one when the block ends; not when it raises.

        By then it would survive a power failure. The one before it is kept, too.

        Raises
        ------
        InvalidInput
            When nothing was written there.
        """
        for left in self.path.glob(".*.draft"):  # of an attempt that was ended while it wrote
            shutil.rmtree(left, ignore_errors=True)
        draft = self.path / f".{os.urandom(8).hex()}.draft"
        draft.mkdir(0o700)
        try:
            yield draft
            if not any(draft.iterdir()):
                raise InvalidInput("nothing was saved: write files into the directory that save() returns")
            sync_tree(draft)
            number = self._commit(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        for old in _versions(self.path):
            if old <= number - KEPT:
                shutil.rmtree(self._version(old), ignore_errors=True)

    def _commit(self, draft: Path) -> int:
        number = max(_versions(self.path), default=0) + 1
        while True:
            try:
                os.rename(draft, self._version(number))
            except OSError as error:  # of the same task on a node that was taken for lost
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                number += 1
                continue
            sync(self.path)
            return number

    def _version(self, number: int) -> Path:
        return self.path / f"{number:06d}"


def _versions(path: Path) -> list[int]:
    return [int(name) for name in os.listdir(path) if re.fullmatch(r"\d{6,}", name)]


def progress(directory: str) -> str:
    """A text that is another one once a task has saved something more; "" while it has saved nothing."""
    numbers, newest, total = [0], 0, 0
    try:
        numbers += _versions(Path(directory))
        for entry in os.scandir(directory):
            if not re.fullmatch(r"\d{6,}|\..*\.draft", entry.name):
                found = entry.stat(follow_symlinks=False)
                newest, total = max(newest, found.st_mtime_ns), total + found.st_size
    except OSError:  # not there yet, or of a disk that does not answer
        return ""
    return f"{max(numbers)}" + f" {newest} {total}" * bool(newest) if max(numbers) or newest else ""


class Notice:
    """Calls `tell` so long before the task that asks is ended with its allocation, unless it has been closed by then.

    A context manager; without checkpoints, or an end, it does nothing.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.given = False
        ends, found, _ = place()
        self._timer: threading.Timer | None = None
        if found is not None and ends and found.signal:
            self._tell, self._signal = tell, found.signal
            self._timer = threading.Timer(max(0.0, ends - found.notice_s - time.time()), self._due)
            self._timer.daemon = True

    def __enter__(self) -> Notice:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _due(self) -> None:
        self.given = True
        with suppress(OSError):  # it has just ended
            self._tell(self._signal)


def tell_handler(number: int) -> None:
    """Send this process a signal if the task has a handler for it: without one, it would end."""
    if callable(signal.getsignal(number)):
        os.kill(os.getpid(), number)
