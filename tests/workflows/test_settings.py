"""From options and files to a run: settings, workflow files, assembly, handles, leftovers."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asa
from asa.cli.main import main
from asa.core.context import Context
from asa.core.errors import AsaError, InvalidInput, RunFailed, RunNotFound, StateError, UnknownName, Unpicklable
from asa.core.event import (
    CancelAsked,
    Cancelled,
    DriverStarted,
    RunEnded,
    RunStarted,
    RunState,
    Submitted,
    Submitting,
    TasksLaunched,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobState, QueueRegime, Refused, Resources
from asa.core.ports import Sharing
from asa.core.registry import EXECUTORS
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from asa.workflows import assemble, run
from asa.workflows import settings as workflow_settings
from asa.workflows.assemble import default_executor
from asa.workflows.clean import backend_of, leftovers
from asa.workflows.graph import make_graph
from asa.workflows.settings import Settings, load_settings, load_workflow, make_settings, new_directory, save_settings
from asa.workflows.stage import Node
from tests.waiting import until


def settings(pool: str) -> Settings:
    return Settings(None, "w", pool=pool)


@pytest.mark.parametrize(
    ("pool", "name"),
    [
        ("shared", None),
        ("per-stage", None),
        *((f"shared:{name}", name) for name in ("a", "my-lab.2026_x", "7", "x" * 64)),
    ],
)
def test_name_of_a_pool(pool: str, name: str | None) -> None:
    assert settings(pool).pool_name == name


@pytest.mark.parametrize(
    "pool",
    ["", "mine", "shared:", "shared:..", "shared:.x", "shared:-x", "shared:a/b", "shared:a b", "shared:a\n",
     "shared:caf\u00e9", "shared:" + "x" * 65, "per-stage:a", "Shared:a"],
)  # fmt: skip
def test_a_pool_that_cannot_be_is_refused(pool: str) -> None:
    with pytest.raises(InvalidInput, match="shared:NAME with a name of letters, digits") as caught:
        settings(pool)
    assert repr(pool) in str(caught.value)


def test_options_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    found = make_settings(None, "w", workdir="work", orphan_grace="2m", backend="sim")
    assert (found.workdir, found.orphan_grace_s, found.backend) == (str(tmp_path / "work"), 120.0, "sim")
    assert make_settings(None, "w").workdir == str(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workdir": "nowhere"}, "workdir '.*nowhere': there is no such directory"),
        ({"workdir": "file"}, "workdir '.*file': there is no such directory"),
        ({"orphan_grace": "soon"}, "orphan_grace 'soon' is not a positive duration"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=said):
        make_settings(None, "w", **options)


def test_saved_settings_are_loaded_again(tmp_path: Path) -> None:
    directory, kept = RunDirectory.create(tmp_path, "run"), Settings([1, 2], "w", pool="shared:ours")
    with pytest.raises(RunNotFound, match="run never began"):
        load_settings(directory)
    save_settings(directory, kept)
    assert load_settings(directory) == kept and kept.sys_path == tuple(sys.path)
    assert directory.settings.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("fit", "fit"),
        ("größe", "gr--e"),
        ("_hidden", "hidden"),
        ("a/b c", "a-b-c"),
        ("??", "run"),
        ("x" * 60, "x" * 40),
    ],
)
def test_any_name_begins_that_of_a_directory(tmp_path: Path, name: str, begins: str) -> None:
    with new_directory(name, tmp_path) as first, new_directory(name, tmp_path) as second:
        assert first.name.rpartition("-")[0] == second.name.rpartition("-")[0] == begins
        assert first.name != second.name


@pytest.mark.parametrize("kept", [True, False])
def test_nothing_is_left_of_a_run_that_never_began(tmp_path: Path, kept: bool) -> None:
    def begin() -> None:
        with new_directory("w", tmp_path) as directory:
            if kept:
                save_settings(directory, settings("shared"))
            raise InvalidInput("a stage does not fit")

    with pytest.raises(InvalidInput, match="does not fit"):
        begin()
    assert len(os.listdir(tmp_path / "runs")) == kept


def test_a_directory_that_cannot_be_entered_is_refused(ordinary_user: Path) -> None:
    (ordinary_user / "shut").mkdir(mode=0o600)
    with pytest.raises(InvalidInput, match="cannot be entered"):
        make_settings(None, "w", workdir=ordinary_user / "shut")


# Workflow files.


SOURCE = """
import asa
from beside_it import OFFSET

