"""Slurm's records, states, errors and options."""

from __future__ import annotations

import math
import shlex
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.batch import CommandError
from asa.backends.slurm import words
from asa.backends.slurm.words import (
    CLOCK_SKEW_S,
    STATES,
    Flag,
    JobRecord,
    SiteRefusal,
    SlurmOptions,
    handle_of,
    is_same_job,
    job_script,
    job_status,
    key,
    match,
    sbatch_options,
    state_of,
)
from asa.backends.slurm.words import ERRORS as MESSAGES
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, JobState, Resources

HANDLE = JobHandle("7", "token", submitted=1000.0)
RECORD = JobRecord("7", "token", "RUNNING", submitted=1000.0)


def test_the_same_job() -> None:
    assert is_same_job(HANDLE, RECORD)
    assert is_same_job(HANDLE, replace(RECORD, submitted=1000.0 + CLOCK_SKEW_S))


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, key="8"),
        replace(RECORD, key="7_1"),
        replace(RECORD, name="another"),
        replace(RECORD, submitted=1001.0 + CLOCK_SKEW_S),
        replace(RECORD, submitted=999.0 - CLOCK_SKEW_S),
        replace(RECORD, submitted=999.0 - CLOCK_SKEW_S, restarts=1),
    ],
)
def test_another_job(other: JobRecord) -> None:
    assert not is_same_job(HANDLE, other)


def test_a_requeued_job_is_submitted_anew() -> None:
    assert is_same_job(HANDLE, replace(RECORD, submitted=90000.0, restarts=2))


def test_elements_of_an_array_share_id_and_name() -> None:
    handles = [replace(HANDLE, array_index=index) for index in (0, 1)]
    records = [replace(RECORD, key=f"7_{index}", reason=str(index)) for index in (1, 0, 2)]
    assert {handle: record.reason for handle, record in match(handles, records).items()} == {
        handles[0]: "0",
        handles[1]: "1",
    }


def test_a_reused_id_matches_by_name() -> None:
    later = JobHandle("7", "later", submitted=5000.0)
    records = [RECORD, replace(RECORD, name="later", submitted=5000.0)]
    assert match([later, HANDLE], records) == {HANDLE: records[0], later: records[1]}


@given(st.integers(1, 10**9), st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_handle_of_a_record_is_of_that_job(number: int, index: int | None) -> None:
    handle = JobHandle(str(number), "token", 1000.0, index)
    assert handle_of(replace(RECORD, key=key(handle))) == handle


NOW = 130.0
JOB = JobHandle("7", "token", submitted=100.0)


def record(word: str, *, nodes: tuple[str, ...] = ("n1",), reason: str = "") -> JobRecord:
    return JobRecord("7", "token", word, reason, 100.0, 101.0, 110.0, 120.0, 0, 0, nodes)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.PENDING),
        ("CONFIGURING", JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING),
        ("COMPLETED", JobState.COMPLETED),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.NODE_FAIL),
        ("TIMEOUT", JobState.TIMEOUT),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("PREEMPTED", JobState.PREEMPTED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED,COMPLETING", JobState.CANCELLED),  # newer versions, made by hand
        ("PENDING,REQUEUED", JobState.PENDING),  # newer versions, made by hand
        ("RUNNING+POWERING_UP", JobState.RUNNING),  # newer versions, made by hand
    ],
)
def test_words(word: str, state: JobState) -> None:
    assert state_of(record(word)) is state


def test_every_final_state_but_lost_has_a_word() -> None:
    assert {state for state in STATES.values() if state.final} == {s for s in JobState if s.final} - {JobState.LOST}


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1), st.booleans())
def test_an_unknown_word_is_never_final(word: str, holds: bool) -> None:
    told = record(f"NEW_{word}", nodes=("n1",) if holds else ())
    assert state_of(told) is (JobState.RUNNING if holds else JobState.PENDING)
    assert f"unknown state 'NEW_{word}'" in job_status(JOB, told, None, NOW).reason


def test_a_waiting_job_has_a_plan_and_no_start() -> None:
    found = job_status(JOB, record("PENDING", nodes=(), reason="Resources"), None, NOW)
    assert (found.planned, found.started, found.ended, found.exit_code) == (110.0, None, None, None)
    assert (found.reason, found.eligible) == ("Resources", 101.0)


