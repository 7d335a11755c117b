"""The worker pool of the `local` executor: worker processes (or the threads of one) on one node, for one driver."""

from __future__ import annotations

import importlib
import logging
import math
import selectors
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from asa.core.task import PAUSED, TAIL, ending, lacks
from asa.log.gpus import usable
from asa.log.output import RESET, ended
from asa.log.running import SCRATCH
from executors import worker
from executors.assignment import Batching, NodeSlots
from executors.host import HOST, Host, ScratchDisk
from executors.output import OutputFile
from executors.wire import (
    LARGEST,
    Channel,
    Hello,
    OrderOutcome,
    RunOrders,
    SlotEnded,
    TaskOrder,
    TaskReport,
    Unused,
    Welcome,
)

log = logging.getLogger(__name__)


Shape = tuple[int, tuple[str, ...], bool]
"""Cores of a task, its GPUs, whether it is a guest."""


class WorkerProcess:
    """A worker process as its supervisor sees it; forked when this is made.

    Parameters
    ----------
    shape
        Cores of the tasks it is for, its GPUs, and whether these are guests; None for a worker that takes any, in
        threads.
    slots
        How many tasks it runs at once.
    gpus
        Whether the node was given GPUs to share out.
    welcome
        Where tasks run.
    output
        Where they print; the caller's to close.
    scratch
        Where they may have files on the node's own disk, or "".
    """

    def __init__(
        self,
        shape: Shape | None,
        slots: int,
        gpus: bool,
        welcome: Welcome,
        output: OutputFile,
        host: Host = HOST,
        scratch: str = "",
    ) -> None:
        self.output, self._printed, self.scratch = output, output.size, scratch
        self._host, self.shape, self.board, self.stale = host, shape, worker.SlotBoard(slots), False
        environment = {} if shape is None else worker.environment(shape[0], shape[1] if gpus else None)
        if shape is not None and shape[2]:
            environment[worker.GUEST] = "1"
        if scratch and shape is not None:  # threads would share it
            environment[SCRATCH] = scratch
        ours, theirs = host.socketpair()
        sys.stdout.flush()
        self.pid = host.start_worker(theirs, output, self.board, welcome, environment)
        theirs.close()
        self.channel = Channel(ours)
        self.channel.largest = LARGEST
        self._selector: selectors.BaseSelector | None = None

    def watch(self, selector: selectors.BaseSelector, receive: Callable[[int], None]) -> None:
        """Have `receive` called by the selector's user when there is something to `serve`."""
        self._selector = selector
        selector.register(self.channel, selectors.EVENT_READ, receive)

    def give(self, run: RunOrders) -> None:
        """Have a slot run these orders."""
        self.board.begin(run.slot, 0, self._host.time(), self._printed)
        self.board.permit(run.slot, len(run.orders) - 1)
        assert self._selector, "a worker is watched as soon as it is forked"
        with suppress(OSError):  # it has just died; the signal of that comes next
            self.channel.send(run)
        self.channel.watch(self._selector)

    def serve(self, mask: int) -> list[SlotEnded]:
        """The worker's messages, now that its channel can be read or written."""
        found: list[SlotEnded] = []
        if self._selector is None:
            return found  # closed since the selector saw it
        try:
            if mask & selectors.EVENT_WRITE:
                self.channel.flush()
                self.channel.watch(self._selector)
            if mask & selectors.EVENT_READ:
                found = self.channel.receive()
        except OSError:
            # dead already, or a task has closed the worker's descriptor: it is of no use
            self._host.kill_sessions({self.pid})
        if found:
            self._printed = self.output.size
        return found

    def look(self, slot: int, run: list[TaskOrder]) -> bool:
        """Keep what a task prints within its limit; whether it prints so much that one should look again soon."""
        size = self.output.size
        position, started, before = self.board.doing(slot)
        if size <= before or position >= len(run):
            return False
        if len(run) > 1:  # else the worker has said which one it is
            self.output.note_begun(started, before, run[position].number, run[position].stage)
        self.output.bound(before, size)
        return size - before > self.output.limit // _MUCH

    def death(
        self, order: TaskOrder, code: int, started: float, before: int, peak: int = 0, timed_out: bool = False
    ) -> OrderOutcome:
        """The outcome of the order that a worker died in, or was ended because of, with so much printed before."""
        outside = (code == -signal.SIGTERM or (order.guest and code == -signal.SIGKILL)) and not timed_out
        error = f"the worker process {ending(code)}"
        if timed_out:
            from asa.core.units import brief  # here: few tasks do

            error = f"timed out after {brief(order.timeout_s)}: raise timeout= where tasks may take that long"
        elif code == -signal.SIGKILL:
            error += ", perhaps because the node's memory ran out"
        cause = "time" if timed_out else lacks("", code)
        now, size = self._host.time(), self.output.size
        if not self.output.whole:
            self.output.note(RESET)
            before = 0
        if size > before:
            length = self.output.bound(before, size, slack=False) - before
            self.output.note(ended(started, before, length, order.number, "killed", order.stage))
        return OrderOutcome(
            order.ticket, started, now, None, error,
            stderr=self.output.tail(before, TAIL), infrastructure=outside,
            cause=cause, exit=None if timed_out else code, peak=peak, source="rusage" if peak else "",
        )  # fmt: skip

    def close(self) -> None:
        if self._selector:
            self._selector.unregister(self.channel)
            self._selector = None
        self.channel.close()
        self.board.close()


