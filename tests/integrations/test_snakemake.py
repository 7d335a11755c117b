"""Snakemake itself, from PyPI, with its rules in allocations of the local backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asa.core.event import CallsAdded, JobEnded, Submitting, TaskDone
from asa.log.events import EventLog
from tests.docs.blocks import follow, read
from tests.integrations.snakemakes import PYTHON, command, environment, needs_snakemake, snakemake
from tests.waiting import until

pytestmark = [pytest.mark.slow, needs_snakemake]

LOCAL = ("--executor", "asa", "--asa-backend", "local:cores=4", "--jobs", 20)

WHOLE = """
import os

envvars: "TOKEN"

SAMPLES = ["a", "b"]

rule all:
    input: "report.txt", expand("grouped/{s}.2", s=SAMPLES), "script.txt", "run.txt", "shadow.txt", "wide.txt"

checkpoint split:
    output: directory("parts")
    shell: "mkdir {output}; for i in 1 2 3; do echo $i > {output}/$i.txt; done"

rule work:
    input: "parts/{i}.txt"
    output: temp("worked/{i}.txt")
    log: "logs/{i}.log"
    benchmark: "bench/{i}.tsv"
    resources: mem_mb=200, runtime=5
    shell: "sed s/^/part-/ {input} > {output} 2> {log}"

def worked(wildcards):
    folder = checkpoints.split.get().output[0]
    return expand("worked/{i}.txt", i=sorted(name[:-4] for name in os.listdir(folder) if name[0] != "."))

rule report:
    input: worked
    output: "report.txt"
    shell: "cat {input} > {output}; test -n \\"$TOKEN\\""

rule first:
    output: "grouped/{s}.1"
    group: "pair"
    shell: "echo {wildcards.s} > {output}"

rule second:
    input: "grouped/{s}.1"
    output: "grouped/{s}.2"
    group: "pair"
    shell: "cat {input} > {output}"

rule script:
    output: "script.txt"
    script: "scripts/write.py"

rule run:
    output: "run.txt"
    run:
        with open(output[0], "w") as file:
            file.write(f"{threads} and {resources.mem_mb}")

rule shadowed:
    output: "shadow.txt"
    shadow: "minimal"
    shell: "echo left > beside.txt; echo kept > {output}"

rule wide:
    output: "wide.txt"
    threads: 3
    resources: mem_mb=300
    shell: "echo {threads} > {output}"
"""


def log_of(state: Path) -> list[object]:
    """Events of the one run there."""
    (run,) = (state / "runs").iterdir()
    with EventLog(run / "events.db") as log:
        return [event for _, event in log.read()]


def test_a_workflow_with_all_that_rules_can_be_runs_unchanged(tmp_path: Path) -> None:
    folder, state = tmp_path / "flow", tmp_path / "state"
    (folder / "scripts").mkdir(parents=True)
    (folder / "Snakefile").write_text(WHOLE)
    (folder / "scripts/write.py").write_text("open(snakemake.output[0], 'w').write(snakemake.rule)\n")
    done = snakemake(folder, *LOCAL, state=state, more={"TOKEN": "s3cret-of-mine"})
    assert done.returncode == 0, done.stdout
    assert (folder / "report.txt").read_text() == "part-1\npart-2\npart-3\n"
    assert not (folder / "worked/1.txt").exists() and len((folder / "bench/1.tsv").read_text().splitlines()) == 2
    assert (folder / "grouped/b.2").read_text() == "b\n"
    assert (folder / "script.txt").read_text() == "script"
    assert (folder / "run.txt").read_text().startswith("1 and ")
    assert (folder / "wide.txt").read_text() == "3\n"
    assert not (folder / "beside.txt").exists()
    assert "s3cret-of-mine" not in done.stdout
    events = log_of(state)
    sizes = {spec.name: spec for event in events if isinstance(event, CallsAdded) for spec in event.stages}
    assert sizes["wide"].task.cores == 3 and sizes["wide"].task.memory == 320 * 2**20
    assert sizes["work"].timeout_s == 300.0
    ran = [event.stage for event in events if isinstance(event, TaskDone)]
    assert ran.count("work") == 3 and sum(name.startswith("pair") for name in ran) == 2
    assert len([event for event in events if isinstance(event, Submitting)]) == 1
    assert len([event for event in events if isinstance(event, JobEnded)]) == 1
    assert not list((folder / ".snakemake/asa").glob("*/*.log"))
    again = snakemake(folder, *LOCAL, state=state, more={"TOKEN": "s3cret-of-mine"})
    assert "Nothing to be done" in again.stdout


def test_a_failure_is_reported_with_what_was_printed_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        """
rule all:
    input: "out.txt", "good.txt"