@pytest.mark.parametrize(("since", "told"), [(None, None), (120.0, 120.0), (NOW + 1, NOW + 1), (NOW + 3600, None)])
def test_a_waiting_job_ages_once_its_time_has_come(since: float | None, told: float | None) -> None:
    waiting = replace(record("PENDING", nodes=()), ages_since=since)
    assert job_status(JOB, waiting, None, NOW).ages_since == told
    assert job_status(JOB, replace(waiting, word="RUNNING", nodes=("n1",)), None, NOW).ages_since is None


def test_a_running_job_has_a_start_and_no_end() -> None:
    found = job_status(JOB, record("RUNNING"), None, NOW)
    assert (found.planned, found.started, found.ended, found.exit_code) == (None, 110.0, None, None)
    assert found.nodes == ("n1",)


def test_a_job_cancelled_before_it_started_never_started() -> None:
    found = job_status(JOB, record("CANCELLED", nodes=()), None, NOW)
    assert (found.state, found.started, found.ended, found.exit_code) == (JobState.CANCELLED, None, 120.0, None)


def test_the_user_who_cancelled_is_in_the_reason() -> None:
    assert job_status(JOB, None, record("CANCELLED by 1000"), NOW).reason == "cancelled by uid 1000"


def test_the_controller_knows_best() -> None:
    found = job_status(JOB, record("RUNNING"), record("FAILED"), NOW)
    assert found.state is JobState.RUNNING


def test_the_accounting_tells_how_a_forgotten_job_ended() -> None:
    found = job_status(JOB, None, record("TIMEOUT"), NOW)
    assert (found.state, found.started, found.ended) == (JobState.TIMEOUT, 110.0, 120.0)


@pytest.mark.parametrize("accounted", [None, record("RUNNING"), record("PENDING", nodes=())])
def test_a_forgotten_job_that_nobody_saw_end_is_lost(accounted: JobRecord | None) -> None:
    found = job_status(JOB, None, accounted, NOW)
    assert found.state is JobState.LOST
    assert "job 7 (token)" in found.reason
    assert found.ended is None


def failed(stderr: str, returncode: int = 1) -> CommandError:
    return CommandError(["sbatch"], f"ended with exit code {returncode}", returncode=returncode, stderr=stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:127.0.0.1:"
        "20398: Connection refused\nsacct: error: Sending PersistInit msg: Connection refused\n",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n",  # by hand
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n",  # by hand
        "squeue: error: RPC rate limit exceeded 20 times, sleeping and retrying\n",  # by hand, 23.02 and later
        "slurm_load_jobs error: Zero Bytes were transmitted or received\n",  # by hand
        "scontrol: error: slurm_receive_msg: Slurm backup controller in standby mode\n",  # by hand
    ],
)
def test_no_answer_may_be_tried_again(stderr: str) -> None:
    assert MESSAGES.meaning(failed(stderr)).transient


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            "sbatch: error: invalid partition specified: nosuch\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: nosuch\nBatch job submission failed: Invalid partition name specified",
        ),
        (
            "sbatch: unrecognized option '--nosuchflag'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--nosuchflag'\nTry \"sbatch --help\" for more information",
        ),
        (
            "sbatch: error: Invalid generic resource (gres) specification\n",
            "Invalid generic resource (gres) specification",
        ),
        (
            "sbatch: error: Rejected by the job_submit plugin: choose a project\n",  # by hand
            "Rejected by the job_submit plugin: choose a project",
        ),
    ],
)
def test_a_refusal_has_the_sites_words(stderr: str, reason: str) -> None:
    refusal = MESSAGES.meaning(failed(stderr))
    assert isinstance(refusal, SiteRefusal)
    assert refusal.reason == reason
    assert not refusal.transient


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "sbatch: error: _establish_config_source: failed to fetch config\n"
        "sbatch: fatal: Could not establish a configuration source\n",
        "squeue: error: ClusterName needs to be specified\nsqueue: fatal: Unable to process configuration file\n",
    ],
)
def test_a_broken_installation_is_neither(stderr: str) -> None:
    error = failed(stderr)
    assert MESSAGES.meaning(error) is error
    assert not error.transient


def test_a_command_that_never_ended_stays_as_it_is() -> None:
    late = CommandError(["sbatch"], "no answer within 60 s", transient=True)
    missing = CommandError(["sbatch"], "no program 'sbatch'")
    assert MESSAGES.meaning(late) is late
    assert MESSAGES.meaning(missing) is missing


