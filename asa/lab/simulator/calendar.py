"""Time passes, compiled: to the next instant at which somebody must decide."""

from __future__ import annotations

from asa.lab.core.compiled import compiled, inner
from asa.lab.simulator.heap import drop
from asa.lab.simulator.machine import (
    CANCELLED,
    COMPLETED,
    TIMEOUT,
    finish,
    node_down,
    node_up,
    submit,
)
from asa.lab.simulator.state import (
    BEGIN,
    CANCEL,
    DECIDE,
    EARLY_END,
    END,
    ENDED,
    GROW,
    HELD,
    NODE_DOWN,
    NODE_UP,
    NOTICE,
    OPEN,
    OVER,
    RUNNING,
    SUBMIT,
    UNBORN,
    UNTIL,
    State,
)
from asa.lab.simulator.waitlist import unshut


@compiled
def advance(s: State, until: float) -> int:
    """Let time pass until a job waits and something has changed, but not beyond `until` [s]; why it came back.

    All events of an instant take effect before anybody decides: first jobs end, then nodes come and go, then jobs are
    cancelled, submitted, and let go by their begin times. Where decisions are taken one by one, the ends that were
    expected still come first and together; then whatever else happens, each for itself, ends that come early last.
    An expected end is itself an occasion to decide, before early ends of jobs that started later.
    """
    world = s.world[0]
    while True:
        if world.notice:
            world.notice = 0
            return NOTICE
        at = _next(s)
        if world.dirty and world.waiting > 0 and (world.one_by_one or at > world.now):
            return DECIDE
        if at > until:
            world.now = max(world.now, until)
            return UNTIL
        if at == _NEVER:
            return OVER
        lines, due = world.lines, -1
        world.now = max(world.now, at)
        while _next(s) <= world.now:
            if not spare(s):
                return GROW
            number = s.heap[0].number
            kind = _take_next(s)
            if not world.one_by_one:
                continue
            if kind != END:
                break
            due = number if due < 0 else due  # of the ends that were expected, the one that was made first
            if _next_early(s) > due:
                break
        if world.stops_often and world.lines > lines:
            return DECIDE


@inner
def spare(s: State) -> bool:
    """Whether the tables have room for whatever one event or one start may bring."""
    world = s.world[0]
    most = world.edges + world.running + 8  # all that wait for a job, or all jobs of a node
    return bool(
        len(s.heap) - world.events >= most
        and len(s.log) - world.lines >= most
        and len(s.queue) - world.waiting >= most
        and len(s.active) - world.running >= 1
    )


_NEVER = float("inf")


@inner
def _next(s: State) -> float:
    """Time of the next event, of the calendar or of the arrivals known from the start [s]."""
    world = s.world[0]
    at = _NEVER
    if world.events > 0:
        at = s.heap[0].at
    if world.arrival < world.arrivals:
        at = min(at, s.jobs[world.arrival].submit)
    return at


@inner
def _next_early(s: State) -> int:
    """Number of the end that comes early and is next at this instant, or -1 when something else is next."""
    world = s.world[0]
    if world.events == 0 or s.heap[0].at > world.now or s.heap[0].kind != EARLY_END:
        return -1
    if world.arrival < world.arrivals and s.jobs[world.arrival].submit <= world.now:
        return -1
    return int(s.heap[0].number)


@inner
def _take_next(s: State) -> int:
    """The next event takes effect; its kind."""
    world = s.world[0]
    if world.events > 0:
        at, kind, number, what = s.heap[0].at, s.heap[0].kind, s.heap[0].number, s.heap[0].what
    else:
        at, kind, number, what = _NEVER, OPEN, 0, 0
    arrives = world.arrival < world.arrivals
    if arrives and (at > s.jobs[world.arrival].submit or (at == s.jobs[world.arrival].submit and kind > CANCEL)):
        world.arrival += 1
        if s.fates[world.arrival - 1].status == UNBORN:  # unless it was cancelled before
            submit(s, world.arrival - 1)
        return SUBMIT
    drop(s)
    if kind == NODE_UP:
        node_up(s, what)
        return int(kind)
    if kind == NODE_DOWN:
        node_down(s, what)
        return int(kind)
    fate = s.fates[what]
    if kind in (END, EARLY_END):
        if fate.status == RUNNING and fate.event == number:  # a void one has been replaced by another
            row = s.jobs[what]
            in_time = fate.since + fate.left / fate.speed <= row.started + fate.stop
            finish(s, what, COMPLETED if in_time else TIMEOUT)
    elif kind == CANCEL:
        if fate.status != ENDED:
            finish(s, what, CANCELLED)
    elif kind == OPEN:
        if fate.status == HELD and fate.begin <= world.now:
            unshut(s, what, BEGIN)
    elif fate.status == UNBORN:
        submit(s, what)
    return int(kind)
