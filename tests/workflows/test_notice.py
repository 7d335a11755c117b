"""Notices when a run has ended, by real programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import asa
from asa.core.errors import AsaWarning, InvalidInput
from asa.workflows import notice
from tests.waiting import until

NOTE = """#!{python}
import json, os, sys
seen = {{name: value for name, value in os.environ.items() if name.startswith("ASA_") or name == "TOKEN"}}
with open({to!r}, "a") as file:
    file.write(json.dumps([sys.argv[1:], seen, sys.stdin.read()]) + "\\n")
sys.exit({code})
"""


@asa.stage
def halved(x: int) -> float:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x / 2


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


def program(folder: Path, name: str = "note", code: int = 0) -> Path:
    path = folder / name
    path.write_text(NOTE.format(python=sys.executable, to=str(folder / "notes"), code=code))
    path.chmod(0o755)
    return path


def notes(folder: Path) -> list[tuple[list[str], dict[str, str], str]]:
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_command_is_run_whatever_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "of-the-tasks")
    command = f"{program(tmp_path)} -v 'two words; $(touch {tmp_path}/shell)'"
    secret = halved.options(secrets=["TOKEN"])
    good = asa.run(secret(4), name="good", notify=command)
    bad = asa.run(halved(3), name="bad", notify=command, check=False)
    for run in (good, bad):
        assert run.wait(60)
    first, second = notes(tmp_path)
    assert first[0] == ["-v", f"two words; $(touch {tmp_path}/shell)", good.name, "succeeded"]
    assert not (tmp_path / "shell").exists(), "no shell reads it"
    assert (first[1]["ASA_RUN"], first[1]["ASA_OUTCOME"], first[1]["ASA_MESSAGE"]) == (good.name, "succeeded", "")
    assert "TOKEN" not in first[1] and Path(first[1]["ASA_STATE_DIR"]) == tmp_path / "state"
    assert second[0][-2:] == [bad.name, "failed"] and "3 is odd" in second[1]["ASA_MESSAGE"]
    assert asa.resume(bad.name).wait(60)
    assert [each[0][-2:] for each in notes(tmp_path)][2:] == [[bad.name, "failed"]], "of a resumed run, too"


def test_a_run_that_is_interrupted_gives_notice(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        "import asa, time\n@asa.stage\ndef nap():\n    open('began', 'w').close()\n"
        "    time.sleep(60)\nworkflow = nap()\n"
    )
    words = [sys.executable, "-m", "asa", "run", "flow.py", "--quiet", "--notify", str(program(tmp_path))]
    driver = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until(lambda: (tmp_path / "began").exists(), "the task")
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130, err
    ((given, _, _),) = notes(tmp_path)
    assert given[0].startswith("flow-") and given[1] == "cancelled"


@pytest.mark.parametrize(("code", "wrong"), [(3, "ended with 3"), (None, "could not be started"), (0, "60 s|1 s")])
def test_a_notice_that_fails_is_a_warning_and_the_run_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, wrong: str
) -> None:
    command = program(tmp_path, code=code or 0)
    if code == 0:  # it hangs
        command.write_text("#!/bin/sh\nexec sleep 60\n")
        monkeypatch.setattr(notice, "NOTICE_S", 1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = asa.submit(halved(4), name="good", notify=str(command))
        if code is None:
            command.unlink()
        assert run.result() == 2.0 and run.wait(60)
    (warning,) = [each for each in said if each.category is AsaWarning]
    assert re.search(f"no notice was given that run good-.*({wrong})", str(warning.message))
    assert run.status.value == "succeeded"
    assert "no notice was given" in run.directory.log.read_text()


def test_a_mail_is_sent_by_sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    sendmail = program(tmp_path, "sendmail")
    sendmail.rename(tmp_path / "bin/sendmail")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    run = asa.run(halved(3), name="odd", notify="me@example.org", check=False)
    assert run.wait(60)
    ((words, _, mail),) = notes(tmp_path)
    assert words == ["-i", "--", "me@example.org"]
    head, _, body = mail.partition("\n\n")
    assert f"Subject: ASA: run {run.name} failed" in head and "To: me@example.org" in head
    assert "3 is odd" in body and f"`asa resume {run.name}`" in body


@pytest.mark.parametrize(
    ("notify", "wrong"),
    [
        ("", "notify is empty"),
        ("no-such-program --really", "there is no program 'no-such-program' on PATH"),
        ("-f@example.org", "is no mail address"),
        ("'unbalanced", "cannot be split into words"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(tmp_path: Path, notify: str, wrong: str) -> None:
    with pytest.raises(InvalidInput, match=wrong):
        asa.submit(halved(4), notify=notify)
    assert not (tmp_path / "state/runs").exists() or not list((tmp_path / "state/runs").iterdir())


@pytest.mark.skipif(
    shutil.which("sendmail", path="/usr/sbin:/usr/lib") is not None, reason="this machine has a sendmail"
)
def test_mail_is_refused_where_there_is_no_sendmail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    with pytest.raises(InvalidInput, match="no sendmail on this machine"):
        asa.submit(halved(4), notify="me@example.org")