def test_failures_that_are_none() -> None:
    assert words.is_unknown_job(failed("slurm_load_jobs error: Invalid job id specified\n"))
    assert words.is_no_accounting(failed("Slurm accounting storage is disabled\n"))
    assert MESSAGES.only_ended(
        failed("scancel: error: Kill job error on job id 7: Invalid job id specified\n")
    )  # by hand
    assert MESSAGES.only_ended(failed("Job has already finished for job 24\n"))
    assert not MESSAGES.only_ended(failed(""))
    assert not MESSAGES.only_ended(failed("scancel: error: Kill job error on job id 7: Access/permission denied\n"))


REQUEST = JobRequest(
    token="asa-1",
    resources=Resources(cores=16, nodes=2),
    walltime_s=5400.0,
    argv=("/opt/python", "-m", "supervisor", "two words"),
    workdir="/scratch/run",
    output="/scratch/run/out",
)
PARENT = JobHandle("463", "asa-0", submitted=0.0)


def options(request: JobRequest = REQUEST, **flags: Flag) -> list[str]:
    return sbatch_options(request, SlurmOptions(flags))


def test_a_job_on_two_nodes() -> None:
    assert options() == [
        "--job-name=asa-1",
        "--ntasks=16",
        "--nodes=2",
        "--ntasks-per-node=8",
        "--time=90",
        "--chdir=/scratch/run",
        "--output=/scratch/run/out",
        "--open-mode=append",
        "--no-requeue",
    ]


def test_a_job_anywhere_discards_its_output() -> None:
    found = options(replace(REQUEST, resources=Resources(cores=3), output=None))
    assert "--ntasks=3" in found
    assert "--output=/dev/null" in found
    assert not any(option.startswith("--nodes") for option in found)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (Resources(4, nodes=2, memory=4 * 2**30), "--mem=2048M"),
        (Resources(4, nodes=2, memory=4 * 2**30 + 1), "--mem=2049M"),
        (Resources(4, memory=4 * 2**30), "--mem-per-cpu=1024M"),
        (Resources(4, nodes=2, gpus=4), "--gres=gpu:2"),
        (Resources(4, nodes=2, gpus=3), "--gpus=3"),
        (Resources(4, gpus=3), "--gpus=3"),
    ],
)
def test_memory_and_gpus(resources: Resources, expected: str) -> None:
    assert expected in options(replace(REQUEST, resources=resources))


@given(st.floats(0.001, 1e7))
def test_a_wall_time_is_never_cut(seconds: float) -> None:
    assert words.minutes(seconds) * 60 >= seconds
    assert words.minutes(seconds) * 60 < seconds + 60 or words.minutes(seconds) == 1


@given(st.floats(0, 4e9))
def test_a_begin_time_is_never_early(at: float) -> None:
    text = words.local_time(at)
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(math.ceil(at))) == text


def test_dependencies() -> None:
    array = JobHandle("470", "asa-a", submitted=0.0, array_index=3)
    request = replace(
        REQUEST, dependencies=(Dependency(PARENT), Dependency(array, DependencyKind.AFTER)), begin=1795254279.5
    )
    found = options(request)
    assert "--dependency=afterok:463,after:470_3" in found
    assert "--kill-on-invalid-dep=yes" in found
    assert f"--begin={words.local_time(1795254280)}" in found
    dated = words.sbatch_options(replace(REQUEST, deadline=1795254279.5), SlurmOptions())
    assert f"--deadline={words.local_time(1795254280)}" in dated


def test_only_afterok_can_become_invalid() -> None:
    found = options(replace(REQUEST, dependencies=(Dependency(PARENT, DependencyKind.AFTER_ANY),)))
    assert "--dependency=afterany:463" in found
    assert not any("kill" in option for option in found)


def test_flags_pass_through() -> None:
    found = options(nice=0, exclusive=True, mail_user="a@b", C="fast", account=None)
    assert found[-4:] == ["--nice=0", "--exclusive", "--mail-user=a@b", "-Cfast"]


def test_a_flag_replaces_or_removes_what_asa_gives() -> None:
    request = replace(REQUEST, resources=Resources(4, nodes=2, memory=2**30, gpus=2))
    found = options(request, mem_per_cpu="1G", gpus_per_task=1, ntasks_per_node=False)
    assert {"--mem-per-cpu=1G", "--gpus-per-task=1"} <= set(found)
    assert not any(option.startswith(("--mem=", "--gres", "--ntasks-per-node")) for option in found)


def test_requeue() -> None:
    found = sbatch_options(REQUEST, SlurmOptions(requeue=True))
    assert "--requeue" in found
    assert "--no-requeue" not in found


