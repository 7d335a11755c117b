"""Command lines, what Slurm's commands print, and the transport over programs that only look like Slurm's.

Texts are recorded from Slurm 22.05.8 unless marked otherwise; squeue's ages, and CPUs, were put in by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.slurm import commands
from asa.backends.slurm.commands import KEYS_AT_ONCE, SlurmCommands
from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob
from asa.core.errors import BackendError


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


def test_a_submission_keeps_the_users_environment_and_forgets_the_job_it_is_made_in() -> None:
    environment = {"PATH": "/bin", "SBATCH_ACCOUNT": "a", "SLURM_CPU_BIND": "none", "SLURM_CONF": "/etc/slurm.conf"}
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURMD_NODENAME": "n1"}
    assert commands.submission_environment(environment) == environment
    within = {name: value for name, value in environment.items() if name in ("PATH", "SLURM_CONF")}
    assert commands.submission_environment(within | job) == within


@pytest.mark.parametrize("name", ["SQUEUE_PARTITION", "SACCT_FORMAT", "SINFO_ALL", "SLURM_TIME_FORMAT"])
def test_display_settings_do_not_change_answers(name: str) -> None:
    found = commands.query_environment({"PATH": "/bin", name: "something"})
    assert found == {"PATH": "/bin", "SLURM_TIME_FORMAT": "%s"}


def test_everybodys_jobs_are_asked_for_by_partition() -> None:
    argv = commands.visible_command(["core", "short"])
    assert "--partition=core,short" in argv
    assert not any(word.startswith("--user") for word in argv)


SQUEUE = """\
13|N/A|NODE_FAIL|NodeDown|1795255600|1795255600|1795255600|1795255602|0|0|c21554n4|1795255600|1|cpu=1,node=1,billing=1,energy=12345|nf|
12|N/A|PENDING|BeginTime|1795255604|1795255610|1795255610|1795255910|0|1||1795255610|4|cpu=1,node=1,billing=1|req|
5|N/A|CANCELLED|JobHeldUser|1795254637|N/A|1795254637|1795254637|0|0||N/A|1|cpu=1,node=1,billing=1|pend|
1|N/A|FAILED|NonZeroExitCode|1795254637|1795254637|1795254638|1795254639|256|0|c21554n1|1795254637|1|cpu=1,energy=18446744073709551614,node=1|asa-abcdefghijklmnopqrstuvwxyz-01-1|
3|1|PENDING|JobArrayTaskLimit|1795254637|N/A|N/A|N/A|0|0||1795254637|2|cpu=1,node=1,billing=1|arr|
3|0|RUNNING|None|1795254637|1795254637|1795254638|1795254938|0|0|c21554n[1-2]|1795254637|10|cpu=1,node=1,billing=1|arr|
4|N/A|RUNNING|None|1795254637|1795254637|1795254638|1795254938|0|0|c21554n1|1795254637|8|cpu=8,mem=4G,node=1,energy=99|we|ird|
"""

VISIBLE = """\
12|N/A|ada|main|PENDING|Dependency|1|4|1|5:00|1795278249|N/A||waits|
15|N/A|root|main|PENDING|Resources|4294901745|8|2|1-02:00:00|1795278249|N/A||we|ird|
16|0|ada|main,share|RUNNING|None|4294901744|4|1|1:00|1795278249|1795278315|c19165n[1-2]|asa-1|
17|N/A|bob|main|PENDING|None|4294901743|1|1|UNLIMITED|1795278250|N/A|||
"""

SACCT = """\
12|REQUEUED|1795255600|1795255600|1795255600|1795255602|0:0|c21554n1|1|0|req
13|NODE_FAIL|1795255600|1795255600|1795255600|1795255602|0:0|c21554n4|1|18446744073709551614|nf
14|NODE_FAIL|1795255600|1795255600|1795255600|1795255602|0:0|c21554n4|1|0|nfr
14|RUNNING|1795255602|1795255608|1795255608|Unknown|0:0|c21554n4|1|0|nfr
12|PENDING|1795255604|1795255610|Unknown|Unknown|0:0|None assigned|0|0|req
15|CANCELLED by 0|1795255610|1795255610|1795255610|1795255612|0:0|c21554n4|1||usr
4|COMPLETED|1795254637|1795254637|1795254638|1795254668|0:0|c21554n1|1|5400000|we|ird
3_2|COMPLETED|1795254637|1795254678|1795254678|1795254698|0:0|c21554n1|1|0|arr
3_[3-4%1]|PENDING|1795254637|Unknown|Unknown|Unknown|0:0|None assigned|0|0|arr
"""

PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL Default=YES QoS=N/A DefaultTime=00:05:00 MaxNodes=UNLIMITED \
MaxTime=1-00:00:00 Nodes=c21554n[1-4] State=UP TotalCPUs=32 TotalNodes=4 TRES=cpu=32,mem=16G,node=4,billing=32

PartitionName=share Default=NO MaxTime=UNLIMITED OverSubscribe=FORCE:4
"""

