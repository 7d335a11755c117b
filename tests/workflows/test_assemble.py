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
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.ports import Sharing
from asa.core.registry import EXECUTORS
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.workflows import assemble
from asa.workflows.assemble import Settings
from asa.workflows.graph import make_graph


@asa.stage
def one() -> int:
    return 1


@asa.stage
def take(_: object) -> None: ...


@pytest.mark.parametrize(
    ("regime", "installed", "pool", "expected"),
    [
        (QueueRegime.IMMEDIATE, True, None, "local"),
        (QueueRegime.IMMEDIATE, False, None, "local"),
        (QueueRegime.IMMEDIATE, True, "ours", "mesos:tasks=dask"),
        (QueueRegime.IMMEDIATE, False, "ours", "mesos"),
        (QueueRegime.FIFO, True, None, "mesos:tasks=dask"),
        (QueueRegime.LIMITS, True, None, "mesos:tasks=dask"),
        (QueueRegime.FIFO, False, None, "mesos"),
        (QueueRegime.FIFO, False, "ours", "mesos"),
    ],
)
def test_agents_where_there_is_a_queue_or_a_pool_with_dask_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, regime: QueueRegime, installed: bool, pool: str | None, expected: str
) -> None:
    monkeypatch.setattr(assemble, "find_spec", lambda name: object() if installed and name == "distributed" else None)
    assert assemble.default_executor(Capabilities(site="s", regime=regime), pool) == expected


def settings(pool: str) -> Settings:
    return Settings(None, "w", "local", None, None, pool, "/")


class TestPool:
    @pytest.mark.parametrize("pool", ["shared", "per-stage"])
    def test_without_a_name(self, pool: str) -> None:
        assert settings(pool).pool_name is None

    @pytest.mark.parametrize("name", ["a", "my-lab.2026_x", "7", "x" * 64])
    def test_with_a_name(self, name: str) -> None:
        assert settings(f"shared:{name}").pool_name == name

    @pytest.mark.parametrize(
        "pool",
        ["", "mine", "shared:", "shared:..", "shared:.x", "shared:-x", "shared:a/b", "shared:a b", "shared:a\n",
         "shared:caf\u00e9", "shared:" + "x" * 65, "per-stage:a", "Shared:a"],
    )  # fmt: skip
    def test_a_name_that_is_none_is_refused(self, pool: str) -> None:
        with pytest.raises(InvalidInput, match="shared:NAME with a name of letters, digits") as caught:
            settings(pool)
        assert repr(pool) in str(caught.value)


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
        found.append((assembly.runner.context.pool, assembly.runner.plan.borrows, assembly.runner.plan.shared))
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
