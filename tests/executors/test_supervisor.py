import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from asa.core.event import NodeJoined, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import PATIENCE_S, Bench, ExecutorDriver, is_gone, wait_for
from executors.hub import local
from executors.supervisor import arguments
from tests.waiting import until

pytestmark = pytest.mark.slow


def busy(bench: Bench, driver: ExecutorDriver) -> tuple[int, int]:
    """Process numbers of a task that never ends, and of a program that it has started."""
    files = [Path(bench.context.workdir, name) for name in ("task", "program")]

    def start_and_linger(names: list[str]) -> None:
        process = subprocess.Popen(["sh", "-c", f"echo $$ >{names[1]}.new && mv {names[1]}.new {names[1]}; sleep 1000"])
        tasks.linger(names[0])
        process.wait()

    driver.launch(start_and_linger, [([str(file) for file in files],)], stage="busy")
    return wait_for(files[0]), wait_for(files[1])


def test_a_signal_ends_it_and_leaves_nothing(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)
    driver.joined()
    pids = busy(bench, driver)
    family = psutil.Process(program.pid).children(recursive=True)
    assert len(family) >= 3, "a warden, a worker, its program"
    program.terminate()
    assert program.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert all(map(is_gone, [*pids, *(process.pid for process in family)]))
    assert "signal 15" in driver.lost().reason
    failed = driver.failure("busy")
    assert failed.infrastructure and "n1" in failed.error


def test_killed_it_leaves_nothing(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)
    pids = busy(bench, driver)
    family = psutil.Process(program.pid).children(recursive=True)
    program.kill()
    assert all(map(is_gone, [*pids, *(process.pid for process in family)]))


@pytest.mark.parametrize("end", ["released", "terminated"])
def test_a_daemon_ends_with_the_allocation_of_its_task(bench: Bench, tmp_path: Path, end: str) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)

    def detach(name: str) -> int:
        """As daemons do: a session of its own, and no parent."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                tasks.linger(name)
            os._exit(0)
        os.wait()
        return os.getpid()

    driver.launch(detach, [(str(tmp_path / f"daemon{number}"),) for number in range(3)], stage="daemons")
    workers = driver.values(3, "daemons")
    daemons = [wait_for(tmp_path / f"daemon{number}") for number in range(3)]
    os.kill(daemons.pop(), signal.SIGKILL)
    until(lambda: not [each for each in psutil.Process(program.pid).children() if each.status() == "zombie"])
    driver.launch(os.getpid, [()])
    assert driver.values(1)[0] in workers, "a daemon is not the worker's matter"
    assert all(map(psutil.pid_exists, daemons))
    if end == "released":
        driver.executor.release("a")
        assert program.wait(PATIENCE_S) == 0
    else:
        program.terminate()
        assert program.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert all(map(is_gone, daemons))


def test_a_warden_that_was_killed_is_replaced(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)
    task, child = busy(bench, driver)
    (warden,) = [each for each in psutil.Process(program.pid).children() if each.pid != task]
    warden.kill()
    assert is_gone(warden.pid)
    driver.launch(tasks.echo, [(1,)])
    assert driver.values(1) == [1]
    program.kill()
    assert is_gone(task) and is_gone(child)


def test_a_signal_ends_it_while_it_looks_for_a_driver(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)
    driver.joined()
    driver.executor.close()
    program.terminate()
    assert program.wait(PATIENCE_S) in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_killed_drivers_supervisor_serves_the_next_one(bench: Bench, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"""
