"""Results of earlier runs, in the place of tasks that would do the same again, and what is kept for later runs.

The key of a call is a number for its stage's code, for what it is called with, and for what the stage says besides. The
files that it is given, or returns, are kept with its result, and must be as they were. Whatever goes wrong here means
that a task runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import os
import pickle
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from asa.core.errors import AsaError, InvalidInput, StateError, UnknownName
from asa.core.event import StageLookedUp, StagesAdded, TaskResult
from asa.core.job import SETUP
from asa.core.run import FoldedRun
from asa.core.task import Value
from asa.log.events import EventLog
from asa.log.reuse import Files, KeepLimits, Known, ReuseStore, StageCalls, State
from asa.log.rundir import RunDirectory
from asa.log.values import check_file, note_refs
from asa.security.files import sync
from asa.workflows.fingerprint import SIZE, Fingerprint, Stored, digest, plain
from asa.workflows.graph import Graph, make_graph
from asa.workflows.payload import Payloads
from asa.workflows.settings import Settings, load_settings
from asa.workflows.stage import HASH, Node, Stage, StageCommand, nodes_in, replace_nodes

STORE = "reuse.db"
"""Name of the store in a state directory."""

_READ_MOST = 4 << 20
"""Larger results in files are not searched for names of files [bytes]."""
_NAME_MOST = 4096
_NAMED_MOST = 50
_COMPARED_MOST = 1000
_PENDING_MOST, _PENDING_S = 20_000, 5.0
"""How many calls are written at once, and how long until then [s]: what dies with a driver."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Code:
    """What a stage does, as a number.

    Parameters
    ----------
    number
        It.
    parts
        What it was made of, and a number for each.
    files
        Names of files that its program may read, or be.
    modules
        Files of the user's own that workers import.
    """

    number: bytes
    parts: tuple[tuple[str, str], ...]
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


def _fingerprint(function: Any) -> Fingerprint:
    package = str(getattr(function, "__module__", "") or "").partition(".")[0]
    found = Fingerprint("" if package in sys.stdlib_module_names else package)
    found.add(function)
    return found


def code_of(
    stage: Stage[..., Any], settings: Settings, fingerprint: Callable[[Any], Fingerprint] = _fingerprint
) -> Code:
    """What a stage does, where and with what.

    Raises
    ------
    InvalidInput
        When its function reaches something without an identity that lasts.
    """
    function, needs, parts = stage.function, stage.needs, dict[str, str]()

    def part(label: str, *values: Any) -> None:
        found = Fingerprint()
        for value in values:
            found.add(value)
        parts[label] = found.digest().hex()

    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    if isinstance(function, StageCommand):
        part("command line", function.words, *(["shell"] if function.shell else []))
        part("outputs of the command", function.outputs, *([function.files] if function.files else []))
        part("exit codes that count as success", function.ok)
        part("environment of the command", function.env)
        words = [word for text in function.words for word in (_WORD.findall(text) if function.shell else [text])]
        files = tuple(word for word in words if "{" not in word)
    else:
        found = fingerprint(function)
        parts[_WHOLE] = found.digest().hex()
        parts |= found.parts()
        files, modules = tuple(found.files), tuple(found.modules)
    part("working directory", settings.workdir)
    part("Python", *sys.version_info[:2])
    if needs.env:
        part("environment of the stage", needs.env)
    if setup := dict(needs.options).get(SETUP):
        part("setup of its jobs", setup)
    for what, version in needs.version:
        part(f"version of {what}", version)
    if stage.launch is not None:
        part("launcher", stage.launch.words, stage.launch.ranks)
    if needs.reuse == HASH:
        part("files by their contents")
    if needs.reuse is False:
        part(f"line of runs {settings.line}")
    number = digest(*(text.encode() for each in sorted(parts.items()) for text in each))
    return Code(number, tuple(parts.items()), files, modules)


