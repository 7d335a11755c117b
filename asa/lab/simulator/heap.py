"""The calendar of a simulation: a binary heap of events, by time, kind, and the order in which they were made."""

from __future__ import annotations

from asa.lab.core.compiled import compiled, inner
from asa.lab.simulator.state import State


@compiled
def push(s: State, at: float, kind: int, what: int) -> int:
    """Put an event on the calendar; its number."""
    world = s.world[0]
    number = world.number
    world.number += 1
    child = world.events
    world.events += 1
    while child > 0:
        parent = (child - 1) >> 1
        above = s.heap[parent]
        if (above.at, above.kind, above.number) < (at, kind, number):
            break
        _set(s, child, above.at, above.kind, above.number, above.what)
        child = parent
    _set(s, child, at, kind, number, what)
    return int(number)


@inner
def drop(s: State) -> None:
    """Take the earliest event off the calendar."""
    world = s.world[0]
    world.events -= 1
    last = world.events
    if last == 0:
        return
    at, kind, number, what = s.heap[last].at, s.heap[last].kind, s.heap[last].number, s.heap[last].what
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= last:
            break
        if child + 1 < last:
            left, right = s.heap[child], s.heap[child + 1]
            if (right.at, right.kind, right.number) < (left.at, left.kind, left.number):
                child += 1
        below = s.heap[child]
        if (at, kind, number) < (below.at, below.kind, below.number):
            break
        _set(s, parent, below.at, below.kind, below.number, below.what)
        parent = child
    _set(s, parent, at, kind, number, what)


@inner
def _set(s: State, row: int, at: float, kind: int, number: int, what: int) -> None:
    event = s.heap[row]
    event.at = at
    event.kind = kind
    event.number = number
    event.what = what
