"""What tasks print, from real processes: who printed it, what is kept, and where it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import asa
from asa.cli.main import main
from asa.core.errors import InvalidInput, UnknownName
from asa.core.event import RunState, TaskFailed, TasksLaunched
from asa.log.output import OutputLine
from asa.workflows.run import Run, open_run
from tests.waiting import until


def said(lines: Iterator[OutputLine] | list[OutputLine]) -> list[str]:
    return [f"{line.stage}[{line.index}] {line.text}" for line in lines]


def finished(workflow: Any, state: Path, backend: str = "local:cores=2", **options: Any) -> Run:
    run = asa.submit(workflow, state=state, backend=backend, **options)
    run.decided.wait()
    run.wait()
    return run


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def test_all_that_a_task_writes_is_there_in_its_order(own_state: Path) -> None:
    def speak(number: int) -> int:
        print("one", number)
        print("two", number, file=sys.stderr)
        os.write(1, b"three from C\n")
        subprocess.run(["sh", "-c", "echo four; echo five >&2"], check=True)
        print("six, without an end of line", end="")
        return number

    run = finished(asa.stage(cores=2)(speak).map([7, 8, 9]), own_state)
    assert run.result() == [7, 8, 9]
    for index, number in enumerate([7, 8, 9]):
        wanted = [f"one {number}", f"two {number}", "three from C", "four", "five", "six, without an end of line"]
        lines = list(run.logs("speak", index))
        assert [line.text for line in lines] == wanted
        assert {(line.stage, line.index, line.attempt, line.note) for line in lines} == {("speak", index, 1, False)}
        assert lines[0].node and 0 < lines[0].started < time.time()
    assert len(list(run.logs())) == 18
    assert sorted(said(run.logs(grep=r"^one [89]$"))) == ["speak[1] one 8", "speak[2] one 9"]


def test_messages_of_logging_and_warnings_have_their_level(own_state: Path) -> None:
    def speak(number: int) -> None:
        logging.getLogger("mine").error("broken %d", number)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        warnings.warn("odd", stacklevel=1)

    def of_its_own(_: object) -> None:
        logging.basicConfig(level=logging.DEBUG, format="%(levelname)s: %(message)s")
        logging.debug("small")

    run = finished(asa.stage(of_its_own)(asa.stage(speak)(1)), own_state)
    texts = [line.text for line in run.logs("speak")]
    assert texts[0] == "ERROR mine: broken 1"
    assert any(text.startswith("WARNING ") and "UserWarning: odd" in text for text in texts)
    assert [line.text for line in run.logs("of_its_own")] == ["DEBUG: small"]


def test_a_failure_has_its_output_and_attempts_are_told_apart(own_state: Path, tmp_path: Path) -> None:
    def twice(number: int) -> int:
        print("trying", number)
        mark = Path(f"mark{number}")
        if number == 1 and not mark.exists():
            mark.touch()
            raise ValueError("not yet")
        if number == 2:
            raise ValueError("never")
        return number

    run = finished(asa.stage(retries=1, cores=1)(twice).map([0, 1, 2]), own_state)
    with pytest.raises(asa.RunFailed, match=r"last lines of its output:\ntrying 2"):
        run.result()
    assert "last lines of its output:\ntrying 2" in run.explain()
    assert [(line.attempt, line.text) for line in run.logs("twice", 1)] == [
        (1, "trying 1"), (1, "[failed: ValueError: not yet]"), (2, "trying 1"),
    ]  # fmt: skip
    failed = list(run.logs(failed=True))
    assert {(line.index, line.attempt) for line in failed} == {(1, 1), (2, 1), (2, 2)}
    assert sum(line.note for line in failed) == 3
    page = run.report(tmp_path / "r.html").read_text()
    assert "trying 2" in page


def test_a_silent_failure_is_listed(own_state: Path) -> None:
    def quiet() -> None:
        raise ValueError("no band")

    run = finished(asa.stage(quiet)(), own_state)
    assert said(run.logs(failed=True)) == ["quiet[0] [failed: ValueError: no band]"] == said(run.logs())


def test_a_dead_worker_leaves_its_last_words(own_state: Path) -> None:
    def die() -> None:
        print("before")
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    run = finished(asa.stage(die)(), own_state)
    texts = [line.text for line in run.logs("die")]
    assert texts[0] == "before" and any("Segmentation fault" in text for text in texts)
    assert texts[-1].startswith("[failed: the worker process was killed by signal 11")


@pytest.mark.parametrize("quick", [False, True])
def test_output_is_bounded_and_says_where_it_is_cut(own_state: Path, quick: bool) -> None:
    """Not only what a long task writes, but also what it writes sooner than anybody looks."""

    def flood(number: int) -> int:
        print("the beginning", number)
        for _ in range(100):
            os.write(1, b"x" * 99_999 + b"\n")
            time.sleep(0 if quick else 0.01)
        print("the end", number)
        return number

    def after(numbers: object) -> None:
        print("after")

    run = finished(asa.stage(after)(asa.stage(flood).map([1, 2])), own_state, output_limit="1M")
    assert run.status is RunState.SUCCEEDED
    files = list((run.directory.path / "output").glob("*.out"))
    used = sum(path.stat().st_blocks * 512 for path in files)
    assert used < 2.5 * (1 << 20), "on the disk, not only in what is shown"
    for index in (0, 1):
        lines = list(run.logs("flood", index))
        assert (lines[0].text, lines[-1].text) == (f"the beginning {index + 1}", f"the end {index + 1}")
        (note,) = (line for line in lines if line.note)
        gone = int(re.sub(r"\D", "", note.text))
        kept = sum(len(line.text) for line in lines if not line.note)
        assert kept <= 1 << 20 and kept + gone == pytest.approx(10_000_000, abs=1000)
    assert said(run.logs("after")) == ["after[0] after"]


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="output_limit='much' is no size: write like '10M'"):
        asa.submit(asa.stage(len)("x"), output_limit="much")


def test_programs_with_outputs_are_heard_and_a_log_file_can_be_named(own_state: Path, tmp_path: Path) -> None:
    command = "sh -c 'echo progress {i}; echo careful > /dev/stderr; touch {out}'"
    heard = asa.command(command, outputs={"out": "a{i}"}, name="heard")
    logged = asa.command(command, outputs={"out": "b{i}"}, log="logs/{i}.log", name="logged")
    plain = asa.command("echo {i}", name="plain")
    run = finished([heard.map([1, 2]), logged.map([1, 2]), plain.map([3])], own_state)
    assert run.result()[2] == ["3\n"], "it is the value"
    assert sorted(said(run.logs("heard")), key=lambda line: line[:8]) == [  # the two run at the same time
        "heard[0] progress 1", "heard[0] careful", "heard[1] progress 2", "heard[1] careful",
    ]  # fmt: skip
    assert said(run.logs("logged")) == said(run.logs("plain")) == []
    assert (tmp_path / "logs/2.log").read_text() == "progress 2\ncareful\n"
    with pytest.raises(InvalidInput, match="log='x' needs outputs="):
        asa.command("echo {i}", log="x")


def test_a_program_that_fails_has_its_last_words_in_the_error(own_state: Path) -> None:
    bad = asa.command("sh -c 'echo so far; echo no space >&2; exit 3'", outputs={"out": "o"}, name="bad")
    with pytest.raises(
        asa.RunFailed, match=r"exit code 3; it printed: so far\nlast lines of its output:\nso far\nno space"
    ):
        finished(bad(), own_state).result()
    value = asa.command("sh -c 'echo half a value; exit 3'", name="value")
    assert said(finished(value(), own_state).logs())[0] == "value[0] half a value"


def test_threads_have_their_own_lines(own_state: Path) -> None:
    def speak(number: int) -> None:
        for part in range(20):
            print(number, end=" ")
            time.sleep(0.001)
            print(part, file=sys.stderr)
        if number == 3:
            raise ValueError(number)

    workflow = asa.stage(cores=2)(speak).map([0, 1, 2, 3])
    run = finished(workflow, own_state, executor="local:workers=threads")
    for number in range(3):
        assert [line.text for line in run.logs("speak", number)] == [f"{number} {part}" for part in range(20)]
    (failure,) = (event for _, event in run.events() if isinstance(event, TaskFailed))
    assert failure.stderr == "".join(f"3 {part}\n" for part in range(20)), "nothing of its neighbours'"


FLOW = """
import asa, os, sys, time

