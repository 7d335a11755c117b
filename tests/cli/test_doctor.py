from __future__ import annotations

import fcntl
import json
import os
import re
import socket
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from asa.cli import doctor as doctor_machine
from asa.cli.doctor import conclusions
from asa.cli.main import main
from asa.core.registry import BACKENDS
from tests.definitions import ROOT


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def looked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows by what they are about, and what is said to work."""
    assert main(["doctor", *words, "--json", "-"]) == code
    found = json.loads(capsys.readouterr().out)
    return {row["what"]: row for row in found["rows"]}, found["works"]


def test_all_is_well_on_a_machine_without_slurm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rows, works = looked(capsys)
    assert {"python", "state directory", "file locks", "event log", "sockets", "ports", "slurm", "extras"} <= set(rows)
    assert "not installed here" in rows["slurm"]["found"]
    assert works["workflows on this machine"] is True and works["workflows on Slurm"] is None
    assert list(state.iterdir()) == []
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "not tried: workflows on Slurm" in said and re.search(r"^slurm +- +not installed here", said, re.M)


def test_half_a_slurm_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "squeue").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    rows, works = looked(capsys, "--backend", "local", code=1)
    assert rows["slurm"]["found"].startswith("sbatch, scancel, scontrol, sinfo not in PATH")
    assert works["workflows on Slurm"] is False and works["workflows on this machine"] is True


def test_a_state_directory_that_others_may_read_is_refused(capsys: pytest.CaptureFixture[str], state: Path) -> None:
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    rows, works = looked(capsys, "--backend", "local", code=1)
    assert not rows["state directory"]["ok"] and "file locks" not in rows
    assert works["workflows on this machine"] is False


def test_a_backend_that_cannot_be_had_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows, works = looked(capsys, "--backend", "local:cores=0", code=1)
    assert not rows["backend local:cores=0"]["ok"] and "cores" in rows["backend local:cores=0"]["found"]
    assert "local:cores=0: queue" not in rows and works["workflows on Slurm"] is None


def test_details_of_a_backend_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows, _ = looked(capsys, "--backend", "sim:nodes=2,cores=4")
    details = BACKENDS.create("sim:nodes=2,cores=4").capabilities().details
    assert details and all(rows[f"sim:nodes=2,cores=4: {name}"]["found"] == value for name, value in details.items())
    assert details["others"] == "no other jobs"
    said = BACKENDS.create("sim:nodes=2,cores=4,load=0.5,days=1").capabilities().details["others"]
    assert re.fullmatch(r"[0-9,]+ jobs over [0-9]+ d( [0-9]+ h)?", said), said


def test_an_event_log_that_cannot_be_kept_is_reported(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_text("no database, but long enough to be taken for the head of one " * 9)
    found = doctor_machine.event_log(tmp_path, local=True)
    assert not found["ok"] and str(tmp_path / "events.db") in found["found"]


def test_a_machine_without_ports_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    found = doctor_machine.ports()
    assert not found["ok"] and "Operation not permitted: a firewall or a sandbox forbids it" in found["found"]


def test_locks_that_exclude_no_process_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_machine.locks(tmp_path)["ok"]
    monkeypatch.setattr(fcntl, "lockf", lambda *_: None)  # as on a file system that only says yes
    found = doctor_machine.locks(tmp_path)
    assert not found["ok"] and "do not exclude other processes" in found["found"]


def test_locks_that_cannot_be_had_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert "No locks available" in doctor_machine.locks(tmp_path)["found"]


def test_a_directory_without_sockets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_machine.unix_socket(tmp_path)["ok"]
    found = doctor_machine.unix_socket(tmp_path)  # there is one of that name by now
    assert not found["ok"] and os.strerror(98) in found["found"]


def test_an_unresolved_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_machine.ports()["ok"]
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert "no-such-host.invalid leads nowhere" in doctor_machine.ports()["found"]


def test_a_check_that_cannot_be_loaded_is_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("theirs", "no_such_module:rows", "asa.doctor")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else [])
    rows, _ = looked(capsys, "--backend", "local", code=1)
    assert "No module named 'no_such_module'" in rows["theirs"]["found"]


def test_what_does_not_work_is_listed_with_the_rest_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    """As for ``asa doctor | less``."""
    assert main(["doctor", "--backend", "nowhere"]) == 1
    seen = capsys.readouterr()
    assert "state directory" in seen.out and "unknown backend 'nowhere'" in seen.out
    assert seen.err == "NO, see above: backend nowhere\n"


def test_a_command_that_cannot_be_loaded_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("theirs", "no_such_module:Command", "asa.commands")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else [])
    with pytest.raises(SystemExit):
        main(["--help"])
    seen = capsys.readouterr()
    assert "run the workflow in a Python file" in seen.out
    assert "warning: command 'theirs': its entry point" in seen.err
    assert main(["theirs"]) == 1


def test_what_was_not_tried_is_not_reported_as_working() -> None:
    assert set(conclusions([]).values()) == {None}
    assert conclusions([{"what": "cpu quotas: cgroup v2", "ok": False}])["CPU limits of containers"] is False
    passed_over = {"what": "cpu quotas: cgroup v2", "ok": None}
    for well in (True, False):
        assert conclusions([passed_over, {"what": "cpu quotas", "ok": well}])["CPU limits of containers"] is well
    assert conclusions([passed_over])["CPU limits of containers"] is None


def test_extras_are_those_that_can_be_installed() -> None:
    setup = (ROOT / "setup.cfg").read_text()
    for name in doctor_machine.EXTRAS:
        assert f"\n{name} =\n" in setup