_GROUP_S = 0.005
_OVERDUE_S = 0.02
_STUCK_S = 0.05
_EXPIRED_S = 0.01
_PROC = "proc"
_LOOKS, _JITTER, _PARTS = 3, 0.25, 16
"""How many times in a row an order has to leave cores idle until they are said to be; so much of a core it may use
beyond the others then; in so many parts its memory is counted."""
_LOOK_S, _LOOK_SOON_S, _MUCH = 0.25, 0.02, 8
"""Time between two looks at how much tasks have printed [s], and while one has printed this part of what it may."""


class _Looks:
    """What was seen of an order that has run for a while, at this place in its run: the `most` memory [bytes]. Samples
    are written beside its output, unless most of it runs elsewhere."""

    def __init__(self, process: WorkerProcess, position: int, order: TaskOrder, started: float) -> None:
        self.position, self.most = position, 0
        self._process, self._order, self._started = process, order, started
        self._is_here = order.launch is None or (order.nodes == 1 and order.launch.kind != "srun")
        self._noted, self._peak = 0, 0
        self._since = self._last = (0.0, -1.0, 0.0)

    def add(self, at: float, now: float, memory: int, cpu_s: float) -> None:
        """What it had in memory [bytes], and its processor time [s], then [s: wall clock, and monotonic]."""
        from asa.log.curve import every  # here: most tasks are short

        self.most, self._peak, self._last = max(self.most, memory), max(self._peak, memory), (at, now, cpu_s)
        if self._since[1] < 0:
            self._since = self._last
        elif now - self._since[1] >= every(self._noted):
            self._note()

    def end(self) -> None:
        """The order has ended: what was seen since the last sample is one, too."""
        if self._noted and self._last != self._since:
            self._note()

    def _note(self) -> None:
        from asa.log.curve import UsageSample

        (_, since, cpu_s), (at, now, later_s) = self._since, self._last
        if self._is_here:
            sample = UsageSample(at, now - since, self._peak, max(0.0, later_s - cpu_s) / (now - since))
            self._process.output.note_usage(sample, self._started, self._order.number, self._order.stage)
        self._noted, self._peak, self._since = self._noted + 1, 0, self._last


@dataclass(eq=False)
class _Slot:
    """A place where one order runs at a time: a worker process, or a thread of one.

    Its run was `given` and has run `since` then [s, monotonic]; the worker was ended as this order took too long, or
    its allocation's time was over: it `pauses` then [s, monotonic]. `looks` are those at an order that has run for a
    while. Of one that shares, `wanted` is when the last looks were [s, monotonic], with the processor time that it
    would have had until then on an idle machine [s]; guests may use `unused` of it: cores, memory.
    """

    process: WorkerProcess
    number: int
    run: list[TaskOrder] = field(default_factory=list)
    ended: int = 0
    given: float = 0.0
    gpus: tuple[str, ...] = ()
    since: float = 0.0
    expired: int | None = None
    pauses: float = math.inf
    looks: _Looks | None = None
    wanted: tuple[tuple[float, float], ...] = ()
    unused: tuple[int, int] = 0, 0

    @property
    def is_divisible(self) -> bool:
        """Whether part of its run may still be taken back."""
        return len(self.run) > 1 and self.given > 0.0


