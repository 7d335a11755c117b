"""What no event log of a run can say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from asa.core.event import Event, JobEnded, ResultsLost, StagesAdded, SubmitRefused, Submitting, TaskDone, TasksLaunched


def contradictions(events: Iterable[Event]) -> Iterator[str]:
    """What a log says that cannot be: two results of a launch, a task that runs again, two ends of an allocation.

    A task may have two results where its allocation was given up, it was launched on another, and then the first
    launch's result came in after all; the first result counts.
    """
    done: set[tuple[str, int]] = set()
    launched: set[tuple[tuple[str, int], str]] = set()
    asked: set[str] = set()
    ended: set[str] = set()
    for event in events:
        match event:
            case TaskDone():
                key = event.stage, event.index
                if key in done and (key, event.allocation) not in launched:
                    yield f"has two results of {event.stage}-{event.index}"
                done.add(key)
                launched.discard((key, event.allocation))
            case ResultsLost() | StagesAdded():
                done -= set(event.void)
            case TasksLaunched():
                keys = {(event.stage, index) for first, last in event.ranges for index in range(first, last)}
                if again := keys & done:
                    yield f"ran again what was done: {sorted(again)[:3]}"
                launched |= {(key, event.allocation) for key in keys}
            case Submitting():
                if event.allocation in asked:
                    yield f"asked twice for {event.allocation}"
                asked.add(event.allocation)
            case JobEnded() | SubmitRefused():
                if event.allocation in ended:
                    yield f"has two ends of {event.allocation}"
                ended.add(event.allocation)
