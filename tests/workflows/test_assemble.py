from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.context import Context
from asa.core.errors import InvalidInput, Unpicklable
from asa.core.event import RunStarted
from asa.core.job import Resources
from asa.core.ports import Sharing
from asa.core.registry import EXECUTORS
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.workflows import assemble
from asa.workflows.graph import make_graph
from asa.workflows.settings import Settings


@asa.stage
def one() -> int:
    return 1


@asa.stage
def take(_: object) -> None: ...


def settings(pool: str) -> Settings:
    return Settings(None, "w", "local", None, None, pool, "/")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "sim"}, "a run in virtual time is alone; say pool='shared'"),
        ({"executor": "local"}, "executor 'local' has none; leave executor= out, or say executor='mesos'"),
        ({"executor": "dask"}, "executor 'dask' has none"),
        ({"strategy": "asa-naive"}, "in the stage's own allocation; choose another one"),
    ],
)
def test_who_cannot_be_in_a_pool_with_others_is_told_why(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        asa.submit(one(), pool="shared:ours", state=tmp_path, **({"backend": "local"} | options))
    assert str(caught.value).startswith("pool='shared:ours' cannot be used: ") and message in str(caught.value)
    assert not list((tmp_path / "runs").iterdir()), "nothing is left of it"


def test_only_an_executor_with_agents_shares() -> None:
    sharing = {name: isinstance(EXECUTORS.create(name), Sharing) for name in ("local", "dask", "mesos")}
    assert sharing == {"local": False, "dask": False, "mesos": True}


@pytest.mark.parametrize("pool", ["shared:ours", "shared"])
def test_runs_with_the_same_pool_meet_in_its_directory(tmp_path: Path, pool: str) -> None:
    found = []
    for name in ("a-1", "b-1"):
        directory = RunDirectory.create(tmp_path, name)
        assembly = assemble.assemble(directory, make_graph(one()), replace(settings(pool), executor="mesos"))
        assembly.close()
        started = EventLog(directory.events).latest(RunStarted)
        assert isinstance(started, RunStarted) and started.pool == pool
        found.append((assembly.runner.context.pool, assembly.plan.borrows, assembly.plan.shared))
    expected = (tmp_path / "pools" / "ours", True, True) if pool == "shared:ours" else (None, False, True)
    assert found == [expected] * 2


def open_files(directory: Path) -> set[str]:
    """Names of the files below that this process holds open."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if (path := descriptor.readlink()).is_relative_to(directory):
                found.add(path.name)
    return found


def test_all_that_an_assembly_opened_is_closed_with_it(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "a-1")
    assembly = assemble.assemble(directory, make_graph(one()), settings("shared"))
    assembly.runner.waits.predict(Resources(), 60.0, Context(0.0), [None])
    assert open_files(tmp_path) >= {"events.db", "learned.db", "driver.lock"}
    assembly.close()
    assert open_files(tmp_path) == set()


def test_nothing_stays_open_of_a_run_that_cannot_be_assembled(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "a-1")
    with pytest.raises(Unpicklable) as caught:
        assemble.assemble(directory, make_graph(take(threading.Lock())), settings("shared"))
    assert open_files(tmp_path) == set(), f"{caught.value} still has the frames in which it was opened"
