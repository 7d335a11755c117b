"""`asa dashboard` and `asa top`, as somebody runs them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from asa.cli.main import main
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from tests.runlogs import job_asked, montage, run_begins, run_log, stage_spec
from tests.waiting import until

RUN = "montage-3fa1"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    with EventLog(RunDirectory.create(tmp_path, RUN).events) as log:
        log.append(run_log(montage(2)))
    return tmp_path


def links(state: Path) -> list[Path]:
    return list((state / "dashboard").glob("link-*")) if (state / "dashboard").exists() else []


@pytest.mark.slow
def test_it_serves_until_it_is_stopped(state: Path) -> None:
    command = [sys.executable, "-P", "-m", "asa", "dashboard", "mont", "--port", "0", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            (file,) = until(lambda: links(state), "the link")
            url, _, code = file.read_text().strip().partition("/#")
            answer = requests.post(f"{url}/api/session", json={"code": code}, timeout=30)
            assert answer.json()["name"] == RUN
            program.send_signal(signal.SIGTERM)
            out, said = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 0, said
    assert json.loads(out) == {"url": url, "shows": RUN}
    assert str(file) in said
    assert re.search(r"ssh -N -L (\d+):127\.0\.0\.1:\1 ", said)
    assert code not in said + out  # no terminal: it might be a log
    assert links(state) == []


@pytest.mark.slow
def test_the_link_is_shown_to_eyes(state: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "asa", "dashboard", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as program:
        try:
            (file,) = until(lambda: links(state), "the link")
            link, said = file.read_text().strip(), ""
            while "ssh -N" not in said:
                said += os.read(ours, 4096).decode()
            assert link in said
            program.send_signal(signal.SIGINT)
            assert program.wait(60) == 0
        finally:
            program.kill()
            os.close(ours)
            os.close(theirs)


def test_others_are_not_listened_to_without_tls(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--host", "0.0.0.0"]) == 1
    assert "loopback only" in capsys.readouterr().err


def test_there_must_be_a_run(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "nothing"]) == 1
    assert "no run 'nothing'" in capsys.readouterr().err


def test_top_shows_a_run(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once"]) == 0
    said = capsys.readouterr().out
    assert RUN in said
    assert "succeeded" in said
    for stage in montage(2):
        assert stage.name in said
    assert "810009" in said


def test_top_is_data_too(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", RUN, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["state"] == "succeeded"
    assert len(found["jobs"]) == 10


def test_top_says_why_a_stage_waits(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    log = [*run_begins(stage_spec("a", 2, 1), stage_spec("b[red]", 2, 1, "a"), at=1e9), *job_asked(1e9, "j", 2, "a")]
    directory = RunDirectory.create(state, "second")
    with EventLog(directory.events) as events:
        events.append(log)
    with directory.lock():
        assert main(["top", "second", "--once"]) == 0
    said = capsys.readouterr().out
    assert "b[red]" in said
    assert "waits for a; no job was asked for yet" in said
    assert "J" in said


def test_top_follows_a_run_until_it_ends_or_ctrl_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = run_log(montage(2))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for all that rich knows
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    directory = RunDirectory.create(tmp_path, RUN)

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    with EventLog(directory.events) as events, directory.lock():
        events.append(log[: len(log) // 2])
        monkeypatch.setattr("time.sleep", interrupt)
        assert main(["top"]) == 0
        assert "running" in capsys.readouterr().out
        monkeypatch.setattr("time.sleep", lambda _seconds: events.append(log[len(log) // 2 :]))
        assert main(["top"]) == 0
        assert "succeeded" in capsys.readouterr().out


def test_top_on_a_terminal_leaves_a_run_that_is_over_on_it(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["top"]) == 0
    assert "succeeded" in capsys.readouterr().out


def test_top_is_not_for_queues(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "cosched" / "day-1").mkdir(parents=True, mode=0o700)
    (state / "cosched" / "day-1" / "log.jsonl").touch()
    assert main(["top", "day-1"]) == 1
    assert "day-1 is a queue: look at it with asa dashboard day-1" in capsys.readouterr().err


def test_a_dashboard_without_runs_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    monkeypatch.setattr("asa.dashboard.site.Dashboard.wait", lambda _page: None)
    assert main(["dashboard", "--port", "0"]) == 0
    assert re.search(r"dashboard at http://127\.0\.0\.1:\d+: there are no runs yet\n", capsys.readouterr().err)


def test_any_port_serves_where_the_usual_one_is_taken(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_page: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("asa.dashboard.site.Dashboard.wait", interrupt)
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # another process has it: just as well
            taken.bind(("127.0.0.1", 8765))
            taken.listen()
        assert main(["dashboard", "--json", "-"]) == 0
    assert not json.loads(capsys.readouterr().out)["url"].endswith(":8765")
