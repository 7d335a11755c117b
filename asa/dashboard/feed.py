"""A log as it grows, and what its page shows: now, or at any time before."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from asa.core.context import Context
from asa.core.errors import AsaError, RunNotFound
from asa.core.event import (
    Believed,
    ContainersSeen,
    DriverStarted,
    Event,
    Learned,
    RunEnded,
    RunStarted,
    RunState,
    Submitting,
    TaskFailed,
    TasksDone,
)
from asa.core.registry import Registry
from asa.dashboard import rows
from asa.dashboard.beliefs import Beliefs
from asa.dashboard.containers import Containers
from asa.dashboard.document import Document, plain
from asa.dashboard.tasks import TaskTable
from asa.log.events import EventLog
from asa.log.output import OutputLine, OutputReader
from asa.log.rundir import RunDirectory, list_runs
from asa.metrics.workflow import summary
from asa.workflows.assemble import logged_plan, logged_strategy
from asa.workflows.explain import reasons
from asa.workflows.plan import Plan

Item = TypeVar("Item")
In = TypeVar("In", contravariant=True)


class Model(Protocol[In]):
    """A fold of a log's items, and the tables that the page shows of it."""

    @property
    def last(self) -> float:
        """Time of the latest item [s]."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to come that matters."""

    @property
    def bars(self) -> int:
        """How many rows `bars_from` has."""

    def on(self, event: In, /) -> None: ...

    def document(self, now: float, *, past: bool = ..., written: bool = ...) -> Document:
        """The tables at a time [s], which is over if it is `past`; whether the log is being `written`."""

    def bars_from(self, first: int, last: int | None = None) -> list[list[float]]: ...


class WatchedLog(Protocol[Item]):
    """What is read: a run's events, or the entries of a queue's log."""

    def read(self, after: int) -> Iterable[tuple[int, Item]]:
        """Numbers and items above `after`, in order."""

    def is_written(self) -> bool:
        """Whether it is being written now, as far as that can be known."""

    def follows_the_clock(self) -> bool:
        """Whether its times are those of the wall clock."""

    def at(self, item: Item) -> float:
        """When it happened, all of it [s]."""

    def part(self, item: Item, when: float) -> Iterable[Item]:
        """Of what happened later than that [s], what had happened by then."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class View:
    """What a page shows at `now` [s]: its tables, and the first `bars` runs of tasks. `live` says that time goes on,
    `written` that the log is being written."""

    document: Document
    bars: int
    now: float
    live: bool = False
    written: bool = False


class Feed(Generic[Item]):
    """A log with its model.

    Notes
    -----
    Items are kept, so that any time may be shown: what is shown at a time is the replay of the items up to the first
    that happened later.
    """

    def __init__(
        self, log: WatchedLog[Item], model: Callable[[], Model[Item]], clock: Callable[[], float] = time.time
    ) -> None:
        self._log, self._make, self._clock = log, model, clock
        self._model = model()
        self._items: list[Item] = []
        self._times: list[float] = []  # never decreasing: of each item the latest time so far
        self._read = 0
        self._live = self._written = False
        self._then: tuple[tuple[float, int], Model[Item]] = (0.0, -1), self._model  # what was replayed last

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first item and of the latest [s]; both 0 without any."""
        return (self._times[0], self._times[-1]) if self._times else (0.0, 0.0)

    def advance(self) -> bool:
        """Read what is new; whether there was anything."""
        before = self._read
        written = self._model.over or self._log.is_written()  # asked first: what ends meanwhile is read below
        for number, item in self._log.read(before):
            at = self._log.at(item)
            self._model.on(item)
            self._items.append(item)
            self._times.append(max(at, self._times[-1] if self._times else at))
            self._read = number
        self._written = written and not self._model.over
        self._live = self._written and self._log.follows_the_clock()
        return self._read != before

    def look(self) -> View:
        """The page as of now; of a log that is not being written, as of its last item."""
        now = max(self._clock(), self._model.last) if self._live else self._model.last
        document = self._model.document(now, written=self._written)
        return View(document, self._model.bars, now, self._live, self._written)

    def look_at(self, when: float) -> View:
        """The page as it was at a time [s]; it is replayed, while others read the page of now."""
        model = self._at(when)
        return View(model.document(max(when, model.last), past=True), model.bars, when)

    def tasks(self, when: float | None) -> TaskTable | None:
        """The tasks of a run, now or as they were at a time [s]; None of what has none."""
        model = self._model if when is None else self._at(when)
        if not isinstance(model, RunModel):
            return None
        now = max(self._clock(), model.last) if when is None and self._live else max(when or 0.0, model.last)
        return model.tasks(now, self._written or when is not None)

    def _at(self, when: float) -> Model[Item]:
        key = when, (count := bisect_right(self._times, when))
        if self._then[0] != key:
            later = self._log.part(self._items[count], when) if count < len(self._items) else ()
            self._then = key, replayed(self._make, [*self._items[:count], *later])
        return self._then[1]

    def bars(self, first: int, last: int) -> list[list[float]]:
        """Runs of tasks from row `first` to before `last`."""
        return self._model.bars_from(first, last) if last > first else []

    def close(self) -> None:
        self._log.close()