@dataclass(frozen=True, slots=True)
class _Common:
    """What all calls of a stage share: code and arguments; files and modules that workers import, as they were then."""

    code: Code
    number: bytes
    files: dict[str, State]
    modules: dict[str, State]

    @property
    def parts(self) -> dict[str, str]:
        """What it is made of, by name, and a number for each."""
        files = {f"file {file}": str(state) for file, state in self.files.items()}
        return dict(self.code.parts) | (files if len(files) <= _NAMED_MOST else {})


@dataclass(frozen=True, slots=True)
class Call:
    """What a task is, as a number, and the names of files that it may be given."""

    key: bytes
    files: tuple[str, ...]


class Keys:
    """Tells the calls of a run's tasks.

    Parameters
    ----------
    graph, settings
        The workflow, and how it is run.
    columns
        What a parallel stage is mapped over.
    value, width
        A stored result, by stage and index; the number of tasks of a stage.
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        columns: Callable[[str], Sequence[Sequence[Any] | Node]],
        value: Callable[[str, int], Value],
        width: Callable[[str], int],
    ) -> None:
        self._graph, self._settings, self._columns, self._width, self._value = graph, settings, columns, width, value
        self._common: dict[str, _Common] = {}
        self._codes: dict[str, tuple[Code, dict[str, State]]] = {}  # by the key of a stage, with its modules
        self._functions: dict[int, tuple[Any, Fingerprint]] = {}  # by their ids, which none gets that is kept here
        self._whole: dict[str, Stored] = {}
        self._listed: dict[str, Sequence[Sequence[Any]] | None] = {}

    def common(self, name: str) -> _Common:
        """What all calls of a stage, whose predecessors are done, share."""
        if (known := self._common.get(name)) is not None:
            return known
        node, found = self._graph.nodes[name], Fingerprint()
        if (coded := self._codes.get(node.stage.key)) is None:
            code = code_of(node.stage, self._settings, self._fingerprint)
            self._codes[node.stage.key] = coded = code, self.states(name, code.modules)
        code, modules = coded
        if node.mapped:
            found.add(replace_nodes(node.kwargs, self._stored))
        states = self.states(name, (*code.files, *found.files))
        found.add(states)
        made = _Common(code, digest(code.number, found.digest()), states, modules)
        self._common[name] = made
        return made

    def _fingerprint(self, function: Any) -> Fingerprint:
        """That of a function, which many stages may have."""
        if (known := self._functions.get(id(function))) is None:
            self._functions[id(function)] = known = function, _fingerprint(function)
        return known[1]

    def call(self, name: str, index: int) -> Call:
        """A task of a stage whose predecessors are done.

        Raises
        ------
        InvalidInput
            When it has no identity that lasts.
        """
        node, common = self._graph.nodes[name], self.common(name).number
        if node.mapped and (columns := self._lists(node, name)) is not None:
            values = [column[index] for column in columns]
            if (short := plain(values)) is not None:
                return Call(_key(common, short), tuple([each for each in values if type(each) is str]))
        found = Fingerprint()
        for _, value in self._arguments(node, name, index):
            found.add(value)
        return Call(_key(common, found.digest()), tuple(found.files))

    def _lists(self, node: Node, name: str) -> Sequence[Sequence[Any]] | None:
        """What a parallel stage is mapped over, where that is lists only."""
        if name not in self._listed:
            columns = [each for each in self._columns(name) if not isinstance(each, Node)]
            self._listed[name] = columns if len(columns) == len(node.args) else None
        return self._listed[name]

    def arguments(self, name: str, index: int) -> dict[str, tuple[str, tuple[str, ...]]]:
        """A number for each argument of a task, and the files that it may name."""
        node, numbers = self._graph.nodes[name], dict[str, tuple[str, tuple[str, ...]]]()
        common = [(key, replace_nodes(item, self._stored)) for key, item in node.kwargs.items() if node.mapped]
        for key, value in (*self._arguments(node, name, index), *common):
            found = Fingerprint()
            found.add(value)
            numbers[key] = found.digest().hex(), tuple(found.files)
        return numbers

    def _arguments(self, node: Node, name: str, index: int) -> Iterator[tuple[str, Any]]:
        if not node.mapped:
            for place, item in enumerate(node.args):
                yield str(place + 1), replace_nodes(item, self._stored)
            for key, item in node.kwargs.items():
                yield key, replace_nodes(item, self._stored)
            return
        for place, column in enumerate(self._columns(name)):
            if isinstance(column, Node):
                yield str(place + 1), self._result(self._graph.names[column], index)
            else:
                yield str(place + 1), replace_nodes(column[index], self._stored)

    def _stored(self, node: Node) -> Stored:
        """What stands for the result of a stage."""
        name = self._graph.names[node]
        if (known := self._whole.get(name)) is None:
            if node.mapped:
                each = [self._result(name, index) for index in range(self._width(name))]
                files = dict.fromkeys(file for item in each for file in item.files)
                known = Stored(digest(b"many", *(item.number for item in each)), tuple(files))
            else:
                known = self._result(name, 0)
            self._whole[name] = known
        return known

    def _result(self, name: str, index: int) -> Stored:
        """What stands for the result of a task."""
        name, index, value = self._graph.end_of(name, index)
        if value is None:
            return stored(self._value(name, index))
        found = Fingerprint()
        found.add(replace_nodes(value, self._stored))
        return Stored(found.digest(), tuple(found.files))

    def states(self, name: str, files: Sequence[str]) -> dict[str, State]:
        """How those of these are that are files."""
        whole = self._graph.nodes[name].stage.needs.reuse == HASH
        found = ((file, self._state(file, whole)) for file in files)
        return {file: state for file, state in found if state is not None}

    def _state(self, file: str, whole: bool) -> State:
        """How a file is, or None where there is none."""
        if not file or len(file) > _NAME_MOST:
            return None
        path = os.path.join(self._settings.workdir, file)
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                return None
            if not whole:
                return [found.st_size, found.st_mtime_ns]
            with open(path, "rb") as content:
                return hashlib.file_digest(content, "blake2b").hexdigest()[:32]
        except (OSError, ValueError):
            return None


def _key(common: bytes, arguments: bytes) -> bytes:
    """The key of a call. It begins with what all calls of its stage have in common: they are kept side by side."""
    return common[:_BESIDE] + hashlib.blake2b(common + arguments, digest_size=SIZE - _BESIDE).digest()


_BESIDE = 4


class Reuse:
    """What a run takes from earlier ones, and keeps for later ones. Nothing that goes wrong here stops the run.

    Parameters
    ----------
    directory, graph, settings
        The run.
    payloads, log
        Of the run: arguments, and results.
    """

    def __init__(
        self,
        directory: RunDirectory,
        graph: Graph,
        settings: Settings,
        payloads: Payloads,
        log: EventLog,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        settings = replace(settings, line=settings.line or directory.name)
        self._directory, self._settings = directory, settings
        self._keys = Keys(graph, settings, payloads.columns, payloads.result, payloads.width)
        self._store: ReuseStore | None = None
        self._broken = ""  # why there is no store
        self._unknown: set[str] = set()  # stages whose calls have no fingerprint
        self._calls: dict[tuple[str, int], Call] = {}  # those that were looked for, and are to be launched
        self._launched: dict[tuple[str, int], tuple[Call, dict[str, State]]] = {}
        self._pending: dict[str, list[tuple[bytes, int, bytes, Files]]] = {}
        self._count, self._since, self._written = 0, now(), False

    # ------------------------------------------------------------ what earlier runs have

    def look_up(self, event: StageLookedUp, tasks: Sequence[int]) -> StageLookedUp:
        """The event with what was found for these tasks of its stage."""
        name = event.stage
        try:
            return self._looked_up(event, tasks)
        except Exception as error:  # arguments are of the user's own classes; a store may be damaged in any way
            self._complain(f"no result of an earlier run is used for stage {name!r}", error)
            return replace(event, trouble=_said(error))

    def _looked_up(self, event: StageLookedUp, tasks: Sequence[int]) -> StageLookedUp:
        name = event.stage
        calls = {index: self._keys.call(name, index) for index in tasks}
        self._calls |= {(name, index): call for index, call in calls.items()}
        found: dict[int, tuple[str, TaskResult]] = {}
        trouble: list[str] = []
        for state in (self._directory.state, *map(Path, self._settings.reuse_from)):
            left = {index: call for index, call in calls.items() if index not in found}
            try:
                found |= self._found_in(state, name, left)
            except StateError as error:
                self._complain(f"results of earlier runs in {state} are not used", error)
                trouble.append(str(error))
        for index in found:
            del self._calls[name, index]
        ranges: dict[str, list[tuple[int, int]]] = {}
        for index, (run, _) in sorted(found.items()):
            some = ranges.setdefault(run, [])
            if some and some[-1][1] == index:
                some[-1] = some[-1][0], index + 1
            else:
                some.append((index, index + 1))
        if any(result.path for _, result in found.values()):
            sync(self._directory.values)
        return replace(
            event,
            reused=tuple((run, tuple(some)) for run, some in ranges.items()),
            trouble="; ".join(trouble),
            found=tuple(result for _, result in found.values()),
        )

    def _found_in(self, state: Path, name: str, calls: Mapping[int, Call]) -> dict[int, tuple[str, TaskResult]]:
        """What a state directory has for these calls: the run, and the result, as this run's own."""
        with contextlib.ExitStack() as held:
            if state == self._directory.state:
                store = self._opened()
            elif (state / STORE).exists():
                store = held.enter_context(contextlib.closing(ReuseStore(state / STORE)))
            else:
                raise StateError(f"{state} has no results to reuse: there is no {STORE} in it")
            known = store.look_up([call.key for call in calls.values()])
        chosen: dict[tuple[str, str], list[tuple[int, Known]]] = {}
        states: dict[str, State] = {}
        found: dict[int, tuple[str, TaskResult]] = {}
        depth = 0
        while left := [index for index in calls if index not in found and depth < len(known.get(calls[index].key, ()))]:
            chosen.clear()
            for index in left:
                each = known[calls[index].key][depth]
                if self._is_as_it_was(name, calls[index], each.files, states):
                    chosen.setdefault((each.run, each.stage), []).append((index, each))
            for (run, stage), some in chosen.items():
                for index, each, value in self._taken(RunDirectory(state / "runs" / run), stage, some):
                    path, data = (value, None) if isinstance(value, str) else (None, value)
                    found[index] = run, TaskResult(name, index, data, path)
                    if run != self._directory.name:
                        self._keep(name, (calls[index].key, index, each.value, each.files))
            depth += 1
        return found

    def _is_as_it_was(self, name: str, call: Call, files: Files, states: dict[str, State]) -> bool:
        """Whether the files that a call is given, and those that it has returned, are as they were afterwards."""
        if not files and not call.files:
            return True
        wanted = [file for file in (*files, *call.files) if file not in states]
        states |= dict.fromkeys(wanted, None)
        states |= self._keys.states(name, wanted)
        return all(states[file] == files.get(file) for file in (*files, *call.files))

    def _taken(
        self, source: RunDirectory, stage: str, wanted: Sequence[tuple[int, Known]]
    ) -> Iterator[tuple[int, Known, Value]]:
        """Results of a run that are whole and the ones that are meant, of large ones a file of this run."""
        if not source.events.exists():
            return  # the run was removed
        try:
            with contextlib.closing(EventLog(source.events)) as log:
                values = log.whole_values(stage, sorted({known.task for _, known in wanted}))
        except StateError as error:
            self._complain(f"results of run {source.name} are not used", error)
            return
        for index, known in wanted:
            value = values.get(known.task)
            if value is None or _number(value) != known.value:
                continue
            try:
                if isinstance(value, str):
                    kept = source.values / Path(value).name
                    check_file(str(kept))
                    value = str(_copied(kept, self._directory.values / kept.name))
                if gone := [file for file in note_refs(self._directory.values, value) if not os.path.exists(file)]:
                    raise StateError(f"it refers to {gone[0]}, which is gone")
            except (StateError, OSError) as error:
                self._complain(f"a result of run {source.name} is not used", error)
                continue
            yield index, known, value

    # ------------------------------------------------------------ what later runs may have

    def launching(self, name: str, tasks: Sequence[int]) -> None:
        """Tasks are about to be given to an allocation."""
        if self._broken or name in self._unknown:
            return
        try:
            for index in tasks:
                call = self._calls.pop((name, index), None) or self._keys.call(name, index)
                self._launched[name, index] = call, self._keys.states(name, call.files) if call.files else {}
            self._pending.setdefault(name, [])
        except Exception as error:  # arguments are of the user's own classes
            self._unknown.add(name)
            self._complain(f"later runs cannot reuse results of stage {name!r}", error)

    def done(self, returned: TaskResult) -> None:
        """A task has returned, and its result is in the log."""
        name, index, data, path = returned
        if (launched := self._launched.pop((name, index), None)) is None or self._broken:
            return
        call, before = launched
        value = path if data is None else data
        assert value is not None, "it returned something"
        try:
            files: Files = {}
            names = files_in(value)
            if call.files or names:
                outputs = self._keys.states(name, tuple(names))
                files = self._keys.states(name, call.files)
                for file, state in before.items():
                    if file not in outputs and files.get(file) != state:
                        _log.info(
                            "stage %s, task %d: %s changed while it ran, so its result is not reused: if the task "
                            "writes that file, return its path",
                            name,
                            index,
                            file,
                        )
                        return
                files = {**files, **outputs}
            self._keep(name, (call.key, index, _number(value), files))
        except Exception as error:  # results are of the user's own classes
            self._complain(f"later runs cannot reuse a result of stage {name!r}", error)

    def _keep(self, name: str, row: tuple[bytes, int, bytes, Files]) -> None:
        self._pending.setdefault(name, []).append(row)
        self._count += 1
        if self._count >= _PENDING_MOST:
            self.flush()

    def tend(self) -> float:
        """Write what is due; how long until something will be [s]."""
        if not self._pending:
            return math.inf
        left = self._since + _PENDING_S - self._now()
        if left > 0:
            return left
        self.flush()
        return math.inf

    def flush(self) -> None:
        """Write what has returned so far."""
        pending, self._pending, self._count, self._since = self._pending, {}, 0, self._now()
        try:
            same: dict[int, bool] = {}  # whether modules are as they were, by their states
            kept: list[StageCalls] = []
            for name, rows in pending.items():
                common = self._keys.common(name)
                if id(common.modules) not in same:
                    same[id(common.modules)] = self._keys.states(name, common.code.modules) == common.modules
                files = (*common.files, *common.code.files)
                if same[id(common.modules)] and self._keys.states(name, files) == common.files:
                    kept.append((name, common.parts, rows))
            if kept:
                self._opened().add(self._directory.name, kept, self._now())
                self._written = True
        except Exception as error:  # whatever is wrong with the store
            self._complain("later runs cannot reuse results of this run", error)
            self._broken = _said(error)

    def _opened(self) -> ReuseStore:
        if self._broken:
            raise StateError(self._broken)
        if self._store is None:
            self._store = ReuseStore(self._directory.state / STORE)
        return self._store

    def close(self) -> None:
        """Write what is left, and forget what is too much."""
        self.flush()
        store, self._store = self._store, None
        if store is None:
            return
        try:
            if self._written:
                runs = self._directory.state / "runs"
                if went := store.prune(KeepLimits.of(), lambda run: (runs / run).is_dir(), self._now()):
                    _log.info("%s: %s", self._directory.state / STORE, went)
            store.close()
        except Exception as error:  # as above
            self._complain("nothing of it is forgotten", error)

    def _complain(self, what: str, error: Exception) -> None:
        _log.warning("%s: %s", what, _said(error))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, AsaError) else f"{type(error).__name__}: {error}"


