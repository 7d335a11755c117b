"""``asa selftest``: small real runs on a user's site, whose result a site's page can show."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from asa.cli.doctor import machine, of_backend, row
from asa.core.command import CommandResult, duration, table
from asa.core.errors import AsaError
from asa.core.registry import BACKENDS
from asa.core.units import brief
from asa.log.rundir import list_runs, state_directory
from asa.report.words import counted
from asa.workflows.clean import cancel_run
from asa.workflows.run import Run, open_run, resume, submit
from asa.workflows.stage import Node, stage

_WORKFLOW = "from asa.cli.selftest import workflow\n\nresult = workflow({marks!r})\n"
_SQUARES, _TOTAL = range(3), 5
_LOOK_S = 0.2
_CANCEL_S = 30.0


class NotReached(Exception):
    """What was to be seen has not begun in time."""


class SelfTest:
    """Run small workflows on this site: a plain one, one whose second job's place is held, one whose driver is killed.

    It takes two minutes of work, and at most `--wait` in the queue for each: what has not started by then is not
    reached, which is no failure. It writes into a directory of its own below the state directory, and removes that.
    """

    help = "run small workflows here: a run, a held place, a resume; no root, two minutes and the queue's waits"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        default = "slurm" if shutil.which("sbatch") else "local"
        parser.add_argument("--backend", default=default, help=f"where ({default}), as for asa run")
        parser.add_argument(
            "--wait", type=duration, default=600.0, help="how long each run may take, queue included (10m)"
        )
        parser.add_argument("--keep", action="store_true", help="keep the runs")

    def run(self, options: argparse.Namespace) -> CommandResult:
        began = time.time()
        state = Path(tempfile.mkdtemp(prefix="selftest-", dir=state_directory()))
        rows = [*machine(), *of_backend(options.backend)]
        if all(each["ok"] for each in rows):
            for what, check in (("a run", _runs), ("a held place", _holds), ("a resume after kill -9", _resumes)):
                rows.append(_tried(what, check, state, options))
        well = all(each["ok"] is not False for each in rows)
        kept = any(list_runs(state)) and (options.keep or not well)
        if not kept:
            shutil.rmtree(state, ignore_errors=True)
        words = {True: "yes", False: "NO", None: "not reached"}
        shown = table([each | {"ok": words[each["ok"]]} for each in rows], "nothing to look at")
        took = f"{'works' if well else 'DOES NOT WORK'} on {options.backend}, after {brief(time.time() - began)}"
        if kept:
            took += f"; its runs: ASA_STATE_DIR={state} asa runs"
        about = {
            "format": 1,
            "asa": version("asa-hpc"),
            "python": platform.python_version(),
            "system": platform.platform(),
            "backend": options.backend,
            "site": _site(options.backend),
            "at": began,
        }
        return CommandResult(about | {"works": well, "rows": rows}, f"{shown}\n\n{took}", 0 if well else 1)


def workflow(marks: str) -> Node:
    """Squares in parallel, then their sum; each task leaves a mark in a directory when it begins."""

    def mark(name: str) -> None:
        with (Path(marks) / name).open("a") as file:
            file.write(f"{os.uname().nodename}\n")

    def square(x: int) -> int:
        mark(f"square-{x}")
        return x * x

    def total(xs: list[int]) -> int:
        mark("total")
        time.sleep(3.0)
        return sum(xs)

    return stage(walltime="5m")(total)(stage(cores=1, walltime="5m")(square).map(_SQUARES))


def _tried(what: str, check: Callable[[Path, argparse.Namespace], str], state: Path, options: Any) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = row(what, True, check(state, options))
    except NotReached as late:
        found = row(what, True, str(late)) | {"ok": None}
    except (AsaError, AssertionError, OSError) as error:
        found = row(what, False, str(error))
    return found | {"seconds": round(time.monotonic() - began, 1)}


def _runs(state: Path, options: argparse.Namespace) -> str:
    with _submitted(state, options, "per-stage") as run:
        _await(run, options.wait)
        summary = run.summary
    jobs = summary.jobs
    waited = max(job.wait_s or 0.0 for job in jobs)
    return f"its result is right: {counted(len(jobs), 'job')}, longest wait {brief(waited)}, {summary.state.value}"


def _holds(state: Path, options: argparse.Namespace) -> str:
    with _submitted(state, options, "hold") as run:
        _await(run, options.wait)
        jobs = sorted(run.summary.jobs, key=lambda job: job.submitted)
    if len(jobs) < 2 or jobs[0].ended is None or jobs[-1].started is None:
        return "its result is right; both stages ran in one job"
    if jobs[-1].submitted >= jobs[0].ended:
        return "its result is right; no place can be held here: the second job was submitted after the first had ended"
    gap = brief(max(0.0, jobs[-1].started - jobs[0].ended))
    return f"the second job was in the queue from the start, and started {gap} after the first had ended"


def _resumes(state: Path, options: argparse.Namespace) -> str:
    marks = _marks(state, "killed")
    file = state / "killed.py"
    file.write_text(_WORKFLOW.format(marks=str(marks)))
    before = {directory.name for directory in list_runs(state)}
    arguments = [f"{file}:result", "--backend", options.backend, "--strategy", "per-stage"]
    driver = subprocess.Popen(
        [sys.executable, "-P", "-m", "asa", "run", *arguments],
        env={**os.environ, "ASA_STATE_DIR": str(state)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + options.wait
        while not (marks / "total").exists():
            if driver.poll() is not None:
                assert driver.stderr is not None
                raise AssertionError(
                    f"asa run ended with exit code {driver.returncode}: {driver.stderr.read().strip()}"
                )
            if time.monotonic() > until:
                raise NotReached(f"its jobs have not started within {brief(options.wait)}")
            time.sleep(_LOOK_S)
    finally:
        driver.kill()
        driver.communicate()
        names = [directory.name for directory in list_runs(state) if directory.name not in before]
        if names and not (marks / "total").exists():
            cancel_run(open_run(names[0], state=state).directory, _CANCEL_S)
    with _closed(resume(names[0], state=state)) as run:
        _await(run, options.wait)
    twice = [path.name for path in sorted(marks.iterdir()) if len(path.read_text().splitlines()) > 1]
    assert not [name for name in twice if name != "total"], f"tasks that were done ran again: {', '.join(twice)}"
    taken = "the task that ran was begun anew" if twice else "the task that ran went on"
    return f"no task that was done ran again; {taken}"


@contextmanager
def _submitted(state: Path, options: argparse.Namespace, strategy: str) -> Iterator[Run]:
    node = workflow(str(_marks(state, strategy)))
    with _closed(submit(node, name=strategy, state=state, backend=options.backend, strategy=strategy)) as run:
        yield run


@contextmanager
def _closed(run: Run) -> Iterator[Run]:
    """A run that is cancelled, and has ended, behind it."""
    try:
        yield run
    finally:
        run.cancel("the self-test is over")
        run.wait(_CANCEL_S)


def _await(run: Run, patience_s: float) -> None:
    """Its result is right, and its jobs have ended."""
    try:
        found = run.result(patience_s)
    except TimeoutError:
        if any(job.started is not None for job in run.summary.jobs):
            raise AssertionError(f"it has begun, but not ended within {brief(patience_s)}: {run.explain()}") from None
        raise NotReached(f"its jobs have not started within {brief(patience_s)}") from None
    assert found == _TOTAL, f"its result is {found!r}, expected {_TOTAL}"
    run.wait(patience_s)


def _marks(state: Path, name: str) -> Path:
    path = state / f"marks-{name}"
    path.mkdir(mode=0o700)
    return path


def _site(spec: str) -> str | None:
    """What the batch system calls itself."""
    try:
        backend = BACKENDS.create(spec)
        try:
            return str(backend.capabilities().site)
        finally:
            backend.close()
    except AsaError:
        return None