CONFIGURATION = """\
Configuration data as of 1795254641
AccountingStorageEnforce = associations,limits
AuthInfo                = socket=/run/munge,cred_expire=5
ClusterName             = asa
PriorityFlags           = \n\
PriorityType            = priority/multifactor
SlurmSchedLogFile       = (null)

Slurmctld(primary) at vm is UP
"""


def by_key(records: list[JobRecord]) -> dict[str, JobRecord]:
    return {record.key: record for record in records}


def test_squeue_of_everybodys_jobs() -> None:
    jobs = {job.key: job for job in commands.parse_visible(VISIBLE)}
    assert jobs["16_0"] == VisibleJob(
        "16_0", "asa-1", "ada", "main,share", "RUNNING", "", 4294901744, 4, 1, 60.0, 1795278249, 1795278315,
        ("c19165n1", "c19165n2"),
    )  # fmt: skip
    assert (jobs["15"].name, jobs["15"].nodes, jobs["15"].limit, jobs["15"].end) == ("we|ird", 2, 93600.0, None)
    assert (jobs["12"].reason, jobs["12"].priority) == ("Dependency", 1)
    assert (jobs["17"].name, jobs["17"].limit, jobs["17"].held) == ("", None, ())


def test_squeue() -> None:
    records = by_key(commands.parse_queue(SQUEUE))
    assert list(records) == ["13", "12", "5", "1", "3_1", "3_0", "4"]
    at = 1795255600
    failed = JobRecord("13", "nf", "NODE_FAIL", "NodeDown", at, at, at, at + 2, 0, 0, ("c21554n4",), at, 1, 12345.0)
    assert records["13"] == failed
    assert records["12"].restarts == 1
    assert (records["12"].ages_since, records["5"].ages_since) == (1795255610, None)
    assert (records["1"].exit_code, records["1"].name) == (1, "asa-abcdefghijklmnopqrstuvwxyz-01-1")
    assert (records["3_0"].nodes, records["3_0"].reason) == (("c21554n1", "c21554n2"), "")
    assert (records["12"].energy_j, records["1"].energy_j, records["4"].energy_j) == (None, None, 99.0)
    assert (records["5"].eligible, records["5"].nodes, records["4"].name) == (None, (), "we|ird")
    other = "CLUSTER: asa\n" + SQUEUE.splitlines()[0] + "\n"
    assert [record.key for record in commands.parse_queue(other)] == ["13"]


def test_sacct_has_each_job_once_as_it_was_last() -> None:
    records = by_key(commands.parse_accounting(SACCT))
    assert len(records) == len(commands.parse_accounting(SACCT)) == 8
    assert (records["12"].word, records["12"].restarts, records["12"].submitted) == ("PENDING", 1, 1795255604)
    assert (records["14"].word, records["14"].restarts) == ("RUNNING", 1)
    assert (records["13"].restarts, records["13"].end) == (0, 1795255602)
    assert records["15"].word == "CANCELLED by 0"
    assert (records["4"].name, records["4"].cpus, records["3_4"].cpus) == ("we|ird", 1, None)
    assert [records[key].energy_j for key in ("4", "13", "15", "12")] == [5.4e6, None, None, None]


def test_sacct_of_jobs_that_were_reused_shrunk_and_requeued() -> None:
    reused = SACCT + "15|COMPLETED|1795259999|1795259999|1795259999|1795260000|0:0|c21554n4|1|0|other\n"
    assert {record.name for record in commands.parse_accounting(reused) if record.key == "15"} == {"usr", "other"}
    shrunk = (
        "7|RESIZING|10|10|10|20|0:0|n[1-2]|4|0|a\n7|COMPLETED|10|10|20|30|0:0|n1|2|70|a\n"  # by hand, after the manual
    )
    (now,) = commands.parse_accounting(shrunk)
    assert (now.word, now.restarts, now.cpus) == ("COMPLETED", 0, 2)
    assert now.energy_j == 70.0
    lines = [line for line in SACCT.splitlines() if line.startswith("12|")]
    backwards = commands.parse_accounting("\n".join(reversed(lines)))
    assert [(record.word, record.restarts) for record in backwards] == [("PENDING", 1)]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for reader in (commands.parse_queue, commands.parse_accounting, commands.parse_job_id, commands.parse_version):
        with contextlib.suppress(BackendError):  # anything else fails
            reader(text)


