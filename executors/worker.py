"""A worker process, and one task as it runs there: load the function, fill in the inputs, call, keep the result.

The supervisor forks a worker, which runs one order at a time in each of its slots, and reports. It holds its own end of
one socket pair and none of the supervisor's descriptors, above all not the connection to the driver. It has a session
of its own, so that whatever a task starts can be ended with it.

As a program, ``python -m executors.worker FOLDER`` is one rank of a task that `executors.launch` has launched: it calls
the order's function and leaves the outcome in the folder: rank 0 always, the others when they fail. With further
arguments it becomes that command, with secrets in its environment: `with_secrets`.

Functions and arguments come from the run's own directory or through an authenticated channel; see `executors.wire`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of its numbers each time, which takes long
import faulthandler
import io
import locale
import logging
import mmap
import os
import pickle
import queue
import resource
import signal
import socket
import stat
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from operator import is_not
from typing import TYPE_CHECKING, Any, cast

from asa.core.task import PAUSED, TAIL, Secrets, lacks, last_words
from asa.log.gpus import visible
from asa.log.output import RESET, begun, ended
from asa.log.running import SCRATCH, Notice, Paused, arguments, running, staged, tell_handler
from asa.log.values import call_with, fill, keep, load
from executors import node
from executors.processes import children, children_of, detach, give_way
from executors.wire import OrderOutcome, RunOrders, SlotEnded, TaskOrder, Welcome, frame, read

if TYPE_CHECKING:
    from asa.core.launch import Program
    from asa.core.task import Value
    from executors.output import OutputFile


_PROGRAM = "executors.worker"
_FLUSH_S = 0.002
_SHELL_S = 0.0005
_EMPTIED = "a program has opened its output anew, and emptied the file"
# The launcher's own variable first: its ranks may inherit those that Slurm set for the daemon that started them.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


class Meter:
    """What this process takes, and what it starts, from one task to the next: counters of the kernel.

    The kernel remembers the most memory that a process has had, and can be asked to forget it. Of processes that have
    ended it remembers the most that one of them had, and does not forget: what a later one had is then not known, if
    it was less. What processes had at the same time only those know who look meanwhile.

    Parameters
    ----------
    threads
        Whether tasks are threads of this process: only their processor time is known apart from that of others then.
    """

    def __init__(self, threads: bool = False) -> None:
        self._clock = time.thread_time if threads else time.process_time
        self._threads, self._forgets = threads, True
        self._since = self._look_at = self._forget_at = 0.0
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        self._peak = self._floor = self._bound = own.ru_maxrss
        self._child, self._children_s = children.ru_maxrss, children.ru_utime + children.ru_stime

    def begin(self, now: float) -> float:
        """A task begins; a number for `end`."""
        self._since = now
        if self._peak > self._bound or (self._peak > self._floor and now >= self._forget_at):
            self._forget(now)
        return self._clock()

    def end(self, began: float, now: float, reaped: Sequence[int] = ()) -> tuple[float, int]:
        """The task that began ends: its processor time [s], and the most memory that it has had [bytes]; 0 for what is
        not known. `reaped` is what children of it have had that were asked about one by one [KiB]."""
        if self._threads:
            return self._clock() - began, 0
        if now < self._look_at and 0.0 <= now - self._since < _BRIEF_S:  # it did nothing but work
            return now - self._since, 1024 * self._peak if self._forgets else 0
        self._look_at = now + _LOOK_S
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        children_s = children.ru_utime + children.ru_stime - self._children_s
        cpu_s = own.ru_utime + own.ru_stime - began + children_s
        peak = own.ru_maxrss if self._forgets or own.ru_maxrss > self._peak else 0
        self._peak = own.ru_maxrss
        if children_s:
            self._children_s += children_s
            if children.ru_maxrss > self._child:
                self._child = children.ru_maxrss
                peak = max(peak, self._child)
            elif reaped:
                peak = max(peak, *reaped)
            elif self._child > peak:
                peak = 0
        return max(0.0, cpu_s), 1024 * peak

    def _forget(self, now: float) -> None:
        try:
            file = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(file, _FORGET)
            finally:
                os.close(file)
            self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        except OSError:  # a kernel without, or a container that may not
            self._forgets = False
        self._bound, self._forget_at = self._peak + _SLACK, now + _LOOK_S


_FORGET = b"5"
"""What sets the most memory of a process to what it has now: proc_pid_clear_refs(5)."""
_SLACK, _LOOK_S, _BRIEF_S = 4 << 10, 0.05, 3e-4
"""By how much the most memory may grow until it is forgotten [KiB]; after which time it is read in any case [s], as
that takes longer than a short task; in less than which time [s] no task can start a process, or fill much memory."""


class Caller:
    """Runs orders in this process.

    Parameters
    ----------
    values
        Directory for results that are too long to travel.
    scratch
        Where a task may have files of its own, which go with it; "" where it may not, or where others see to that.
    meter
        Measures what they take; None where that does not matter.
    """

    def __init__(self, values: str, scratch: str = "", meter: Meter | None = None) -> None:
        self._values, self._scratch, self._meter = values, scratch, meter
        self._function: Callable[[str], Callable[..., Any]] = cache(load)

    def run(self, order: TaskOrder, wanted: bool = True) -> OrderOutcome:
        """Run one order to its end, whatever the end is; only the death of the process prevents an outcome.

        Unless its value is `wanted`, it is not looked at, and reported as no bytes.
        """
        try:
            return self._outcome(order, wanted)
        finally:
            if self._scratch and os.path.isdir(self._scratch):
                import shutil

                shutil.rmtree(self._scratch, ignore_errors=True)

    def _outcome(self, order: TaskOrder, wanted: bool) -> OrderOutcome:
        if order.secrets is not None and order.launch is None:
            with _having(order.secrets):
                return self._outcome(order._replace(secrets=None), wanted)
        doing, started, frames = "", time.time(), 0
        reaped: list[int] = []
        files: dict[str, tuple[int, int] | None] = {}
        meter = self._meter
        began = meter.begin(started) if meter else 0.0
        try:
            if order.launch is not None and not order.launch.program:
                from executors import launch  # here and below: a worker starts sooner without what it may not need

                outcome = launch.run(order, self._values, _PROGRAM)
                return launch.measured(order, outcome, *meter.end(began, time.time())) if meter else outcome
            doing = "loading the function"
            function = self._function(order.function)
            doing = "loading the arguments"
            args, kwargs, refs = call_with(order.arguments)
            if order.inputs:
                doing = "loading an input"
                args, kwargs = fill((args, kwargs), order.inputs, refs)
            doing, frames = "", 1
            if meter and (kwargs or not _NO_NAMES.issuperset(map(type, args))):
                with suppress(RecursionError):  # a list may be in itself
                    _named((*args, *kwargs.values()), files)
            with running(order.ends, order.checkpoints, reaped):
                if order.launch is not None:
                    from executors import launch

                    with launch.how(order, self._values, _PROGRAM) as how:
                        result = cast("Program", function).launched(*how)(*args, **kwargs)
                elif order.checkpoints is None and order.staging is None:
                    result = function(*args, **kwargs)
                else:
                    with staged(order.staging, arguments(function, args, kwargs)), Notice(tell_handler):
                        result = function(*args, **kwargs)
            doing, frames = f"keeping the result, of type {type(result).__qualname__!r}", 0
            value = keep(result, self._values, order.stage, order.number) if wanted else b""
        except Paused:
            now, said = time.time(), "it goes on from its checkpoint"
            return OrderOutcome(order.ticket, started, now, None, said, infrastructure=True, cause=PAUSED)
        except BaseException as error:  # sys.exit() in a task ends the task, not the worker
            line, trace = last_words(error, frames)
            code = error.code if isinstance(error, SystemExit) else getattr(error, "exit", None)
            code, line = code if type(code) is int else None, f"{doing}: {line}" if doing else line
            cause = "memory" if isinstance(error, MemoryError) else lacks(line, code)
            now = time.time()
            failed = OrderOutcome(order.ticket, started, now, None, line, trace, cause=cause, exit=code)
            if meter is None:
                return failed
            peak, cpu_s, given, source = _taken(order, *meter.end(began, now, reaped), files)
            return failed._replace(peak=peak, cpu_s=cpu_s, given=given, source=source)
        now = time.time()
        if meter is None:
            return OrderOutcome(order.ticket, started, now, value)
        taken = _taken(order, *meter.end(began, now, reaped), files)
        return OrderOutcome(order.ticket, started, now, value, "", "", "", False, "", None, *taken)


_RUSAGE = "rusage"


def _taken(
    order: TaskOrder, cpu_s: float, peak: int, files: Mapping[str, tuple[int, int] | None]
) -> tuple[int, float, int, str]:
    """What a task took, as the last fields of its outcome; of files that it was given those count that it did not
    change: the others it has written."""
    given = _length(order.arguments)
    if order.inputs:
        given += sum(map(_length, order.inputs))
    if files:
        given += sum(before[0] for path, before in files.items() if before is not None and _state(path) == before)
    if order.launch is not None and (order.nodes != 1 or order.launch.kind == "srun"):
        return 0, 0.0, given, ""  # most of it did not run below this process
    return peak, cpu_s, given, _RUSAGE


def _length(stored: Value) -> int:
    return len(stored) if type(stored) is bytes else (_state(str(stored)) or (0,))[0]


_NAMES_MOST, _NAME_MOST = 1000, 4096
_NO_NAMES = frozenset({int, float, bool, complex, bytes, type(None)})


def _named(values: Iterable[Any], found: dict[str, tuple[int, int] | None]) -> dict[str, tuple[int, int] | None]:
    """Files that these values, and what is in lists of them, name; size [bytes] and time of change of each."""
    for value in values:
        kind = type(value)
        if kind in _NO_NAMES or len(found) >= _NAMES_MOST:
            continue
        if kind is str or hasattr(kind, "__fspath__"):
            path = str(value)
            if path not in found:
                state = _state(path)
                found[path if state is None else os.path.abspath(path)] = state  # the task may go elsewhere
        elif kind in (list, tuple):
            _named(value, found)
        elif kind is dict:
            _named(value.values(), found)
    return found


def _state(path: str) -> tuple[int, int] | None:
    """Size [bytes] and time of change of a file; None where there is none."""
    try:
        found = os.stat(path) if len(path) <= _NAME_MOST else None
    except (OSError, ValueError):
        return None
    return (found.st_size, found.st_mtime_ns) if found and stat.S_ISREG(found.st_mode) else None


@contextmanager
def _having(secrets: Secrets) -> Iterator[None]:
    """These variables in the environment, for one order: the process may run those of other stages next."""
    before = {name: os.environ.get(name) for name, _ in secrets.variables}
    os.environ.update(secrets.variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


_PLACE = struct.Struct("qdq")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class SlotBoard:
    """Memory that a worker and its supervisor share: what each slot is doing, and how much of its run it may begin.

    A slot takes one permit before each order after the first. The supervisor can take permits back; the kernel sees to
    it that each is had once, so what a slot has not begun can be moved to another worker without asking.
    """

    slots: int
    page: mmap.mmap = field(init=False)
    permits: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.page = mmap.mmap(-1, self.slots * _PLACE.size)
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.permits = [os.eventfd(0, flags) for _ in range(self.slots)]

    def begin(self, slot: int, position: int, started: float, printed: int) -> None:
        """The slot begins this order of its run, with so much printed by the worker before it."""
        _PLACE.pack_into(self.page, slot * _PLACE.size, position, started, printed)

    def doing(self, slot: int) -> tuple[int, float, int]:
        """What the slot last began: position in its run, when, and how much was printed."""
        position, started, printed = _PLACE.unpack_from(self.page, slot * _PLACE.size)
        return position, started, printed

    def permit(self, slot: int, count: int) -> None:
        """Let the slot begin `count` orders more."""
        if count:
            os.eventfd_write(self.permits[slot], count)

    def take(self, slot: int) -> bool:
        try:
            os.eventfd_read(self.permits[slot])
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self.page.close()
        for descriptor in self.permits:
            os.close(descriptor)


GUEST = "ASA_GUEST"
"""Set for workers whose tasks run as guests."""


def run_worker(
    link: socket.socket, output: OutputFile, board: SlotBoard, welcome: Welcome, environment: dict[str, str]
) -> None:
    """The life of a worker, from just after the fork; never returns.

    Parameters
    ----------
    link
        Its end of the socket pair.
    output
        Takes its standard output and standard error.
    board
        Shared with the supervisor; its number of slots is the number of threads.
    welcome
        Where tasks run.
    environment
        What to set for this worker.
    """
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(output.text, 1)
        os.dup2(output.text, 2)
        output.text = 2
        detach({1, 2, link.fileno(), output.index, *board.permits})
        faulthandler.enable(all_threads=False)  # says on standard error where a segmentation fault happened
        speak_at_once()
        say_levels()
        if environment.get(GUEST):
            give_way()
        os.environ.update(environment)
        sys.path[:] = [*welcome.sys_path, *(path for path in sys.path if path not in welcome.sys_path)]
        os.chdir(welcome.workdir)
        link.setblocking(True)
        caller = Caller(welcome.values, environment.get(SCRATCH, ""), Meter(threads=board.slots > 1))
        _WorkerLoop(link, output, board, caller).serve()
        code = 0
    except BaseException as error:  # nothing may unwind into the supervisor's code
        print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def speak_at_once() -> None:
    """Have what is printed written line by line, not when there is much, and in UTF-8, as it is read, in any locale."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]


