"""Requests as one job array: what is submitted, and what its script does on a node."""

from __future__ import annotations

import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from asa.backends.slurm import array
from asa.backends.slurm.words import Flag, SlurmOptions, local_time
from asa.core.job import Dependency, JobHandle, JobRequest, Resources

NOW = 1000.0
PLAIN = SlurmOptions()


def request(token: str, cores: int = 1, nodes: int | None = None, *, walltime_s: float = 60.0) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), walltime_s, ("echo", token), output=f"/run/{token}", array="a")


THREE = [request("x"), request("y", 8, 2, walltime_s=120.0), request("z", 2)]


def test_an_array_begins_late_enough_for_its_elements_to_age() -> None:
    options, script = array.submission(THREE, PLAIN, NOW)
    assert options[-1] == "--array=0-2%1"
    assert f"--begin={local_time(NOW + array.LEAD_S + 3 * array.EDIT_S)}" in options
    assert "--job-name=x" in options
    assert script == array.script(THREE, PLAIN)
    for begin, expected in ((NOW + 60, NOW + 60), (NOW + 1, NOW + array.LEAD_S + 3 * array.EDIT_S)):
        timed = [replace(item, begin=begin) for item in THREE]
        assert f"--begin={local_time(expected)}" in array.submission(timed, PLAIN, NOW)[0]


def test_each_element_is_edited_the_first_one_last_but_for_what_is_left_of_the_array() -> None:
    assert list(array.edits(THREE, PLAIN)) == [
        (2, ["JobName=z", "StdOut=/run/z", "NumTasks=2", "NumCPUs=2"]),
        (0, ["JobName=x"]),
        (
            1,
            [
                "JobName=y", "StdOut=/run/y", "NumNodes=2-2", "NumTasks=8", "NumCPUs=8", "MinCPUsNode=4",
                "TimeLimit=2",
            ],
        ),
    ]  # fmt: skip
    assert [number for number, _ in array.edits(THREE[:2], PLAIN)] == [0, 1]
    assert list(array.edits(THREE[:1], PLAIN)) == []


def test_an_element_that_leaves_its_nodes_open_says_so() -> None:
    found = dict(array.edits([THREE[1], request("z", 4), replace(THREE[1], token="s")], PLAIN))
    assert found[1][-2:] == ["NumNodes=1-4", "MinCPUsNode=1"]
    assert found[2] == ["JobName=s", "StdOut=/run/y"]


def test_nothing_fixes_the_tasks_of_each_node() -> None:
    """Elements are resized while they wait, and only operators may change the tasks of each node."""
    for other in (THREE[0], replace(THREE[1], token="other")):
        options, script = array.submission([THREE[1], other], PLAIN, NOW)
        assert "--mincpus=4" in options
        assert "#SBATCH --mincpus=4\n" in script
        assert "--ntasks-per-node" not in script.replace("srun --ntasks-per-node=1", "")
        assert not any(option.startswith("--ntasks-per-node") for option in options)


def test_memory_that_the_user_gave_stays() -> None:
    sized = [replace(item, resources=replace(item.resources, memory=2**30 * item.resources.cores)) for item in THREE]
    assert "MinMemoryNode=4096" in dict(array.edits(sized, PLAIN))[1]
    own = dict(array.edits(sized, SlurmOptions({"mem": "0"})))[1]
    assert not any("Memory" in setting for setting in own)


PARENT = Dependency(JobHandle("7", "parent", 0.0))


@pytest.mark.parametrize(
    ("changed", "flags", "words"),
    [
        ({"dependencies": (PARENT,)}, {}, "wait for the same jobs"),
        ({"begin": 5.0}, {}, "same begin time"),
        ({"workdir": "/other"}, {}, "same directory"),
        ({"output": "/run/x"}, {}, "different outputs"),
        ({"resources": Resources(4, gpus=1)}, {}, "same GPUs"),
        ({"resources": Resources(1, memory=2**30)}, {}, "all ask for memory"),
        ({}, {"cpus-per-task": 2}, "one size with the option cpus-per-task"),
        ({}, {"signal": "B:USR1@60"}, "without signal=B:"),
    ],
)
def test_what_an_array_cannot_have(changed: dict[str, object], flags: dict[str, Flag], words: str) -> None:
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
    """A node in a folder: runs elements of an array's script, with a scontrol that says what it is told to."""

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


def test_one_that_failed_may_be_run_again(tmp_path: Path) -> None:
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
def test_one_that_was_killed_left_no_exit_code(tmp_path: Path, controller: str, fine: bool) -> None:
    node = Node(tmp_path, ["true", "echo ran"])
    (tmp_path / "out0.unfinished").touch()
    code, said = node.run(1, controller=controller)
    assert (code, "ran" in said) == ((0, True) if fine else (array.NOT_RUN, False))


def test_one_that_was_cancelled_keeps_nobody_back_whatever_its_exit_code(tmp_path: Path) -> None:
    node = Node(tmp_path, ["exit 15", "echo ran"])
    assert node.run(0)[0] == 15
    assert node.run(1, controller="JobState=CANCELLED") == (0, "ran\n")
    assert node.run(1, controller="JobState=FAILED")[0] == array.NOT_RUN


def test_a_termination_leaves_the_mark_empty(tmp_path: Path) -> None:
    node = Node(tmp_path, ["kill $PPID; sleep 0.2; exit 7", "true"])
    assert node.run(0)[0] == 143
    assert (tmp_path / "out0.unfinished").read_text() == ""


def test_one_that_was_never_run_keeps_nobody_back(tmp_path: Path) -> None:
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
