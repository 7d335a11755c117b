"""``asa cosched run`` on real agents of this machine."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from coscheduler.agents.groups import LocalAgents
from coscheduler.queuefile import NAME, read
from coscheduler.real.gangs import LEASE_S
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER
from tests.cluster.processes import wait_until

pytestmark = pytest.mark.slow

QUEUE = """
cores = 4
[[jobs]]
name = "host"
cores = 4
walltime = "1m"
run_time = "6s"
command = "[ $ASA_RANK != 0 ] || timeout 4 sh -c 'while :; do :; done'; sleep 4; echo $ASA_RANK of $ASA_RANKS"
[[jobs]]
name = "guest"
cores = 2
walltime = "1m"
command = "pwd; sleep 2"
[[jobs]]
name = "bad"
cores = 1
walltime = "1m"
command = "echo 'oh no' >&2; exit 3"
"""
LOCAL = ("--on", "local", "--nodes", "4")


@pytest.fixture
def queue(tmp_path):
    (tmp_path / "queue.toml").write_text(QUEUE)
    return tmp_path


def started(folder, *words):
    argv = [sys.executable, "-P", "-m", "asa", "cosched", "run", "queue.toml", *words]
    env = os.environ | {"ASA_STATE_DIR": str(folder / "state")}
    return subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_queue_of_commands(queue):
    with started(queue, *LOCAL, "--sharing", "static:share=0.5", "--work", "work", "--json", "out.json") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 1, err
    assert f"bad failed: Command exited with status 3; its output is in {queue}/work/jobs/bad/1" in err
    jobs = {job["name"]: job for job in json.loads((queue / "out.json").read_text())["jobs"]}
    assert jobs["guest"]["stays"][0]["host"] == "host"
    assert jobs["host"]["slowdown"] == pytest.approx((jobs["host"]["ended"] - jobs["host"]["started"]) / 6)
    assert jobs["guest"]["slowdown"] is None
    assert jobs["host"]["cpu_s"] > 0
    output = {rank: (queue / "work/jobs/host/1" / f"stdout.{rank}").read_text() for rank in range(4)}
    assert output == {rank: f"{rank} of 4\n" for rank in range(4)}
    assert (queue / "work/jobs/guest/1/stdout.1").read_text() == f"{queue}/work/jobs/guest/1\n"
    assert (queue / "work/jobs/bad/1/stderr.0").read_text() == "oh no\n"
    ended = [entry["job"] for entry in read(queue / "work" / NAME) if entry.get("event") == "ended"]
    assert sorted(ended) == ["bad", "guest", "host"]
    assert "guest started as" not in err and "guest runs on" in err


def test_interrupted_it_leaves_nothing(queue):
    text = (queue / "queue.toml").read_text().replace("sleep 4", "sleep 61").replace("sleep 2", "sleep 62")
    (queue / "queue.toml").write_text(text)
    with started(queue, *LOCAL, "--work", "work") as process:
        first = queue / "work/jobs/host/1/stdout.3"
        deadline = time.monotonic() + 60
        while not first.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert first.exists()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    left = subprocess.run(["pgrep", "--full", "--list-full", str(queue)], capture_output=True, text=True).stdout
    assert left == ""
    sleeping = subprocess.run(["pgrep", "--exact", "--full", "sleep 6[12]"], capture_output=True, text=True).stdout
    assert sleeping == ""


def test_killed_it_goes_on(tmp_path):
    """What ended well is not run again; results of both are told. A flag lets the second job end."""
    (tmp_path / "queue.toml").write_text(
        'cores = 2\n[[jobs]]\nname = "first"\ncores = 1\nwalltime = "1m"\ncommand = "echo ran >>../../../../ran"\n'
        '[[jobs]]\nname = "second"\ncores = 1\nwalltime = "1m"\n'
        'command = "until [ -e ../../../../flag ]; do sleep 0.1; done"\n'
    )
    words = ("--on", "local", "--work", "work", "--json", "out.json")
    log = tmp_path / "work" / NAME

    def ended():
        return [entry["job"] for entry in read(log) if entry.get("event") == "ended"] if log.exists() else []

    with started(tmp_path, *words) as process:
        assert wait_until(lambda: ended() == ["first"], 60)
        with started(tmp_path, *words, "--resume") as second:
            _, err = second.communicate(timeout=60)
        assert second.returncode and f"driven already, by process {process.pid}" in err
        process.kill()
    with open(log, "a") as file:
        file.write('{"at": 100')
    (tmp_path / "flag").touch()
    with started(tmp_path, *words, "--resume") as process:
        _, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    jobs = json.loads((tmp_path / "out.json").read_text())["jobs"]
    assert [(job["name"], job["problem"]) for job in jobs] == [("first", ""), ("second", "")]
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert ended() == ["first", "second"]
    with started(tmp_path, *words, "--resume") as process:
        _, err = process.communicate(timeout=60)
    assert "all 2 jobs of the queue in" in err


@pytest.fixture
def pool(tmp_path):
    """A pool of one node that somebody else looks after."""
    pool = LocalAgents(1, cores=2)
    yield pool
    pool.close()


def test_killed_it_leaves_hosts_their_cores(tmp_path, pool):
    """The agents of its pool live on, and so do jobs, for a while: what was leased is over within seconds."""
    (tmp_path / "queue.toml").write_text(
        'cores = 2\n[[jobs]]\nname = "host"\ncores = 2\nwalltime = "9m"\ncommand = "sleep 600"\n'
        '[[jobs]]\nname = "guest"\ncores = 1\nwalltime = "9m"\ncommand = "sleep 600"\n'
    )
    where = ("--on", f"pool:{pool.directory.path}", "--sharing", "static:share=0.5,hard=true", "--work", "work")
    with Operator(pool.directory, READER) as operator, started(tmp_path, *where) as process:

        def limits():
            agents = [item["agent_info"]["id"]["value"] for item in operator.get_agents()]
            found = [item for agent in agents for item in operator.containers(agent)]
            return {item["executor_id"]["value"]: item["resource_statistics"].get("cpus_limit") for item in found}

        assert wait_until(lambda: limits() == {"host.1.0": 1.0, "guest.1.0": 1.0}, 60), limits()
        time.sleep(LEASE_S)
        assert limits()["host.1.0"] == 1.0, "as long as it is asked for"
        process.kill()
        assert wait_until(lambda: limits().get("host.1.0", 1.0) is None, 4 * LEASE_S), limits()
        assert limits() == {"host.1.0": None, "guest.1.0": 1.0}


SCRIPT = "echo ran >>../../../../ran.$ASA_JOB; until [ -e ../../../../{flag} ]; do sleep 0.1; done; exit {code}"


def jobs_of(*jobs):
    """A queue of two cores; each job (name, cores, code) runs until there is a file of its name, and exits so."""
    lines = ["cores = 2"]
    for name, cores, code in jobs:
        command = SCRIPT.format(flag=f"end.{name}", code=code)
        lines.append(f'[[jobs]]\nname = "{name}"\ncores = {cores}\nwalltime = "9m"\ncommand = "{command}"')
    return "\n".join(lines)


def test_killed_its_jobs_run_on_and_are_taken_over(tmp_path, pool):
    """One ends while nobody looks. Each runs once, and is told with its exit code and its times."""
    (tmp_path / "queue.toml").write_text(jobs_of(("host", 2, 0), ("guest", 1, 3), ("last", 2, 0)))
    where = ("--on", f"pool:{pool.directory.path}", "--sharing", "static:share=0.5,hard=true", "--work", "work")
    log = tmp_path / "work" / NAME

    def ran():
        return {path.suffix[1:]: path.read_text() for path in tmp_path.glob("ran.*")}

    def events(kind):
        return {entry["job"]: entry for entry in read(log) if entry.get("event") == kind}

    with Operator(pool.directory, READER) as operator:

        def limits():
            agents = [item["agent_info"]["id"]["value"] for item in operator.get_agents()]
            found = [item for agent in agents for item in operator.containers(agent)]
            return {item["executor_id"]["value"]: item["resource_statistics"].get("cpus_limit") for item in found}

        with started(tmp_path, *where) as process:
            assert wait_until(lambda: limits() == {"host.1.0": 1.0, "guest.1.0": 1.0}, 60), limits()
            assert wait_until(lambda: ran() == {"host": "ran\n", "guest": "ran\n"}, 60)
            process.kill()
        assert wait_until(lambda: limits().get("host.1.0", 1.0) is None, 4 * LEASE_S), "at its full quota again"
        told = subprocess.run(
            [sys.executable, "-P", "-m", "asa", "cosched", "status", "--work", "work"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "2 running" in told and f"jobs go on: asa cosched run QUEUE.toml --on pool:{pool.directory.path}" in told
        text = (tmp_path / "queue.toml").read_text()
        for words, changed, refusal in (
            (("--on", "local", "--work", "work"), text, r"may still run in another place (host, guest): --on pool:"),
            (where, text.replace("exit 0", "exit 1"), "job 'host' runs, on 2 cores, with the command"),
        ):
            (tmp_path / "queue.toml").write_text(changed)
            with started(tmp_path, *words, "--resume") as process:
                assert refusal in process.communicate(timeout=60)[1]
        (tmp_path / "queue.toml").write_text(text)
        (tmp_path / "end.guest").touch()
        assert wait_until(lambda: list(limits()) == ["host.1.0"], 60), limits()
        with started(tmp_path, *where, "--resume", "--json", "out.json") as process:
            assert wait_until(lambda: log.exists() and "guest" in events("ended"), 60)
            assert set(events("taken over")) == {"host", "guest"}
            (tmp_path / "end.last").touch()
            (tmp_path / "end.host").touch()
            _, err = process.communicate(timeout=100)
    assert process.returncode == 1, err
    assert f"guest failed: Command exited with status 3; its output is in {tmp_path}/work/jobs/guest/1" in err
    assert ran() == {"host": "ran\n", "guest": "ran\n", "last": "ran\n"}
    jobs = {job["name"]: job for job in json.loads((tmp_path / "out.json").read_text())["jobs"]}
    assert {name: job["problem"] == "" for name, job in jobs.items()} == {"host": True, "guest": False, "last": True}
    begun = [entry["at"] for entry in read(log) if entry.get("event") == "begun"]
    assert jobs["host"]["started"] == events("started")["host"]["at"] < begun[1] < jobs["host"]["ended"]
    assert jobs["guest"]["ended"] < begun[1], "when it did, not when that was seen"
    assert jobs["last"]["started"] > begun[1]
    assert read(log)[-1]["event"] == "closed"
