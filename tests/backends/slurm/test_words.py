"""Slurm's records, states, errors and options; requests as one job array, and what its script does on a node."""

from __future__ import annotations

import math
import re
import shlex
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.batch import CommandError
from asa.backends.slurm import array, words
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
    local_time,
    match,
    sbatch_options,
    state_of,
)
from asa.backends.slurm.words import ERRORS as MESSAGES
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, JobState, Resources

HANDLE = JobHandle("7", "token", submitted=1000.0)
RECORD = JobRecord("7", "token", "RUNNING", submitted=1000.0)


@pytest.mark.parametrize(
    ("record", "same"),
    [
        (RECORD, True),
        (replace(RECORD, submitted=1000.0 + CLOCK_SKEW_S), True),
        (replace(RECORD, submitted=90000.0, restarts=2), True),  # requeued
        (replace(RECORD, key="8"), False),
        (replace(RECORD, key="7_1"), False),
        (replace(RECORD, name="another"), False),
        (replace(RECORD, submitted=1001.0 + CLOCK_SKEW_S), False),
        (replace(RECORD, submitted=999.0 - CLOCK_SKEW_S), False),
        (replace(RECORD, submitted=999.0 - CLOCK_SKEW_S, restarts=1), False),
    ],
)
def test_which_records_are_of_the_same_job(record: JobRecord, same: bool) -> None:
    assert is_same_job(HANDLE, record) is same


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
        ("CANCELLED,COMPLETING", JobState.RUNNING),  # of slurmrestd from 23.11 on
        ("TIMEOUT,REQUEUED", JobState.PENDING),
        ("PENDING,REQUEUED,COMPLETING", JobState.RUNNING),
        ("RUNNING,CONFIGURING", JobState.RUNNING),
        ("FAILED,LAUNCH_FAILED", JobState.FAILED),
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
    found = record(f"NEW_{word}", nodes=("n1",) if holds else ())
    assert state_of(found) is (JobState.RUNNING if holds else JobState.PENDING)
    assert f"unknown state 'NEW_{word}'" in job_status(JOB, found, None, NOW).reason


@pytest.mark.parametrize(
    ("queued", "accounted", "state", "times"),
    [
        (record("PENDING", nodes=(), reason="Resources"), None, JobState.PENDING, (110.0, None, None)),
        (record("RUNNING"), None, JobState.RUNNING, (None, 110.0, None)),
        (record("CANCELLED", nodes=()), None, JobState.CANCELLED, (None, None, 120.0)),
        (record("RUNNING"), record("FAILED"), JobState.RUNNING, (None, 110.0, None)),  # the controller knows best
        (None, record("TIMEOUT"), JobState.TIMEOUT, (None, 110.0, 120.0)),
    ],
)
def test_status_from_the_queue_and_the_accounting(
    queued: JobRecord | None,
    accounted: JobRecord | None,
    state: JobState,
    times: tuple[float | None, float | None, float | None],
) -> None:
    found = job_status(JOB, queued, accounted, NOW)
    assert (found.state, (found.planned, found.started, found.ended)) == (state, times)
    if state is not JobState.TIMEOUT:
        assert found.exit_code is None
    if state is JobState.PENDING:
        assert (found.reason, found.eligible) == ("Resources", 101.0)
    if state is JobState.RUNNING:
        assert found.nodes == ("n1",)


@pytest.mark.parametrize(("since", "shown"), [(None, None), (120.0, 120.0), (NOW + 1, NOW + 1), (NOW + 3600, None)])
def test_a_waiting_job_ages_once_its_time_has_come(since: float | None, shown: float | None) -> None:
    waiting = replace(record("PENDING", nodes=()), ages_since=since)
    assert job_status(JOB, waiting, None, NOW).ages_since == shown
    assert job_status(JOB, replace(waiting, word="RUNNING", nodes=("n1",)), None, NOW).ages_since is None


@pytest.mark.parametrize(
    ("record", "cores"),
    [
        (replace(record("RUNNING"), cpus=8), 8),
        (replace(record("COMPLETED"), cpus=8), 8),
        (replace(record("PENDING", nodes=()), cpus=8), None),  # what it asks for
        (replace(record("COMPLETING"), cpus=8), None),  # those that are not free again
        (replace(record("CANCELLED,COMPLETING"), cpus=8), None),
    ],
)
def test_the_cores_of_a_job_are_those_it_has(record: JobRecord, cores: int | None) -> None:
    assert job_status(JOB, record, None, NOW).cores == cores