def replayed(make: Callable[[], Model[Any]], items: Sequence[Any]) -> Model[Any]:
    """The model of these items."""
    model = make()
    for item in items:
        model.on(item)
    return model


RUNS, QUEUES = "runs", "queues"
LISTED_MOST = 200
"""Runs, and queues, that are listed: the newest."""


_PAGES = Registry("page", {}, group="asa.pages")
"""Objects with `logs(state directory)`, the paths of all logs, and `read(path)`, the entries of one."""


class RunLog:
    """A run's event log, as a `Feed` reads it."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._log = EventLog(directory.events)
        self._virtual = False

    def read(self, after: int) -> Iterable[tuple[int, Event | TasksDone]]:
        """Tasks that returned together are one item, with the number of the last."""
        for number, event in self._log.packed(after):
            if isinstance(event, RunStarted):
                self._virtual = event.is_virtual
            yield number, event

    def is_written(self) -> bool:
        """Whether a driver is at it."""
        return self._directory.is_driven()

    def follows_the_clock(self) -> bool:
        """False for a run in virtual time."""
        return not self._virtual

    def at(self, event: Event | TasksDone) -> float:
        return max(event.at) if isinstance(event, TasksDone) else event.at

    def part(self, event: Event | TasksDone, when: float) -> Iterable[Event]:
        """Of tasks that returned together those that had by then."""
        return takewhile(lambda one: one.at <= when, event.events()) if isinstance(event, TasksDone) else ()

    def close(self) -> None:
        self._log.close()


class QueueLog:
    """The log of a queue, as a `Feed` reads it: a file of lines, which only grows."""

    def __init__(self, path: Path, read: Callable[[Path], Sequence[Entry]]) -> None:
        self._path, self._read_all = path, read
        self._size = -1
        self._entries: list[Entry] = []

    def read(self, after: int) -> Iterable[tuple[int, Entry]]:
        """Numbers and entries above `after`; the first has number 1."""
        size = self._path.stat().st_size
        if size != self._size:
            self._entries, self._size = list(self._read_all(self._path)), size
        yield from enumerate(self._entries[after:], after + 1)

    def is_written(self) -> bool:
        """Taken to be: it cannot be known."""
        return True

    def follows_the_clock(self) -> bool:
        """Never: its times count from a start that it does not tell."""
        return False

    def at(self, entry: Entry) -> float:
        return float(entry["at"])

    def part(self, entry: Entry, when: float) -> Iterable[Entry]:
        """An entry is one moment."""
        return ()

    def close(self) -> None:
        """Nothing is open."""


class Sources:
    """Runs and queues of one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def find(self, name: str) -> tuple[str, str]:
        """Kind and full name of what this, or a beginning of it, names; for "" the newest run, else the newest queue.

        Raises
        ------
        RunNotFound
            When it names nothing, or more than one thing.
        """
        queues = self._queues()
        if name in queues:
            return QUEUES, name
        if name:
            return RUNS, RunDirectory.open(self._state, name).name
        if runs := list_runs(self._state):
            return RUNS, runs[-1].name
        if queues:
            return QUEUES, next(iter(queues))
        raise RunNotFound(f"there are no runs in {self._state}: start one with asa run")

    def listed(self) -> list[dict[str, Any]]:
        """All of them, the newest first; of what cannot be read, why not."""
        rows = []
        for directory in reversed(list_runs(self._state)[-LISTED_MOST:]):
            try:
                rows.append(_row(directory))
            except AsaError as error:
                row = {"kind": RUNS, "name": directory.name, "state": "damaged", "problem": str(error)}
                rows.append(row)
        return rows + [{"kind": QUEUES, "name": name} for name in list(self._queues())[:LISTED_MOST]]

    def open(self, kind: str, name: str) -> Feed[Any]:
        if kind == QUEUES and name in (queues := self._queues()):
            return Feed(queues[name], QueueModel)
        if kind != RUNS:
            raise RunNotFound(f"no queue {name!r} in {self._state}")
        return Feed(RunLog(self.directory(name)), RunModel)

    def directory(self, name: str) -> RunDirectory:
        """The directory of a run, by its full name.

        Raises
        ------
        RunNotFound
            When there is none.
        """
        directory = RunDirectory.open(self._state, name)
        if directory.name != name:
            raise RunNotFound(f"no run {name!r} in {self._state}")
        return directory

    def _queues(self) -> dict[str, QueueLog]:
        """Logs of queues by their directory's name, the newest first."""
        pages = [_PAGES.load(name) for name in _PAGES]
        found = [(path, page.read) for page in pages for path in page.logs(self._state)]
        found.sort(key=lambda each: each[0].stat().st_mtime, reverse=True)
        return {path.parent.name: QueueLog(path, read) for path, read in found}