@pytest.mark.parametrize(
    ("parse", "text", "found"),
    [
        (commands.parse_job_id, "464\n", "464"),
        (commands.parse_job_id, "464;asa\n", "464"),
        (commands.parse_job_id, "A notice of the site\n464\n", "464"),
        (commands.parse_version, "slurm-wlm 22.05.8\n", (22, 5, 8)),
        (commands.parse_version, "slurm 24.11.0-0rc1", (24, 11, 0)),  # made by hand
        (commands.parse_version, "slurm 20.11", (20, 11, 0)),  # made by hand
        (commands.parse_limit, "1-00:00:00", 86400.0),
        (commands.parse_limit, "00:05:00", 300.0),
        *((commands.parse_limit, text, None) for text in ("UNLIMITED", "infinite", "N/A")),
        *((commands.parse_time, text, None) for text in ("0", "N/A")),
    ],
)
def test_a_word_that_can_be_read(parse: Callable[[str], object], text: str, found: object) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (commands.parse_job_id, "Submitted batch job 464 to\n", "expected a job id"),
        (commands.parse_limit, "soon", "soon"),
        (commands.parse_time, "2026-11-21T09:44:39", "expected seconds since the epoch"),
        *(
            (reader, "hello world\n", "'hello world'")
            for reader in (commands.parse_queue, commands.parse_accounting, commands.parse_nodes)
        ),
    ],
)
def test_a_word_that_cannot_be_read_is_shown(parse: Callable[[str], object], text: str, said: str) -> None:
    with pytest.raises(BackendError, match=said):
        parse(text)


def test_configuration() -> None:
    found = commands.parse_configuration(CONFIGURATION)
    assert found["AccountingStorageEnforce"] == "associations,limits"
    assert found["AuthInfo"] == "socket=/run/munge,cred_expire=5"
    assert found["PriorityFlags"] == found["SlurmSchedLogFile"] == ""


def test_oneliners() -> None:
    main, share = commands.parse_oneliners(PARTITIONS)
    assert (main["PartitionName"], main["MaxTime"], main["TotalNodes"]) == ("main", "1-00:00:00", "4")
    assert main["TRES"] == "cpu=32,mem=16G,node=4,billing=32"
    assert share["OverSubscribe"] == "FORCE:4"


def test_nodes() -> None:
    text = "main|3|8|4096|(null)|idle\ngpu|2|64|512000+|gpu:a100:4(S:0-1),nvme:1|mix*\n"  # second line made by hand
    assert commands.parse_nodes(text) == [
        NodeGroup("main", 3, 8, 4096 * 2**20, 0, "idle"),
        NodeGroup("gpu", 2, 64, 512000 * 2**20, 4, "mix*", "4 a100"),
    ]


@given(st.integers(0, 255), st.integers(0, 64))
def test_both_forms_of_an_exit_status_agree(code: int, signal: int) -> None:
    assert commands.parse_exit_status(f"{code}:{signal}") == commands.parse_exit_status(str(code << 8 | signal))


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

    def transport(self, cluster: str | None = None) -> SlurmCommands:
        return SlurmCommands(cluster, 5.0, self.environment)


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
    programs.make("squeue", "echo '464|N/A|PENDING|Priority|100|100|N/A|N/A|0|0||N/A|1||token|'")
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


def test_a_job_that_is_not_known_and_no_accounting_are_no_errors(programs: Programs) -> None:
    programs.make("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    programs.make("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert programs.transport().queue(["464"]) == programs.transport().accounting(["464"]) == []


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
    assert programs.transport().name() == "its commands"
    assert programs.transport("other").name() == "its commands, cluster other"


def test_jobs_are_found_by_name(programs: Programs) -> None:
    programs.make("squeue", "echo '464|N/A|PENDING|Priority|100|100|N/A|N/A|0|0||N/A|1||token|'")
    assert [record.key for record in programs.transport().queue_by_name(["token", "other"])] == ["464"]
    assert programs.calls[0].endswith(" --name=token,other")


def test_everybodys_jobs(programs: Programs) -> None:
    programs.make("squeue", "echo '464|3|ada|core|RUNNING|None|4294|8|2|01:00:00|100|3700|n[1-2]|a|b|'")
    (job,) = programs.transport().visible_jobs(["core", "short"])
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


def test_a_failing_sbatch_leaves_its_command_line_and_words_in_the_log(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "asa.backends")
    programs.make("sbatch", "cat >/dev/null; echo 'sbatch: error: invalid account' >&2; exit 1")
    with pytest.raises(SiteRefusal):
        programs.transport().submit(["--account=a b"], "#!/bin/sh\ntrue\n")
    script, failed, meaning = (record.getMessage() for record in caplog.records)
    assert script == "standard input of sbatch:\n#!/bin/sh\ntrue\n"
    said = "ended with exit code 1:\nsbatch: error: invalid account"
    assert failed.startswith(f"sbatch --parsable '--account=a b': {said}")
    assert meaning == "sbatch: refused by the site"
