"""Fake hierarchies of groups, as they are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from executors.cgroup import kernel
from tests.executors.cgroup.fake import V1_FILES, V2_FILES, fill


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A fake version 1: new directories get their files at once."""
    own = {name: tmp_path / name / "job" for name in V1_FILES}
    for directory in own.values():
        directory.mkdir(parents=True)

    def make(base: Path, name: str) -> None:
        fill(base / name, V1_FILES[base.relative_to(tmp_path).parts[0]])

    monkeypatch.setattr(kernel, "make_v1_group", make)
    return own


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake version 2: the own group is not the root, and holds this process only."""
    own = fill(tmp_path / "job", (*V2_FILES, "cgroup.type"), cgroup_procs="4711\n")
    (own / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    mkdir = Path.mkdir

    def make(directory: Path, *args: object, **options: bool) -> None:
        mkdir(directory, **options)
        fill(directory, V2_FILES)

    monkeypatch.setattr(Path, "mkdir", make)
    return own