TAIL_MOST = 400
"""Lines of output that are shown."""
LETTERS_MOST = 2000
"""Letters of a line of output that are shown."""
TAILS_MOST = 8
"""Of how many selections it is kept how far they were read."""
OutputRow = tuple[str, str, bool]
"""A line of output: its task, its text, and whether it is a note of ASA's."""


class OutputTails:
    """The end of what tasks have printed, of a few runs, stages and tasks that are looked at again and again."""

    def __init__(self) -> None:
        self._tails: dict[tuple[Path, str | None, int | None, bool], tuple[OutputReader, deque[OutputLine]]] = {}
        self._reading = Lock()

    def rows(self, directory: RunDirectory, stage: str | None, index: int | None, failed: bool) -> list[OutputRow]:
        """The last lines there are, `TAIL_MOST` at most.

        Parameters
        ----------
        stage, index
            Of what; None for all.
        failed
            Only attempts that failed.
        """
        key = (directory.path, stage, index, failed)
        with self._reading, EventLog(directory.events) as log:
            if (kept := self._tails.pop(key, None)) is None:
                kept = OutputReader(directory.path, stage, index, failed=failed), deque(maxlen=TAIL_MOST)
            reader, tail = kept
            tail.extend(reader.newest(log.each(TaskFailed), TAIL_MOST))
            while len(self._tails) >= TAILS_MOST:
                del self._tails[next(iter(self._tails))]
            self._tails[key] = reader, tail
            return [(line.task, line.text[:LETTERS_MOST], line.note) for line in tail]


def _row(directory: RunDirectory) -> dict[str, Any]:
    with EventLog(directory.events) as log:
        started, ended, state = log.latest(RunStarted), log.latest(RunEnded), directory.standing(log)
    row: dict[str, Any] = {"kind": RUNS, "name": directory.name, "state": state.value}
    if isinstance(started, RunStarted):
        described = ("workflow", "backend", "strategy", "site", "partition")
        row |= {name: getattr(started, name) for name in described}
        row |= {"started": plain(started.at), "stages": len(started.stages), "virtual": started.is_virtual}
        if state is not RunState.RUNNING:
            last = ended.at if isinstance(ended, RunEnded) else directory.touched
            row["makespan_s"] = plain(max(0.0, last - started.at))
    return row


_EMPTY: Document = {}


