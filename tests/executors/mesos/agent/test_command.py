"""``asa agent``: processes of their own."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import requests

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import probe, throttle
from executors.cgroup.dutycycle import DutyCycle
from executors.mesos.agent.command import (
    AgentCommand,
    agent_options,
    bound_capacity,
    choose_quotas,
    directory_key,
    parse_attributes,
    with_capacity,
)
from executors.mesos.agent.containers import Unlimited
from executors.mesos.agent.shim import birth_of
from executors.mesos.codec import Message, encode
from executors.mesos.driver import SchedulerDriver
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import identity, message
from executors.mesos.pool_directory import AGENT_NAME, READER, PoolDirectory

pytestmark = pytest.mark.slow

PATIENCE_S = 40.0


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.01)


class Ground:
    """A pool, a master over TLS, and agents that are processes of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = PoolDirectory.create(path / "pool", "test")
        self.master = MasterService(self.directory, MasterOptions(ping_s=0.5, pings=4), host="127.0.0.1")
        self.processes: list[subprocess.Popen[str]] = []

    def agent(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "executors.mesos.agent.command", "--directory", str(self.directory.path)]
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
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.close()


class Sleeper:
    """A framework that starts one endless task on the first offer, and hears what becomes of it."""

    def __init__(self, script: str = "sleep 1000") -> None:
        self.script, self.launched = script, False
        self.states: list[Message] = []
        self.offer: Message = {}

    def resourceOffers(self, driver: SchedulerDriver, offers: list[Message]) -> None:
        if self.launched:
            return
        self.launched, self.offer = True, offers[0]
        task = {
            "name": "t1",
            "task_id": identity("t1"),
            "agent_id": self.offer["agent_id"],
            "command": {"value": self.script},
            "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}}],
        }
        driver.launchTasks([self.offer["id"]], [task])

    def statusUpdate(self, driver: SchedulerDriver, status: Message) -> None:
        self.states.append(status)

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: None

    def wait(self, state: str) -> Message:
        until(lambda: any(status["state"] == state for status in self.states))
        return next(status for status in self.states if status["state"] == state)


@pytest.fixture
def sleeper(ground: Ground) -> Iterator[Sleeper]:
    ground.master.start()
    sleeper = Sleeper()
    framework = {"user": "", "name": "test", "failover_timeout": 100.0, "checkpoint": True}
    framework["capabilities"] = [{"type": "PARTITION_AWARE"}]
    driver = SchedulerDriver(sleeper, framework, ground.directory)
    driver.start()
    yield sleeper
    driver.stop()
    driver.join()


def test_told_to_end_it_ends_its_tasks_and_says_so(ground: Ground, sleeper: Sleeper) -> None:
    agent = ground.agent("--work", str(ground.path / "work"))
    pid = sleeper.wait("TASK_RUNNING")["container_status"]["executor_pid"]
    agent.terminate()
    assert "signal 15" in sleeper.wait("TASK_KILLED")["message"]
    assert agent.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert birth_of(pid) is None
    assert (ground.path / "work").exists(), "asked for by name, it is kept"
    token = ground.directory.token("agent")
    assert token not in ground.log()


def test_killed_and_started_again_it_is_the_same_agent(ground: Ground, sleeper: Sleeper) -> None:
    words = ("--work", str(ground.path / "work"))
    agent = ground.agent(*words)
    pid = sleeper.wait("TASK_RUNNING")["container_status"]["executor_pid"]
    birth = birth_of(pid)
    agent.kill()
    agent.wait()
    again = ground.agent(*words)
    (shim,) = _parents(pid)
    until(lambda: "offers" in ground.log().partition("\n")[2])
    assert birth_of(pid) == birth
    again.send_signal(signal.SIGINT)
    sleeper.wait("TASK_KILLED")
    assert again.wait(PATIENCE_S) == 128 + signal.SIGINT
    assert birth_of(pid) is None
    until(lambda: birth_of(shim) is None)


def test_stopped_for_too_long_and_continued_it_comes_back_with_its_tasks(ground: Ground, sleeper: Sleeper) -> None:
    agent = ground.agent("--work", str(ground.path / "work"))
    pid = sleeper.wait("TASK_RUNNING")["container_status"]["executor_pid"]
    birth = birth_of(pid)
    agent.send_signal(signal.SIGSTOP)
    try:
        sleeper.wait("TASK_UNREACHABLE")
    finally:
        agent.send_signal(signal.SIGCONT)
    until(lambda: sleeper.states[-1]["state"] == "TASK_RUNNING")
    assert birth_of(pid) == birth


