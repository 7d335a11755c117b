import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from executors.dask.node import ScratchDirectory


def test_it_is_our_own_and_goes_again(tmp_path: Path) -> None:
    scratch = ScratchDirectory(str(tmp_path))
    assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700 and scratch.path.parent == tmp_path
    scratch.close()
    assert not list(tmp_path.iterdir())


def test_those_of_killed_crews_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        (ScratchDirectory(str(tmp_path)).path / "file").touch()
        os._exit(1)
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    first = ScratchDirectory(str(tmp_path))
    second = ScratchDirectory(str(tmp_path))
    assert not left.exists() and first.path.exists() and second.path.exists()
    first.close()
    second.close()


def test_what_only_looks_like_one_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "asa-dask-link").symlink_to(tmp_path / "target")
    ScratchDirectory(str(tmp_path)).close()
    assert (tmp_path / "target").exists() and (tmp_path / "asa-dask-link").is_symlink()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_those_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "asa-dask-theirs").mkdir()
    os.chown(tmp_path / "asa-dask-theirs", 54321, -1)
    ScratchDirectory(str(tmp_path)).close()
    assert (tmp_path / "asa-dask-theirs").exists()


def blocks() -> None:
    raise BlockingIOError(errno.EWOULDBLOCK, "locked")


@pytest.mark.parametrize("then", [blocks, lambda: None])
def test_one_that_another_crew_tidies_up_before_it_is_locked_is_made_again(
    then: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, made = fcntl.flock, list[Path]()

    def tidied(descriptor: int, operation: int) -> None:
        if not made:
            made.extend(tmp_path.iterdir())
            shutil.rmtree(made[0])
            then()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", tidied)
    scratch = ScratchDirectory(str(tmp_path))
    assert [scratch.path] == list(tmp_path.iterdir()) != made
    scratch.close()


def test_a_file_system_without_locks_is_told_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        ScratchDirectory(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
