"""The transport over programs that only look like Slurm's."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.backends.slurm.commands import KEYS_AT_ONCE
from asa.backends.slurm.commands import SlurmCommands as Commands
from asa.backends.slurm.words import SiteRefusal
from asa.core.errors import BackendError


class Programs:
    """A directory of shell scripts, first in PATH; each notes how it was called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": f"{directory}:/usr/bin:/bin", "SQUEUE_PARTITION": "other", "SBATCH_ACCOUNT": "mine"}

    def make(self, name: str, body: str) -> None:
        path = self.directory / name
        path.write_text(f'#!/bin/sh\necho "$*" >>{self.directory}/calls\nenv >{self.directory}/environment\n{body}\n')
        path.chmod(0o700)

    @property
    def calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines()

    @property
    def seen(self) -> str:
        return (self.directory / "environment").read_text()

    def transport(self, cluster: str | None = None) -> Commands:
        return Commands(cluster, 5.0, self.environment)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_submitting(programs: Programs) -> None:
    programs.make("sbatch", f"cat >{programs.directory}/script; echo '464;asa'")
    assert programs.transport().submit(["--nice=1"], "#!/bin/sh\ntrue\n") == "464"
    assert programs.calls == ["--parsable --nice=1"]
    assert (programs.directory / "script").read_text() == "#!/bin/sh\ntrue\n"
    assert "SBATCH_ACCOUNT=mine" in programs.seen
    assert "SLURM_TIME_FORMAT" not in programs.seen, "it would be handed on to the job"


def test_asking(programs: Programs) -> None:
    programs.make("squeue", "echo '464|N/A|PENDING|Priority|100|100|N/A|N/A|0|0||N/A|token|'")
    (record,) = programs.transport("other").queue(["464", "465"])
    assert (record.key, record.name, record.word) == ("464", "token", "PENDING")
    assert programs.calls[0].startswith("--clusters=other --noheader")
    assert "SLURM_TIME_FORMAT=%s" in programs.seen
    assert "SQUEUE_PARTITION" not in programs.seen


def test_nothing_is_asked_about_nothing(programs: Programs) -> None:
    transport = programs.transport()
    assert transport.queue([]) == transport.queue_by_name([]) == []
    assert transport.accounting([]) == transport.accounting_by_name([]) == []
    transport.cancel([])
    assert not (programs.directory / "calls").exists()


def test_the_only_job_asked_for_is_not_known(programs: Programs) -> None:
    programs.make("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert programs.transport().queue(["464"]) == []


def test_no_accounting(programs: Programs) -> None:
    programs.make("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert programs.transport().accounting(["464"]) == []


def test_no_answer(programs: Programs) -> None:
    programs.make("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(BackendError, match="Unable to contact") as caught:
        programs.transport().queue(["464"])
    assert caught.value.transient


def test_a_refusal(programs: Programs) -> None:
    programs.make("scontrol", "echo 'Access/permission denied' >&2; exit 1")
    with pytest.raises(SiteRefusal) as caught:
        programs.transport().update("464", ["TimeLimit=1"])
    assert caught.value.reason == "Access/permission denied"
    assert programs.calls == ["update JobId=464 TimeLimit=1"]


def test_cancelling_many_jobs_takes_few_calls(programs: Programs) -> None:
    programs.make("scancel", "echo 'scancel: error: Kill job error on job id 1: Invalid job id specified' >&2; exit 1")
    programs.transport().cancel([str(number) for number in range(KEYS_AT_ONCE + 1)])
    assert len(programs.calls) == 2
    assert programs.calls[1] == f"--quiet {KEYS_AT_ONCE}"


def test_a_machine_without_slurm(programs: Programs) -> None:
    programs.environment["PATH"] = str(programs.directory)
    with pytest.raises(BackendError, match="no program 'sbatch' in PATH"):
        programs.transport().version()


def test_it_is_named_with_its_cluster(programs: Programs) -> None:
    assert programs.transport().name() == "its commands"
    assert programs.transport("other").name() == "its commands, cluster other"


def test_jobs_are_found_by_name(programs: Programs) -> None:
    programs.make("squeue", "echo '464|N/A|PENDING|Priority|100|100|N/A|N/A|0|0||N/A|token|'")
    assert [record.key for record in programs.transport().queue_by_name(["token", "other"])] == ["464"]
    assert programs.calls[0].endswith(" --name=token,other")


def test_everybodys_jobs(programs: Programs) -> None:
    programs.make("squeue", "echo '464|3|ada|core|RUNNING|None|4294|8|2|01:00:00|100|3700|n[1-2]|a|b|'")
    (job,) = programs.transport().everyone(["core", "short"])
    assert (job.key, job.user, job.cores, job.nodes, job.limit, job.name) == ("464_3", "ada", 8, 2, 3600.0, "a|b")
    assert "--partition=core,short" in programs.calls[0]


def test_partitions_and_nodes(programs: Programs) -> None:
    programs.make("scontrol", "echo 'PartitionName=core Default=YES MaxTime=1-00:00:00'; echo")
    programs.make("sinfo", "echo 'core|4|8|16000+|gpu:2|idle'")
    transport = programs.transport()
    assert transport.partitions() == [{"PartitionName": "core", "Default": "YES", "MaxTime": "1-00:00:00"}]
    (group,) = transport.nodes("core")
    assert (group.partition, group.count, group.cores, group.gpus, group.state) == ("core", 4, 8, 2, "idle")
    assert programs.calls == [
        "--all --oneliner show partition", "--noheader --exact --partition=core --format=%R|%D|%c|%m|%G|%t",
    ]  # fmt: skip
