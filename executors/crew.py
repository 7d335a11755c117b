"""The crew of the `local` executor: worker processes (or the threads of one) on one node, for one driver."""

from __future__ import annotations

import importlib
import os
import selectors
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from executors import node
from executors.member import Member
from executors.pace import Pace
from executors.processes import Warden, kill_sessions
from executors.room import Room
from executors.wire import Ended, Hello, Order, Outcome, Report, Run, Welcome

_GROUP_S = 0.005
_OVERDUE_S = 0.02
_STUCK_S = 0.05


@dataclass(eq=False)
class _Slot:
    """A place where one order runs at a time: a worker process, or a thread of one."""

    member: Member
    number: int
    run: list[Order] = field(default_factory=list)
    ended: int = 0
    given: float = 0.0
    gpus: tuple[str, ...] = ()

    @property
    def is_divisible(self) -> bool:
        """Whether part of its run may still be taken back."""
        return len(self.run) > 1 and self.given > 0.0


class Crew:
    """Runs orders on a node, as many at once as its cores, memory and GPUs allow, in order.

    Parameters
    ----------
    hello, welcome
        The node, and what the driver wants; option ``workers`` is ``"processes"`` or ``"threads"``.
    selector
        Where the crew registers what it waits for; the data of each registration is a function to call.
    report
        Takes what is to be sent to the driver.
    """

    def __init__(
        self, hello: Hello, welcome: Welcome, selector: selectors.BaseSelector, report: Callable[[Report], None]
    ) -> None:
        self._hello, self._welcome, self._selector, self._report = hello, welcome, selector, report
        self._threads = welcome.options.get("workers") == "threads"
        self._room, self._pace = Room(hello), Pace()
        self._queue: deque[Order] = deque()
        self._moved = time.monotonic()  # when the queue last began to wait, or was last taken from
        self._idle: list[_Slot] = []
        self._running: dict[tuple[Member, int], _Slot] = {}
        self._members: dict[int, Member] = {}
        self._gpus = list(node.gpus(hello.gpus, os.environ))
        self._outcomes: list[Outcome] = []
        self._returned: list[int] = []
        self._warden = Warden()

    def accept(self, orders: list[Order]) -> None:
        """Run these, after those that wait."""
        for order in orders:
            if why := self._room.lacks(order):
                now = time.time()
                self._outcomes.append(Outcome(order.ticket, now, now, None, f"the task can never run: {why}"))
                continue
            if not self._queue:
                self._moved = time.monotonic()
            self._queue.append(order)

    def advance(self) -> float | None:
        """Do all that can be done now; in how many seconds [s] to call again although nothing happens, or None."""
        now = time.monotonic()
        self._recall(now)
        self._start(now)
        if self._queue and now - self._moved > _STUCK_S:
            # they were sent ahead in the belief that all tasks here are short; another node may have room
            self._returned += [order.ticket for order in self._queue]
            self._queue.clear()
        if self._outcomes or self._returned:
            self._report(Report(self._outcomes, self._returned))
            self._outcomes, self._returned = [], []
        due = [self._moved + _STUCK_S] if self._queue else []
        due += [slot.given + _OVERDUE_S for slot in self._running.values() if slot.is_divisible]
        return max(0.0, min(due) - now) + 0.001 if due else None

    def relay(self) -> None:
        """Pass on to the job's output what tasks have written to standard error."""
        for member in self._members.values():
            member.relay()

    def reap(self) -> None:
        """Some child has ended: find out which, and what that means."""
        for pid in list(self._members):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._bury(self._members[pid], os.waitstatus_to_exitcode(status))
        self._warden.reap()

    def close(self) -> None:
        """End all workers and whatever they have started."""
        kill_sessions(set(self._members))
        for member in self._members.values():
            member.relay()
            member.close()
            os.waitpid(member.pid, os.WNOHANG)  # it is dead, or stuck in the kernel
            self._warden.dismiss(member.pid)
        self._members.clear()
        self._warden.close()

    # ------------------------------------------------------------- starting

    def _start(self, now: float) -> None:
        while self._queue and self._room.fits(self._queue[0]):
            first = self._queue.popleft()
            slot = self._slot(first)
            self._room.take(first)
            slot.run, slot.ended, slot.given = [first, *self._more(first)], 0, now
            self._running[slot.member, slot.number] = slot
            self._moved = now
            slot.member.give(Run(slot.run, slot.number))

    def _more(self, first: Order) -> list[Order]:
        """Orders like `first` to run after it in the same slot: a few milliseconds' work, and no more than is fair."""
        count = min(self._pace.fit(first.stage, _GROUP_S) - 1, len(self._queue) // (2 * self._room.cores))
        more: list[Order] = []
        shape = (first.stage, first.cores, first.memory, first.gpus)
        while len(more) < count:
            order = self._queue[0]
            if (order.stage, order.cores, order.memory, order.gpus) != shape:
                break
            more.append(self._queue.popleft())
        return more

    def _slot(self, order: Order) -> _Slot:
        """An idle slot for an order, in a new worker when there is none of the right kind."""
        gpus = tuple(self._gpus[: order.gpus])
        del self._gpus[: order.gpus]
        shape = None if self._threads else (order.threads, gpus)
        for position in reversed(range(len(self._idle))):
            if shape is None or self._idle[position].member.shape == shape:
                slot = self._idle.pop(position)
                break
        else:
            if self._idle and len(self._members) >= self._room.cores:
                self._dismiss(self._idle[0].member)
            slot = self._hire(shape)
        slot.gpus = gpus
        return slot

    def _hire(self, shape: tuple[int, tuple[str, ...]] | None) -> _Slot:
        importlib.import_module("cloudpickle")  # most functions need it: cheaper once here than in each worker
        member = Member(shape, self._room.cores if shape is None else 1, self._hello.gpus > 0, self._welcome)
        self._warden.guard(member.pid)
        self._members[member.pid] = member
        member.watch(self._selector, lambda mask: self._hear(member, mask))
        self._idle += [_Slot(member, number) for number in range(1, member.board.slots)]
        return _Slot(member, 0)

    # --------------------------------------------------------------- ending

    def _hear(self, member: Member, mask: int) -> None:
        for message in member.serve(mask):
            assert isinstance(message, Ended)
            slot = self._running[member, message.slot]
            self._ended(slot, message.outcomes)
            if message.free:
                self._settle(slot)
                self._idle.append(slot)
                if not self._threads:
                    member.shorten()

    def _ended(self, slot: _Slot, outcomes: list[Outcome]) -> None:
        stage = slot.run[0].stage
        for outcome in outcomes:
            self._pace.learn(stage, outcome.ended - outcome.started)
        slot.ended += len(outcomes)
        self._outcomes += outcomes

    def _settle(self, slot: _Slot) -> None:
        """A slot runs nothing any more: its room is free."""
        del self._running[slot.member, slot.number]
        self._room.free(slot.run[0])
        self._gpus = sorted([*self._gpus, *slot.gpus])

    def _recall(self, now: float) -> None:
        """What waits for longer than was thought behind a task in a slot goes back into the queue."""
        for slot in self._running.values():
            if slot.is_divisible and now - slot.given > _OVERDUE_S:
                kept = len(slot.run)
                while slot.member.board.take(slot.number):
                    kept -= 1
                self._queue.extendleft(reversed(slot.run[kept:]))
                del slot.run[kept:]
                slot.given = 0.0
                self._moved = now

    def _dismiss(self, member: Member) -> None:
        """End an idle worker."""
        kill_sessions({member.pid})
        os.waitpid(member.pid, os.WNOHANG)
        self._bury(member, 0)

    def _bury(self, member: Member, code: int) -> None:
        """A worker has ended: report what ran in it, put back what had not begun."""
        self._hear(member, selectors.EVENT_READ)  # its last words
        kill_sessions({member.pid})
        for slot in [slot for slot in self._running.values() if slot.member is member]:
            position, started, stderr = member.board.doing(slot.number)
            # What it had run but not yet told runs again, like what it had not begun.
            left = slot.run[slot.ended :]
            if left:
                guilty = left.pop(max(0, position - slot.ended))
                self._outcomes.append(member.death(guilty, code, started, stderr))
            self._queue.extendleft(reversed(left))
            self._settle(slot)
        self._idle = [slot for slot in self._idle if slot.member is not member]
        member.relay()
        member.close()
        del self._members[member.pid]
        self._warden.dismiss(member.pid)
