import os
import stat
from pathlib import Path

from executors.dask_scratch import Scratch


def test_it_is_our_own_and_goes_again(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700 and scratch.path.parent == tmp_path
    scratch.close()
    assert not list(tmp_path.iterdir())


def test_those_of_killed_crews_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        (Scratch(str(tmp_path)).path / "file").touch()
        os._exit(1)
    os.waitpid(pid, 0)
    (left,) = tmp_path.iterdir()
    first = Scratch(str(tmp_path))
    second = Scratch(str(tmp_path))
    assert not left.exists() and first.path.exists() and second.path.exists()
    first.close()
    second.close()


def test_what_only_looks_like_one_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "asa-dask-link").symlink_to(tmp_path / "target")
    Scratch(str(tmp_path)).close()
    assert (tmp_path / "target").exists() and (tmp_path / "asa-dask-link").is_symlink()