def _copied(source: Path, target: Path) -> Path:
    """A second name for a file that is never changed; a copy where there cannot be one."""
    try:
        os.link(source, target)
    except FileExistsError:
        check_file(str(target))
    except OSError:
        draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file, open(source, "rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    return target


# ---------------------------------------------------------------- why a task ran


def why(directory: RunDirectory, name: str, index: int) -> list[str]:
    """Why a task of a run ran although runs before it had done a stage of that name, or why it did not, in lines.

    Raises
    ------
    InvalidInput
        When there is no such stage or task.
    StateError
        When the run, or the store, cannot be read.
    """
    settings = load_settings(directory)
    settings = replace(settings, line=settings.line or directory.name)
    graph, run = make_graph(settings.result), FoldedRun()
    with contextlib.ExitStack() as held:
        log = held.enter_context(EventLog(directory.events))
        keys = _keys_of(directory, graph, settings, log, run)
        if name not in graph.nodes:
            raise UnknownName(f"stage of run {directory.name}", name, graph.nodes)
        for _, event in log.packed():
            run.on(event)
        stage = run.stages[name]
        if stage.width is not None and index >= stage.width:
            raise InvalidInput(f"stage {name!r} of run {directory.name} has {stage.width} tasks, counted from 0")
        for source, ranges in stage.sources:
            if any(start <= index < stop for start, stop in ranges):
                return [f"task {index} of {name} did not run: its result is that of run {source}, and nothing differed"]
        lines = [] if stage.launched else [f"stage {name} was not launched in this run"]
        if graph.nodes[name].stage.needs.reuse is False and not stage.spec.reuse:
            lines.append("it says reuse=False, so that it runs in each run")
        elif not stage.spec.reuse:
            lines.append("this run was not asked to reuse anything: start it with --reuse")
        if stage.unused:
            lines.append(f"not all could be looked for: {stage.unused}")
        store = held.enter_context(contextlib.closing(ReuseStore(directory.state / STORE)))
        codes = store.code(name)
        mine = codes.get(directory.name)
        before = list(codes)[list(codes).index(directory.name) + 1 :] if mine else list(codes)
        before = [each for each in before if (directory.state / "runs" / each).is_dir()]
        if not before:
            return [*lines, f"no run before it in {directory.state} has done a stage of the name {name}"]
        other = RunDirectory(directory.state / "runs" / before[0])
        found = _changed(codes[other.name], dict(keys.common(name).parts) if mine is None else mine)
        found = [f"{what} since run {other.name}" for what in found]
        try:
            found += _changed_call(keys, graph, name, index, other, held, store, directory.name)
        except (AsaError, KeyError, LookupError) as error:
            found.append(f"what its tasks were called with cannot be compared with run {other.name}: {_said(error)}")
        return [*lines, *(found or [f"nothing that can be seen differs from run {other.name}, which had done it"])]


def _keys_of(
    directory: RunDirectory, graph: Graph, settings: Settings, log: EventLog, run: FoldedRun | None = None
) -> Keys:
    payloads = Payloads(graph, directory.functions, directory.values, log.value, run=run)
    payloads.regrow(log.each(StagesAdded))
    return Keys(graph, settings, payloads.columns, payloads.result, payloads.width)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Which parts differ; the whole only where no part of it does."""
    found = [f"{label} has changed" for label in after if label in before and before[label] != after[label]]
    found += [f"{label} is new" for label in after if label not in before]
    found += [f"{label} is gone" for label in before if label not in after]
    parts = [each for each in found if not each.startswith(_WHOLE)]
    return parts or found


_WORD = re.compile(r"[\w./+~-]+")
_WHOLE = "code as a whole"


def _changed_call(
    keys: Keys,
    graph: Graph,
    name: str,
    index: int,
    other: RunDirectory,
    held: contextlib.ExitStack,
    store: ReuseStore,
    run: str,
) -> list[str]:
    """What a task is called with that it was not called with in another run, and which files are not as they were."""
    settings = load_settings(other)
    theirs, log = make_graph(settings.result), held.enter_context(EventLog(other.events))
    others = _keys_of(other, theirs, replace(settings, line=settings.line or other.name), log)
    if name not in theirs.nodes:
        return []
    mine = {key: number for key, (number, _) in keys.arguments(name, index).items()}
    width = _tasks(theirs, log, name)
    nearest: dict[str, str] = {}
    for task in (index, *range(min(width, _COMPARED_MOST))):
        if task < width:
            called = {key: number for key, (number, _) in others.arguments(name, task).items()}
            nearest = nearest or called
            if called == mine:
                nearest = called
                break
    found = []
    for key in mine:
        if nearest.get(key) != mine[key]:
            source = _source(graph.nodes[name], key, graph)
            found.append(f"argument {key} of task {index}{source} is not what it was in run {other.name}")
    known = {
        each.run: each.files for each in store.look_up([keys.call(name, index).key]).get(keys.call(name, index).key, ())
    }
    if run in known:
        for source, files in known.items():
            if source != run:
                differ = [file for file in {**files, **known[run]} if files.get(file) != known[run].get(file)]
                found += [f"file {file} is not as it was after run {source}" for file in differ]
                break
    return found


def _tasks(graph: Graph, log: EventLog, name: str) -> int:
    known = graph.width(name)
    return (log.width(name) or 0) if known is None else known


def _source(node: Node, key: str, graph: Graph) -> str:
    """Of which stage an argument is the result, in words."""
    value = node.args[int(key) - 1] if key.isdigit() else node.kwargs.get(key)
    names = [graph.names[each] for each in nodes_in(value)]
    return f", the result of {' and '.join(names)}," if names else ""


# ---------------------------------------------------------------- results


def _number(value: Value) -> bytes:
    """What tells a stored result from others: of a file the name, which no other has, as it is never opened for it."""
    data = b"file " + os.path.basename(value).encode() if isinstance(value, str) else b"value " + value
    return hashlib.blake2b(data, digest_size=SIZE).digest()


def stored(value: Value) -> Stored:
    """What stands for a result, with the files that it names."""
    return Stored(_number(value), tuple(files_in(value)))


def files_in(value: Value) -> dict[str, None]:
    """Strings and paths in a result: each may be the name of a file."""
    if isinstance(value, str):
        try:
            if os.path.getsize(value) > _READ_MOST:
                return {}
            value = Path(value).read_bytes()
        except OSError:
            return {}
    if b"\x8c" not in value and b"X" not in value:  # what begins a string in a pickle
        return {}
    try:
        found = _Names(io.BytesIO(value)).load()
    except Exception:  # it is of classes that are made as it is read
        try:
            found = pickle.loads(value)
        except Exception:  # they cannot be made here
            return {}
    names: dict[str, None] = {}
    _collect(found, names, 0)
    return names


_DEEP = 20


class _Strings:
    """Stands for an object of a class that need not be imported to see which strings are in it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.inside = [args, kwargs]

    def __new__(cls, *args: Any, **kwargs: Any) -> _Strings:
        made = object.__new__(cls)
        made.inside = [args, kwargs]
        return made

    def __setstate__(self, state: Any) -> None:
        self.inside.append(state)

    def __call__(self, *args: Any, **kwargs: Any) -> _Strings:
        return _Strings(*args, **kwargs)

    def append(self, item: Any) -> None:
        self.inside.append(item)

    def extend(self, items: Any) -> None:
        self.inside += items

    def __setitem__(self, key: Any, item: Any) -> None:
        self.inside += [key, item]


class _Names(pickle.Unpickler):
    """Imports nothing but paths."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(module, name) if module.partition(".")[0] == "pathlib" else _Strings


def _collect(value: Any, names: dict[str, None], depth: int) -> None:
    if isinstance(value, str):
        names[value] = None
    elif isinstance(value, os.PathLike):
        names[os.fspath(value)] = None
    elif depth < _DEEP:
        items: Any = ()
        if isinstance(value, dict):
            items = (*value, *value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            items = value
        elif isinstance(value, _Strings):
            items = value.inside
        for item in items:
            _collect(item, names, depth + 1)