def say_levels() -> None:
    """Messages of `logging` and `warnings` begin with their level, unless the task's own code says how they look."""
    root = logging.getLogger()
    root.handlers.clear()  # the supervisor's: a task's own basicConfig would do nothing
    root.setLevel(logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    handler.setStream(_Stderr())  # type: ignore[arg-type]
    logging.lastResort = handler
    plain = warnings.formatwarning
    warnings.formatwarning = lambda *args, **kwargs: f"WARNING {plain(*args, **kwargs)}"


class _Stderr:
    """Standard error as it is when something is written."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def environment(cores: int, gpus: tuple[str, ...] | None) -> dict[str, str]:
    """Variables that keep a worker's libraries to its share of the node.

    Parameters
    ----------
    cores
        Threads that numeric libraries may use, unless the user's own environment says otherwise.
    gpus
        The worker's GPUs; None where the node was given none to share out.
    """
    variables = {name: str(cores) for name in _THREADS if name not in os.environ}
    if gpus is not None:
        variables |= visible(gpus, os.environ)
    return variables


_SIGNALS = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGALRM,
    signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_getsignal, _pthread_sigmask = _signal.getsignal, _signal.pthread_sigmask
"""Those of `signal` make an enumeration's member of each number, which takes ten times as long."""
_TIMERS = signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF
_LIMITS = (
    resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_CORE,
    resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_AS,
)  # fmt: skip
_MONITORS = frozenset({"tqdm._monitor"})
"""Modules whose threads last as long as their process, and run nothing of a task's."""


class ProcessState:
    """What a task may have changed of its process that the next task there would meet: it is put back, or the process
    is of no use any more.

    Looked at: standard streams and other descriptors in `own`, working directory, environment variables, limits,
    priority, processors, umask, locale, signal handlers and mask, alarms, recursion limit; threads and children that a
    task has left. Not looked at: what modules keep, the import path, descriptors and memory mappings besides, limits of
    real-time scheduling, signals that wait and message queues.
    """

    def __init__(self, own: Iterable[int] = ()) -> None:
        self._own = {number: _identity(number) for number in own}
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._spares = {number: (os.dup(number), _identity(number)) for number in (0, 1, 2)}
        self._directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._place = _identity(self._directory)
        self._environ, self._variables = os.environ, dict(_variables())
        self._limits = [*map(resource.getrlimit, _LIMITS)]
        self._priority, self._processors = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._locale, self._depth = locale.setlocale(locale.LC_ALL), sys.getrecursionlimit()
        self._handlers, self._mask = [*map(_getsignal, _SIGNALS)], _pthread_sigmask(signal.SIG_BLOCK, ())

    def restore(self) -> str:
        """Put back what the last task has changed; why the process is of no use for another one, or ""."""
        try:
            self._restore_signals()  # first: no handler of a task's runs from then on
            self._restore_files()
            self._restore_process()
        except Exception as error:  # a task may have put anything in place of anything
            return f"what it changed cannot be put back: {error}"
        if threading.active_count() > 1 and (left := _threads_left()):
            return f"it left threads running: {', '.join(left)}"
        return "it left processes running" if _has_children() else ""

    def _restore_files(self) -> None:
        for number, identity in self._own.items():
            if _identity(number) != identity:
                raise OSError(f"descriptor {number} is not what it was")
        for number, (spare, identity) in self._spares.items():
            if _identity(number) != identity:
                if _identity(spare) != identity:
                    raise OSError(f"descriptor {number} is not what it was")
                os.dup2(spare, number)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        if sys.stdout.closed or sys.stderr.closed:
            raise ValueError("standard output or error is closed")
        here = os.stat(".")
        if (here.st_dev, here.st_ino) != self._place:
            os.fchdir(self._directory)

    def _restore_process(self) -> None:
        os.environ = self._environ  # noqa: B003  # a task may have put a plain dict in its place
        variables = _variables()
        if variables != self._variables:
            wanted = self._variables
            for name in [name for name in variables if name not in wanted]:
                os.unsetenv(name)
            for name in [name for name, value in wanted.items() if variables.get(name) != value]:
                os.putenv(name, wanted[name])
            variables.clear()
            variables.update(wanted)
        if (limits := [*map(resource.getrlimit, _LIMITS)]) != self._limits:
            for number, limit, wanted_limit in zip(_LIMITS, limits, self._limits, strict=True):
                if limit != wanted_limit:
                    resource.setrlimit(number, wanted_limit)
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            os.setpriority(os.PRIO_PROCESS, 0, self._priority)
        if os.sched_getaffinity(0) != self._processors:
            os.sched_setaffinity(0, self._processors)
        os.umask(self._umask)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        if sys.getrecursionlimit() != self._depth:
            sys.setrecursionlimit(self._depth)

    def _restore_signals(self) -> None:
        for timer in _TIMERS:
            if signal.getitimer(timer) != (0.0, 0.0):
                signal.setitimer(timer, 0.0)
        handlers = [*map(_getsignal, _SIGNALS)]
        if any(map(is_not, handlers, self._handlers)):
            for number, handler, wanted in zip(_SIGNALS, handlers, self._handlers, strict=True):
                if handler is not wanted:
                    signal.signal(number, wanted)
        if _pthread_sigmask(signal.SIG_BLOCK, ()) != self._mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _variables() -> dict[bytes, bytes]:
    """The environment as Python keeps it: to decode it for each task would take longer than all the rest."""
    return os.environ._data  # type: ignore[attr-defined,no-any-return]


def _threads_left() -> list[str]:
    ours = threading.main_thread()
    return [item.name for item in threading.enumerate() if item is not ours and type(item).__module__ not in _MONITORS]


def _has_children() -> bool:
    """Whether a child still runs that a task has started; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return _helper() is None or _children() != {_helper()}


def _helper() -> int | None:
    """The process in which Python's multiprocessing keeps account of semaphores and shared memory; it runs no tasks."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    return getattr(tracker, "_pid", None)


def _children() -> set[int]:
    try:
        return children_of("self")
    except OSError:  # a kernel without such files
        return {*children()}


class _WorkerLoop:
    def __init__(self, link: socket.socket, output: OutputFile, board: SlotBoard, caller: Caller) -> None:
        self._link, self._output, self._board, self._caller = link, output, board, caller
        self._sending = threading.Lock()
        self._printer: ThreadPrinter | None = None
        # Threads share all of this, so what one task changes its neighbours meet in any case.
        own = link.fileno(), output.index, *board.permits
        self._state = ProcessState(own) if board.slots == 1 else None

    def serve(self) -> None:
        """Run what comes until the supervisor closes its end."""
        threads = [queue.SimpleQueue[list[TaskOrder]]() for _ in range(self._board.slots)]
        if len(threads) > 1:
            self._printer = ThreadPrinter(self._output)
            sys.stdout = sys.stderr = self._printer
            for slot, orders in enumerate(threads):
                threading.Thread(target=self._serve_slot, args=(slot, orders), daemon=True).start()
        with self._link.makefile("rb") as stream:
            while (message := read(stream)) is not None:
                assert isinstance(message, RunOrders)
                if len(threads) > 1:
                    threads[message.slot].put(message.orders)
                else:  # in the main thread, where a task may set signal handlers
                    self._run(0, message.orders)

    def _serve_slot(self, slot: int, orders: queue.SimpleQueue[list[TaskOrder]]) -> None:
        while True:
            self._run(slot, orders.get())

    def _run(self, slot: int, orders: list[TaskOrder]) -> None:
        outcomes: list[OrderOutcome] = []
        notes: list[str] = []
        sent, unfit, size = time.monotonic(), "", self._output.size
        if self._state:
            self._output.note(begun(time.time(), size, orders[0].number, len(orders), orders[0].stage))
        for position, order in enumerate(orders):
            if position and not self._board.take(slot):
                break
            if outcomes and time.monotonic() - sent > _FLUSH_S:
                self._send(SlotEnded(slot, outcomes, free=False), notes)
                outcomes, notes, sent = [], [], time.monotonic()
            self._board.begin(slot, position, time.time(), size)
            if self._printer:
                self._printer.begin(order)
            outcome = self._caller.run(order)
            unfit = self._state.restore() if self._state else ""
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # a task may have closed it
                    stream.flush()
            before = size
            with suppress(OSError):
                size = self._output.size
                # shells take longer to start than this, and open with O_TRUNC what they find at /dev/stderr
                if size != before and outcome.ended - outcome.started > _SHELL_S and not self._output.whole:
                    notes, before, unfit = [RESET], 0, unfit or _EMPTIED
                if outcome.value is None:
                    printed = self._printer.tail() if self._printer else self._output.tail(before, TAIL)
                    outcome = outcome._replace(stderr=printed)
                if size != before and self._state:
                    if size - before > self._output.limit:
                        size = self._output.bound(before, size, slack=False)
                    how = "failed" if outcome.value is None else "returned"
                    notes.append(ended(outcome.started, before, size - before, order.number, how, order.stage))
            outcomes.append(outcome)
            if unfit:
                break
        if notes and not unfit and not self._output.whole:
            notes, unfit = [RESET], _EMPTIED
        self._send(SlotEnded(slot, outcomes, free=True, unfit=unfit), notes)

    def _send(self, message: SlotEnded, notes: list[str]) -> None:
        if notes:
            self._output.note(*notes)
        data = frame(message)
        with self._sending:
            self._link.sendall(data)


_LINE_MOST = 8192
"""Letters without an end of line that are held back, as in a file of Python's own."""


class ThreadPrinter(io.TextIOBase):
    """Standard output and standard error where tasks are threads of one process: what `print` writes is labelled.

    What is written beside it, by C code or programs, belongs to no task.
    """

    def __init__(self, output: OutputFile) -> None:
        self._output, self._own, self._lock = output, threading.local(), threading.Lock()

    def begin(self, order: TaskOrder) -> None:
        """From now on this thread runs this order."""
        self._own.order, self._own.started, self._own.left = order, time.time(), self._output.limit or sys.maxsize
        self._own.text = self._own.last = ""

    def tail(self) -> str:
        """The last part of what this thread's order has printed."""
        return str(self._own.last)

    def write(self, text: str) -> int:
        own = self._own
        if not hasattr(own, "order"):  # a thread that a task has started
            os.write(2, text.encode(errors="replace"))
            return len(text)
        own.text += text
        end = own.text.rfind("\n") + 1 if "\n" in text else 0
        if not end and len(own.text) > _LINE_MOST:
            end = len(own.text)
        if end:
            self._write(own.text[:end])
            own.text = own.text[end:]
        return len(text)

    def flush(self) -> None:
        if rest := getattr(self._own, "text", ""):
            self._own.text = ""
            self._write(rest)

    def fileno(self) -> int:
        return 2

    def writable(self) -> bool:
        return True

    def _write(self, text: str) -> None:
        own, data = self._own, text.encode(errors="replace")
        own.last = (own.last + text)[-TAIL:]
        if own.left <= 0:
            return
        data = data[: own.left]
        own.left -= len(data)
        if own.left <= 0:
            data = data.rstrip(b"\n") + b"\n[the rest is cut: see --output-limit]\n"
        with self._lock:
            place = self._output.size
            os.write(2, data)
            order = own.order
            self._output.note(ended(own.started, place, len(data), order.number, "part", order.stage))


def rank_number(environ: Mapping[str, str]) -> int:
    """Which rank this process is.

    >>> rank_number({"SLURM_PROCID": "3"})
    3

    Raises
    ------
    KeyError
        When no launcher that we know has started it.
    """
    for name in _RANKS:
        if name in environ:
            return int(environ[name])
    raise KeyError(f"none of {', '.join(_RANKS)} is set: was this started by srun, mpirun or mpiexec?")


def run_rank(folder: str) -> int:
    """Run an order as one of its ranks; the exit code."""
    rank = rank_number(os.environ)
    from pathlib import Path  # here: a worker that is no rank needs none of these

    from asa.log.messages import notify
    from asa.security.files import write_private
    from executors.launch import ORDER

    order, workdir, path, values = pickle.loads(Path(folder, ORDER).read_bytes())
    speak_at_once()
    say_levels()
    sys.path[:] = path
    os.chdir(workdir)
    outcome = Caller(values, meter=Meter()).run(order, wanted=rank == 0)
    if outcome.value is None:
        notify(f"rank {rank} on {node.name(os.environ)}: {outcome.error}")
    if rank == 0 or outcome.value is None:
        write_private(Path(folder, str(rank)), pickle.dumps(outcome))
    return int(outcome.value is None)


def with_secrets(folder: str, argv: list[str]) -> int:
    """Become a command that has the secrets in its environment; 127 where it cannot be started.

    Launchers send environments to nodes in plain, and others than us may see what is sent. So it is random bits, and so
    is the file, in a folder that is ours alone: one of them alone gives away nothing but a length.
    """
    import json
    from pathlib import Path

    from executors.launch import HALF, SEALED

    half, sealed = Path(folder, HALF).read_bytes(), bytes.fromhex(os.environ.pop(SEALED))
    os.environ.update(json.loads(bytes(a ^ b for a, b in zip(half, sealed, strict=True))))
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"asa: {argv[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(with_secrets(sys.argv[1], sys.argv[2:]))
    if code := run_rank(sys.argv[1]):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without MPI_Finalize, which would wait for ranks that wait for this one
