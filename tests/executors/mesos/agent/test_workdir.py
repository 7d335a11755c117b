from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.agent.storage import WorkDirectory


def test_a_lock_that_leads_elsewhere_is_not_taken(tmp_path: Path) -> None:
    directory = WorkDirectory(tmp_path / "work")
    (tmp_path / "work").mkdir(0o700)
    directory.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"cannot lock {directory.lock}"):
        directory.hold()
    assert not (tmp_path / "elsewhere").exists()