@pytest.mark.parametrize(
    ("word", "nodes", "energy_j"), [("COMPLETED", ("n1",), 7.0), ("RUNNING", ("n1",), None), ("CANCELLED", (), None)]
)
def test_what_a_job_drew_is_known_once_it_has_run(word: str, nodes: tuple[str, ...], energy_j: float | None) -> None:
    assert job_status(JOB, replace(record(word, nodes=nodes), energy_j=7.0), None, NOW).energy_j == energy_j


def test_the_user_who_cancelled_is_in_the_reason() -> None:
    assert job_status(JOB, None, record("CANCELLED by 1000"), NOW).reason == "cancelled by uid 1000"


@pytest.mark.parametrize("accounted", [None, record("RUNNING"), record("PENDING", nodes=())])
def test_a_forgotten_job_that_was_not_seen_to_end_is_lost(accounted: JobRecord | None) -> None:
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
    ("lines", "reasons"),
    [
        (
            [
                "sbatch: error: invalid partition specified: nosuch",
                "sbatch: error: Batch job submission failed: Invalid partition name specified",
            ],
            ["invalid partition specified: nosuch", "Batch job submission failed: Invalid partition name specified"],
        ),
        (
            ["sbatch: unrecognized option '--nosuchflag'", 'Try "sbatch --help" for more information'],
            ["unrecognized option '--nosuchflag'", 'Try "sbatch --help" for more information'],
        ),
        (["sbatch: error: Rejected by the job_submit plugin: choose a project"],  # by hand
         ["Rejected by the job_submit plugin: choose a project"]),
    ],
)  # fmt: skip
def test_a_refusal_has_the_sites_words(lines: list[str], reasons: list[str]) -> None:
    refusal = MESSAGES.meaning(failed("\n".join([*lines, ""])))
    assert isinstance(refusal, SiteRefusal) and not refusal.transient
    assert refusal.reason == "\n".join(reasons)


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
        "--job-name=asa-1", "--ntasks=16", "--nodes=2", "--ntasks-per-node=8", "--time=90", "--chdir=/scratch/run",
        "--output=/scratch/run/out", "--open-mode=append", "--no-requeue",
    ]  # fmt: skip


def test_a_job_anywhere_discards_its_output() -> None:
    found = options(replace(REQUEST, resources=Resources(cores=3), output=None))
    assert {"--ntasks=3", "--output=/dev/null", "--no-requeue"} <= set(found)
    assert not any(option.startswith("--nodes") for option in found)
    assert "--output=/tmp/100%%j" in options(replace(REQUEST, output="/tmp/100%j"))
    again = sbatch_options(REQUEST, SlurmOptions(requeue=True))
    assert "--requeue" in again and "--no-requeue" not in again


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (Resources(4, nodes=2, memory=4 * 2**30), "--mem=2048M"),
        (Resources(4, nodes=2, memory=4 * 2**30 + 1), "--mem=2049M"),
        (Resources(4, memory=4 * 2**30), "--mem-per-cpu=1024M"),
        (Resources(4, nodes=2, gpus=4), "--gres=gpu:2"),
        (Resources(4, nodes=2, gpus=3), "--gres=gpu:2"),
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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *(
            (name, "x", "cannot be passed through")
            for name in ("time", "job_name", "job-name", "J", "array", "dependency", "no_requeue", "p", "wrap")
        ),
        ("comment", "a\n#SBATCH --uid=root", "more than one line"),
    ],
)
def test_a_flag_that_would_break_a_run_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        SlurmOptions({name: value})


