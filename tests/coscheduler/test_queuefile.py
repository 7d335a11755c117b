import pytest

from asa.core.errors import InvalidInput
from coscheduler.queuefile import read_commands, read_queue

QUEUE = """
cores = 16
[[jobs]]
name = "host"
application = "statistics"
cores = 16
walltime = "1h"
run_time = "30m"
cpu = "25%"
memory = 0.05
[[jobs]]
cores = 8
walltime = "20m"
submit = "5m"
exclusive = true
phases = [{time = "2m", cpu = 0.125}, {time = "8m"}]
"""


def write(tmp_path, text):
    path = tmp_path / "queue.toml"
    path.write_text(text)
    return path


def test_a_queue(tmp_path):
    queue = read_queue(write(tmp_path, QUEUE))
    host, other = queue.loads
    assert (queue.cores, queue.contention) == (16, "paper-like")
    assert host.request.application == "statistics"
    assert host.alone_s == 1800
    assert host.cpu_s == pytest.approx(0.25 * 16 * 1800)
    assert other.request.name == other.request.application == "job-2"
    assert (other.request.submitted, other.request.exclusive) == (300, True)
    assert [phase.parallel for phase in other.phases] == [False, True]


def test_the_papers_queue(tmp_path):
    queue = read_queue(write(tmp_path, "cores = 64\npaper = true\nseed = 3\n"))
    assert len(queue.loads) == 15


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cores = 16\n[", "["), "the file has no 'cores'"),
        (('walltime = "1h"', ""), "job 1 has no 'walltime'"),
        (('walltime = "1h"', 'wall_time = "1h"'), "job 1 has 'wall_time', which is none of"),
        (('run_time = "30m"', ""), "job 1 has no 'run_time'"),
        (("cores = 8", "cores = 0"), "job 2: cores is 0"),
        (("cpu = 0.125", "cpu = 2.0"), "job 2: cpu 2.0 is"),
        (('time = "2m"', 'time = "2 moons"'), "job 2: time '2 moons' is not a positive duration"),
        (("memory = 0.05", "memory = 50"), "job 1: memory 50 is"),
        (('cpu = "25%"', "cpu = ]"), "Invalid value"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, change, message):
    with pytest.raises(InvalidInput, match=message):
        read_queue(write(tmp_path, QUEUE.replace(*change)))


def test_files_and_queues_that_are_not_there(tmp_path):
    with pytest.raises(InvalidInput, match=r"none.toml: No such file or directory. Expected a TOML file"):
        read_queue(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="it has no jobs"):
        read_queue(write(tmp_path, "cores = 4\n"))
    with pytest.raises(InvalidInput, match="4 cores: expected one of 64, 128, 256"):
        read_queue(write(tmp_path, "cores = 4\npaper = true\n"))


COMMANDS = """
cores = 4
[[jobs]]
cores = 2
walltime = "1m"
command = "sleep 1"
run_time = "5s"
[[jobs]]
name = "other"
cores = 1
walltime = "1m"
command = "true"
"""


def test_commands(tmp_path):
    queue = read_commands(write(tmp_path, COMMANDS))
    first, other = queue.jobs
    assert queue.cores == 4
    assert (first.request.name, first.line, first.alone_s) == ("job-1", "sleep 1", 5.0)
    assert (other.request.application, other.alone_s) == ("other", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (QUEUE, "job 1 has no 'command'"),
        ("cores = 4\npaper = true\n", "paper = true is a simulated queue"),
        ("cores = 4\n", "it has no jobs"),
        (COMMANDS.replace("cores = 4", "core = 4"), "the file has 'core'"),
        (
            COMMANDS.replace('"sleep 1"', '["sleep", "1"]'),
            r"job 1: command is \['sleep', '1'\]: text for a shell expected",
        ),
        (COMMANDS.replace('"true"', '" "'), "job 2: command is ' ': text for a shell expected"),
        (COMMANDS.replace('"true"', "true"), "job 2: command is True: text"),
    ],
)
def test_commands_that_make_no_sense(tmp_path, text, words):
    with pytest.raises(InvalidInput, match=words):
        read_commands(write(tmp_path, text))


def test_commands_without_a_run_time_are_not_simulated(tmp_path):
    with pytest.raises(InvalidInput, match="job 2 has no 'run_time'"):
        read_queue(write(tmp_path, COMMANDS))
