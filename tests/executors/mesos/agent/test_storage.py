"""An agent's directory and what comes into its sandboxes; what operators may see of them is tested with the service."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.agent.shim import birth_of, process_file
from executors.mesos.agent.state import SandboxFile
from executors.mesos.agent.storage import WorkDirectory, make_sandbox, remove_abandoned
from tests.waiting import until

PREFIX = f"asa-agent-{os.geteuid()}-"


def test_a_lock_that_leads_elsewhere_is_not_taken(tmp_path: Path) -> None:
    directory = WorkDirectory(tmp_path / "work")
    (tmp_path / "work").mkdir(0o700)
    directory.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"cannot lock {directory.lock}"):
        directory.hold()
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_is_removed_while_it_is_waited_for_is_made_again(tmp_path: Path) -> None:
    first, second = WorkDirectory(tmp_path / "work"), WorkDirectory(tmp_path / "work")
    first.hold()
    waiting = threading.Thread(target=second.hold)
    waiting.start()
    shutil.rmtree(first.path)
    first.release()
    waiting.join(10)
    assert second.lock.exists()
    with pytest.raises(StateError, match="another agent works in"):
        WorkDirectory(tmp_path / "work").hold()
    second.release()


def killed(path: Path) -> None:
    """An agent that holds this directory is killed."""
    script = "import os, signal; from pathlib import Path; from executors.mesos.agent.storage import WorkDirectory\n"
    script += f"WorkDirectory(Path({str(path)!r})).hold(); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", script], check=False)
    (path / "run").mkdir(0o700)


def test_what_killed_agents_have_left_is_removed(tmp_path: Path) -> None:
    abandoned, busy, held = (tmp_path / f"{PREFIX}{name}" for name in ("abandoned", "busy", "held"))
    killed(abandoned)
    process_file(abandoned / "run", "c1").write_text(f"{os.getpid()} 1")  # a number that is somebody else's by now
    killed(busy)
    with subprocess.Popen(["/bin/sleep", "1000"]) as container:
        process_file(busy / "run", "c1").write_text(f"{container.pid} {birth_of(container.pid)}")
        directory = WorkDirectory(held)
        directory.hold()
        assert remove_abandoned(tmp_path, PREFIX) == [abandoned]
        assert sorted(path.name for path in tmp_path.iterdir()) == [busy.name, held.name]
        container.kill()
    until(lambda: remove_abandoned(tmp_path, PREFIX) == [busy])
    directory.release()


def test_what_only_looks_like_an_agents_directory_is_left_alone(tmp_path: Path) -> None:
    killed(tmp_path / "target")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "target")
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / f"{PREFIX}empty").mkdir()
    (tmp_path / "others").mkdir()
    assert remove_abandoned(tmp_path, PREFIX) == []
    assert len(list(tmp_path.iterdir())) == 5 and (tmp_path / "target" / "lock").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    killed(tmp_path / f"{PREFIX}theirs")
    os.chown(tmp_path / f"{PREFIX}theirs", 54321, -1)
    assert remove_abandoned(tmp_path, PREFIX) == []


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
