"""Which transport the backend's options ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm.backend import Slurm
from asa.core.errors import InvalidInput, StateError
from asa.core.registry import BACKENDS
from asa.security.files import write_private
from tests.backends.slurm.fake import FakeSlurm

REST = "http://localhost:1"


def test_the_spec_of_the_command_line(tmp_path: Path) -> None:
    write_private(tmp_path / "token", b"a.b.c")
    backend = BACKENDS.create(f"slurm:rest={REST},rest_token={tmp_path}/token,rest_user=ada,partition=core,nice=10")
    assert isinstance(backend, Slurm)
    with pytest.raises(StateError, match="cannot look at"):
        BACKENDS.create(f"slurm:rest={REST},rest_token={tmp_path}/nosuch")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rest": REST, "clusters": "a"}, "name the slurmrestd of that cluster"),
        ({"clusters": "a,b"}, "expected one"),
        ({"rest_token": "file"}, "rest_token without rest: add rest=ADDRESS"),
        ({"rest_unencrypted": True}, "rest_unencrypted without rest: add rest=ADDRESS"),
        ({"rest": REST, "no_such_flag": True}, "--no-such-flag.*not known to slurmrestd"),
        ({"rest": REST, "template": "#!/bin/sh\n#SBATCH --x11\n{{program}}\n"}, "--x11.*not known to slurmrestd"),
        ({"rest": REST, "transport": FakeSlurm()}, "transport and rest: give one way to reach Slurm"),
        ({"rest_user": "ada", "transport": FakeSlurm()}, "transport and rest_user: give one way to reach Slurm"),
        ({"rest": "nowhere"}, "expected /path/to/socket"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Slurm(**options)


def test_requests_is_imported_only_when_it_is_used() -> None:
    program = f"""
import sys
from asa.backends.slurm.backend import Slurm
Slurm("core")
assert "requests" not in sys.modules
Slurm("core", rest={REST!r})
assert "requests" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
