"""A real cluster, up and down: these tests start daemons and jobs on this host."""

import json
import re
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import __main__ as command
from tests.cluster import daemons, faults, freezer, host, layout, processes
from tests.cluster.cluster import down, load, running, up
from tests.cluster.config import ORDINARY_USERS

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root]

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}


@pytest.fixture
def base(tmp_path_factory):
    """A directory for a cluster; `tmp_path` is too long for the sockets in it."""
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    return tmp_path_factory.mktemp("own")


@pytest.fixture
def config(base):
    return host.configure(base, nodes=2, cores_per_node=2)


def submit(cluster, script, *options, **how):
    output = cluster.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}", **how)
    return output.strip()


def await_state(cluster, job, states, timeout=30):
    reached = processes.wait_until(lambda: cluster.job(job).get("JobState") in states, timeout)
    assert reached, f"job {job} is {cluster.job(job).get('JobState')}, expected {states}"
    return cluster.job(job)


def leftovers(config):
    """Processes, open ports, mounts and control groups that a cluster still has."""
    conf = str(config.slurm_conf)
    ports = [config.ports.slurmctld, *config.ports.slurmd]
    groups = [freezer.node_group(Path(config.cgroup_root, "freezer"), node) for node in config.nodes]
    return [
        *processes.with_environment(lambda env: env.get("SLURM_CONF") == conf),
        *filter(daemons.listening, ports),
        *(group for group in groups if group.exists()),
        *(line for line in Path("/proc/mounts").read_text().splitlines() if str(config.base) in line),
    ]


def test_a_job_runs_on_two_nodes(slurm_cluster, tmp_path):
    output = tmp_path / "nodes"
    job = submit(slurm_cluster, "srun printenv SLURMD_NODENAME", "--nodes=2", f"--output={output}")
    fields = await_state(slurm_cluster, job, ENDED)
    assert fields["JobState"] == "COMPLETED"
    ran_on = set(output.read_text().split())
    assert len(ran_on) == 2
    assert ran_on <= set(slurm_cluster.nodes)


def test_nodes_have_no_folder_for_temporary_files_in_common(slurm_cluster, tmp_path):
    output = tmp_path / "folders"
    job = submit(slurm_cluster, 'srun sh -c \'test -w "$TMPDIR" && echo "$TMPDIR"\'', "--nodes=2", f"--output={output}")
    assert await_state(slurm_cluster, job, ENDED)["JobState"] == "COMPLETED"
    assert len(set(output.read_text().split())) == 2


def test_clients_find_the_partitions(slurm_cluster):
    partitions = slurm_cluster.run("sinfo", "--noheader", "--format=%P %D %c").splitlines()
    shape = f"{len(slurm_cluster.nodes)} {slurm_cluster.config.cores_per_node}"
    assert {f"main* {shape}", f"share {shape}"} <= set(partitions)


def test_a_controller_that_restarts_keeps_its_jobs(slurm_cluster):
    runs = submit(slurm_cluster, "sleep 300")
    await_state(slurm_cluster, runs, {"RUNNING"})
    waits = submit(slurm_cluster, "true", f"--dependency=afterany:{runs}")
    faults.restart_controller(slurm_cluster)
    assert slurm_cluster.job(runs)["JobState"] == "RUNNING"
    assert slurm_cluster.job(waits)["JobState"] == "PENDING"
    slurm_cluster.run("scancel", runs)
    await_state(slurm_cluster, waits, {"COMPLETED"})


def test_a_controller_that_is_killed_comes_back(config):
    with running(config) as cluster:
        before = daemons.noted(config)["slurmctld"]
        faults.restart_controller(cluster, kill9=True)
        assert not before.running
        job = submit(cluster, "true")
        await_state(cluster, job, {"COMPLETED"})
    assert leftovers(config) == []


def test_a_crashed_node_loses_its_processes_and_can_come_back(slurm_cluster):
    node = slurm_cluster.nodes[1]
    job = submit(slurm_cluster, "setsid sleep 300 & sleep 300", f"--nodelist={node}")

    def alive():
        return processes.with_environment(lambda env: env.get("SLURMD_NODENAME") == node)

    # slurmd, the script and two sleeps, and slurmstepd, which has overwritten its environment from Slurm 24.11 on
    assert processes.wait_until(lambda: len(alive()) >= 4, 30)
    faults.kill_node(slurm_cluster, node)
    assert alive() == []
    assert slurm_cluster.job(job)["JobState"] == "RUNNING"  # nobody has told the controller
    faults.revive_node(slurm_cluster, node)
    slurm_cluster.run("scancel", job)
    after = submit(slurm_cluster, "true", f"--nodelist={node}")
    assert await_state(slurm_cluster, after, ENDED)["JobState"] == "COMPLETED"


@pytest.mark.slow
def test_the_controller_fails_the_job_of_a_crashed_node(base):
    with running(host.configure(base, nodes=2, cores_per_node=2, node_timeout=5)) as cluster:
        node = cluster.nodes[1]
        job = submit(cluster, "sleep 300", "--no-requeue", f"--nodelist={node}")
        await_state(cluster, job, {"RUNNING"})
        faults.kill_node(cluster, node)
        await_state(cluster, job, {"NODE_FAIL"}, timeout=60)
        assert "DOWN" in cluster.node_states()[node]
        faults.revive_node(cluster, node)
        assert cluster.node_states()[node] == "IDLE"