@pytest.mark.parametrize("token", ["", "a b", "a,b", "a|b", "a\n", "ä"])
def test_a_token_that_is_no_job_name_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="token"):
        options(replace(REQUEST, token=token))


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
        "NumNodes=2-2", "NumTasks=4", "NumCPUs=4", "CPUsPerTask=1", "TasksPerNode=2", "MinCPUsNode=2",
        "MinMemoryNode=1024", "TimeLimit=2", "Dependency=afterok:463", f"StartTime={words.local_time(2000.0)}",
    ]  # fmt: skip
    assert words.scontrol_settings(JobChanges(begin=1.0, dependencies=()), now=2.0) == ["Dependency=", "StartTime=now"]
    assert words.scontrol_settings(JobChanges(), now=2.0) == []
    with pytest.raises(InvalidInput, match="GPUs"):
        words.scontrol_settings(JobChanges(resources=Resources(gpus=1)), now=0.0)


# Arrays.


BEGUN = 1000.0
PLAIN = SlurmOptions()


def element(token: str, cores: int = 1, nodes: int | None = None, *, walltime_s: float = 60.0) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), walltime_s, ("echo", token), output=f"/run/{token}", array="a")


THREE = [element("x"), element("y", 8, 2, walltime_s=120.0), element("z", 2)]


def test_an_array_begins_late_enough_for_its_elements_to_age() -> None:
    options, script = array.submission(THREE, PLAIN, BEGUN)
    assert options[-1] == "--array=0-2%1"
    assert f"--begin={local_time(BEGUN + array.LEAD_S + 3 * array.EDIT_S)}" in options
    assert "--job-name=x" in options
    assert script == array.script(THREE, PLAIN)
    for begin, expected in ((BEGUN + 60, BEGUN + 60), (BEGUN + 1, BEGUN + array.LEAD_S + 3 * array.EDIT_S)):
        timed = [replace(item, begin=begin) for item in THREE]
        assert f"--begin={local_time(expected)}" in array.submission(timed, PLAIN, BEGUN)[0]


def test_the_first_element_is_edited_after_those_between_and_the_last_is_what_is_left_of_the_array() -> None:
    assert list(array.edits(THREE, PLAIN)) == [
        (
            1,
            [
                "JobName=y", "StdOut=/run/y", "NumNodes=2-2", "NumTasks=8", "NumCPUs=8", "CPUsPerTask=1",
                "MinCPUsNode=4", "TimeLimit=2",
            ],
        ),
        (0, ["JobName=x"]),
        (2, ["JobName=z", "StdOut=/run/z", "NumTasks=2", "NumCPUs=2"]),
    ]  # fmt: skip
    assert [number for number, _ in array.edits(THREE[:2], PLAIN)] == [0, 1]
    assert list(array.edits(THREE[:1], PLAIN)) == []


def test_an_element_that_leaves_its_nodes_open_says_so() -> None:
    found = dict(array.edits([THREE[1], element("z", 4), replace(THREE[1], token="s")], PLAIN))
    assert found[1][-2:] == ["NumNodes=1-4", "MinCPUsNode=1"]
    assert found[2] == ["JobName=s", "StdOut=/run/y"]


def test_elements_of_units_of_their_own() -> None:
    first = replace(element("x"), resources=Resources(8, unit=4))
    second = replace(element("y"), resources=Resources(6, unit=2))
    options, script = array.submission([first, second], PLAIN, BEGUN)
    assert {"--ntasks=2", "--cpus-per-task=4"} <= set(options)
    assert dict(array.edits([first, second], PLAIN))[1] == [
        "JobName=y", "StdOut=/run/y", "NumNodes=1-3", "NumTasks=3", "NumCPUs=6", "CPUsPerTask=2", "MinCPUsNode=2",
    ]  # fmt: skip
    assert 'SLURM_NTASKS="${tasks:-3}"' in script and "unset SLURM_NTASKS_PER_NODE" in script


def test_units_are_tasks_wherever_there_are_cores() -> None:
    request = replace(REQUEST, resources=Resources(8, memory=8 << 30, unit=2))
    options = sbatch_options(request, PLAIN)
    assert [item for item in options if re.match("--(ntasks|cpus|nodes|mem)", item)] == [
        "--ntasks=4", "--cpus-per-task=2", "--mem-per-cpu=1024M",
    ]  # fmt: skip
    program = job_script(request, PLAIN).partition("\nunset ")[2]
    assert program.startswith("SLURM_CPUS_PER_TASK SRUN_CPUS_PER_TASK"), "srun is to start one program on each node"
    assert '--nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES"' in program


