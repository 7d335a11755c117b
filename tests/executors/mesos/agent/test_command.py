"""``asa agent``: processes of their own."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import requests

from asa.cli.main import main as command_line
from asa.core.errors import InvalidInput, StateError
from executors.cgroup import probe, throttle
from executors.cgroup.dutycycle import DutyCycle
from executors.mesos.agent.command import (
    AgentCommand,
    agent_options,
    bound_capacity,
    choose_quotas,
    directory_key,
    main,
    parse_attributes,
    with_capacity,
)
from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.shim import birth_of
from executors.mesos.codec import encode
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import message
from executors.mesos.pool_directory import AGENT_NAME, READER, PoolDirectory
from executors.mesos.resources import scalars, to_json
from tests.executors.mesos.agent.live_pool import Scheduler
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 40.0


class Bench:
    """A pool, a master over TLS, and agents that are processes of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.master = MasterService(self.directory, MasterOptions(ping_s=0.5, pings=4), host="127.0.0.1")
        self.processes: list[subprocess.Popen[str]] = []

    def agent(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "executors.mesos.agent", "--directory", str(self.directory.path)]
        common = ["--cores", "1", "--memory", str(1 << 29), "--quotas", "none", "--name", "127.0.0.1"]
        with open(self.path / "log", "a") as log:
            process = subprocess.Popen(
                [*command, *common, *words], stderr=log, text=True, env={**os.environ, **environment}
            )
        self.processes.append(process)
        return process

    def log(self) -> str:
        return (self.path / "log").read_text()

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(PATIENCE_S)
        self.master.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def scheduler(bench: Bench) -> Iterator[Scheduler]:
    bench.master.start()
    scheduler = Scheduler(bench.directory)
    yield scheduler
    scheduler.close()


def sleeping(scheduler: Scheduler, script: str = "sleep 1000") -> int:
    """The process of a task that is launched on the next offer."""
    scheduler.launch("t1", script)
    return int(scheduler.update("t1", "TASK_RUNNING")["container_status"]["executor_pid"])


def test_a_signal_ends_its_tasks_which_is_reported(bench: Bench, scheduler: Scheduler) -> None:
    agent = bench.agent("--work", str(bench.path / "work"))
    pid = sleeping(scheduler)
    agent.terminate()
    assert "signal 15" in scheduler.update("t1", "TASK_KILLED")["message"]
    assert agent.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert birth_of(pid) is None
    assert (bench.path / "work").exists(), "asked for by name, it is kept"
    token = bench.directory.token("agent")
    assert token not in bench.log()


def test_two_brokers_of_flux_on_one_host_are_two_nodes(bench: Bench, scheduler: Scheduler) -> None:
    for rank in ("0", "1"):
        bench.agent(
            "--name", "", SLURMD_NODENAME="127.0.0.1", FLUX_JOB_ID="f1", FLUX_TASK_RANK=rank, TMPDIR=str(bench.path)
        )
    first, second = scheduler.offer(), scheduler.offer()
    assert first["agent_id"] != second["agent_id"]
    names = {first["hostname"], second["hostname"]}
    assert "127.0.0.1" in names and names <= {"127.0.0.1", "127.0.0.1.0", "127.0.0.1.1"} and len(names) == 2


def test_killed_and_started_again_it_is_the_same_agent(bench: Bench, scheduler: Scheduler) -> None:
    words = ("--work", str(bench.path / "work"))
    agent = bench.agent(*words)
    pid = sleeping(scheduler)
    birth = birth_of(pid)
    agent.kill()
    agent.wait()
    again = bench.agent(*words)
    (shim,) = _parents(pid)
    until(lambda: "offers" in bench.log().partition("\n")[2])
    assert birth_of(pid) == birth
    again.send_signal(signal.SIGINT)
    scheduler.update("t1", "TASK_KILLED")
    assert again.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert birth_of(pid) is None
    until(lambda: birth_of(shim) is None)


def test_stopped_for_too_long_and_continued_it_comes_back_with_its_tasks(bench: Bench, scheduler: Scheduler) -> None:
    agent = bench.agent("--work", str(bench.path / "work"))
    pid = sleeping(scheduler)
    birth = birth_of(pid)
    agent.send_signal(signal.SIGSTOP)
    try:
        scheduler.update("t1", "TASK_UNREACHABLE")
    finally:
        agent.send_signal(signal.SIGCONT)
    scheduler.update("t1", "TASK_RUNNING")
    assert birth_of(pid) == birth


