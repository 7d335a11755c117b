"""What is wrong with a state directory, and what can be saved of it: `asa doctor --runs`.

Nothing is thrown away: what is damaged stays beside what was saved, under a name of its own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from asa.core.errors import StateError
from asa.core.event import Event, RunStarted, TaskResult
from asa.core.run import FoldedRun
from asa.log.database import LearnedStore
from asa.log.events import EventLog
from asa.log.history import HISTORY
from asa.log.rundir import RunDirectory, list_runs
from asa.security.files import cannot

_BATCH = 1000


def salvage(state: Path) -> Iterator[tuple[str, list[str], str]]:
    """Every run of a state directory, and what runs have learned: name, what is wrong, what was done about it."""
    for run in list_runs(state):
        yield run.name, *_examined(run.events, _run_problems, lambda run=run: _save_run(run))  # type: ignore[misc]
    for store in (state / "learned.db", state / HISTORY):
        yield store.name, *_examined(store, _store_problems, lambda store=store: _save_store(store))  # type: ignore[misc]


def _examined(path: Path, look: Callable[[Path], list[str]], save: Callable[[], str]) -> tuple[list[str], str]:
    if not path.exists():
        return [], ""
    wrong = look(path)
    if not wrong:
        return [], ""
    try:
        return wrong, save()
    except StateError as error:
        return wrong, f"nothing was done: {error}"


def _run_problems(path: Path) -> list[str]:
    try:
        with EventLog(path) as log:
            return log.problems()
    except StateError as error:
        return [str(error)]


def _store_problems(path: Path) -> list[str]:
    try:
        with contextlib.closing(LearnedStore(path)) as store:
            return store.problems()
    except StateError as error:
        return [str(error)]


def _save_run(run: RunDirectory) -> str:
    """Write the events that can be read, and the results that are whole, into a new log."""
    if run.is_driven():
        return "nothing was done: its driver is alive"
    with run.lock():
        try:
            with EventLog(run.events) as log:
                events, results = [event for _, event in log.readable()[0]], log.results()
        except StateError:
            events, results = [], []
        if not events or not isinstance(events[0], RunStarted):
            return "its log cannot be saved: nothing goes on with it; look for its jobs with 'asa clean'"
        kept = _that_fit(events)
        results = _announced(results, kept)
        fresh = run.path / f".saved-{os.urandom(4).hex()}.db"
        with EventLog(fresh) as log:
            for first in range(0, len(kept), _BATCH):
                log.append(kept[first : first + _BATCH])
            log.store(results)
        aside = _replace(run.events, fresh)
    lost = f", {len(events) - len(kept)} that made no sense without those that are lost were left out" * (
        events != kept
    )
    return f"{len(kept)} events and {len(results)} results were saved{lost}; the damaged log is now {aside.name}"


def _that_fit(events: Sequence[Event]) -> Sequence[Event]:
    """All of these events, or as many of the first as make sense together."""
    run = FoldedRun()
    for count, event in enumerate(events):
        try:
            run.on(event)
        except Exception:  # it speaks of what an event that is lost had brought
            return events[:count]
        if run.illegal:
            return events[:count]
    return events


def _announced(results: Sequence[TaskResult], events: Sequence[Event]) -> list[TaskResult]:
    """The results of tasks that have returned as these events say: others return again, maybe something else."""
    run = FoldedRun()
    for event in events:
        run.on(event)
    return [each for each in results if each.stage in run.stages and run.stages[each.stage].is_done(each.task)]


def _save_store(path: Path) -> str:
    fresh = path.with_name(f".saved-{os.urandom(4).hex()}.db")
    saved = 0
    new = LearnedStore(fresh)
    with contextlib.suppress(StateError), contextlib.closing(LearnedStore(path)) as old:
        saved = old.copy_to(new)
    new.close()
    aside = _replace(path, fresh)
    return f"{saved} records were saved; the damaged file is now {aside.name}"


def _replace(path: Path, fresh: Path) -> Path:
    """Put a database in the place of another, which stays beside it; where that is now."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{path}{suffix}", f"{aside}{suffix}")
        os.rename(fresh, path)
    except OSError as error:
        raise cannot("set aside", path, error) from error
    return aside