class RunModel:
    """A run so far; `on` folds one more event in, `document` says what the page shows of it.

    What is folded is the run's plan: reports take their numbers from the same state, and ``asa explain`` its words.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.learned: list[Learned] = []
        self.beliefs = Beliefs(None)
        self.containers = Containers()
        self._contexts: dict[str, Context | None] = {}
        self._failures: dict[tuple[str, int], list[TaskFailed]] = {}
        self._table: tuple[bool, TaskTable] | None = None

    @property
    def over(self) -> bool:
        """Whether the run's outcome is known and no job of it is left."""
        return self.plan is not None and self.plan.closed

    @property
    def last(self) -> float:
        return 0.0 if self.plan is None else self.plan.last

    @property
    def bars(self) -> int:
        return 0 if self.plan is None else len(self.plan.attempts)

    def on(self, event: Event | TasksDone) -> None:
        self._table = None
        if isinstance(event, RunStarted) and self.plan is None:
            strategy = logged_strategy(event)
            self.plan, self.beliefs = logged_plan(event), Beliefs(None if strategy is None else strategy.estimator)
        if self.plan is not None:
            self._observe(event, self.plan)
            self.plan.on(event)

    def _observe(self, event: Event | TasksDone, plan: Plan) -> None:
        """Keep what is only looked at: waits, what is believed of them, and containers."""
        match event:
            case Learned():
                self.learned.append(event)
                geometry = rows.geometry(event, plan)
                if geometry is not None:
                    self.beliefs.learn(geometry, event, self._contexts.pop(event.allocation, None))
            case Submitting():
                self._contexts[event.allocation] = event.context
            case Believed():
                self.beliefs.believe(event)
            case TaskFailed():
                self._failures.setdefault((event.stage, event.index), []).append(event)
            case ContainersSeen() | DriverStarted():
                self.containers.on(event)

    def document(self, now: float, *, past: bool = False, written: bool = True) -> Document:
        """All tables but `bars`, as of `now` [s since the epoch]; empty before the first event.

        Parameters
        ----------
        past
            Whether that time is over: what estimators have learned by now, which is asked for beside the log, is not
            what they believed then. Where the log does not tell, the run's own waits are replayed.
        written
            Whether a driver is at it; without one, a run that has no outcome is interrupted, and what had not ended
            when it was last seen is of unknown state.
        """
        if (plan := self.plan) is None:
            return _EMPTY
        run, held = summary(plan, now, driven=written), plan.pool.held
        numbers = {stage.name: number for number, stage in enumerate(run.stages)}
        expected = rows.expected_end(plan, now) if written else None
        return {
            "run": rows.run_row(run, plan.trouble) | {"tells": self._tells(), "expected": plain(expected, 0)},
            "stages": {
                stage.name: rows.stage_row(position, stage, run, plan.stages[stage.name])
                for position, stage in enumerate(run.stages)
            },
            "jobs": {job.token: rows.job_row(job, plan.pool.ever[job.token], run.state) for job in run.jobs},
            "underway": {key: found for key, item in held.items() if (found := rows.underway(item, numbers))},
            "nodes": rows.node_rows(held),
            "waits": {event.allocation: rows.wait_row(event, plan) for event in self.learned},
            "why": rows.why_rows(reasons(plan, now, driven=written)),
            "beliefs": self.beliefs.replay() if past and not self.beliefs.logged else self.beliefs.table(),
            "containers": self.containers.table({node for item in held.values() for node in item.nodes}),
            "names": self._names(plan),
        }

    def tasks(self, now: float, driven: bool) -> TaskTable | None:
        """Its tasks at a time [s]; None before the first event. `driven`: whether a driver is at it."""
        if self.plan is None:
            return None
        if self._table is None or self._table[0] != driven:
            self._table = driven, TaskTable(self.plan, self._failures, now, driven)
        return self._table[1].at(now)

    def bars_from(self, first: int, last: int | None = None) -> list[rows.Bar]:
        """Runs of tasks from this one on, to before `last` or all, in the order in which they were reported.

        Times count from the run's start. They never change, so none is needed twice.
        """
        plan = self.plan
        assert plan is not None and plan.start is not None
        return rows.bars(plan.attempts, lambda name: plan.stages[name].spec, first, last, plan.start.at)

    def _tells(self) -> list[str]:
        """What the log has that older logs have not."""
        return [name for name in ("beliefs", "containers") if getattr(self, name).logged]

    def _names(self, plan: Plan) -> dict[str, Any]:
        """What the numbers in `bars` stand for."""
        log = plan.attempts
        return {"stages": list(log.stages), "jobs": list(log.allocations), "nodes": list(log.nodes)}


Entry = Mapping[str, Any]
"""``at`` [s], and either an ``event`` of a job or a ``decision`` about one."""

_DECIDED = ("Start", "StartGuest", "SetShare", "Evict", "Keep")


