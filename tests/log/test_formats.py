"""Whatever is read by a later version, or by another process, has a version of its own, which changes with its layout.

``python tests/log/test_formats.py`` writes the layouts as they are into ``tests/fixtures/formats.json``: after the
version was raised.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import sqlite3
import tempfile
import typing
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from asa.core.context import Context
from asa.core.event import VERSION, Event, TasksDone
from asa.core.history import Frozen, StageUsage, Usage
from asa.core.launch import Launch
from asa.core.task import Checkpoints, Input, Secrets, Staging
from asa.log.database import LearnedStore
from asa.log.events import EventLog
from asa.log.history import HISTORY_VERSION
from asa.log.reuse import ReuseStore
from asa.workflows.settings import SETTINGS_VERSION, Settings
from asa.workflows.stage import Node, Stage
from coscheduler.history import JobRun
from coscheduler.real.machine import SharedNode
from coscheduler.standing import ENTRIES, QUEUE_LOG_VERSION
from executors import wire
from executors.kept import KEPT_VERSION, KeptOrder, OrderOutcome

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "fixtures" / "formats.json"


def layout(*roots: Any) -> list[str]:
    """A line for each field of these classes, and of those that they hold."""
    lines: dict[str, None] = {}
    left = list(roots)
    while left:
        kind = left.pop(0)
        made = list(_fields(kind))
        if made and made[0][0] not in lines:
            lines |= dict.fromkeys(line for line, _ in made)
            left += [inner for _, kinds in made for inner in kinds]
    return sorted(lines)


def _fields(kind: Any) -> Iterator[tuple[str, list[Any]]]:
    """Lines of one class, with the types that they name."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        yield f"{kind.__name__} = {' | '.join(str(each.value) for each in kind)}", []
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        yield f"{kind.__name__}: a dataclass", []
        for each in dataclasses.fields(kind):
            logged = "" if each.metadata.get("logged", True) else ", not logged"
            parts = [] if kind is Context else [*_parts(hints[each.name])]  # its queue is not in the log
            yield f"{kind.__name__}.{each.name}: {each.type}{logged}", parts
    elif hasattr(kind, "_fields"):
        yield f"{kind.__name__}: a tuple", []
        for number, name in enumerate(kind._fields):
            hint = kind.__annotations__[name]
            yield f"{kind.__name__}[{number}] {name}: {getattr(hint, '__forward_arg__', hint)}", []


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in typing.get_args(hint):
        yield from _parts(inner)


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version")
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY sql")
        return [f"user_version {version}", *(sql for (sql,) in rows)]


def formats() -> dict[str, dict[str, Any]]:
    """Each format: which constant has its version, the version, the layout."""
    messages: Iterable[Any] = [each for each in vars(wire).values() if hasattr(each, "_fields")]
    with tempfile.TemporaryDirectory() as folder:
        log, learned, reuse = Path(folder, "events.db"), Path(folder, "learned.db"), Path(folder, "reuse.db")
        EventLog(log).close()
        LearnedStore(learned).close()
        ReuseStore(reuse).close()
        log_tables, learned_tables, reuse_tables = tables(log), tables(learned), tables(reuse)
    return {
        "events": _format("asa.core.event.VERSION", VERSION, layout(*Event.kinds.values())),
        "tables of the event log": _format(
            "_VERSION in asa/log/events.py", log_tables[0], [*log_tables, *layout(TasksDone)]
        ),
        "settings": _format("SETTINGS_VERSION", SETTINGS_VERSION, layout(Settings, Node, Stage, Launch)),
        "learned store": _format("_STORE_VERSION in asa/log/database.py", learned_tables[0], learned_tables),
        "reuse store": _format("asa.log.reuse.REUSE_VERSION", reuse_tables[0], reuse_tables),
        "history": _format("asa.log.history.HISTORY_VERSION", HISTORY_VERSION, layout(Usage, StageUsage, Frozen)),
        "messages": _format(
            "executors.wire.WIRE_VERSION",
            wire.WIRE_VERSION,
            layout(*messages, Launch, Secrets, Input, Checkpoints, Staging),
        ),
        "kept outcomes": _format("executors.kept.KEPT_VERSION", KEPT_VERSION, layout(KeptOrder, OrderOutcome)),
        "log of a queue": _format(
            "coscheduler.standing.QUEUE_LOG_VERSION", QUEUE_LOG_VERSION, layout(*ENTRIES, SharedNode, JobRun)
        ),
    }


def _format(constant: str, version: Any, lines: list[str]) -> dict[str, Any]:
    return {"constant": constant, "version": version, "layout": lines}


@pytest.mark.parametrize("name", list(formats()))
def test_a_format_that_changes_gets_another_version(name: str) -> None:
    committed, now = json.loads(KEPT.read_text())[name], formats()[name]
    changed = sorted(set(committed["layout"]) ^ set(now["layout"]))
    if changed and committed["version"] == now["version"]:
        pytest.fail(f"{name} have changed: raise {now['constant']}, then run this file. What changed: {changed}")
    assert now == committed, "the version was raised: run this file, which writes down the layout"


def test_the_reference_has_all_formats_with_their_versions() -> None:
    page = (ROOT / "docs" / "reference.md").read_text().partition("## Formats and versions")[2]
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (\d+) \|", page, re.M))
    assert rows == {name: str(made["version"]).removeprefix("user_version ") for name, made in formats().items()}


def test_layouts_see_what_changes() -> None:
    @dataclasses.dataclass
    class Inner:
        x: int

    @dataclasses.dataclass
    class Outer:
        inner: tuple[Inner, ...]

    before = layout(wire.Alive, wire.Hello)
    assert "Hello[0] allocation: str" in before and "Alive: a tuple" in before
    globals()["Inner"] = Inner
    try:
        assert "Inner.x: int" in layout(Outer)
    finally:
        del globals()["Inner"]
    assert any(line.startswith("QueueRegime = ") for line in layout(*Event.kinds.values()))


if __name__ == "__main__":
    KEPT.write_text(json.dumps(formats(), indent=1) + "\n")