@pytest.mark.parametrize("quotas", ["none", "duty cycle", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_killed_and_not_started_again_nothing_is_left(ground: Ground, sleeper: Sleeper, quotas: str) -> None:
    try:
        None if quotas == "none" else probe.best(f"test-{os.getpid()}", quotas)
    except StateError as error:
        pytest.skip(str(error))
    sleeper.script = "setsid sleep 1000 & sleep 1000" if quotas != "none" else "sleep 1000 & sleep 1000"
    agent = ground.agent("--orphan-grace", "0.1", "--quotas", quotas, TMPDIR=str(ground.path))
    pid = sleeper.wait("TASK_RUNNING")["container_status"]["executor_pid"]
    (shim,) = _parents(pid)
    (work,) = ground.path.glob("asa-agent-*")
    key = work.name.rpartition("-")[2]
    assert (_groups(key) != []) is quotas.startswith("cgroup")
    agent.kill()
    agent.wait()
    until(lambda: birth_of(shim) is None)
    assert birth_of(pid) is None
    assert not [process for process in psutil.process_iter() if _works_in(process, work)]
    assert _groups(key) == []
    assert not work.exists()


def test_what_the_batch_system_has_killed_the_next_agent_tidies_up(ground: Ground, sleeper: Sleeper) -> None:
    agent = ground.agent("--orphan-grace", "1000", TMPDIR=str(ground.path))
    pid = sleeper.wait("TASK_RUNNING")["container_status"]["executor_pid"]
    (shim,) = _parents(pid)
    (work,) = ground.path.glob("asa-agent-*")
    for process in (shim, agent.pid, pid):
        os.kill(process, signal.SIGKILL)
    agent.wait()
    until(lambda: birth_of(pid) is None)
    ground.agent("--attribute", "job=next", TMPDIR=str(ground.path))
    until(lambda: not work.exists())


def _groups(key: str) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/agent-{key}"))


def _works_in(process: psutil.Process, work: Path) -> bool:
    with suppress(psutil.Error):
        return Path(process.cwd()).is_relative_to(work)
    return False


def _parents(pid: int) -> list[int]:
    return [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])]


def test_operators_come_over_tls_with_a_token(ground: Ground, sleeper: Sleeper) -> None:
    ground.agent("--work", str(ground.path / "work"), "--attribute", "rack=r1")
    sleeper.wait("TASK_RUNNING")
    port = sleeper.offer["url"]["address"]["port"]
    assert {"name": "rack", "type": "TEXT", "text": {"value": "r1"}} in sleeper.offer["attributes"]
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _Named())
    session.verify = str(ground.directory.path / "tls" / "ca.pem")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ground.directory.token(READER)}"}
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


class Couple(Sleeper):
    """A framework that starts two tasks on the first offer, each of which wants all that there is."""

    def resourceOffers(self, driver: SchedulerDriver, offers: list[Message]) -> None:
        if self.launched:
            return
        self.launched, self.offer = True, offers[0]
        tasks = [
            {
                "name": name,
                "task_id": identity(name),
                "agent_id": self.offer["agent_id"],
                "command": {"value": "while :; do :; done"},
                "resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1.0}}],
            }
            for name in ("t1", "t2")
        ]
        driver.launchTasks([self.offer["id"]], tasks)

    def pids(self) -> list[int]:
        until(lambda: len([item for item in self.states if item["state"] == "TASK_RUNNING"]) == 2)
        return [item["container_status"]["executor_pid"] for item in self.states if item["state"] == "TASK_RUNNING"]


