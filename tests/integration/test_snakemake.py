"""Snakemake on a real Slurm: few jobs and few calls for many rules, their partitions, and what an interrupt leaves."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.snakemake_on_slurm import contend
from tests.cluster import host, layout
from tests.cluster.cluster import Cluster, running
from tests.integrations.snakemakes import command, environment, needs_snakemake, snakemake
from tests.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(480), needs_snakemake]

ASA = ("--executor", "asa", "--jobs", 100)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    config = host.configure(nodes=4, cores_per_node=8, database=True)
    try:
        with running(config) as cluster:
            yield cluster
    finally:
        layout.remove(config)


def jobs_of(cluster: Cluster) -> list[str]:
    return cluster.run("squeue", "--noheader", "--format=%T").split()


def test_many_rules_take_few_jobs_and_few_calls(cluster: Cluster) -> None:
    found = contend(cluster, "asa", 120, 0.2, timeout_s=400.0)
    assert found["rules"] == 121 and 1 <= found["batch_jobs"] <= 10
    assert found["calls"] <= 40, found  # at the start and in the end; in between one in 20 s


def test_rules_say_where_their_allocations_are(cluster: Cluster, tmp_path: Path) -> None:
    where = "echo $SLURM_JOB_PARTITION $SLURM_JOB_ID > {output}"
    (tmp_path / "Snakefile").write_text(
        f"""
rule all:
    input: expand("{{at}}/{{i}}", at=["main", "share"], i=range(3))
rule main:
    output: "main/{{i}}"
    resources: slurm_partition="main", runtime=10
    shell: "{where}"
rule share:
    output: "share/{{i}}"
    resources: slurm_partition="share"
    threads: 2
    shell: "{where}"
"""
    )
    done = snakemake(tmp_path, *ASA, state=tmp_path / "state", more=cluster.env, timeout_s=400.0)
    assert done.returncode == 0, done.stdout
    ran = {name: {(tmp_path / name / str(i)).read_text() for i in range(3)} for name in ("main", "share")}
    for name, said in ran.items():
        assert len(said) == 1 and next(iter(said)).split()[0] == name
    assert not jobs_of(cluster)


def test_an_interrupt_leaves_no_job(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        'rule slow:\n    output: "out"\n    shell: "echo $$ > pid; exec sleep 100000"\n'
    )
    running = subprocess.Popen(
        command(*ASA),
        cwd=tmp_path,
        env=environment(tmp_path / "state", cluster.env),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 240.0)
        pid = int((tmp_path / "pid").read_text())
        running.send_signal(signal.SIGINT)
        assert running.wait(120.0) != 0
        until(lambda: not Path(f"/proc/{pid}").exists(), 30.0)
        until(lambda: not jobs_of(cluster), 60.0)
    finally:
        running.kill()
        running.wait()