@pytest.mark.parametrize(
    "name", ["time", "job_name", "job-name", "J", "array", "dependency", "no_requeue", "p", "wrap"]
)
def test_a_flag_that_would_break_a_run_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        SlurmOptions({name: "x"})


def test_a_flag_of_two_lines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than one line"):
        SlurmOptions({"comment": "a\n#SBATCH --uid=root"})


@pytest.mark.parametrize("token", ["", "a b", "a,b", "a|b", "a\n", "ä"])
def test_a_token_that_is_no_job_name_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="token"):
        options(replace(REQUEST, token=token))


def test_percent_signs_in_the_output_are_kept() -> None:
    assert "--output=/tmp/100%%j" in options(replace(REQUEST, output="/tmp/100%j"))


def test_the_program_runs_once_on_each_node() -> None:
    assert "--nodes=2 --ntasks=2 /opt/python -m supervisor 'two words'\n" in job_script(REQUEST, SlurmOptions())
    single = job_script(replace(REQUEST, resources=Resources(8, nodes=1)), SlurmOptions())
    assert single.endswith("\nexec /opt/python -m supervisor 'two words'\n")
    assert "srun" not in single


@pytest.mark.parametrize(("nodes", "expected"), [("1", "alone"), ("3", "srun 3")])
def test_where_the_number_of_nodes_is_open_the_script_looks(nodes: str, expected: str, tmp_path: Path) -> None:
    script = job_script(replace(REQUEST, resources=Resources(8), argv=("echo", "alone")), SlurmOptions())
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nfor word; do case "$word" in --ntasks=*) echo "srun ${word#*=}";; esac; done\n')
    srun.chmod(0o700)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NUM_NODES": nodes}
    done = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, timeout=10)
    assert done.stdout.strip() == expected


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1, max_size=4))
def test_any_argument_survives_the_script(argv: list[str]) -> None:
    script = job_script(replace(REQUEST, resources=Resources(1, nodes=1), argv=tuple(argv)), SlurmOptions())
    line = script[script.index("\nexec ") + len("\nexec ") :]
    assert shlex.split(line) == argv


def test_options_are_in_the_script_too() -> None:
    script = job_script(REQUEST, SlurmOptions({"comment": "for a person"}, setup=("module load gcc", "export A=1")))
    lines = script.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[1] == "#SBATCH --job-name=asa-1"
    assert "#SBATCH '--comment=for a person'" in lines
    assert lines[-3:-1] == ["module load gcc", "export A=1"]


def test_a_template() -> None:
    template = "#!/bin/bash -l\n{{directives}}\n#SBATCH --hint=nomultithread\necho {{ cores }} ${HOME}\n{{program}}\n"
    script = job_script(REQUEST, SlurmOptions(template=template))
    assert script.startswith("#!/bin/bash -l\n#SBATCH --job-name=asa-1\n")
    assert "\necho 16 ${HOME}\nexec srun" in script


def test_every_placeholder_has_a_value() -> None:
    template = "#!/bin/sh\n" + "\n".join(f"{{{{{name}}}}}" for name in words.PLACEHOLDERS)
    assert "{{" not in job_script(REQUEST, SlurmOptions(template=template))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("#!/bin/sh\necho hello\n", r"no \{\{program\}\}"),
        ("#!/bin/sh\n{{programm}}\n", "did you mean 'program'"),
        ("{{program}}\n", "expected a line like '#!/bin/sh'"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        SlurmOptions(template=template)
    assert isinstance(caught.value, UnknownName) == ("mean" in message)


def test_changes() -> None:
    changes = JobChanges(
        walltime_s=61.0, resources=Resources(4, nodes=2, memory=2**31), dependencies=(Dependency(PARENT),), begin=2000.0
    )
    assert words.scontrol_settings(changes, now=1000.0) == [
        "NumNodes=2-2",
        "NumTasks=4",
        "NumCPUs=4",
        "TasksPerNode=2",
        "MinCPUsNode=2",
        "MinMemoryNode=1024",
        "TimeLimit=2",
        "Dependency=afterok:463",
        f"StartTime={words.local_time(2000.0)}",
    ]


def test_a_begin_that_is_past_is_now() -> None:
    assert words.scontrol_settings(JobChanges(begin=1.0, dependencies=()), now=2.0) == ["Dependency=", "StartTime=now"]
    assert words.scontrol_settings(JobChanges(), now=2.0) == []


def test_gpus_of_a_waiting_job_stay() -> None:
    with pytest.raises(InvalidInput, match="GPUs"):
        words.scontrol_settings(JobChanges(resources=Resources(gpus=1)), now=0.0)
