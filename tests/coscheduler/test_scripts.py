"""Job scripts that were written for sbatch, as jobs of a queue."""

import os
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import AsaError, InvalidInput
from asa.core.units import duration
from coscheduler import scripts
from coscheduler.queuefile import read_commands
from coscheduler.scripts import ELEMENTS_MOST, queue_text


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Writes a script into the working directory: its options, and its body."""
    monkeypatch.chdir(tmp_path)

    def write(options: str, body: str = "true\n", *, name: str = "job.sh", first: str = "#!/bin/bash") -> Path:
        lines = [first, *(f"#SBATCH {line}" for line in options.splitlines())]
        Path(name).write_text("\n".join([*lines, body]))
        return Path(name)

    return write


def jobs(*paths: Path, **options):
    return tomllib.loads(queue_text(paths, **options))["jobs"]


@pytest.mark.parametrize(
    ("options", "cores"),
    [
        ("", 1),
        ("-n 6", 6),
        ("--ntasks=3 -c4", 12),
        ("-N 2 --ntasks-per-node=8", 16),
        ("-N 2-4 --ntasks-per-node=8 --cpus-per-task=2", 32),
        ("--nodes=3", 3),
        ("-n 5 -N 2", 5),
    ],
)
def test_cores_are_tasks_times_cpus(script, options, cores):
    (job,) = jobs(script(f"{options} -t 5"))
    assert job["cores"] == cores


def test_the_file_says_that_wall_times_are_not_enforced(script):
    assert queue_text([script("-t 5")]).startswith(
        "# no job is ended at its wall time, unlike in Slurm: it is to plan with\n"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("1:30:00", 5400), ("1-12", 129600), ("1-12:30", 131400), ("1-00:00:05", 86405)],
)
def test_wall_times_are_read_as_sbatch_reads_them(script, text, seconds):
    (job,) = jobs(script(f"--time={text}"))
    assert duration(job["walltime"]) == seconds


def test_a_script_runs_once_where_and_as_sbatch_runs_it(script, tmp_path):
    """On the first of its nodes, by its own interpreter, in the directory of the submission or the one it names."""
    (tmp_path / "in side").mkdir()
    body = 'shopt -q login_shell && echo "$SLURM_JOB_NAME $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_ARRAY_TASK_ID $PWD"'
    options = "-J 'my job' -n 2 -c 3 -t 5 --array=4,6-8:2%1\n--chdir='in side'"
    path = script(options, body, name="it's.sh", first="#!/bin/bash --login")
    found = jobs(path)
    assert [job["name"] for job in found] == ["my_job-4", "my_job-6", "my_job-8"]
    assert {job["application"] for job in found} == {"my_job"}
    for rank, said in (("0", f"my_job 2 3 6 {tmp_path / 'in side'}\n"), ("1", "")):
        done = subprocess.run(
            ["sh", "-c", found[1]["command"]],
            capture_output=True,
            text=True,
            env=os.environ | {"ASA_RANK": rank},
            cwd="/",
        )
        assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_scripts_make_a_queue_file(script, tmp_path):
    first = script("-t 10 -n 4 --exclusive\n-p core --mail-type=END")
    other = script("-t 20 -n 2", name="other.sh")
    text = queue_text([first, other, first])
    assert "# without a meaning here: --partition=core --mail-type=END" in text
    assert "--comment=\\u0001\\u007f" in queue_text([script("-t 5 --comment=\x01\x7f", name="odd.sh")])
    (tmp_path / "queue.toml").write_text(text)
    queue = read_commands(tmp_path / "queue.toml")
    assert queue.cores == 4
    found = [(job.request.name, job.request.cores, job.request.exclusive) for job in queue.jobs]
    assert found == [("job.sh", 4, True), ("other.sh", 2, False), ("job.sh-2", 4, True)]
    assert read_commands_of(queue_text([other], cores=64)).cores == 64
    with pytest.raises(InvalidInput, match=r"'job\.sh' asks for 4 cores: the machine has 2"):
        queue_text([first], cores=2)


def read_commands_of(text: str):
    Path("again.toml").write_text(text)
    return read_commands("again.toml")


@pytest.mark.parametrize(
    ("options", "body", "said"),
    [
        ("-t 5 --gpus=1", "true", "--gpus=1: only CPUs are shared"),
        ("-t 5 --gres=gpu:2", "true", "--gres=gpu:2: only CPUs"),
        ("-t 5 -d afterok:7", "true", "--dependency=afterok:7: jobs of a queue do not wait"),
        ("-t 5 --begin=now+1hour", "true", "write submit ="),
        ("-t 5 --frob=1", "true", "'--frob=1' is not known$"),
        ("-t 5 -n many", "true", "--ntasks=many: a whole number"),
        ("-t 5 -n 0", "true", "--ntasks=0: a whole number"),
        ("-t 0", "true", "--time=0: a wall time expected"),
        ("-t UNLIMITED", "true", "--time=UNLIMITED: a wall time expected"),
        ("", "true", "no --time: give --walltime"),
        ("-t 5 --array=3-1", "true", "--array=3-1: 1 to"),
        ("-t 5 --array=1,x", "true", "--array=1,x: 1 to"),
        (f"-t 5 --array=0-{ELEMENTS_MOST}", "true", f"1 to {ELEMENTS_MOST} elements"),
        ("-t 5", "cd x\n  srun -n 2 ./prog", "line 4 calls srun"),
        ("-t 5", "x=$(sbatch --parsable next.sh)", "line 3 calls sbatch"),
        ("-J 'x", "true", "No closing quotation"),
    ],
)
def test_what_a_queue_does_not_have_is_refused_with_the_script(script, options, body, said):
    with pytest.raises(InvalidInput, match=f"script job.sh: .*{said}"):
        queue_text([script(options, body)])


def test_a_call_in_a_comment_or_a_word_is_none(script):
    assert jobs(script("-t 5", "# srun it\necho 'my-srun' presrun\n"))


def test_files_that_are_no_scripts(script, monkeypatch):
    with pytest.raises(InvalidInput, match=r"script none\.sh cannot be read: No such file"):
        queue_text(["none.sh"])
    Path("binary").write_bytes(b"\x7fELF\xd0")
    with pytest.raises(InvalidInput, match="script binary cannot be read"):
        queue_text(["binary"])
    Path("\udcff").write_text("#!/bin/sh\n#SBATCH -t 5\n")
    with pytest.raises(InvalidInput, match="a path in UTF-8 expected"):
        queue_text(["\udcff"])
    with pytest.raises(InvalidInput, match="names no interpreter"):
        queue_text([script("-t 5", first="")])
    path = script("-t 5")
    monkeypatch.setattr(scripts, "LARGEST", 10)
    with pytest.raises(InvalidInput, match="longer than"):
        queue_text([path])


def test_scripts_without_a_wall_time_are_given_one(script):
    found = jobs(script(""), script("-t 5", name="other.sh"), walltime="2h")
    assert [duration(job["walltime"]) for job in found] == [7200, 300]


@given(text=st.text(max_size=200))
def test_whatever_the_script_it_is_a_queue_or_refused(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.sh"
    path.write_text("#!/bin/sh\n#SBATCH -t 5\n#SBATCH " + text, encoding="utf-8", errors="replace")
    try:
        found = tomllib.loads(queue_text([path]))
    except AsaError:
        return
    assert all(shlex.split(job["command"]) for job in found["jobs"])