@pytest.mark.parametrize("quotas", ["cgroup v2", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_its_containers_are_kept_to_its_capacity_together(ground: Ground, quotas: str) -> None:
    try:
        probe.best(f"test-{os.getpid()}", quotas)
    except StateError as error:
        pytest.skip(str(error))
    ground.master.start()
    couple = Couple()
    driver = SchedulerDriver(couple, {"user": "", "name": "test"}, ground.directory)
    driver.start()
    try:
        words = "--work", str(ground.path / "work"), "--cores", "2", "--quotas", quotas
        ground.agent(*words, "--capacity", "0.3")
        pids = couple.pids()
        assert {"name": "capacity", "type": "SCALAR", "scalar": {"value": 0.3}} in couple.offer["attributes"]
        until(lambda: all(throttle.clock(pid) for pid in pids))
        another = ground.agent(*words, "--capacity", "2")
        assert another.wait(PATIENCE_S) == 1, "one agent at a time, and whoever is refused changes nothing"
        began, before = time.monotonic(), sum(throttle.clock(pid) or 0.0 for pid in pids)
        time.sleep(4.0)  # the window in which they are measured
        ended, after = time.monotonic(), sum(throttle.clock(pid) or 0.0 for pid in pids)
        assert 0.15 < (after - before) / (ended - began) <= 0.34
    finally:
        driver.stop()
        driver.join()


def test_without_a_master_it_gives_up_and_leaves_nothing(ground: Ground) -> None:
    agent = ground.agent("--patience", "0.2", TMPDIR=str(ground.path))
    assert agent.wait(PATIENCE_S) == 75
    assert "no master for 0.2 s" in ground.log()
    assert not list(ground.path.glob("asa-agent-*"))


def test_before_its_allocation_ends_it_leaves(ground: Ground, sleeper: Sleeper) -> None:
    agent = ground.agent("--lasts", "12", "--margin", "3")
    sleeper.wait("TASK_RUNNING")
    offer = sleeper.offer
    assert offer["unavailability"]["start"]["nanoseconds"] > 0
    assert offer["url"]["scheme"] == "https" and ipaddress.ip_address(offer["url"]["address"]["ip"])
    sleeper.wait("TASK_KILLED")
    assert agent.wait(PATIENCE_S) == 0


def test_what_is_wrong_is_said(ground: Ground) -> None:
    agent = ground.agent("--attribute", "nonsense")
    assert agent.wait(PATIENCE_S) == 1
    assert "expected NAME=VALUE" in ground.log()
    agent = ground.agent("--quotas", "magic")
    assert agent.wait(PATIENCE_S) == 1
    assert "magic" in ground.log()
    agent = ground.agent("--capacity", "0.5")
    assert agent.wait(PATIENCE_S) == 1
    assert "--capacity 0.5: a fraction of the processor cannot be kept here by 'none'" in ground.log()
    agent = ground.agent("--capacity", "2")
    assert agent.wait(PATIENCE_S) == 1
    assert "--capacity 2: expected from 0.01 to the 1 cores that are offered" in ground.log()


def test_secrets_are_not_passed_on(ground: Ground) -> None:
    script = "env; sleep 1000"
    ground.master.start()
    sleeper = Sleeper(script)
    driver = SchedulerDriver(sleeper, {"user": "", "name": "test"}, ground.directory)
    driver.start()
    try:
        ground.agent("--work", str(ground.path / "work"), SLURM_JWT="s3cret-1", MY_TOKEN="s3cret-2", HARMLESS="here")
        sleeper.wait("TASK_RUNNING")
        pattern = "work/sandboxes/slaves/*/frameworks/*/executors/t1/runs/*/stdout"
        until(lambda: any("HARMLESS=here" in path.read_text() for path in ground.path.glob(pattern)))
        (output,) = ground.path.glob(pattern)
        assert "s3cret" not in output.read_text()
    finally:
        driver.stop()
        driver.join()


def test_agents_of_one_machine_are_told_apart(tmp_path: Path) -> None:
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


def test_an_attribute_needs_a_value() -> None:
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        parse_attributes(["x"])


def test_it_may_come_before_its_pool_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "executors.mesos.agent.command", "--directory", str(tmp_path / "pool")]
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
def test_a_part_of_what_is_offered(cores: float) -> None:
    with pytest.raises(InvalidInput, match=r"--capacity .*: expected from 0.01 to the 2 cores that are offered"):
        bound_capacity(Unlimited(), cores, 2.0)


@pytest.mark.parametrize("quotas", [Unlimited(), DutyCycle("space")])
def test_a_means_that_cannot(quotas: Unlimited | DutyCycle) -> None:
    with pytest.raises(StateError, match=f"--capacity 0.3: a fraction of the processor .* by '{quotas.name}'"):
        bound_capacity(quotas, 0.3, 2.0)


@pytest.mark.parametrize("means", ["cgroup v2", pytest.param("cgroup v1", marks=pytest.mark.root)])
def test_a_means_that_can(means: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
