from __future__ import annotations

import pytest

from asa.backends.slurm import commands


def test_all_jobs_are_asked_for_at_once() -> None:
    argv = commands.queue_command("1000", keys=["464", "465_2"])
    assert argv[0] == "squeue"
    assert {"--user=1000", "--jobs=464,465_2", "--states=all", "--all", "--array"} <= set(argv)
    assert any(item.startswith("--Format=ArrayJobID:|,ArrayTaskID:|,State:|") for item in argv)
    assert argv[-1] != "" and "Name:|" in argv[-2]


def test_a_list_too_long_for_the_kernel_is_left_out() -> None:
    argv = commands.queue_command("1000", keys=[str(number) for number in range(commands.KEYS_AT_ONCE + 1)])
    assert not any(item.startswith("--jobs") for item in argv)
    assert "--user=1000" in argv


def test_accounting_by_id_and_by_name() -> None:
    by_id = commands.accounting_command("1000", keys=["464"])
    assert {"--duplicates", "--allocations", "--jobs=464"} <= set(by_id)
    assert not any(item.startswith("--user") for item in by_id)
    by_name = commands.accounting_command("1000", names=["a", "b"])
    assert {"--user=1000", "--name=a,b", "--starttime=now-30days", "--endtime=now"} <= set(by_name)
    assert any(item.startswith("--state=") for item in by_name)


def test_another_cluster() -> None:
    assert commands.on_cluster(["scancel", "--quiet", "7"], "other") == ["scancel", "--clusters=other", "--quiet", "7"]
    assert commands.on_cluster(["squeue"], None) == ["squeue"]


def test_a_submission_keeps_the_users_environment() -> None:
    environment = {"PATH": "/bin", "SBATCH_ACCOUNT": "a", "SLURM_CPU_BIND": "none", "SLURM_CONF": "/etc/slurm.conf"}
    assert commands.submission_environment(environment) == environment


def test_a_submission_from_within_a_job_forgets_that_job() -> None:
    environment = {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURMD_NODENAME": "n1", "SLURM_CONF": "c"}
    assert commands.submission_environment(environment) == {"PATH": "/bin", "SLURM_CONF": "c"}


@pytest.mark.parametrize("name", ["SQUEUE_PARTITION", "SACCT_FORMAT", "SINFO_ALL", "SLURM_TIME_FORMAT"])
def test_display_settings_do_not_change_answers(name: str) -> None:
    found = commands.query_environment({"PATH": "/bin", name: "something"})
    assert found == {"PATH": "/bin", "SLURM_TIME_FORMAT": "%s"}


def test_everybodys_jobs_are_asked_for_by_partition() -> None:
    argv = commands.visible_command(["core", "short"])
    assert "--partition=core,short" in argv
    assert not any(word.startswith("--user") for word in argv)