import sys, threading
from pathlib import Path
from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import ExecutorDriver
from executors.hub import local
directory, workdir = Path({str(bench.context.directory)!r}), {bench.context.workdir!r}
context = RunContext("r1", directory, workdir, tuple(sys.path), local=True)
ExecutorDriver(local(), context).launch(tasks.linger, [({str(pid)!r},)])
threading.Event().wait()
"""
    bench.context.directory.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", script]) as first:
        program = bench.node()
        task = wait_for(pid)
        first.kill()
    second = bench.driver()
    second.launch(tasks.echo, [("again",)])
    assert second.values(1) == ["again"]
    assert is_gone(task) and program.poll() is None


def test_without_a_driver_it_ends_with_75(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node(grace_s=0.5)
    pids = busy(bench, driver)
    driver.executor.close()
    assert program.wait(PATIENCE_S) == 75
    assert all(map(is_gone, pids))


def test_its_patience_begins_when_the_driver_is_gone(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node(grace_s=3.0)
    driver.joined()
    time.sleep(3.1)
    driver.executor.close()
    bench.driver().joined()
    assert program.poll() is None


def test_no_driver_from_the_start(bench: Bench) -> None:
    bench.context.directory.mkdir(mode=0o700)
    assert bench.node(grace_s=0.5).wait(PATIENCE_S) == 75


def test_a_silent_node_is_lost_and_welcome_again(context: RunContext) -> None:
    with Bench(lambda: local(heartbeat_s=0.4), context) as bench:
        driver, program = bench.driver(), bench.node()
        assert isinstance(program, subprocess.Popen)
        driver.joined()
        program.send_signal(signal.SIGSTOP)
        assert "silent" in driver.lost().reason
        program.send_signal(signal.SIGCONT)
        driver.joined(2)
        driver.launch(tasks.echo, [(1,)])
        assert driver.values(1) == [1]


def test_a_silent_node_does_not_keep_a_driver_from_leaving(bench: Bench) -> None:
    driver, program = bench.driver(), bench.node()
    assert isinstance(program, subprocess.Popen)
    driver.joined()
    program.send_signal(signal.SIGSTOP)
    driver.launch(tasks.echo, [("x" * 10_000,)] * 2000)
    driver.executor.release("a")
    driver.executor.close()
    program.send_signal(signal.SIGCONT)
    assert program.wait(PATIENCE_S) == 0, "what was sent before is still heard"


def test_nodes_of_one_allocation_share_its_tasks(bench: Bench) -> None:
    driver, place = bench.driver(), bench.directory("meeting")
    bench.node("a", Resources(cores=1), "n1")
    bench.node("a", Resources(cores=1), "n2")
    driver.launch(tasks.meet, [(place, number, 2) for number in range(2)])
    assert driver.values(2) == [True, True]
    assert {event.node for event in driver.ended(2).values()} == {"n1", "n2"}


def test_one_of_two_nodes_is_lost(bench: Bench) -> None:
    driver = bench.driver()
    first, _ = bench.node("a", Resources(cores=1), "n1"), bench.node("a", Resources(cores=1), "n2")
    driver.joined(2)
    files = [Path(bench.context.workdir, name) for name in ("one", "two")]
    driver.launch(tasks.linger, [(str(file),) for file in files], stage="both")
    pids = list(map(wait_for, files))
    first.kill()
    (failed,) = driver.ended(1, "both").values()
    assert isinstance(failed, TaskFailed) and failed.infrastructure and failed.node == "n1" == driver.lost().node
    survivor = pids[1 - failed.index]
    assert psutil.pid_exists(survivor) and is_gone(pids[failed.index])


@pytest.fixture
def output(context: RunContext, tmp_path: Path) -> Iterator[tuple[Bench, Path]]:
    """A run, and the file that its jobs write to."""
    file = tmp_path / "job.out"

    def start(argv: Sequence[str], node: str, workdir: str) -> subprocess.Popen[bytes]:
        with open(file, "ab") as sink:
            return subprocess.Popen(argv, cwd=workdir, stdout=sink, stderr=sink)

    with Bench(local, context, start) as bench:
        yield bench, file


def test_why_it_gave_up_is_in_the_jobs_output(output: tuple[Bench, Path]) -> None:
    bench, file = output
    bench.context.directory.mkdir(mode=0o700)
    bench.node(grace_s=0.5).wait(PATIENCE_S)
    assert "no driver for 0.5 s" in file.read_text() and "rendezvous.json" in file.read_text()


def test_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--directory", "/run/x", "--allocation", "a", "--cores", "8", "--grace", "60.0", "--memory", "100"]
    monkeypatch.setenv("SLURMD_NODENAME", "n3")
    directory, hello, grace = arguments(options)
    assert (directory, grace) == ("/run/x", 60.0)
    assert (hello.allocation, hello.node, hello.cores, hello.memory, hello.gpus) == ("a", "n3", 8, 100, 0)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "6")
    assert arguments(options)[1].cores == 6


@pytest.mark.parametrize(("visible", "count"), [("0,1,2", 2), ("3", 1), ("NoDevFiles", 0), ("", 0)])
def test_a_node_holds_the_gpus_that_it_was_given(visible: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    options = ["--directory", "/run/x", "--allocation", "a", "--cores", "8", "--grace", "60.0", "--gpus", "2"]
    assert arguments(options)[1].gpus == count, "Slurm may have spread the job's GPUs unevenly"


def test_the_program_loads_little() -> None:
    script = f"import sys; sys.path[:0] = {sys.path!r}; import executors.supervisor; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-S", "-c", script], text=True).split()
    assert "executors.supervisor" in loaded
    assert not {"numpy", "cryptography", "cloudpickle", "ssl", "dataclasses", "pathlib", "asa", "ctypes"} & set(loaded)


def test_joining_twice_is_two_events(bench: Bench) -> None:
    driver = bench.driver()
    bench.node("a", Resources(cores=1), "n1")
    bench.node("a", Resources(cores=1), "n1")  # two programs on one machine are two nodes
    driver.joined(2)
    assert sum(isinstance(event, NodeJoined) for event in driver.events) == 2
