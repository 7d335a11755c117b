"""Jobs in slurmrestd's words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from asa.backends.slurm.rest_job import PROPERTIES, changes, read, submission
from asa.backends.slurm.words import SlurmOptions, job_script, local_time, sbatch_options, scontrol_settings
from asa.core.errors import InvalidInput
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, Resources

BEGIN = 1800000000.0
PARENT = JobHandle("7", "parent", 0.0)
REQUEST = JobRequest(
    "token",
    Resources(8, nodes=2, memory=2**30, gpus=2),
    5400.0,
    ("true",),
    workdir="/data",
    output="/data/out%1",
    dependencies=(Dependency(PARENT, DependencyKind.AFTER_OK),),
    begin=BEGIN,
)


def job(version: int, *options: str, script: str = "#!/bin/sh\ntrue\n", **inherited: str) -> dict[str, object]:
    posted = submission(options, script, inherited, version)
    assert posted["script"] == script
    found = posted["job"]
    assert isinstance(found, dict)
    return found


def test_a_whole_request_in_the_words_of_22_05() -> None:
    options = SlurmOptions({"partition": "core", "nice": 10, "exclusive": True})
    posted = submission(sbatch_options(REQUEST, options), job_script(REQUEST, options), {"A": "1"}, 38)
    assert posted["job"] == {
        "name": "token", "tasks": "8", "nodes": "2", "tasks_per_node": "4", "memory_per_node": "512M", "gres": "gpu:1",
        "time_limit": "90", "current_working_directory": "/data", "standard_output": "/data/out%%1",
        "open_mode": "append", "no_requeue": True, "dependency": "afterok:7", "kill_on_invalid_dependency": "yes",
        "begin_time": f"uts{BEGIN:.0f}", "partition": "core", "nice": "10", "exclusive": "exclusive",
        "environment": {"A": "1"},
    }  # fmt: skip


def test_a_whole_request_with_typed_values() -> None:
    options = SlurmOptions({"partition": "core", "nice": 10, "exclusive": True})
    posted = submission(sbatch_options(REQUEST, options), job_script(REQUEST, options), {"A": "1"}, 40)
    assert posted["job"] == {
        "name": "token", "tasks": 8, "minimum_cpus": 8, "nodes": "2", "tasks_per_node": 4,
        "memory_per_node": {"set": True, "infinite": False, "number": 512}, "tres_per_node": "gres/gpu:1",
        "time_limit": {"set": True, "infinite": False, "number": 90}, "current_working_directory": "/data",
        "standard_output": "/data/out%%1", "open_mode": ["APPEND"], "requeue": False, "dependency": "afterok:7",
        "flags": ["KILL_INVALID_DEPENDENCY"], "begin_time": {"set": True, "infinite": False, "number": int(BEGIN)},
        "partition": "core", "nice": 10, "shared": ["none"], "environment": ["A=1"],
    }  # fmt: skip


def test_lines_of_the_script_count_and_options_win() -> None:
    script = (
        "#!/bin/bash -l\n\n# words\n#SBATCH --nice=5 -C 'big node'\n#SBATCH -p core  # why\n#SBATCHX --qos=no\n"
        "echo hello\n#SBATCH --qos=late\n"
    )
    found = job(38, "--nice=10", script=script)
    assert (found["nice"], found["constraints"], found["partition"]) == ("10", "big node", "core")
    assert "qos" not in found


def test_a_relative_directory_is_this_process_s() -> None:
    assert job(38, "--chdir=data")["current_working_directory"] == str(Path.cwd() / "data")


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ("ALL", {"A": "1", "B": "2"}),
        ("ALL,C=3", {"A": "1", "B": "2", "C": "3"}),
        ("A", {"A": "1", "SLURM_GET_USER_ENV": "1"}),
        ("NONE", {"SLURM_GET_USER_ENV": "1", "SLURM_EXPORT_ENV": "NONE"}),
    ],
)
def test_the_environment(export: str, expected: dict[str, str]) -> None:
    found = job(38, f"--export={export}", A="1", B="2")
    assert found["environment"] == expected
    assert "export" not in found


def test_options_without_their_value() -> None:
    assert read(["--nice", "--exclusive", "-k", "--exclusive=user", "-s"]) == {
        "nice": "100", "exclusive": "user", "no-kill": "set", "oversubscribe": "",
    }  # fmt: skip


def test_several_generic_resources_share_a_property() -> None:
    assert job(40, "--gres=nvme:1,gpu:2", "--gpus-per-node=1")["tres_per_node"] == "gres/nvme:1,gres/gpu:2,gres/gpu:1"


@pytest.mark.parametrize("option", ["--no-such-flag", "-Z", "--nosuch=3", "word"])
def test_what_is_not_known_is_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match="not known to slurmrestd"):
        job(38, option)


def test_what_a_version_cannot_say_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--contiguous cannot be given through slurmrestd v0\.0\.38: leave out"):
        job(38, "--contiguous")
    assert job(40, "--contiguous")["contiguous"] is True
    with pytest.raises(InvalidInput, match=r"--signal cannot be given through slurmrestd v0\.0\.40"):
        job(40, "--signal=USR1@60")


@pytest.mark.parametrize("option", ["--mem=lots", "--time-min=1:30:00", "--nice=x"])
def test_a_value_that_cannot_be_converted(option: str) -> None:
    with pytest.raises(InvalidInput, match="expected a plain number"):
        job(40, option)


@pytest.mark.parametrize(("text", "mib"), [("2G", 2048), ("512", 512), ("512M", 512), ("2048K", 2), ("1T", 2**20)])
def test_memory(text: str, mib: int) -> None:
    assert job(40, f"--mem={text}")["memory_per_node"] == {"set": True, "infinite": False, "number": mib}


def test_no_two_options_have_one_letter() -> None:
    letters = [known.letter for known in PROPERTIES.values() if known.letter]
    assert len(letters) == len(set(letters))


def test_changes_of_22_05() -> None:
    after = (Dependency(PARENT, DependencyKind.AFTER),)
    size = Resources(8, nodes=2, memory=2**30)
    wanted = JobChanges(resources=size, walltime_s=600.0, dependencies=after, begin=BEGIN)
    assert changes(scontrol_settings(wanted, 0.0), 38) == {
        "tasks": "8", "cpus_per_task": 1, "nodes": "2-2", "tasks_per_node": "4", "minimum_cpus_per_node": "4",
        "memory_per_node": "512", "time_limit": "10", "dependency": "after:7", "begin_time": f"uts{BEGIN:.0f}",
    }  # fmt: skip
    assert changes(scontrol_settings(JobChanges(dependencies=(), begin=0.0), 1.0), 38) == {
        "dependency": "",
        "begin_time": "now",
    }


def test_changes_that_only_commands_can_make() -> None:
    assert changes(["ExcNodeList=n[1-4]"], 38) == {"exclude_nodes": "n[1-4]"}
    with pytest.raises(InvalidInput, match="JobName of a job cannot be changed through slurmrestd: leave out rest"):
        changes(["JobName=other"], 38)


def test_changes_with_typed_values() -> None:
    wanted = JobChanges(resources=Resources(8, memory=2**30), walltime_s=600.0, begin=0.0)
    assert changes(scontrol_settings(wanted, 1.0), 40) == {
        "tasks": 8, "minimum_cpus": 8, "memory_per_cpu": {"set": True, "infinite": False, "number": 128},
        "time_limit": {"set": True, "infinite": False, "number": 10},
        "begin_time": {"set": True, "infinite": False, "number": 1},
    }  # fmt: skip


def test_a_begin_time_survives_its_way() -> None:
    now = int(time.time())
    assert job(38, f"--begin={local_time(now)}")["begin_time"] == f"uts{now}"