rule flaky:
    output: "out.txt"
    resources: mem_mb=lambda wildcards, attempt: 100 * attempt
    shell: "echo attempt >> tries; echo cannot find the reads >&2; test $(wc -l < tries) -ge 3 && touch {output}"
rule good:
    output: "good.txt"
    shell: "touch {output}"
"""
    )
    done = snakemake(tmp_path, *LOCAL, "--retries", 2, state=tmp_path / "state")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Trying to restart job") == 2
    assert "cannot find the reads" in done.stdout and "exit code 1; the end of" in done.stdout
    (tmp_path / "tries").unlink()
    failed = snakemake(tmp_path, *LOCAL, "--forceall", "--retries", 0, "--keep-going", state=tmp_path / "state")
    assert failed.returncode == 1 and (tmp_path / "good.txt").exists()


def test_a_job_that_takes_longer_than_its_runtime_is_ended(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        """
rule slow:
    output: "out.txt"
    resources: runtime=1
    shell: "sleep 300; touch {output}"
"""
    )
    done = snakemake(tmp_path, *LOCAL, state=tmp_path / "state")
    assert done.returncode == 1 and "timed out after 1 min" in done.stdout, done.stdout


def test_a_job_that_no_allocation_has_room_for_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule big:\n    output: "out"\n    threads: 64\n    shell: "touch {output}"\n')
    done = snakemake(tmp_path, *LOCAL, state=tmp_path / "state")
    assert done.returncode == 1 and "raise --asa-cores" in done.stdout, done.stdout


def test_an_interrupt_ends_what_runs_and_all_jobs(tmp_path: Path) -> None:
    mark = f"{time.time() % 1e6 + 86400:.4f}"  # seconds to sleep: a name for the process
    (tmp_path / "Snakefile").write_text(
        f'rule slow:\n    output: "out.txt"\n    shell: "echo $$ > pid; exec sleep {mark}"\n'
    )
    running = subprocess.Popen(
        command(*LOCAL),
        cwd=tmp_path,
        env=environment(tmp_path / "state"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 60.0)
        pid = int((tmp_path / "pid").read_text())
        running.send_signal(signal.SIGINT)
        assert running.wait(60.0) != 0
        until(lambda: not Path(f"/proc/{pid}").exists(), 10.0)
    finally:
        running.kill()
        running.wait()
    assert len([event for event in log_of(tmp_path / "state") if isinstance(event, JobEnded)]) == 1


def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    """docs/howto/snakemake.md."""
    path = f"{PYTHON.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert follow(read("howto/snakemake.md"), tmp_path, environment(tmp_path / "state", {"PATH": path})) == 3


CONDA = """#!/bin/sh
# Stands for conda where no channel can be reached.
here=$(dirname "$(dirname "$(readlink -f "$0")")")
echo "$*" >> "$here/calls"
case "$*" in
    *info*--json*)
        echo "{\\"conda_version\\": \\"25.1.0\\", \\"conda_prefix\\": \\"$here\\", \\"platform\\": \\"linux-64\\"}" ;;
    *channel_priority*) echo '{"get": {"channel_priority": "strict"}}' ;;
    *--version*) echo "conda 25.1.0" ;;
    *create*)
        for word; do [ "$last" != --prefix ] || mkdir -p "$word/bin"; last=$word; done ;;
esac
"""


def test_an_environment_of_condas_is_made_once_and_entered_by_the_task(tmp_path: Path) -> None:
    """By conda's command line: there is no channel here to install from."""
    tools = tmp_path / "base/bin"
    tools.mkdir(parents=True)
    (tools / "conda").write_text(CONDA)
    (tools / "activate").write_text('export ENTERED="$1"\n')
    for name in ("conda", "activate"):
        (tools / name).chmod(0o755)
    (tmp_path / "env.yaml").write_text("channels: [conda-forge]\ndependencies: [samtools =1.20]\n")
    (tmp_path / "Snakefile").write_text(
        """
rule all:
    input: "0.txt", "1.txt"
rule one:
    output: "{i}.txt"
    conda: "env.yaml"
    shell: "echo $ENTERED > {output}"
"""
    )
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = snakemake(tmp_path, *LOCAL, "--sdm", "conda", state=tmp_path / "state", more=path)
    assert done.returncode == 0, done.stdout
    calls = (tmp_path / "base/calls").read_text().splitlines()
    (made,) = [line for line in calls if "create" in line.split()]
    entered = {(tmp_path / f"{i}.txt").read_text().strip() for i in range(2)}
    assert entered == {made.split("--prefix ")[1]}