def test_nothing_fixes_the_tasks_of_each_node() -> None:
    """Elements are resized while they wait, and only operators may change the tasks of each node."""
    for other in (THREE[0], replace(THREE[1], token="other")):
        options, script = array.submission([THREE[1], other], PLAIN, BEGUN)
        assert "--mincpus=4" in options
        assert "#SBATCH --mincpus=4\n" in script
        assert "--ntasks-per-node" not in script.replace("srun --ntasks-per-node=1", "")
        assert not any(option.startswith("--ntasks-per-node") for option in options)


def test_memory_that_the_user_gave_stays() -> None:
    sized = [replace(item, resources=replace(item.resources, memory=2**30 * item.resources.cores)) for item in THREE]
    assert "MinMemoryNode=4096" in dict(array.edits(sized, PLAIN))[1]
    own = dict(array.edits(sized, SlurmOptions({"mem": "0"})))[1]
    assert not any("Memory" in setting for setting in own)


AHEAD = Dependency(JobHandle("7", "parent", 0.0))


@pytest.mark.parametrize(
    ("changed", "flags", "words"),
    [
        ({"dependencies": (AHEAD,)}, {}, "wait for the same jobs"),
        ({"begin": 5.0}, {}, "same begin time"),
        ({"workdir": "/other"}, {}, "same directory"),
        ({"output": "/run/x"}, {}, "different outputs"),
        ({"resources": Resources(4, gpus=1)}, {}, "same GPUs"),
        ({"resources": Resources(1, memory=2**30)}, {}, "all ask for memory"),
        ({}, {"cpus-per-task": 2}, "one size with the option cpus-per-task"),
        ({}, {"signal": "B:USR1@60"}, "without signal=B:"),
    ],
)
def test_requests_that_cannot_be_one_array(changed: dict[str, object], flags: dict[str, Flag], words: str) -> None:
    wrong = [THREE[0], replace(THREE[1], **changed), THREE[2]]  # type: ignore[arg-type]
    assert words in (array.problem(wrong, SlurmOptions(flags)) or "")
    assert array.problem(THREE, PLAIN) is None


def test_gpus_and_memory_of_the_users_own() -> None:
    wrong = [THREE[0], replace(THREE[1], resources=Resources(4, gpus=1, memory=2**30))]
    assert array.problem(wrong, SlurmOptions({"gres": "gpu:1", "mem": "1G"})) is None
    alike = [
        replace(THREE[0], resources=Resources(4, nodes=1, gpus=2)),
        replace(THREE[1], resources=Resources(8, nodes=2, gpus=4)),
    ]
    assert array.problem(alike, PLAIN) is None, "two on each node"


@pytest.mark.parametrize(
    ("first", "fine"), [("#!/bin/bash -l", True), ("#!/usr/bin/env zsh", True), ("#!/bin/csh", False)]
)
def test_a_template_must_be_for_a_shell(first: str, fine: bool) -> None:
    problem = array.problem(THREE, SlurmOptions(template=f"{first}\n{{{{program}}}}\n"))
    assert (problem is None) == fine
    assert fine or (problem is not None and first in problem)