@pytest.mark.parametrize("quotas", ["none", "duty cycle", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_killed_and_not_started_again_nothing_is_left(bench: Bench, scheduler: Scheduler, quotas: str) -> None:
    try:
        None if quotas == "none" else probe.best(f"test-{os.getpid()}", quotas)
    except StateError as error:
        pytest.skip(str(error))
    agent = bench.agent("--orphan-grace", "0.1", "--quotas", quotas, TMPDIR=str(bench.path))
    pid = sleeping(scheduler, "sleep 1000 & sleep 1000" if quotas == "none" else "setsid sleep 1000 & sleep 1000")
    (shim,) = _parents(pid)
    (work,) = bench.path.glob("asa-agent-*")
    key = work.name.rpartition("-")[2]
    assert (_groups(key) != []) is quotas.startswith("cgroup")
    agent.kill()
    agent.wait()
    until(lambda: birth_of(shim) is None)
    assert birth_of(pid) is None
    assert not [process for process in psutil.process_iter() if _works_in(process, work)]
    assert _groups(key) == []
    assert not work.exists()


@pytest.mark.parametrize("by", ["the next agent", "asa clean"])
def test_what_the_batch_system_has_killed_is_tidied_up(
    bench: Bench, scheduler: Scheduler, by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = bench.agent("--orphan-grace", "1000", TMPDIR=str(bench.path))
    pid = sleeping(scheduler)
    (shim,) = _parents(pid)
    (work,) = bench.path.glob("asa-agent-*")
    monkeypatch.setenv("TMPDIR", str(bench.path))
    monkeypatch.setenv("ASA_STATE_DIR", str(bench.path / "state"))
    assert command_line(["clean"]) == 0
    assert work.exists() and str(work) not in capsys.readouterr().out
    for process in (shim, agent.pid, pid):
        os.kill(process, signal.SIGKILL)
    agent.wait()
    until(lambda: birth_of(pid) is None)
    if by == "asa clean":
        assert command_line(["clean"]) == 0
        assert capsys.readouterr().out.endswith(f"left behind by agents that are gone:\n{work}\n")
    else:
        bench.agent("--attribute", "job=next", TMPDIR=str(bench.path))
    until(lambda: not work.exists())


def _groups(key: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/agent-{key}"))


def _works_in(process: psutil.Process, work: Path) -> bool:
    with suppress(psutil.Error):
        return Path(process.cwd()).is_relative_to(work)
    return False


def _parents(pid: int) -> list[int]:
    return [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])]


@pytest.mark.parametrize(("words", "level"), [(("--log-level", "info"), "debug"), ((), "info"), ((), None)])
def test_messages_of_the_level_that_was_asked_for_are_printed(
    bench: Bench, scheduler: Scheduler, words: tuple[str, ...], level: str | None
) -> None:
    agent = bench.agent("--work", str(bench.path / "work"), *words, **({"ASA_LOG_LEVEL": level} if level else {}))
    sleeping(scheduler)
    agent.terminate()
    agent.wait(PATIENCE_S)
    lines = [line.split(maxsplit=2)[2] for line in bench.log().splitlines() if " INFO " in line]
    if not words and not level:
        assert lines == []
    else:
        assert any("executors.mesos.agent.link: connecting to the master at https://" in line for line in lines)
        assert any("executors.mesos.agent.tasks: task t1 of" in line for line in lines)
        assert any("executors.mesos.agent.tasks: container" in line and "running -> stopping" in line for line in lines)
    assert " DEBUG " not in bench.log() and bench.directory.token("agent") not in bench.log()


def test_a_level_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ASA_LOG_LEVEL", "loud")
    assert main(["--directory", "pool"]) == 1
    assert "--log-level 'loud': one of debug, info, warning, error expected" in capsys.readouterr().err


def test_operators_come_over_tls_with_a_token(bench: Bench, scheduler: Scheduler) -> None:
    bench.agent("--work", str(bench.path / "work"), "--attribute", "rack=r1")
    offer = scheduler.launch("t1", "sleep 1000")
    scheduler.update("t1", "TASK_RUNNING")
    port = offer["url"]["address"]["port"]
    assert {"name": "rack", "type": "TEXT", "text": {"value": "r1"}} in offer["attributes"]
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _Named())
    session.verify = str(bench.directory.path / "tls" / "ca.pem")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {bench.directory.token(READER)}"}
    url, body = f"https://127.0.0.1:{port}/api/v1", encode(message("GET_CONTAINERS"))
    answer = session.post(url, body, headers=headers, timeout=PATIENCE_S)
    (container,) = answer.json()["get_containers"]["containers"]
    assert container["resource_statistics"]["processes"] >= 1
    assert session.post(url, body, headers={"Content-Type": "application/json"}, timeout=PATIENCE_S).status_code == 401
    with pytest.raises(requests.ConnectionError):
        requests.post(url.replace("https", "http"), body, headers=headers, timeout=PATIENCE_S)


class _Named(requests.adapters.HTTPAdapter):
    def init_poolmanager(self, *arguments: object, **options: object) -> None:
        super().init_poolmanager(*arguments, **options, assert_hostname=AGENT_NAME, server_hostname=AGENT_NAME)


@pytest.mark.parametrize("quotas", ["cgroup v2", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_its_containers_are_kept_to_its_capacity_together(bench: Bench, scheduler: Scheduler, quotas: str) -> None:
    try:
        probe.best(f"test-{os.getpid()}", quotas)
    except StateError as error:
        pytest.skip(str(error))
    words = "--work", str(bench.path / "work"), "--cores", "2", "--quotas", quotas
    bench.agent(*words, "--capacity", "0.3")
    busy = "while :; do :; done"
    offer = scheduler.launch_all({"t1": busy, "t2": busy}, resources=to_json(scalars(cpus=1)))
    pids = [scheduler.update(id, "TASK_RUNNING")["container_status"]["executor_pid"] for id in ("t1", "t2")]
    assert {"name": "capacity", "type": "SCALAR", "scalar": {"value": 0.3}} in offer["attributes"]
    until(lambda: all(throttle.clock(pid) for pid in pids))
    another = bench.agent(*words, "--capacity", "2")
    assert another.wait(PATIENCE_S) == 1, "one agent at a time, and one that is refused changes nothing"
    began, before = time.monotonic(), sum(throttle.clock(pid) or 0.0 for pid in pids)
    time.sleep(4.0)  # the window in which they are measured
    ended, after = time.monotonic(), sum(throttle.clock(pid) or 0.0 for pid in pids)
    assert 0.15 < (after - before) / (ended - began) <= 0.34


def test_without_a_master_it_gives_up_and_leaves_nothing(bench: Bench) -> None:
    agent = bench.agent("--patience", "0.2", TMPDIR=str(bench.path))
    assert agent.wait(PATIENCE_S) == 75
    assert "no master for 0.2 s" in bench.log()
    assert not list(bench.path.glob("asa-agent-*"))


def test_before_its_allocation_ends_it_leaves(bench: Bench, scheduler: Scheduler) -> None:
    agent = bench.agent("--lasts", "12", "--margin", "3")
    offer = scheduler.launch("t1", "sleep 1000")
    scheduler.update("t1", "TASK_RUNNING")
    assert offer["unavailability"]["start"]["nanoseconds"] > 0
    assert offer["url"]["scheme"] == "https" and ipaddress.ip_address(offer["url"]["address"]["ip"])
    scheduler.update("t1", "TASK_KILLED")
    assert agent.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--attribute", "nonsense"), "expected NAME=VALUE"),
        (("--quotas", "magic"), "magic"),
        (("--capacity", "0.5"), "--capacity 0.5: a fraction of the processor cannot be kept here by 'none'"),
        (("--capacity", "2"), "--capacity 2: expected from 0.01 to the 1 cores that are offered"),
    ],
)
def test_wrong_options_are_refused(bench: Bench, words: tuple[str, str], text: str) -> None:
    agent = bench.agent(*words)
    assert agent.wait(PATIENCE_S) == 1
    assert text in bench.log()


def test_secrets_are_not_passed_on(bench: Bench, scheduler: Scheduler) -> None:
    bench.agent("--work", str(bench.path / "work"), SLURM_JWT="s3cret-1", MY_TOKEN="s3cret-2", HARMLESS="here")
    sleeping(scheduler, "env; sleep 1000")
    pattern = "work/sandboxes/slaves/*/frameworks/*/executors/t1/runs/*/stdout"
    until(lambda: any("HARMLESS=here" in path.read_text() for path in bench.path.glob(pattern)))
    (output,) = bench.path.glob(pattern)
    assert "s3cret" not in output.read_text()


def test_agents_of_one_machine_have_keys_of_their_own(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    AgentCommand().configure(parser)
    keys = {
        directory_key(parser.parse_args(["--directory", str(tmp_path), *words]), name)
        for words, name in [
            ([], "n1"), ([], "n2"), (["--attribute", "a=1"], "n1"), (["--attribute", "a=2"], "n1"),
            (["--work", "a"], "n1"), (["--work", "b"], "n1"),
        ]
    }  # fmt: skip
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("words", "margin_s", "gpus"),
    [
        ([], 15.0, ()),
        (["--margin", "60", "--gpus", "1"], 60.0, ("2",)),
        (["--margin", "0", "--gpus", "8"], None, ("2", "4")),
    ],
)
def test_margin_and_gpus(
    words: list[str], margin_s: float | None, gpus: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,4")
    parser = argparse.ArgumentParser()
    AgentCommand().configure(parser)
    found = agent_options(parser.parse_args(["--directory", "d", *words]), "n1")
    assert (found.margin_s, found.gpus) == (margin_s, gpus) and found.resources.scalar("gpus") == len(gpus)


@pytest.mark.parametrize("margin", ["-1", "inf", "nan"])
def test_a_margin_that_is_none(margin: str) -> None:
    parser = argparse.ArgumentParser()
    AgentCommand().configure(parser)
    with pytest.raises(InvalidInput, match="expected a number of seconds"):
        agent_options(parser.parse_args(["--directory", "d", f"--margin={margin}"]), "n1")


def test_it_may_come_before_its_pool_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "executors.mesos.agent", "--directory", str(tmp_path / "pool")]
    done = subprocess.run([*command, "--patience", "0.2"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 75
    assert "no pool was made in" in done.stderr


def test_without_means_limits_are_not_kept_unless_they_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(space: str, name: str | None) -> None:
        raise StateError("there is no way here")

    monkeypatch.setattr(probe, "best", none)
    assert choose_quotas(None, "k").name == choose_quotas("none", "k").name == "none"
    assert "CPU limits are not kept: there is no way here" in capsys.readouterr().err
    with pytest.raises(StateError, match="no way here"):
        choose_quotas("cgroup v2", "k")


# ------------------------------------------------------- capacity


@pytest.mark.parametrize("cores", [0.0, -1.0, 0.001, 2.1, float("inf"), float("nan")])
def test_a_capacity_is_a_part_of_the_cores_that_are_offered(cores: float) -> None:
    with pytest.raises(InvalidInput, match=r"--capacity .*: expected from 0.01 to the 2 cores that are offered"):
        bound_capacity(Unlimited(), cores, 2.0)


@pytest.mark.parametrize("quotas", [Unlimited(), DutyCycle("space")])
def test_means_that_cannot_keep_a_capacity_are_refused(quotas: Unlimited | DutyCycle) -> None:
    with pytest.raises(StateError, match=f"--capacity 0.3: a fraction of the processor .* by '{quotas.name}'"):
        bound_capacity(quotas, 0.3, 2.0)


@pytest.mark.parametrize("means", ["cgroup v2", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_means_that_can_keep_a_capacity(means: str, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        quotas = probe.best(f"capacity-{os.getpid()}", means)
    except StateError as error:
        pytest.skip(str(error))
    bounds, bound = list[float](), quotas.bound
    monkeypatch.setattr(quotas, "bound", lambda cores: (bounds.append(cores), bound(cores)))
    bound_capacity(quotas, 0.3, 2.0)
    assert bounds == [0.3]


def test_only_one_attribute_has_its_name() -> None:
    given = parse_attributes(["rack=r1"])
    assert with_capacity(given, None) == given
    found = with_capacity(given, 1.5)
    assert found == [*given, {"name": "capacity", "type": "SCALAR", "scalar": {"value": 1.5}}]
    taken = parse_attributes(["capacity=much"])
    assert with_capacity(taken, None) == taken
    with pytest.raises(InvalidInput, match="--capacity says this one"):
        with_capacity(taken, 1.5)
