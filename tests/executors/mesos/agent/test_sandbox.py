"""What comes into a sandbox; what may be seen of it is tested with the agent's server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.agent.state import SandboxFile
from executors.mesos.agent.storage import make_sandbox


def test_files_and_directories_are_copied(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a")
    (tmp_path / "tool").write_text("b")
    for name in ("plain", "tool"):
        (tmp_path / name).chmod(0o640)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").symlink_to("/etc")
    inside = tmp_path / "box"
    files = [SandboxFile(str(tmp_path / name), name, name == "tool") for name in ("plain", "tool", "tree")]
    make_sandbox(inside, files)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in inside.iterdir() if path.is_file()}
    assert modes == {"plain": 0o640, "tool": 0o740} and stat.S_IMODE(inside.stat().st_mode) == 0o700
    assert (inside / "tree" / "leaf").is_symlink()


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=f"cannot copy {tmp_path}/missing into the sandbox: .*No such file"):
        make_sandbox(tmp_path / "box", [SandboxFile(f"{tmp_path}/missing", "a", False)])