class Node:
    """A node in a folder: runs elements of an array's script, with a scontrol that prints what a test gives it."""

    def __init__(self, folder: Path, commands: list[str], options: SlurmOptions = PLAIN) -> None:
        self.folder = folder
        requests = [
            JobRequest(f"t{at}", Resources(at + 1, 1), 60.0, ("sh", "-c", command), output=f"out{at}", array="a")
            for at, command in enumerate(commands)
        ]
        self.script = folder / "script.sh"
        self.script.write_text(array.script(requests, options))

    def run(self, element: int, *, controller: str = "") -> tuple[int, str]:
        scontrol = self.folder / "scontrol"
        scontrol.write_text(f"#!/bin/sh\necho '{controller}'\n")
        scontrol.chmod(0o755)
        variables = {"SLURM_ARRAY_TASK_ID": str(element), "SLURM_ARRAY_JOB_ID": "7", "SLURM_NTASKS": "1"}
        path = f"{self.folder}:/usr/bin:/bin"
        done = subprocess.run(
            ["sh", str(self.script)], cwd=self.folder, env=variables | {"PATH": path},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30,
        )  # fmt: skip
        return done.returncode, done.stdout

    def marks(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.unfinished"))


def test_each_element_runs_its_own_program_in_its_own_environment(tmp_path: Path) -> None:
    node = Node(tmp_path, ["echo $SLURM_JOB_NAME $SLURM_NTASKS"] * 3)
    assert [node.run(at) for at in range(3)] == [(0, "t0 1\n"), (0, "t1 2\n"), (0, "t2 3\n")]
    assert node.marks() == []


def test_an_element_is_not_run_after_one_that_failed(tmp_path: Path) -> None:
    node = Node(tmp_path, ["exit 3", "echo never", "echo never"])
    assert node.run(0)[0] == 3
    for element in (1, 2):
        code, said = node.run(element)
        assert code == array.NOT_RUN
        assert said == "not run: element 0 of this job array did not end well (exit code 3), see out0.unfinished\n"
    (mark,) = node.marks()
    assert stat.S_IMODE((tmp_path / mark).stat().st_mode) == 0o600


def test_a_failed_element_may_be_run_again(tmp_path: Path) -> None:
    node = Node(tmp_path, ["test -e mended", "echo ran"])
    assert node.run(0)[0] == 1
    (tmp_path / "mended").touch()
    assert node.run(0)[0] == 0
    assert node.run(1) == (0, "ran\n")


@pytest.mark.parametrize(
    ("controller", "fine"),
    [
        ("JobId=7 ArrayTaskId=0 JobState=RUNNING Reason=None", True),  # the throttle let both run
        ("JobId=7 ArrayTaskId=0 JobState=PENDING Reason=BeginTime", True),  # requeued
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", True),
        ("JobId=7 ArrayTaskId=0 JobState=NODE_FAIL Reason=NodeDown", False),
        ("JobId=7 ArrayTaskId=0 JobState=TIMEOUT Reason=TimeLimit", False),
        ("JobId=7 ArrayTaskId=0 JobState=CANCELLED Reason=None", True),
        ("slurm_load_jobs error: Invalid job id specified", False),
    ],
)
def test_a_killed_element_leaves_no_exit_code(tmp_path: Path, controller: str, fine: bool) -> None:
    node = Node(tmp_path, ["true", "echo ran"])
    (tmp_path / "out0.unfinished").touch()
    code, said = node.run(1, controller=controller)
    assert (code, "ran" in said) == ((0, True) if fine else (array.NOT_RUN, False))


def test_a_cancelled_element_keeps_no_other_back(tmp_path: Path) -> None:
    node = Node(tmp_path, ["exit 15", "echo ran"])
    assert node.run(0)[0] == 15
    assert node.run(1, controller="JobState=CANCELLED") == (0, "ran\n")
    assert node.run(1, controller="JobState=FAILED")[0] == array.NOT_RUN


def test_a_termination_leaves_the_mark_empty(tmp_path: Path) -> None:
    node = Node(tmp_path, ["kill $PPID; sleep 0.2; exit 7", "true"])
    assert node.run(0)[0] == 143
    assert (tmp_path / "out0.unfinished").read_text() == ""


def test_an_element_that_never_ran_keeps_no_other_back(tmp_path: Path) -> None:
    assert Node(tmp_path, ["true", "echo ran"]).run(1, controller="JobState=CANCELLED") == (0, "ran\n")


def test_a_template_is_filled_in_for_each_element(tmp_path: Path) -> None:
    lines = ["#!/bin/sh", "{{directives}}", "#SBATCH --hint=nomultithread", "# mine"]
    lines += ["cat <<END", "{{token}} {{cores}}", "END", "{{setup}}", "{{program}}", ""]
    text = "\n".join(lines)
    node = Node(tmp_path, ["echo $A"] * 2, SlurmOptions(template=text, setup=("export A=b",)))
    assert node.run(1) == (0, "t1 2\nb\n")
    head = node.script.read_text().partition("set --")[0]
    assert "#SBATCH --job-name=t0" in head
    assert "#SBATCH --hint=nomultithread" in head
    assert "job-name=t1" not in node.script.read_text()