imported = []
imported.append(1)

@asa.stage
def double(x):
    return 2 * x + OFFSET

workflow = double(3)
several = {"a": double(1), "b": [double(2)]}
number = 5

def main(count, factor=1):
    return double.map([factor] * int(count))

def nothing():
    return None

def broken():
    raise OSError("no such catalogue")

def refuses():
    raise asa.AsaError("refused in its own words")
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "beside_it.py").write_text("OFFSET = 100\n")
    (tmp_path / "flow.py").write_text(SOURCE)
    yield str(tmp_path / "flow.py")
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "beside_it" or name.startswith("asa_file_"):
            module = sys.modules.pop(name)
            if name.startswith("asa_file_"):
                cloudpickle.unregister_pickle_by_value(module)


def test_a_name_in_a_file_is_a_workflow_or_is_called(file: str) -> None:
    node = load_workflow(file)
    assert isinstance(node, Node) and node.stage.function(3) == 106, "the name 'workflow' is the default"
    assert set(load_workflow(f"{file}:several")) == {"a", "b"}
    assert load_workflow(f"{file}:main", {"count": "2", "factor": 7}).args == ([7, 7],)
    assert load_workflow(f"{file}:double", {"x": 4}).kwargs == {"x": 4}


def test_its_functions_travel_by_value(file: str, tmp_path: Path) -> None:
    """A process that cannot import the file runs them; what stands beside it is imported there."""
    (tmp_path / "function.pkl").write_bytes(cloudpickle.dumps(load_workflow(file).stage.function))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(3))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "function.pkl")],
        env={"PYTHONPATH": str(tmp_path)},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "106\n"
    assert pickle.loads((tmp_path / "function.pkl").read_bytes())(1) == 102


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("flw.py:main", InvalidInput, r"there is no file 'flw.py': did you mean 'flow.py'\?"),
        ("wheel.py", InvalidInput, r"there is no file 'wheel.py': give the path of a Python file, as in 'asa run"),
        (".", InvalidInput, "'.' is a directory: give the path of a Python file in it"),
        ("flow.txt", InvalidInput, r"flow.txt is not a Python file: its name must end in .py"),
        ("flow.py:mian", UnknownName, "'mian': did you mean 'main'"),
        ("flow.py:refuses", AsaError, r"^refused in its own words$"),
    ],
)
def test_a_file_or_name_that_cannot_be_used(
    file: str, monkeypatch: pytest.MonkeyPatch, spec: str, error: type[AsaError], said: str
) -> None:
    monkeypatch.chdir(Path(file).parent)
    Path("flow.txt").write_text("workflow = 5")
    with pytest.raises(error, match=said):
        load_workflow(spec)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("number", {}, "is int, no workflow: bind 'number' to what calling a stage returns, or to a function that"),
        ("nothing", {}, "is NoneType, no workflow"),
        ("workflow", {"x": 1}, "is no function, so it takes no --set"),
        ("main", {}, "missing 1 required positional argument: 'count': give what it needs with --set NAME=VALUE"),
        ("main", {"count": 1, "cuont": 2}, "unexpected keyword argument 'cuont'"),
        ("broken", {}, "flow.py:broken raised OSError: no such catalogue"),
    ],
)
def test_a_value_that_is_no_workflow_is_refused(file: str, name: str, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_workflow(f"{file}:{name}", arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def (", "own.py raised SyntaxError: invalid syntax (own.py, line 1)"),
        ("raise SystemExit(3)", "own.py raised SystemExit: 3\n  File "),
        ("import no_such_module", "own.py raised ModuleNotFoundError: No module named 'no_such_module'\n  File "),
        ("x = 1\n\n\nlist(3)", ", line 4, in <module>\n    list(3)"),
        ("def workflow(n=1):\n    return list(n)", ", line 2, in workflow\n    return list(n)"),
    ],
)
def test_an_error_in_the_users_code_shows_its_own_lines(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(InvalidInput) as caught:
        load_workflow(str(tmp_path / "own.py"))
    assert said in str(caught.value)
    assert "asa/workflows" not in str(caught.value)
    assert "--set" not in str(caught.value)


def test_a_file_without_a_workflow_is_refused_with_an_example(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def mosaic(): ...")
    with pytest.raises(InvalidInput, match=r"own.py binds no 'workflow': bind it to .* as in .*own.py:mosaic$"):
        load_workflow(str(tmp_path / "own.py"))
    (tmp_path / "own.py").write_text("")
    with pytest.raises(InvalidInput, match=r"as in .*own.py:main$"):
        load_workflow(str(tmp_path / "own.py"))


# Assembly.


@asa.stage
def one() -> int:
    return 1


@asa.stage
def take(_: object) -> None: ...


def local(pool: str) -> Settings:
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
def test_a_run_that_cannot_share_a_pool_is_refused_with_the_reason(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
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
        assembly = assemble.assemble(directory, make_graph(one()), replace(local(pool), executor="mesos"))
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
    assembly = assemble.assemble(directory, make_graph(one()), local("shared"))
    assembly.runner.waits.predict(Resources(), 60.0, Context(0.0), [None])
    assert open_files(tmp_path) >= {"events.db", "learned.db", "driver.lock"}
    assembly.close()
    assert open_files(tmp_path) == set()


def test_nothing_stays_open_of_a_run_that_cannot_be_assembled(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "a-1")
    with pytest.raises(Unpicklable) as caught:
        assemble.assemble(directory, make_graph(take(threading.Lock())), local("shared"))
    assert open_files(tmp_path) == set(), f"{caught.value} still has the frames in which it was opened"


@pytest.mark.parametrize(
    ("regime", "pool", "expected"),
    [
        (QueueRegime.IMMEDIATE, None, "local"),
        (QueueRegime.IMMEDIATE, "ours", "mesos"),
        (QueueRegime.FIFO, None, "mesos"),
        (QueueRegime.LIMITS, None, "mesos"),
        (QueueRegime.FIFO, "ours", "mesos"),
    ],
)
def test_agents_where_there_is_a_queue_or_a_pool_whatever_is_installed(
    regime: QueueRegime, pool: str | None, expected: str
) -> None:
    assert default_executor(Capabilities(site="s", regime=regime), pool) == expected


# Handles of runs.


@asa.stage
def forever() -> None:
    while True:
        time.sleep(0.01)


class Unstartable:
    """An executor that cannot listen anywhere."""

    def bootstrap(self, *_: object) -> tuple[str, ...]:
        return ("false",)

    def start(self, *_: object) -> None:
        raise StateError("no port can be had")

    def launch(self, *_: object) -> None: ...
    def release(self, *_: object) -> None: ...
    def close(self) -> None: ...


def test_a_run_that_goes_on_is_described_and_cancelled(tmp_path: Path) -> None:
    found = asa.submit(forever(), backend="local:cores=1", state=tmp_path)
    try:
        with pytest.raises(TimeoutError, match=rf"run {found.name} has no result after 0.01 s"):
            found.result(0.01)
        assert repr(found) == f"<run {found.name}: running>" and not found.wait(0.0)
        assert found.now() == pytest.approx(time.time(), abs=60.0)
        assert found.explain().startswith("forever: ")
        found.report(tmp_path / "now.json")
    finally:
        found.cancel("enough")
        found.wait()
    with pytest.raises(RunFailed, match="enough"):
        found.result()
    assert repr(found) == f"<run {found.name}: cancelled>"
    assert found.now() == max(event.at for _, event in found.events())


def test_of_a_run_that_ended_elsewhere_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    name = asa.run(one(), backend="sim:nodes=1,cores=1", state=tmp_path).name
    found = run.open_run(name, state=tmp_path)
    found.cancel()
    assert found.wait(0.0) and found.decided.is_set() and found.result() == 1


def test_an_executor_that_does_not_start_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no port can be had"):
        asa.submit(one(), backend="local:cores=1", executor=Unstartable(), state=tmp_path)
    (directory,) = list_runs(tmp_path)
    found = run.open_run(directory.name, state=tmp_path)
    until(lambda: directory.lock().holder() is None, "the driver to end")
    assert found.status.value == "cancelled"
    with pytest.raises(RunFailed, match="the executor did not start: no port can be had"):
        found.result()


@pytest.mark.parametrize(
    ("interrupt", "why"),
    [(KeyboardInterrupt(), "from the keyboard"), (KeyboardInterrupt("SIGTERM"), "by SIGTERM")],
)
def test_a_run_that_is_interrupted_says_by_what(tmp_path: Path, interrupt: BaseException, why: str) -> None:
    def interrupted(_run: run.Run) -> None:
        raise interrupt

    started = asa.submit(asa.stage(time.sleep)(60), backend="local:cores=1", state=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.finish(started, interrupted)
    with pytest.raises(RunFailed, match=f"interrupted {why}"):
        started.result()


def test_a_signal_while_its_thread_starts_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Thread.start` waits: the thread drives already when it is interrupted, and nobody has the run yet."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("asa-run-"):
            raise KeyboardInterrupt("SIGTERM")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        asa.submit(asa.stage(time.sleep)(60), backend="local:cores=1", state=tmp_path)
    (directory,) = list_runs(tmp_path)
    until(lambda: directory.lock().holder() is None, "the driver to end")
    with pytest.raises(RunFailed, match="interrupted by SIGTERM"):
        run.open_run(directory.name, state=tmp_path).result()


@pytest.mark.slow
def test_a_closed_terminal_leaves_the_run_to_its_supervisors(tmp_path: Path) -> None:
    """The driver ends alone; what runs goes on, and the next driver takes it over."""

    def hung_up(started: run.Run) -> None:
        until(lambda: any(isinstance(event, TasksLaunched) for _, event in started.events()), "the task to run")
        raise KeyboardInterrupt("SIGHUP")

    started = asa.submit(asa.stage(time.sleep)(5), backend="local:cores=1", state=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.finish(started, hung_up)
    assert started.status is RunState.INTERRUPTED
    with pytest.raises(RunFailed, match=f"no driver here\n.`asa resume {started.name}` runs only what is not done"):
        started.result()
    said = started.directory.log.read_text()
    assert f"SIGHUP: the driver ends, jobs go on for 1 min without one; `asa resume {started.name}`" in said
    again = asa.resume(started.name, state=tmp_path)
    assert again.result(60) is None
    kinds = Counter(type(event) for _, event in again.events())
    assert (kinds[Submitted], kinds[TasksLaunched], kinds[CancelAsked], kinds[Cancelled]) == (1, 1, 0, 0)


def test_a_resume_that_would_be_refused_is_not_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reason: str) -> str:
        answer = lambda self, requests: [Refused(request.token, reason) for request in requests]  # noqa: E731
        monkeypatch.setattr("asa.backends.local.Local.submit", answer)
        with pytest.raises(RunFailed) as failure:
            asa.run(one(), backend="local:cores=1", state=tmp_path).result()
        return str(failure.value)

    assert "change what it asks for, and run the workflow again" in refused("Invalid qos specification")
    assert "asa resume" in refused("Job violates accounting/QOS policy (job submit limit)")


@pytest.mark.parametrize("state", ["~/x", "x", Path("x")])
def test_the_state_directory_is_the_same_in_all_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    first = run.submit(one(), backend="local:cores=1", state=state, name="mine")
    assert first.wait(60)
    again = run.resume("mine", state=state), run.open_run("mine", state=state)
    met = [found.directory.path for found in (first, *again)]
    assert met == [next(tmp_path.glob("x/runs/mine-*"))] * 3


# Jobs that are left behind.


LATE = ("late", "later")


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that is over."""
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    run = RunDirectory.create(tmp_path, "night")
    save_settings(run, Settings(None, "night", "local:cores=1,dispatcher=easy"))
    with EventLog(run.events) as log:
        log.append([DriverStarted(time.time(), 1, "n1"), RunEnded(time.time(), RunState.SUCCEEDED)])
    return run


@pytest.fixture
def left(done: RunDirectory, tmp_path: Path) -> Iterator[RunDirectory]:
    """The same, with two jobs in its queue; when the driver died, the log did not have the handle of the second."""
    backend = backend_of(done)
    handles = backend.submit([JobRequest(token, Resources(1), 60.0, ("true",), str(tmp_path)) for token in LATE])
    with EventLog(done.events) as log:
        for token, handle in zip(LATE, handles, strict=True):
            assert not isinstance(handle, Refused)
            log.append([Submitting(time.time(), token, JobRequest(token, Resources(1), 60.0, ("true",), ""), ("one",))])
        log.append([Submitted(time.time(), LATE[0], handles[0])])
    yield done
    backend.cancel(list(handles))
    backend.close()


def cleaned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["clean", *words]) == 0
    return capsys.readouterr().out


def cancelled(run: RunDirectory) -> list[str]:
    """What the log says was cancelled."""
    with EventLog(run.events) as log:
        return [event.allocation for _, event in log.read() if isinstance(event, Cancelled)]


def test_listing_leftovers_starts_no_job(left: RunDirectory, tmp_path: Path) -> None:
    assert [item.status.state for item in leftovers(tmp_path)] == [JobState.PENDING] * 2
    assert cancelled(left) == []


def test_jobs_of_a_run_that_is_done_are_listed_and_cancelled_on_request(
    left: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = cleaned(capsys)
    assert said.count(left.name) == 2 and "pending" in said and "no job is left behind" not in said
    assert "cancel them with 'asa clean --cancel'" in said and "asa resume" not in said
    assert main(["clean", "--cancel", "--json", "-"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["run"], row["resumable"], row["cancelled"]) for row in rows] == [(left.name, False, True)] * 2
    assert sorted(cancelled(left)) == sorted(LATE)
    assert list(leftovers(tmp_path)) == []
    assert "no job is left behind" in cleaned(capsys)


def test_jobs_that_a_resumed_run_would_use_are_cancelled_by_force_only(
    left: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLog(left.events) as log:
        log.append([DriverStarted(time.time(), 1, "n1")])
    kept = "a resumable run's jobs are used by 'asa resume RUN'; --cancel --force cancels them, too"
    said = cleaned(capsys, "--cancel")
    assert kept in said and "cancel them with" not in said
    assert cancelled(left) == [] and len(list(leftovers(tmp_path))) == 2
    assert kept not in cleaned(capsys, "--cancel", "--force")
    assert list(leftovers(tmp_path)) == []


def test_jobs_of_others_are_cancelled_where_one_batch_system_does_not_answer(
    left: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That one is asked once, and its runs are named with their jobs."""
    (tmp_path / "bin").mkdir()
    program = f"#!/bin/sh\necho >> {tmp_path}/asked\necho 'Unable to contact slurm controller' >&2\nexit 1\n"
    for name in ("squeue", "sbatch", "scancel", "scontrol", "sinfo", "sacct"):
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    silent = []
    for number in (17, 18):
        run = RunDirectory.create(tmp_path, f"silent-{number}")
        save_settings(run, Settings(None, "silent", "slurm"))
        job = Submitting(time.time(), "late", JobRequest("late", Resources(1), 60.0, ("true",), ""), ("one",))
        with EventLog(run.events) as log:
            log.append([job, Submitted(time.time(), "late", JobHandle(str(number), "late", time.time()))])
        silent.append(run.name)
    assert main(["clean", "--cancel"]) == 1
    said = capsys.readouterr()
    assert said.out.count(left.name) == 2 and "no other job" not in said.out
    assert sorted(cancelled(left)) == sorted(LATE)
    for name, number in zip(silent, (17, 18), strict=True):
        assert f"{name}: whether its jobs ({number}) are left is not known, slurm does not say: Unable" in said.err
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert main(["clean"]) == 1
    assert "no other job is left behind" in capsys.readouterr().out


def test_a_run_that_is_driven_is_left_alone(left: RunDirectory, tmp_path: Path) -> None:
    with left.lock():
        assert list(leftovers(tmp_path)) == []


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner),
)


@given(VALUES, st.integers(0, 60))
def test_what_is_shown_is_the_beginning_of_what_repr_says(value: object, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workflow_settings, "SHOWN_MOST", most)
        text = repr(value)
        assert workflow_settings.shown(value) == (text if len(text) <= most else f"{text[:most]} ...")


def test_no_more_is_read_than_is_shown() -> None:
    taken: list[int] = []
    text = workflow_settings.shown({"all": workflow_settings.Unread(taken.append(n) or n for n in range(10**6))})
    assert text.startswith("{'all': [0, 1, 2,") and text.endswith("...") and len(taken) < 1000
    several = [*range(1000)]
    several.append(several)  # type: ignore[arg-type]
    assert workflow_settings.shown(several) == f"{repr(several)[:2000]} ..."
    nested: list[object] = []
    nested.append(nested)
    assert workflow_settings.shown(nested) == repr(nested)
