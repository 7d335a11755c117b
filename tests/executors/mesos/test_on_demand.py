from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos import master_command
from executors.mesos.pool_directory import PoolDirectory


def test_a_master_whose_log_cannot_be_written_is_not_started(tmp_path: Path) -> None:
    directory = PoolDirectory.create(tmp_path / "pool", "p")
    log = directory.path / master_command.LOG
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"cannot write {log}"):
        master_command.start_master(directory, local=True)
    assert directory.master() is None and not (tmp_path / "elsewhere").exists()