class QueueModel:
    """A queue so far; `on` folds one more entry in. Times count from the queue's start [s]."""

    def __init__(self) -> None:
        self.last = 0.0
        self._jobs: dict[str, dict[str, Any]] = {}
        self._decisions: dict[str, dict[str, Any]] = {}

    over = False
    """Never known: a queue is resumed under the same log."""
    bars = 0

    def on(self, entry: Entry) -> None:
        """Fold an entry; what it does not know of changes nothing."""
        at = float(entry["at"])
        self.last = max(self.last, at)
        if (decision := entry.get("decision")) in _DECIDED:
            self._decisions[str(len(self._decisions))] = _decision(entry)
            self._decided(decision, entry, at)
        elif job := entry.get("job"):
            self._happened(entry, str(job), at)

    def document(self, now: float, *, past: bool = False, written: bool = True) -> Document:
        """The queue's tables: all that is shown of one is in its log."""
        states = [job["state"] for job in self._jobs.values()]
        counts = {state: states.count(state) for state in ("running", "ended", "failed", "waiting")}
        return {"queue": counts, "queued": dict(self._jobs), "decisions": dict(self._decisions)}

    def bars_from(self, first: int, last: int | None = None) -> list[list[float]]:
        """None: jobs are what is drawn of a queue."""
        return []

    def _decided(self, decision: str, entry: Entry, at: float) -> None:
        match decision:
            case "Start":
                self._enter(str(entry["job"]), at, None, 1.0)
            case "StartGuest":
                self._enter(str(entry["job"]), at, str(entry["host"]), entry.get("share"))
            case "SetShare":
                host = self._host(str(entry["guest"]))
                self._enter(str(entry["guest"]), at, host, entry.get("share"))
            case "Evict":
                self._leave(str(entry["guest"]), at, "waiting")

    def _host(self, name: str) -> str | None:
        stays = self._job(name)["stays"]
        host: str | None = stays[-1]["host"] if stays else None
        return host

    def _happened(self, entry: Entry, name: str, at: float) -> None:
        match entry.get("event"):
            case "queued":
                needs = {"cores": plain(entry.get("cores")), "bound": plain(entry.get("bound"))}
                self._jobs[name] = self._job(name) | needs
            case "started":
                self._jobs[name] = self._job(name) | {"nodes": list(entry.get("nodes", ()))}
            case "requeued":
                self._leave(name, at, "waiting")
            case "ended":
                problem = str(entry.get("problem") or "")
                self._leave(name, at, "failed" if problem else "ended")
                found = {name: plain(entry.get(name)) for name in ("run_time_s", "alone_s", "slowdown")}
                loss = {name: plain(value) for name, value in (entry.get("loss") or {}).items()}
                self._jobs[name] = self._job(name) | found | {"problem": problem, "loss": loss}

    def _job(self, name: str) -> dict[str, Any]:
        unknown: dict[str, Any] = {"state": "waiting", "stays": [], "nodes": [], "cores": None, "bound": None}
        return self._jobs.get(name, unknown)

    def _enter(self, name: str, at: float, host: str | None, share: float | None) -> None:
        """It has these cores from now on. Rows are made anew, never changed: a page may still hold the old."""
        stays = [*self._left(name, at), {"since": plain(at), "until": None, "host": host, "share": plain(share)}]
        self._jobs[name] = self._job(name) | {"state": "running", "stays": stays}

    def _leave(self, name: str, at: float, state: str) -> None:
        self._jobs[name] = self._job(name) | {"state": state, "stays": self._left(name, at)}

    def _left(self, name: str, at: float) -> list[dict[str, Any]]:
        stays: list[dict[str, Any]] = self._job(name)["stays"]
        return [stay if stay["until"] is not None else stay | {"until": plain(at)} for stay in stays]


def _decision(entry: Entry) -> dict[str, Any]:
    """A row of the table of decisions; `happiness` is that of the job whose cores it was about, None where infinite."""
    why = entry.get("why") or {}
    state = why.get("state") or {}
    return {
        "at": plain(entry["at"]),
        "decision": entry["decision"],
        "job": entry.get("job") or entry.get("guest"),
        "host": entry.get("host"),
        "share": plain(entry.get("share")),
        "hard": bool(entry.get("hard")),
        "measured": "happiness" in state,
        "happiness": plain(state.get("happiness")),
        "why": dict(why),
    }
