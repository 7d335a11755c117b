"""What a run is started with: the workflow in a Python file, the options, and the directory in which they are kept."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import re
import secrets
import shutil
import sys
import traceback
from binascii import crc32
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import cloudpickle

from asa.core.errors import AsaError, InvalidInput, RunNotFound, StateError, UnknownName
from asa.core.event import VERSION, RunStarted
from asa.core.queues import QueueTerms
from asa.core.registry import convert
from asa.core.task import OUTPUT_LIMIT
from asa.core.units import duration, memory
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, state_directory
from asa.security.files import write_private
from asa.workflows.notice import check_notice
from asa.workflows.payload import pack, unpack
from asa.workflows.stage import Node, Stage, nodes_in

POOLS = ("shared", "per-stage")
_NAMED = "shared:"


@dataclass(frozen=True)
class Settings:
    """What a run was started with; kept in the run's directory (0600), so that it can be resumed.

    Parameters
    ----------
    result
        The workflow.
    name
        What it is called.
    backend, strategy, executor
        Specs or objects; None for the default of the site.
    pool
        ``"shared"``, ``"per-stage"``, or ``"shared:NAME"`` for a pool that several runs share.
    workdir
        Directory that tasks run in.
    orphan_grace_s
        How long allocations outlive their driver [s].
    sys_path
        The driver's import path.
    output_limit
        How much is kept of what a task prints [bytes].
    reuse
        Whether results of earlier runs may stand for tasks whose stage does not say.
    reuse_from
        Other state directories with earlier runs.
    notify
        Command, or mail address, for a notice when the run has ended; "" for none.
    keep_going
        Whether stages that do not say continue when a task of theirs has failed.
    terms
        Prices and risks of the queues that jobs may go to.
    learn_requests
        Whether it is learned what stages ask for that do not say so.
    line
        The run of which this one, with other code, is a continuation: what that has done is not done again.

    Raises
    ------
    InvalidInput
        When the pool is none of these.
    """

    result: Any
    name: str
    backend: Any = "local"
    strategy: Any = None
    executor: Any = None
    pool: str = "shared"
    workdir: str = "."
    orphan_grace_s: float = 60.0
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    output_limit: int = OUTPUT_LIMIT
    reuse: bool = False
    reuse_from: tuple[str, ...] = ()
    line: str = ""
    notify: str = ""
    keep_going: bool = False
    terms: QueueTerms = field(default_factory=QueueTerms)
    learn_requests: bool = False

    def __post_init__(self) -> None:
        name = self.pool_name
        if self.pool not in POOLS and (name is None or not re.fullmatch(r"\w[\w.-]{0,63}", name, re.ASCII)):
            raise InvalidInput(
                f"pool must be one of {', '.join(POOLS)}, or shared:NAME with a name of letters, digits, '.', '_' and "
                f"'-', not {self.pool!r}"
            )

    def asks(self, own: bool | str | None) -> bool:
        """Whether results of earlier runs are looked for, for a stage that says this of its `own`."""
        return bool(self.line) or (self.reuse if own is None else bool(own))

    @property
    def pool_name(self) -> str | None:
        """Of the pool that several runs share; None without one."""
        return self.pool.removeprefix(_NAMED) if self.pool.startswith(_NAMED) else None

    def unshareable(self, problem: str, remedy: str) -> InvalidInput:
        """The error to raise when a run of this kind cannot be in a pool with others."""
        return InvalidInput(f"pool={self.pool!r} cannot be used: {problem}; {remedy}")


class RunOptions(TypedDict, total=False):
    """Keywords of `submit`, which `run` takes as well, and says what they mean."""

    backend: Any
    strategy: Any
    executor: Any
    pool: str
    name: str | None
    workdir: str | Path
    state: str | Path | None
    orphan_grace: float | str
    output_limit: str
    reuse: bool
    reuse_from: Iterable[str | Path]
    notify: str | None
    keep_going: bool
    price: Mapping[str, float] | None
    preempted: Mapping[str, float] | None
    ask_twice: bool
    learn_requests: bool


def make_settings(
    result: Any,
    name: str,
    *,
    workdir: str | Path = ".",
    orphan_grace: float | str = 60.0,
    output_limit: str = "10M",
    reuse: bool = False,
    reuse_from: Iterable[str | Path] = (),
    notify: str | None = None,
    price: Mapping[str, float] | None = None,
    preempted: Mapping[str, float] | None = None,
    ask_twice: bool = True,
    **options: Any,
) -> Settings:
    """Settings as people give them.

    Parameters
    ----------
    result, name
        The workflow, and what it is called.
    workdir
        Directory that tasks run in, which must be there.
    orphan_grace
        How long allocations outlive their driver: seconds, or like ``"10m"``.
    output_limit
        How much is kept of what a task prints: bytes, or like ``"10M"``.
    reuse, reuse_from
        Whether results of earlier runs may be reused, and of which other state directories, too.
    notify
        Command, or mail address, for a notice when the run has ended.
    price, preempted, ask_twice
        As `QueueTerms` has them.
    options
        The other parameters of `Settings`.

    Raises
    ------
    InvalidInput
        When one cannot be used.
    """
    place = Path(workdir).resolve()
    if not place.is_dir():  # said at once: jobs that wait for hours would fail one by one
        raise InvalidInput(f"workdir {str(workdir)!r}: there is no such directory: make it, or name the one to run in")
    if not os.access(place, os.X_OK, effective_ids=True):
        raise InvalidInput(f"workdir {str(workdir)!r} cannot be entered: change its mode, or name another to run in")
    grace_s = duration(orphan_grace, what="orphan_grace")
    try:
        limit = memory(output_limit)
    except InvalidInput:
        raise InvalidInput(
            f"output_limit={output_limit!r} is no size: write like '10M' how much is kept of what each task prints"
        ) from None
    others = tuple(str(state_path(other)) for other in ([reuse_from] if isinstance(reuse_from, str) else reuse_from))
    for other in others:
        if not (Path(other) / "runs").is_dir():
            raise InvalidInput(f"reuse_from {other!r} is no state directory: there are no runs in it")
    if notify is not None:
        check_notice(notify, os.environ)
    return Settings(
        result,
        name,
        workdir=str(place),
        orphan_grace_s=grace_s,
        output_limit=limit,
        reuse=reuse or bool(others),
        reuse_from=others,
        notify=notify or "",
        terms=QueueTerms(price, preempted, ask_twice),
        **options,
    )


SETTINGS_VERSION = 6
"""Of what `save_settings` keeps; 1 had no version and no checksum, 2 neither a limit of output nor reuse, 3 no
notice and nothing of what becomes of failures, 4 nothing of queues, of widths and of what is learned."""
_HEAD = b"asa settings"


def save_settings(directory: RunDirectory, settings: Settings, nodes: Iterable[Node] = ()) -> None:
    """Keep `settings` in the run's directory, behind a line with version and checksum; `nodes` as for `pack`."""
    body = pack(settings, settings.sys_path, nodes)
    write_private(directory.settings, b"%s %d %08x\n" % (_HEAD, SETTINGS_VERSION, crc32(body)) + body)