def test_a_drained_node_takes_no_job_until_it_is_revived(slurm_cluster):
    node = slurm_cluster.nodes[0]
    faults.drain(slurm_cluster, node)
    assert slurm_cluster.node_states()[node] == "IDLE+DRAIN"
    job = submit(slurm_cluster, "true", f"--nodelist={node}")
    assert slurm_cluster.job(job)["JobState"] == "PENDING"
    faults.revive_node(slurm_cluster, node)
    await_state(slurm_cluster, job, {"COMPLETED"})


def test_a_fault_on_a_node_that_is_not_there_names_those_that_are(slurm_cluster):
    with pytest.raises(ValueError, match=slurm_cluster.nodes[0]):
        faults.kill_node(slurm_cluster, "n1")


def test_down_leaves_nothing_and_may_be_repeated(config):
    cluster = up(config)
    job = submit(cluster, "setsid sleep 300 & sleep 300", "--nodes=2")
    await_state(cluster, job, {"RUNNING"})
    assert leftovers(config)
    down(config)
    assert leftovers(config) == []
    down(config)
    layout.remove(config)
    assert not Path(config.base).exists()


def test_clusters_do_not_disturb_one_another(config, tmp_path_factory):
    other = host.configure(tmp_path_factory.mktemp("other"), nodes=2, cores_per_node=2)
    with running(config) as one:
        job = submit(one, "sleep 300")
        await_state(one, job, {"RUNNING"})
        with running(other) as two:
            assert submit(two, "sleep 300") == job  # the same number, hence the same control group but for the node
            await_state(two, job, {"RUNNING"})
        assert one.job(job)["JobState"] == "RUNNING"
        assert set(one.node_states().values()) == {"IDLE", "MIXED"}


def test_a_daemon_that_does_not_come_up_says_why_and_nothing_is_left(base):
    config = host.configure(base, nodes=1, settings=(("SelectType", "select/nonsense"),))
    with pytest.raises(daemons.DaemonError, match="select/nonsense"):
        up(config)
    assert leftovers(config) == []


def test_a_directory_in_use_is_refused(config):
    Path(config.base, "mine").touch()
    with pytest.raises(FileExistsError, match=str(config.base)):
        up(config)
    assert [path.name for path in Path(config.base).iterdir()] == ["mine"]


def test_the_command_line(base, capsys):
    options = ["--nodes=1", "--cores-per-node=3", "--min-job-age=9", "--set=KillWait=1"]
    try:
        assert command.main(["up", f"--base={base}", *options]) == 0
        assert capsys.readouterr().out == f"SLURM_CONF={base}/etc/slurm.conf\n"
        cluster = load(base)
        assert (cluster.config.min_job_age, cluster.config.settings) == (9, (("KillWait", "1"),))
        assert command.main(["status", f"--base={base}"]) == 0
        assert f"{cluster.nodes[0]:24} IDLE" in capsys.readouterr().out.splitlines()
    finally:
        assert command.main(["down", f"--base={base}"]) == 0
    assert not base.exists()
    assert command.main(["down", f"--base={base}"]) == 0
    assert command.main(["status", f"--base={base}"]) == 1
    assert str(base) in capsys.readouterr().err


@pytest.mark.slow
def test_accounting_limits_and_rest():
    reason = host.obstacle(database=True, rest=True)
    if reason is not None:
        pytest.skip(reason)
    ann = ORDINARY_USERS[0]
    # Every directory above the cluster's has to let other users pass, which pytest's own do not.
    config = host.configure(None, nodes=1, regime="limits", database=True, rest=True, users=(ann,))
    try:
        with running(config) as cluster:
            job = submit(cluster, "id -un", user=ann)
            await_state(cluster, job, {"COMPLETED"})

            def recorded():
                output = cluster.run("sacct", "--parsable2", "--noheader", "-aX", "--format=JobID,User,Account,State")
                return output.splitlines() == [f"{job}|{ann}|asa|COMPLETED"]

            assert processes.wait_until(recorded, 30)
            assert cluster.run("sbatch", "--wrap=true", user="daemon", check=False) == ""

            token = cluster.run("scontrol", "token", f"username={ann}").strip().partition("=")[2]

            def ask(path):
                request = urllib.request.Request(
                    f"http://127.0.0.1:{config.ports.slurmrestd}{path}",
                    headers={"X-SLURM-USER-NAME": ann, "X-SLURM-USER-TOKEN": token},
                )
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return json.load(answer)

            pings = [path for path in ask("/openapi/v3")["paths"] if re.fullmatch(r"/slurm/v[\d.]+/ping/?", path)]
            assert pings
            for path in pings:
                assert not ask(path)["errors"]
                assert ask(path)["pings"][0]["hostname"] == config.hostname
        assert leftovers(config) == []
    finally:
        with suppress(FileNotFoundError):
            layout.remove(config)
