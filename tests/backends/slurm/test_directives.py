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

from asa.backends.slurm import words
from asa.backends.slurm.words import Flag, job_script, sbatch_options
from asa.backends.slurm.words import SlurmOptions as Options
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, Resources

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
    return sbatch_options(request, Options(flags))


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
    dated = words.sbatch_options(replace(REQUEST, deadline=1795254279.5), Options())
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
    found = sbatch_options(REQUEST, Options(requeue=True))
    assert "--requeue" in found
    assert "--no-requeue" not in found


@pytest.mark.parametrize(
    "name", ["time", "job_name", "job-name", "J", "array", "dependency", "no_requeue", "p", "wrap"]
)
def test_a_flag_that_would_break_a_run_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        Options({name: "x"})


def test_a_flag_of_two_lines_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than one line"):
        Options({"comment": "a\n#SBATCH --uid=root"})


@pytest.mark.parametrize("token", ["", "a b", "a,b", "a|b", "a\n", "ä"])
def test_a_token_that_is_no_job_name_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="token"):
        options(replace(REQUEST, token=token))


def test_percent_signs_in_the_output_are_kept() -> None:
    assert "--output=/tmp/100%%j" in options(replace(REQUEST, output="/tmp/100%j"))


def test_the_program_runs_once_on_each_node() -> None:
    assert "--nodes=2 --ntasks=2 /opt/python -m supervisor 'two words'\n" in job_script(REQUEST, Options())
    single = job_script(replace(REQUEST, resources=Resources(8, nodes=1)), Options())
    assert single.endswith("\nexec /opt/python -m supervisor 'two words'\n")
    assert "srun" not in single


@pytest.mark.parametrize(("nodes", "expected"), [("1", "alone"), ("3", "srun 3")])
def test_where_the_number_of_nodes_is_open_the_script_looks(nodes: str, expected: str, tmp_path: Path) -> None:
    script = job_script(replace(REQUEST, resources=Resources(8), argv=("echo", "alone")), Options())
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nfor word; do case "$word" in --ntasks=*) echo "srun ${word#*=}";; esac; done\n')
    srun.chmod(0o700)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NUM_NODES": nodes}
    done = subprocess.run(["sh"], input=script, env=environment, capture_output=True, text=True, timeout=10)
    assert done.stdout.strip() == expected


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1, max_size=4))
def test_any_argument_survives_the_script(argv: list[str]) -> None:
    script = job_script(replace(REQUEST, resources=Resources(1, nodes=1), argv=tuple(argv)), Options())
    line = script[script.index("\nexec ") + len("\nexec ") :]
    assert shlex.split(line) == argv


def test_options_are_in_the_script_too() -> None:
    script = job_script(REQUEST, Options({"comment": "for a person"}, setup=("module load gcc", "export A=1")))
    lines = script.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[1] == "#SBATCH --job-name=asa-1"
    assert "#SBATCH '--comment=for a person'" in lines
    assert lines[-3:-1] == ["module load gcc", "export A=1"]


def test_a_template() -> None:
    template = "#!/bin/bash -l\n{{directives}}\n#SBATCH --hint=nomultithread\necho {{ cores }} ${HOME}\n{{program}}\n"
    script = job_script(REQUEST, Options(template=template))
    assert script.startswith("#!/bin/bash -l\n#SBATCH --job-name=asa-1\n")
    assert "\necho 16 ${HOME}\nexec srun" in script


def test_every_placeholder_has_a_value() -> None:
    template = "#!/bin/sh\n" + "\n".join(f"{{{{{name}}}}}" for name in words.PLACEHOLDERS)
    assert "{{" not in job_script(REQUEST, Options(template=template))


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
        Options(template=template)
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