def load_settings(directory: RunDirectory) -> Settings:
    """What `save_settings` kept.

    Raises
    ------
    RunNotFound
        When the run's driver died before it had kept anything.
    StateError
        When another version of ASA started it; when they are damaged, or cannot be read here.
    """
    try:
        kept = directory.settings.read_bytes()
    except FileNotFoundError as error:
        raise never_began(directory.name) from error
    with EventLog(directory.events) as log:
        start = log.latest(RunStarted)
    if isinstance(start, RunStarted) and start.version != VERSION:
        raise StateError(
            f"run {directory.name} was started by another version of ASA (its log is of version {start.version}, not "
            f"{VERSION}): report, explain and export read it, but nothing goes on with it; run the workflow again"
        )
    head, _, body = kept.partition(b"\n")
    if head != b"%s %d %08x" % (_HEAD, SETTINGS_VERSION, crc32(body)):
        raise StateError(_unusable(directory, head))
    try:
        settings: Settings = unpack(body)
    except Exception as error:  # unpickling runs foreign code, which may raise anything
        raise StateError(
            f"{directory.settings} cannot be read here: {type(error).__name__}: {error}. Make the modules of the "
            "workflow importable as they were when it was started"
        ) from error
    return settings


def _unusable(directory: RunDirectory, head: bytes) -> str:
    """Why settings with this first line are not used."""
    words = head.split(b" ")
    if words[:2] == _HEAD.split() and len(words) == 4 and words[2] != b"%d" % SETTINGS_VERSION:
        return (
            f"{directory.settings} is of version {words[2].decode(errors='replace')}, this version of ASA reads "
            f"{SETTINGS_VERSION}: run the workflow again"
        )
    return f"{directory.settings} is damaged: nothing goes on with run {directory.name}, run the workflow again"


@contextlib.contextmanager
def new_directory(name: str, state: str | Path | None) -> Iterator[RunDirectory]:
    """The directory of a new run, whose name begins like this; it goes again if it never comes to be a run.

    Parameters
    ----------
    state
        As for `state_path`.
    """
    directory = RunDirectory.create(state_path(state), f"{_clean(name)}-{secrets.token_hex(3)}")
    try:
        yield directory
    except AsaError:
        if not directory.settings.exists():
            shutil.rmtree(directory.path)
        raise


def state_path(state: str | Path | None) -> Path:
    """The state directory that is meant; None for the user's own."""
    return state_directory() if state is None else Path(state).expanduser().absolute()


def _clean(name: str) -> str:
    """A run's name as a part of job and file names."""
    return re.sub(r"[^\w-]", "-", name, flags=re.ASCII)[:40].strip("-_") or "run"


DEFAULT_NAME = "workflow"
SHOWN_MOST = 2000
"""How much of a value is shown [characters]."""
_READ_MOST = 1 << 20


def never_began(run: str) -> RunNotFound:
    """What to raise of a run without any event."""
    return RunNotFound(f"run {run} never began, its driver died too early: run the workflow again")


