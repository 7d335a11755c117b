import builtins
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from asa.log import proc
from tests.waiting import until

NOBODY = 4_194_305  # beyond the largest process number


def test_what_a_process_is() -> None:
    me = proc.stat(os.getpid())
    assert me is not None and not me.ended
    assert (me.parent, me.session) == (os.getppid(), os.getsid(0))
    assert me.name == Path("/proc/self/comm").read_text().strip() and me.resident > 0
    assert proc.stat(NOBODY) is None and proc.environment(NOBODY) is None


def test_a_zombie_is_not_among_the_live_processes() -> None:
    with subprocess.Popen(["sleep", "1000"], env={"ONE": "1", "TWO": "2"}) as child:
        until(lambda: proc.environment(child.pid) == b"ONE=1\0TWO=2\0", "its program is loaded")
        assert child.pid in dict(proc.living())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        found = proc.stat(child.pid)
        assert found is not None and found.ended
        assert child.pid in proc.everybody() and child.pid not in dict(proc.living())


def test_processes_that_are_not_ours_to_see_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hidepid=1, /proc lists those of other users, but tells nothing of them."""

    def hidden(path: str, *rest: Any) -> Any:
        if str(path).startswith("/proc/1/"):
            raise PermissionError(1, "Operation not permitted", path)
        return builtins.open(path, *rest)

    monkeypatch.setattr(proc, "open", hidden, raising=False)
    assert proc.stat(1) is None
    assert os.getpid() in dict(proc.living())