@asa.stage(cores=2, retries=0)
def slow(i):
    print("first line of", i)
    while not os.path.exists("go"):
        time.sleep(0.02)
    print("last line of", i)
    return i

workflow = slow.map([0, 1])
"""


class Background:
    """A run that another process drives."""

    def __init__(self, folder: Path) -> None:
        (folder / "flow.py").write_text(FLOW)
        self.folder, self.state = folder, folder / "state"
        words = [sys.executable, "-m", "asa", "run", "flow.py", "--name", "bg", "--backend", "local:cores=2"]
        self.driver = subprocess.Popen(
            [*words, "--orphan-grace", "2s"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.run = until(self._opened, "the run")

    def _opened(self) -> Run | None:
        with suppress(asa.AsaError, FileNotFoundError):
            run = open_run("bg", state=self.state)
            if any(isinstance(event, TasksLaunched) for _, event in run.events()):
                return run
        return None

    def processes(self, word: str) -> list[int]:
        """Supervisors and their workers."""
        found = [(each.pid, " ".join(each.info["cmdline"] or ())) for each in psutil.process_iter(["cmdline"])]
        return [pid for pid, words in found if str(self.state) in words and word in words]


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Background]:
    found = Background(tmp_path)
    yield found
    (tmp_path / "go").touch()
    found.driver.kill()
    found.driver.wait()


def test_lines_come_while_the_task_runs_and_following_ends_with_the_run(background: Background) -> None:
    words = [sys.executable, "-m", "asa", "logs", "bg", "--follow", "--grep", "line"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=background.folder) as follower:
        assert follower.stdout
        first = sorted(follower.stdout.readline() for _ in range(2))
        assert first == ["slow[0] first line of 0\n", "slow[1] first line of 1\n"]
        assert background.run.status is RunState.RUNNING
        assert len(said(background.run.logs("slow", 1))) == 1
        (background.folder / "go").touch()
        assert sorted(follower.stdout.read().splitlines()) == ["slow[0] last line of 0", "slow[1] last line of 1"]
        assert follower.wait(60) == 0


def test_what_was_printed_survives_driver_supervisor_and_worker(background: Background) -> None:
    until(lambda: len(list(background.run.logs())) == 2, "two lines")
    background.driver.kill()
    background.driver.wait()
    supervisors = until(lambda: background.processes("executors.supervisor"), "the supervisor")
    for pid in supervisors:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not background.processes("executors.supervisor"), "their end")
    run = open_run("bg", state=background.state)
    assert run.status is RunState.INTERRUPTED
    assert {line.text for line in run.logs() if not line.note} == {"first line of 0", "first line of 1"}
    assert [line.text for line in run.logs("slow", 1)][1:] == [
        "[its output ends here: no end of this attempt was reported]"
    ]
    (background.folder / "go").touch()
    resumed = asa.resume("bg", state=background.state)
    assert resumed.result(60) == [0, 1]
    lines = list(resumed.logs("slow", 0))
    assert [line.text for line in lines if not line.note] == ["first line of 0", "first line of 0", "last line of 0"]
    (note,) = (line for line in lines if line.note)
    assert note.attempt == 1 and note.text.startswith("[its output ends here")


def test_the_command_line(own_state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def speak(number: int) -> int:
        print("number", number)
        if number == 2:
            raise ValueError("odd")
        return number

    def quiet() -> None: ...

    one_by_one = "local:cores=1"  # else the run may be over before the first has printed
    run = finished([asa.stage(speak).map([1, 2]), asa.stage(quiet)()], own_state, one_by_one, name="cl")
    assert main(["logs", "cl", "speak[0]"]) == 0
    assert capsys.readouterr().out == "speak[0] number 1\n"
    assert main(["logs", "cl", "--failed", "--bare"]) == 0
    assert capsys.readouterr().out == "number 2\n[failed: ValueError: odd]\n"
    assert main(["logs", "cl", "speak", "--nodes", "--grep", "1"]) == 0
    assert re.fullmatch(r"speak\[0\] \S+ \d\d:\d\d:\d\d number 1\n", capsys.readouterr().out)
    assert main(["logs", "cl", "quiet"]) == 0
    assert capsys.readouterr() == ("", f"asa: no task of quiet has printed anything in run {run.name}\n")
    assert main(["logs", "cl", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"stage": "speak", "index": 0, "text": "number 1"}.items() <= rows[0].items()
    assert main(["logs", "cl", "spaek"]) == 2
    assert "unknown stage 'spaek': did you mean 'speak'? Known: quiet, speak" in capsys.readouterr().err
    assert main(["logs", "cl", "--grep", "("]) == 1
    assert "'(' is no regular expression" in capsys.readouterr().err
    with pytest.raises(UnknownName):
        run.logs("spaek")


def test_a_program_that_empties_the_file_costs_only_what_was_there(own_state: Path) -> None:
    """Opened anew, a file is emptied, and so is what its worker has printed before: others' output is not mixed up."""

    def before(number: int) -> None:
        print("before", number)

    def rude(_: object) -> None:
        print("lost")
        os.system("echo rude > /dev/stderr")
        print("still here")

    def after(_: object) -> None:
        print("after")

    run = finished(asa.stage(after)(asa.stage(rude)(asa.stage(before)(1))), own_state)
    assert run.status is RunState.SUCCEEDED
    assert said(run.logs("rude")) == ["rude[0] rude", "rude[0] still here"]
    assert said(run.logs("after")) == ["after[0] after"]
