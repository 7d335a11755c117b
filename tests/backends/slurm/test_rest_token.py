"""Where tokens come from."""

from __future__ import annotations

import base64
import json
import os
import threading
from pathlib import Path

import pytest

from asa.backends.slurm.rest import Tokens, expiry, own_name
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput, StateError
from asa.security.files import write_private

NOW = 1000.0


def token(end: float | None, name: str = "a") -> str:
    claims = {"sun": name} if end is None else {"sun": name, "exp": end}
    return f"head.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sign"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def scontrol(programs: Path, prints: str) -> dict[str, str]:
    """An environment in which scontrol prints this, and notes how it was called."""
    program = programs / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$*" >>{programs}/calls\nenv >{programs}/seen\n{prints}\n')
    program.chmod(0o700)
    return {"PATH": f"{programs}:/usr/bin:/bin"}


def tokens(environment: dict[str, str], file: Path | None = None, user: str = "") -> tuple[Tokens, ManualClock]:
    clock = ManualClock(NOW)
    return Tokens(user or own_name(), file, environment, 5.0, clock.now), clock


@pytest.mark.parametrize("text", ["x.y.z", "a.b", "a.bm90IGpzb24.c", token(None)])
def test_a_token_may_not_tell_its_end(text: str) -> None:
    assert expiry(text) is None


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, f"SLURM_JWT={token(NOW + 3600)}\n".encode())
    found, _ = tokens({"PATH": "/nowhere", "SLURM_JWT": "not.this.one"}, file)
    assert found.current() == token(NOW + 3600)
    assert not found.renew()
    write_private(file, token(NOW + 7200).encode())
    assert found.current() == token(NOW + 3600), "it is read again when there is a reason"
    assert found.renew()
    assert found.current() == token(NOW + 7200)


def test_a_token_near_its_end_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, token(NOW + 3600).encode())
    found, clock = tokens({}, file)
    found.current()
    write_private(file, token(NOW + 7200).encode())
    clock.wait(threading.Event(), NOW + 3590)
    assert found.current() == token(NOW + 7200)


def test_a_file_that_vanishes_leaves_the_old_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    write_private(file, token(NOW + 1).encode())
    found, _ = tokens({}, file)
    file.unlink()
    assert found.current() == token(NOW + 1)
    assert not found.renew()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(StateError, match="cannot look at"):
        tokens({}, file)
    write_private(file, b"what is this?")
    with pytest.raises(InvalidInput, match="holds no token") as caught:
        tokens({}, file)
    assert "what is this" not in str(caught.value)
    file.chmod(0o644)
    with pytest.raises(StateError, match="open to other users"):
        tokens({}, file)
    (tmp_path / "directory").mkdir(mode=0o700)
    with pytest.raises(StateError, match="directory is no file"):
        tokens({}, tmp_path / "directory")


def test_an_account_without_a_name_goes_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container."""
    monkeypatch.setattr(os, "geteuid", lambda: 987_654_321)
    assert own_name() == "987654321"


def test_the_variable_and_then_scontrol(programs: Path) -> None:
    environment = scontrol(programs, f"echo SLURM_JWT={token(NOW + 3600, 'new')}")
    found, clock = tokens(environment | {"SLURM_JWT": token(NOW + 60)})
    assert found.current() == token(NOW + 60)
    assert not (programs / "calls").exists()
    clock.wait(threading.Event(), NOW + 50)
    assert found.current() == token(NOW + 3600, "new")
    assert (programs / "calls").read_text() == "token lifespan=3600\n"
    assert "SLURM_JWT" not in (programs / "seen").read_text()


def test_another_user_is_named(programs: Path) -> None:
    found, _ = tokens(scontrol(programs, f"echo SLURM_JWT={token(None)}"), user="ada")
    assert found.current() == token(None)
    assert (programs / "calls").read_text() == "token lifespan=3600 username=ada\n"


def test_none_to_be_had(programs: Path) -> None:
    found, _ = tokens(scontrol(programs, "echo 'auth/jwt is not configured' >&2; exit 1"))
    with pytest.raises(BackendError, match="rest_token=FILE, or set SLURM_JWT") as caught:
        found.current()
    assert "auth/jwt is not configured" in str(caught.value)
    assert not found.renew()


def test_a_variable_that_is_no_token() -> None:
    found, _ = tokens({"SLURM_JWT": "secret"})
    with pytest.raises(InvalidInput, match=r"\$SLURM_JWT holds no token") as caught:
        found.current()
    assert "secret" not in str(caught.value)
