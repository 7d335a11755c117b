from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.cli.main import main
from asa.core.event import NodeJoined, TasksLaunched
from asa.core.registry import COMMANDS
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from tests.runlogs import job_asked, run_begins, stage_spec

FILE = """
import time

import asa

@asa.stage
def double(x): return 2 * x

@asa.stage
def fail(x): raise ValueError("no such band: 7")

@asa.stage
def slow(x):
    time.sleep(0.15)
    return x

@asa.stage(cores=3)
def wide(): return 1

def workflow(n=3): return double.map(range(n))
broken = double(fail(1))
number = 3
ls = asa.command("ls {path}")
program = ls("/nosuch")

@asa.stage
def calls(path): return ls.function(path)

calls = calls("/nosuch")
slow = slow.map(range(2))
wide = wide()
"""

QUEUE = """
cores = 8
[[jobs]]
name = "host"
cores = 8
walltime = "1h"
run_time = "20m"
cpu = 0.3
[[jobs]]
name = "guest"
cores = 4
walltime = "1h"
run_time = "10m"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "doubles.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run_of(folder: Path) -> str:
    (run,) = (folder / "state" / "runs").iterdir()
    return run.name


def test_a_run_and_what_can_be_seen_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "doubles.py", "--set", "n=4", "--json", "run.json", "--report", "run.html"]) == 0
    seen = capsys.readouterr()
    assert "[0, 2, 4, 6]" in seen.out
    assert "core-hours charged" in seen.err
    figures = json.loads((folder / "run.json").read_text())
    assert figures["state"] == "succeeded"
    assert {"makespan_s", "total_perceived_wait_s", "core_hours_charged", "overhead_core_hours"} <= set(figures)
    assert "<svg" in (folder / "run.html").read_text()

    name = run_of(folder)
    assert name.startswith("doubles-")
    for words, expected in (
        (["explain", name[:8]], "double: done, 4 tasks"),
        (["runs"], "succeeded"),
        (["clean"], "no job is left behind"),
        (["waits"], "nothing has been learned yet"),
        (["report", name, "-o", "again.png"], "wrote again.png"),
        (["resume", name, "--quiet"], "[0, 2, 4, 6]"),
    ):
        assert main(words) == 0
        assert expected in capsys.readouterr().out


def test_a_budget_is_shown_in_the_report(folder: Path) -> None:
    assert main(["run", "doubles.py", "--max-overhead", "3%", "--patience", "20", "--report", "run.html"]) == 0
    assert "3 % allowed" in (folder / "run.html").read_text()


def test_a_failed_run_says_why_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "doubles.py:broken", "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "stage 'fail' failed: task 0" in said
    assert "ValueError: no such band: 7" in said
    assert "skipped because of it: double" in said


def test_a_program_that_failed_is_told_without_our_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "doubles.py:program", "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "stage 'ls' failed: task 0" in said and "ended with exit code 2" in said
    assert "Traceback" not in said and "stage.py" not in said
    assert main(["run", "doubles.py:calls", "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said and "def calls" in said, "whose own function it is in"


def test_json_on_standard_output_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "doubles.py", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "succeeded"


def test_what_tasks_print_in_virtual_time_is_not_in_the_way_of_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loud.py").write_text("import asa\nworkflow = asa.stage(print, name='shout', run_time='1m')('noise')\n")
    run = ["run", "loud.py", "--backend", "sim:nodes=1,cores=1"]
    assert main([*run, "--json", "-"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["state"] == "succeeded" and "noise" in said.err
    assert main([*run, "--quiet"]) == 0
    assert capsys.readouterr().out == "None\n"


def test_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "doubles.py:broken"]) == 0
    assert "double: 1 task, 1 core (charged 1), 1 h  after fail" in capsys.readouterr().out
    assert main(["graph", "doubles.py", "--set", "n=5"]) == 0
    assert "double: 5 tasks" in capsys.readouterr().out
    assert main(["graph", "doubles.py", "--dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph")


def test_graph_names_a_stage_that_cannot_run_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "doubles.py", "--backend", "local:cores=2"]) == 0
    assert main(["graph", "doubles.py:wide", "--backend", "local:cores=2"]) == 1
    assert "stage 'wide'" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--backend", "local"]) == 0
    assert "dependent jobs keep their place" in capsys.readouterr().out


def test_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "convergence", "--seeds", "1", "--json", "fig5.json", "-o", "fig5.png"]) == 0
    rows: dict[str, Any] = json.loads((folder / "fig5.json").read_text())
    assert set(rows) == {"default", "tuned", "greedy", "fixed-share"}
    assert all({"hit", "median_iterations"} <= set(row) for row in rows.values())
    assert (folder / "fig5.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["rnu"], 2, "did you mean 'run'?"),
        (["run", "missing.py"], 1, "there is no file 'missing.py'"),
        (["run", "doubles.py:number"], 1, "no workflow"),
        (["run", "doubles.py", "--strategy", "bigjob"], 2, "did you mean 'big-job'?"),
        (["run", "doubles.py", "--backend", "local:corse=2"], 2, "did you mean 'cores'?"),
        (["run", "doubles.py", "--max-overhead", "lots"], 1, "max_overhead 'lots' is not a share"),
        (["run", "doubles.py", "--max-overhead", "3"], 1, "max_overhead 3 would be 300 %: write '3%' or '300%'"),
        (["run", "doubles.py", "--patience", "0"], 1, "patience is 0.0: core-hours that an hour of your time is worth"),
        (
            ["run", "doubles.py", "--strategy", "big-job", "--patience", "5"],
            2,
            "option of strategy 'big-job': 'patience'",
        ),
        (["run", "doubles.py", "--workdir", "nowhere"], 1, "workdir 'nowhere': there is no such directory"),
        (["run", "doubles.py", "--backend", "sim:site=none.json"], 1, "there is no file 'none.json'"),
        (["run", "doubles.py", "--backend", "sim:site=hpc2m"], 2, "did you mean 'hpc2n'?"),
        (["run", "doubles.py", "--orphan-grace", "5"], 1, "is not a positive duration"),
        (["run", "doubles.py", "--strategy", "asa:lookahed=2"], 2, "did you mean 'lookahead'?"),
        (["run", "doubles.py", "--report", "run.txt"], 1, "end the name with .html"),
        (["run", "doubles.py", "--report", "none/run.html"], 1, "there is no directory 'none'"),
        (["resume", "nothing"], 1, "no run 'nothing'"),
        (["explain", "nothing"], 1, "no run 'nothing'"),
    ],
)
def test_mistakes_are_named(words: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    assert expected in capsys.readouterr().err


def test_an_unknown_option_shows_the_usage_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "doubles.py", "--backnd", "local"])
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "[--backend BACKEND]" in told and "unrecognized arguments: --backnd local: did you mean --backend?" in told


def test_json_that_cannot_be_written_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "doubles.py", "--json", "none/run.json"]) == 1
    assert "--json 'none/run.json' cannot be written: there is no directory 'none'" in capsys.readouterr().err
    assert not (folder / "state").exists()


def test_a_run_without_a_driver_is_explained_as_such(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dies = "import asa, doubles, os; asa.submit(doubles.workflow(), orphan_grace=1); os._exit(0)"
    subprocess.run([sys.executable, "-c", dies], cwd=folder, timeout=60, check=True)
    name = run_of(folder)
    assert main(["explain", name, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["stages"]
    assert set(found) == {"double", "driver"}
    assert found["driver"] == f"gone (`asa resume {name}` runs only what is not done)"
    assert main(["resume", name, "--quiet"]) == 0
    assert main(["explain", name]) == 0
    assert "driver" not in capsys.readouterr().out


def test_a_run_whose_driver_is_gone_is_listed_as_such(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "state").mkdir(0o700)
    for name, log in (("begun", run_begins(stage_spec("a", 1, 1))), ("too-early", [])):
        with EventLog(RunDirectory.create(folder / "state", name).events) as events:
            events.append(log)
    assert main(["runs", "--json", "-"]) == 0
    begun, early = sorted(json.loads(capsys.readouterr().out)["rows"], key=lambda row: str(row["run"]))
    assert begun["state"] == early["state"] == "interrupted"
    assert begun["strategy"] is not None and early["strategy"] is early["started"] is None


def test_all_commands_say_the_same_of_a_run_whose_driver_is_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "state").mkdir(0o700)
    log = run_begins(stage_spec("a", 8, 8))
    begun = [*log, *job_asked(log[0].at + 1, "j0", 8, "a"), NodeJoined(log[0].at + 5, "j0", "n1", 8)]
    directory = RunDirectory.create(folder / "state", "dead")
    with EventLog(directory.events) as events:
        events.append([*begun, TasksLaunched(log[0].at + 6, "a", ((0, 8),), "j0")])

    def said() -> list[dict[str, Any]]:
        found = []
        for command in (["runs"], ["explain", "dead"], ["top", "dead", "--once"], ["report", "dead", "-o", "a.json"]):
            assert main([*command, "--json", "-"]) == 0
            found.append(json.loads(capsys.readouterr().out))
        return found

    runs, explained, top, report = said()
    states = [runs["rows"][0]["state"], explained["state"], top["run"]["state"], report["state"]]
    assert states == ["interrupted"] * 4
    assert explained["stages"]["a"] == top["why"]["a"]
    assert explained["stages"]["a"].startswith("stopped, 0 of 8 tasks done; when its driver was last seen, job ")
    assert (top["stages"]["a"]["state"], top["jobs"]["j0"]["state"], top["live"]) == ("stopped", "unknown", False)
    with directory.lock():
        runs, explained, top, report = said()
    states = [runs["rows"][0]["state"], explained["state"], top["run"]["state"], report["state"]]
    assert states == ["running"] * 4
    assert (top["stages"]["a"]["state"], top["jobs"]["j0"]["state"], top["live"]) == ("running", "running", True)


def test_a_job_of_a_queue_is_explained_like_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "queue.toml").write_text(QUEUE)
    (folder / "state" / "cosched").mkdir(0o700, parents=True)
    (folder / "state").chmod(0o700)
    work = str(folder / "state" / "cosched" / "day-1")
    assert main(["cosched", "run", "queue.toml", "--on", "sim", "--sharing", "static", "--work", work]) == 0
    capsys.readouterr()
    assert main(["explain", "guest"]) == 0
    assert "started as a guest of host" in capsys.readouterr().out
    assert main(["explain", "nothing"]) == 1
    assert "no run 'nothing'" in capsys.readouterr().err


def test_a_run_that_never_began_is_named_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "doubles.py", "--quiet"]) == 0
    name = run_of(folder)
    (folder / "state" / "runs" / name / "settings").unlink()
    capsys.readouterr()
    assert main(["explain", name]) == 0, "the log alone is read"
    assert "double: done" in capsys.readouterr().out
    never = f"run {name} never began, its driver died too early: run the workflow again"
    assert main(["resume", name]) == 1
    assert never in capsys.readouterr().err
    for left in (folder / "state" / "runs" / name).glob("events.db*"):
        left.unlink()
    assert main(["explain", name]) == 1
    assert never in capsys.readouterr().err


def test_the_module_is_the_command_line() -> None:
    """Where the script is not on the path, such as in the daemons that a run starts."""
    words = [sys.executable, "-P", "-m", "asa", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["asa", asa.__version__]


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    seen = capsys.readouterr()
    assert "usage: asa" in seen.out and all(name in seen.out for name in ("run", "explain", "clean"))


@pytest.mark.parametrize("columns", [60, 80])
def test_the_help_shows_each_command_once_by_what_it_is_for(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    groups = {}
    for title, lines in re.findall(r"^([a-z ,]+):\n((?: .*\n)+)", text, re.M):
        groups[title] = re.findall(r"^  (\S+)", lines, re.M)
    assert sorted(name for names in groups.values() for name in names) == COMMANDS.names()
    assert "others" not in groups and {"hold", "release", "cancel"} <= {*groups["manage runs"]}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_crash(folder: Path, unbuffered: str) -> None:
    """As in ``asa runs --json - | head -1``."""
    ours, theirs = os.pipe()
    os.close(ours)
    words, environ = [sys.executable, "-P", "-m", "asa", "runs"], os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environ)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, "")


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        assert COMMANDS.load(name)().help


def test_a_dry_run_says_what_would_be_submitted_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    command = ["run", "doubles.py:broken", "--dry-run", "--json", "preview.json"]
    assert main([*command, "--backend", "local:cores=4", "--strategy", "per-stage"]) == 0
    said = capsys.readouterr().out
    assert "fail: at once, 1 core for 1 h, at most 1 core-hours" in said
    assert "double: later, 1 core for 1 h, at most 1 core-hours" in said
    assert "2 jobs, at most 2 core-hours if each runs once; nothing was submitted" in said
    told = json.loads(Path("preview.json").read_text())
    assert told["core_hours"] == 2.0 and [row["at_once"] for row in told["rows"]] == [True, False]
    assert main([*command, "--backend", "local:cores=4", "--strategy", "big-job"]) == 0
    assert "fail, double: at once, 1 core for 2 h, at most 2 core-hours" in capsys.readouterr().out
    assert not (tmp_path / "state" / "runs").exists()


def test_a_dry_run_says_once_that_a_stage_with_checkpoints_may_have_several_jobs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "long.py").write_text(
        "import asa\n\n@asa.stage(cores=2, walltime='12h', checkpoint=True)\ndef long(): ...\n\nworkflow = long()\n"
    )
    assert main(["run", "long.py", "--dry-run", "--backend", "local:cores=4", "--json", "jobs.json"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "long: at once, up to 3 jobs in a row, each with 2 cores for 12 h, at most 24 core-hours"
    assert said[-1] == "up to 3 jobs, at most 72 core-hours if each runs once; nothing was submitted"
    assert sum(line.startswith("long:") for line in said) == 1
    assert len(json.loads(Path("jobs.json").read_text())["rows"]) == 3


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_what_is_shown_fits_into_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    assert main(["run", "doubles.py:slow", "--quiet", "--backend", "local:cores=2"]) == 0
    assert main(["run", "doubles.py:broken", "--quiet", "--backend", "local:cores=2"]) == 1
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (
        ["runs", "--size"],
        ["history"],
        ["history", "slow"],
        ["quote", "doubles.py"],
        ["graph", "doubles.py"],
        ["explain"],
        ["status"],
        ["top", "--once"],
        ["waits"],
        ["clean"],
    ):
        assert main(words) == 0, words
        said = capsys.readouterr().out
        assert said.strip() and max(map(len, said.splitlines())) <= columns, words
        assert "\x1b" not in said, words