def load_workflow(target: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The workflow that ``FILE[:NAME]`` names: what a name is bound to, or what the function of that name returns.

    The file is imported once, under a name of its own; its functions travel by value, so workers never import it.
    Modules that stand beside it can be imported, here and in the workers, unless one of Python's has the same name.

    Parameters
    ----------
    target
        A Python file, and what to run in it; default ``workflow``.
    arguments
        For a function.

    Raises
    ------
    InvalidInput
        When there is no such file or name, or it is no workflow; when the file, or the function, raises an error, which
        is reported with the lines of the user's own that led to it.
    """
    file, _, name = target.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        if path.is_dir():
            raise InvalidInput(f"{file!r} is a directory: give the path of a Python file in it")
        near = difflib.get_close_matches(path.name, [each.name for each in path.parent.glob("*.py")], n=1)
        hint = (
            f"did you mean {near[0]!r}?" if near else "give the path of a Python file, as in 'asa run montage.py:main'"
        )
        raise InvalidInput(f"there is no file {file!r}: {hint}")
    try:
        module = _import(path)
    except AsaError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code
        raise InvalidInput(_raised(file, error, path)) from error
    value = _bound(module, name, file)
    name = name or DEFAULT_NAME
    if isinstance(value, Stage) or callable(value):
        value = _called(value, arguments or {}, target, path)
    elif arguments:
        raise InvalidInput(f"{target} is no function, so it takes no --set")
    if not nodes_in(value):
        raise InvalidInput(
            f"{target} is {type(value).__name__}, no workflow: bind {name!r} to what calling a stage returns, "
            "or to a function that returns it"
        )
    return value


def assignment(text: str) -> tuple[str, object]:
    """Name and value of an argument as it stands on a command line, ``--set NAME=VALUE``.

    Raises
    ------
    InvalidInput
        When it does not look like that.

    Examples
    --------
    >>> assignment("cores=4"), assignment("out=mosaic")
    (('cores', 4), ('out', 'mosaic'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"--set {text!r}: write NAME=VALUE")
    return name, convert(value)


def shown(value: Any) -> str:
    """A workflow's value, for people: long ones are cut.

    >>> shown({"mean": 2.5})
    "{'mean': 2.5}"
    """
    text = ""
    try:
        for piece in _pieces(value):
            text += piece
            if len(text) > SHOWN_MOST:
                break
    except RecursionError:  # a list that holds itself, say
        text = repr(value)
    return text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]} ..."


class Unread(Iterable[Any]):
    """Stands for a list whose elements are read as it is shown."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return self._values

    def __repr__(self) -> str:
        return repr(list(self))


def _pieces(value: Any) -> Iterator[str]:
    """The `repr` of a value in pieces, no more of which is made than is taken."""
    kind = type(value)
    if kind in (bytes, str):
        yield repr(value[:_READ_MOST])
    elif kind in (list, tuple, Unread, dict):
        first, last = "()" if kind is tuple else "{}" if kind is dict else "[]"
        yield first
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(item)
            if kind is dict:
                yield ": "
                yield from _pieces(value[item])
        yield ("," if kind is tuple and len(value) == 1 else "") + last
    else:
        yield repr(value)


def _bound(module: Any, name: str, file: str) -> Any:
    """What a name of the file, or else the usual one, is bound to."""
    if hasattr(module, name or DEFAULT_NAME):
        return getattr(module, name or DEFAULT_NAME)
    candidates = [key for key, value in vars(module).items() if isinstance(value, Node) or callable(value)]
    candidates = [key for key in candidates if not key.startswith("_")]
    if name:
        raise UnknownName(f"name in {file}:", name, candidates)
    raise InvalidInput(
        f"{file} binds no {DEFAULT_NAME!r}: bind it to what calling a stage returns, or to a function that returns it; "
        f"or say which name is meant, as in {file}:{next(iter(candidates), 'main')}"
    )


def _called(function: Any, arguments: Mapping[str, Any], target: str, path: Path) -> Any:
    try:
        return function(**arguments)
    except AsaError:
        raise
    except (Exception, SystemExit) as error:
        frames = error.__traceback__
        if isinstance(error, TypeError) and frames is not None and frames.tb_next is None:  # it was not even entered
            raise InvalidInput(f"{target}: {error}: give what it needs with --set NAME=VALUE") from error
        raise InvalidInput(_raised(target, error, path)) from error


def _raised(what: str, error: BaseException, path: Path) -> str:
    """What the user's own code has raised, and the way there from its file on: the frames before are not theirs."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
        frames = frames.tb_next
    lines = "".join(traceback.format_tb(frames)).rstrip()
    text = f"{what} raised {type(error).__name__}: {error}"
    for name in re.findall(r"(?:module|from) '(\w+)'", str(error)):
        if name in sys.stdlib_module_names and (hidden := path.with_name(f"{name}.py")).exists():
            text += f" ({hidden} is not imported, since a module of Python's has that name: rename it)"
    return text + (f"\n{lines}" if lines else "")


def _import(path: Path) -> Any:
    own = [entry for entry in sys.path if entry == os.path.dirname(os.__file__) or Path(entry).name == "lib-dynload"]
    sys.path[:] = dict.fromkeys([*own, str(path.parent), *sys.path])
    name = f"asa_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module