class ProcessPool:
    """Runs orders on a node, as many at once as its cores, memory and GPUs allow, in order.

    Parameters
    ----------
    hello, welcome
        The node, and the driver's options; option ``workers`` is ``"processes"`` or ``"threads"``.
    selector
        Where the pool registers what it waits for; the data of each registration is a function to call.
    report
        Takes what is to be sent to the driver.
    host
        The machine.
    """

    def __init__(
        self,
        hello: Hello,
        welcome: Welcome,
        selector: selectors.BaseSelector,
        report: Callable[[Any], None],
        host: Host = HOST,
    ) -> None:
        self._host = host
        self._hello, self._welcome, self._selector, self._report = hello, welcome, selector, report
        self._threads = welcome.options.get("workers") == "threads"
        self._slots, self._batching = NodeSlots(hello), Batching()
        self._queue: deque[TaskOrder] = deque()
        self._moved = self._host.monotonic()  # when the queue last began to wait, or was last taken from
        self._idle: list[_Slot] = []
        self._running: dict[tuple[WorkerProcess, int], _Slot] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._gpus = list(usable(hello.gpus, host.environ))
        self._outcomes: list[OrderOutcome] = []
        self._returned: list[int] = []
        self._guard = host.session_guard()
        self._scratch: ScratchDisk | None = None
        self._outputs: list[OutputFile] = []  # of workers that have ended: the next ones go on with them
        self._look_at = math.inf
        self._weigh_at = math.inf
        self._expire_at = math.inf  # when an order that runs may have run for too long [s, monotonic]
        self._sharing = False  # whether any order has shared
        self._unused: list[tuple[str, int, int]] | None = []  # what was reported; None: it is to be reported again

    def renew(self, welcome: Welcome) -> None:
        """There is another driver: tasks begin in fresh workers, for what the old ones have loaded may have changed."""
        self._welcome, self._unused = welcome, []
        for process in self._workers.values():
            process.stale = True
        self._idle.clear()

    def drop(self, tickets: Collection[int]) -> None:
        """End the workers that run these orders; the threads of one that runs others, too, go on for nothing."""
        wanted: set[WorkerProcess] = set()
        for slot in self._running.values():
            self._recall_run(slot)
            if slot.run[-1].ticket not in tickets:
                wanted.add(slot.process)
        self._queue = deque(order for order in self._queue if order.ticket not in tickets)
        self._host.kill_sessions({slot.process.pid for slot in self._running.values() if slot.process not in wanted})

    def accept(self, orders: list[TaskOrder]) -> None:
        for order in orders:
            if why := self._slots.lacks(order):
                now = self._host.time()
                self._outcomes.append(OrderOutcome(order.ticket, now, now, None, f"the task can never run: {why}"))
                continue
            if not self._queue:
                self._moved = self._host.monotonic()
            self._queue.append(order)

    def advance(self) -> float | None:
        """Do all that can be done now; in how many seconds [s] to call again although nothing happens, or None."""
        now = self._host.monotonic()
        self._recall(now)
        self._retire()
        self._start(now)
        if now >= self._look_at:
            self._look(now)
        if now >= self._weigh_at:
            self._weigh(now)
        if now >= self._expire_at:
            self._expire(now)
        if self._queue and now - self._moved > _STUCK_S:
            # they were sent ahead because tasks here seemed short; another node may have room
            log.debug("%d orders wait too long, and go back to the hub", len(self._queue))
            self._returned += [order.ticket for order in self._queue]
            self._queue.clear()
        if self._outcomes or self._returned:
            self._report(TaskReport(self._outcomes, self._returned))
            self._outcomes, self._returned = [], []
        self._report_unused()
        due = [self._moved + _STUCK_S] if self._queue else []
        due += [slot.given + _OVERDUE_S for slot in self._running.values() if slot.is_divisible]
        due += [self._look_at] if self._running and self._look_at < math.inf else []
        due += [self._weigh_at] if self._running and self._weigh_at < math.inf else []
        due += [self._expire_at] if self._running and self._expire_at < math.inf else []
        return max(0.0, min(due) - now) + 0.001 if due else None

    def reap(self) -> None:
        for pid in list(self._workers):
            if (found := self._host.ended(pid)) is not None:
                self._worker_ended(self._workers[pid], *found)
        self._guard.reap()

    def close(self) -> None:
        self._host.kill_sessions(set(self._workers))
        for process in self._workers.values():
            process.close()
            self._host.ended(process.pid)  # it is dead, or stuck in the kernel
            self._guard.forget(process.pid)
            process.output.close()
        for output in self._outputs:
            output.close()
        self._workers.clear()
        self._guard.close()
        if self._scratch:
            self._scratch.close()

    def _look(self, now: float) -> None:
        """Keep what tasks print within its limit."""
        soon = False
        for slot in self._running.values():
            if not self._threads:
                soon = slot.process.look(slot.number, slot.run) or soon
        self._look_at = now + (_LOOK_SOON_S if soon else _LOOK_S)

    def _weigh(self, now: float) -> None:
        """See what tasks take that have run for a while: what runs at the same time only shows meanwhile."""
        for slot in () if self._threads else self._running.values():
            position, started, _ = slot.process.board.doing(slot.number)
            ran = min(now - slot.since, self._host.time() - started)
            if position < len(slot.run) and ran >= self._host.weigh_s / 2:
                if slot.looks is None or slot.looks.position != position:
                    slot.looks = _Looks(slot.process, position, slot.run[position], started)
                memory, cpu_s = self._host.taken(slot.process.pid)
                slot.looks.add(self._host.time(), now, memory, cpu_s)
                if slot.run[position].shares:
                    self._look_at_host(slot, slot.looks.most, cpu_s + self._host.waited_s(slot.process.pid), now)
        self._weigh_at = now + self._host.weigh_s if self._running else math.inf

    def _look_at_host(self, slot: _Slot, memory: int, wanted_s: float, now: float) -> None:
        """See what an order that shares has not used for some looks: it may use all of it in the next moment."""
        order = slot.run[0]
        slot.wanted = (*slot.wanted[-_LOOKS:], (now, wanted_s))
        pairs = zip(slot.wanted, slot.wanted[1:], strict=False)
        rates = [(after - before) / max(end - began, 1e-3) for (began, before), (end, after) in pairs]
        if len(rates) < _LOOKS:
            return
        parts = _PARTS * (order.memory - memory) // max(1, order.memory) - 1  # of memory; one is kept for it
        slot.unused = max(0, int(order.cores - max(rates) + _JITTER)), max(0, parts) * (order.memory // _PARTS)

    def _report_unused(self) -> None:
        """What guests may use, if that is new; of a stage one of whose orders has ended, anew."""
        if self._threads or not self._sharing:
            return
        found: dict[str, tuple[int, int]] = {}
        for slot in self._running.values():
            if slot.run[0].shares:
                cores, memory = found.get(slot.run[0].stage, (0, 0))
                found[slot.run[0].stage] = cores + slot.unused[0], memory + slot.unused[1]
        unused = [(stage, cores, memory) for stage, (cores, memory) in found.items()]
        if unused != self._unused:
            self._unused = unused
            self._report(Unused(unused))

    def _weighed(self, slot: _Slot, position: int, outcome: OrderOutcome) -> OrderOutcome:
        """An outcome with the most memory that was seen, where that is more than is known otherwise."""
        looks = slot.looks
        if looks is None or looks.position != position:
            return outcome
        looks.end()
        return outcome if looks.most <= outcome.peak else outcome._replace(peak=looks.most, source=_PROC)

    def _expire(self, now: float) -> None:
        """End workers whose order has run for longer than it may, with all that it has started."""
        self._expire_at = math.inf
        for slot in list(self._running.values()):
            position, started, _ = slot.process.board.doing(slot.number)
            if slot.expired is not None or position >= len(slot.run):
                continue
            order = slot.run[position]
            # clocks of machines jump: it has not run for longer than its whole run has
            ran = now - slot.since if not position else min(now - slot.since, self._host.time() - started)
            left = min((order.timeout_s or math.inf) - ran, slot.pauses - now)
            if left == math.inf:
                continue
            if left > 0:
                self._expire_at = min(self._expire_at, now + max(left, _EXPIRED_S))
                continue
            log.info("order %d of %s has run for %.3f s, and is ended", order.ticket, order.stage, ran)
            slot.expired = order.ticket
            self._host.kill_tree(slot.process.pid)

    # ------------------------------------------------------------- starting

    def _start(self, now: float) -> None:
        while self._queue and (self._queue[0].guest or self._slots.fits(self._queue[0])):
            first = self._queue.popleft()
            slot = self._slot(first)
            if not first.guest:  # the hub has found room for it
                self._slots.take(first)
            slot.run, slot.ended, slot.given = [first, *self._more(first)], 0, now
            slot.since, slot.expired, slot.pauses, slot.looks = now, None, math.inf, None
            slot.wanted, slot.unused = (), (0, 0)
            self._sharing = self._sharing or first.shares
            if self._weigh_at == math.inf:
                self._weigh_at = now + self._host.weigh_s
            if first.timeout_s:
                self._expire_at = min(self._expire_at, now + first.timeout_s)
            if first.checkpoints is not None and first.ends:
                slot.pauses = now + max(0.0, first.ends - self._host.time())
                self._expire_at = min(self._expire_at, slot.pauses)
            self._running[slot.process, slot.number] = slot
            self._moved = now
            log.debug(
                "process %d gets %d orders of %s from %d", slot.process.pid, len(slot.run), first.stage, first.number
            )
            slot.process.give(RunOrders(slot.run, slot.number))

    def _more(self, first: TaskOrder) -> list[TaskOrder]:
        """Orders like `first` to run after it in the same slot: a few milliseconds' work, and no more than is fair."""
        count = min(self._batching.fit(first.stage, _GROUP_S) - 1, len(self._queue) // (2 * self._slots.cores))
        more: list[TaskOrder] = []
        shape = (first.stage, first.cores, first.memory, first.gpus, first.guest)
        while len(more) < count:
            order = self._queue[0]
            if (order.stage, order.cores, order.memory, order.gpus, order.guest) != shape:
                break
            more.append(self._queue.popleft())
        return more

    def _slot(self, order: TaskOrder) -> _Slot:
        """An idle slot for an order, in a new worker when there is none of the right kind."""
        count = self._slots.devices(order)
        gpus = tuple(self._gpus[:count])
        del self._gpus[:count]
        shape = None if self._threads else (order.threads, gpus, order.guest)
        for position in reversed(range(len(self._idle))):
            if shape is None or self._idle[position].process.shape == shape:
                slot = self._idle.pop(position)
                break
        else:
            if self._idle and len(self._workers) >= self._slots.cores:
                self._end_worker(self._idle[0].process)
            slot = self._start_worker(shape)
        slot.gpus = gpus
        return slot

    def _start_worker(self, shape: Shape | None) -> _Slot:
        importlib.import_module("cloudpickle")  # most functions need it: cheaper once here than in each worker
        slots = self._slots.cores if shape is None else 1
        output = self._outputs.pop() if self._outputs else self._host.open_output(self._hello, self._welcome)
        if output.kept:
            self._look_at = min(self._look_at, self._host.monotonic())
        if self._scratch is None and not self._threads:
            self._scratch = self._host.scratch()
        scratch = self._scratch.new() if self._scratch else ""
        process = WorkerProcess(shape, slots, self._hello.gpus > 0, self._welcome, output, self._host, scratch)
        log.debug("forked worker process %d for %s", process.pid, "any task" if shape is None else f"{shape[0]} cores")
        self._guard.guard(process.pid)
        self._workers[process.pid] = process
        process.watch(self._selector, lambda mask: self._receive(process, mask))
        self._idle += [_Slot(process, number) for number in range(1, process.board.slots)]
        return _Slot(process, 0)

    # --------------------------------------------------------------- ending

    def _receive(self, process: WorkerProcess, mask: int) -> None:
        for message in process.serve(mask):
            assert isinstance(message, SlotEnded)
            slot = self._running[process, message.slot]
            self._record(slot, message.outcomes)
            if message.unfit:
                log.info("process %d is replaced after a task of %s: %s", process.pid, slot.run[0].stage, message.unfit)
                process.stale = True
                self._queue.extendleft(reversed(slot.run[slot.ended :]))
                self._moved = self._host.monotonic()
            if message.free:
                self._free(slot)
                if not process.stale:
                    self._idle.append(slot)

    def _record(self, slot: _Slot, outcomes: list[OrderOutcome]) -> None:
        stage = slot.run[0].stage
        for outcome in outcomes:
            log.debug(
                "order %d of %s ended after %.3f s%s",
                outcome.ticket,
                stage,
                outcome.ended - outcome.started,
                f": {outcome.error}" if outcome.error else "",
            )
            self._batching.learn(stage, outcome.ended - outcome.started)
        if slot.looks is not None:
            outcomes = [self._weighed(slot, slot.ended + place, outcome) for place, outcome in enumerate(outcomes)]
        slot.ended += len(outcomes)
        self._outcomes += outcomes

    def _free(self, slot: _Slot) -> None:
        """A slot runs nothing any longer: its cores, memory and GPUs are free."""
        del self._running[slot.process, slot.number]
        if not slot.run[0].guest:
            self._slots.free(slot.run[0])
        if slot.run[0].shares:
            self._unused = None
        self._gpus = sorted([*self._gpus, *slot.gpus])

    def _recall(self, now: float) -> None:
        """What waits for longer than was thought behind a task in a slot goes back into the queue."""
        for slot in self._running.values():
            if slot.is_divisible and now - slot.given > _OVERDUE_S:
                self._recall_run(slot)
                slot.given = 0.0
                self._moved = now

    def _recall_run(self, slot: _Slot) -> None:
        """What a slot has not begun goes back into the queue."""
        kept = len(slot.run)
        while slot.process.board.take(slot.number):
            kept -= 1
        log.debug("recalled %d orders from process %d", len(slot.run) - kept, slot.process.pid)
        self._queue.extendleft(reversed(slot.run[kept:]))
        del slot.run[kept:]

    def _retire(self) -> None:
        """End the workers of an earlier driver that run nothing any more."""
        stale = [process for process in self._workers.values() if process.stale]
        if stale:
            busy = {process for process, _ in self._running}
            for process in stale:
                if process not in busy:
                    self._end_worker(process)

    def _end_worker(self, process: WorkerProcess) -> None:
        self._host.kill_sessions({process.pid})
        self._host.ended(process.pid)
        self._worker_ended(process, 0)

    def _worker_ended(self, process: WorkerProcess, code: int, peak: int = 0) -> None:
        """A worker has ended: report what ran in it, put back what had not begun."""
        log.log(logging.WARNING if code else logging.DEBUG, "worker process %d %s", process.pid, ending(code))
        self._receive(process, selectors.EVENT_READ)  # what it sent before it ended
        self._host.kill_sessions({process.pid})
        for slot in [slot for slot in self._running.values() if slot.process is process]:
            position, started, stderr = process.board.doing(slot.number)
            # What it had run but not yet reported runs again, like what it had not begun.
            left = slot.run[slot.ended :]
            if left:
                running = left.pop(max(0, position - slot.ended))
                if slot.expired in (None, running.ticket):
                    timed_out = slot.expired is not None
                    died = process.death(running, code, started, stderr, peak, timed_out)
                    died = self._weighed(slot, position, died)
                    if timed_out and self._host.monotonic() >= slot.pauses:
                        said = "the time of its allocation is over"
                        died = died._replace(error=said, infrastructure=True, cause=PAUSED)
                    self._outcomes.append(died)
                else:  # it had just begun when the one before it, which had just returned, was found too slow
                    left.insert(0, running)
            self._queue.extendleft(reversed(left))
            self._free(slot)
        self._idle = [slot for slot in self._idle if slot.process is not process]
        process.close()
        if self._scratch and process.scratch:
            self._scratch.remove(process.scratch)
        if process.output.whole:
            self._outputs.append(process.output)
        else:
            process.output.close()
        del self._workers[process.pid]
        self._guard.forget(process.pid)
