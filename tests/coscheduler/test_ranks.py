from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, StateError
from asa.security.files import private_directory
from coscheduler.ranks import OtherRankFailed, Rank, RankFiles, Workers, rank_of, run_rank
from executors.wire import TaskOrder
from tests.waiting import until


def test_a_task_that_asks_for_more_than_a_rank_has_fails_at_once(tmp_path: Path) -> None:
    order = TaskOrder(1, "s", 0, "f", b"", (), 1, 0, 3, 1)
    with Workers(2, tmp_path) as workers:
        ((told, outcome),) = workers.run([order], lambda: None, retries=0)
    assert told is order
    assert outcome.value is None
    assert "the task can never run: it needs 3 GPUs" in outcome.error


BOUND_S = 60.0
MARK = "ASA_TEST_MARK"
SOURCE = """
import os, subprocess, time
from pathlib import Path
from typing import NamedTuple

import asa


class Square(NamedTuple):
    value: int
    rank: int


@asa.stage
def numbers(count):
    return list(range(count))

@asa.stage
def square(x):
    return Square(x * x, int(os.environ.get("ASA_RANK", "0")))

@asa.stage
def write(square, folder):
    path = Path(folder, f"{square.value}.txt")
    path.write_text(f"{square.value}\\n")
    return path

copy = asa.command("cp {source} {copy}", outputs={"copy": "{source.parent}/{source.stem}.copy"})

@asa.stage
def total(squares, paths, long):
    assert len(long) == 200_000
    return sum(int(path.read_text()) for path in paths), sorted({square.rank for square in squares})

@asa.stage
def lengthy():
    return "x" * 200_000

def flow(folder=".", count=7):
    squares = square.map(numbers(count))
    return {"total": total(squares, copy.map(write.map(squares, folder=folder)), lengthy()), "count": count}

@asa.stage
def picky(x):
    if x == 4:
        raise ValueError("no such band: 4")
    return x

def failing():
    return total(picky.map(range(6)), [], [])

@asa.stage
def dies(x):
    if x == 1:
        os._exit(3)

def dying():
    return dies.map(range(2))

@asa.stage(retries=1)
def moody(x):
    mark = Path(f"tried-{x}")
    if not mark.exists():
        mark.write_text("")
        raise OSError("not yet")
    return x

def retried():
    return moody.map(range(3))

@asa.stage
def meets(x, several):
    Path(f"here-{x}").write_text("")
    until = time.monotonic() + 60
    while not all(Path(f"here-{other}").exists() for other in range(several)):
        assert time.monotonic() < until, "the others did not come"
        time.sleep(0.01)
    return x

def meeting(several=2):
    return meets.map(range(several), several=several)

@asa.stage
def parent():
    subprocess.run(["sh", "-c", "sleep 600 & sleep 600"])

sleeper = asa.command("sleep {seconds}")

def sleeping():
    return [parent(), sleeper.map([600, 600])]

def refuses():
    raise asa.AsaError("there is no catalogue")
"""


@dataclass
class Job:
    """A job's ranks, as processes."""

    workflow: str
    directory: Path
    progress: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, name: str, ranks: int, cores: int = 1, settings: Sequence[str] = ()) -> Job:
        words = [word for setting in settings for word in ("--set", setting)]
        for number in range(ranks):
            environment = {
                **os.environ, MARK: str(self.directory), "ASA_JOB": "job", "ASA_RANK": str(number),
                "ASA_RANKS": str(ranks), "ASA_CORES": str(cores), "ASA_JOB_DIRECTORY": str(self.directory),
                "ASA_PROGRESS": str(self.progress / str(number)),
            }  # fmt: skip
            argv = [sys.executable, "-m", "asa", "cosched", "rank", f"{self.workflow}:{name}", *words]
            self.processes.append(
                subprocess.Popen(
                    argv, env=environment, cwd=self.directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            )
        return self

    def end(self) -> list[tuple[int, str, str]]:
        """Exit code, standard output and error of each rank."""
        said = [process.communicate(timeout=BOUND_S) for process in self.processes]
        return [(process.returncode, *texts) for process, texts in zip(self.processes, said, strict=True)]

    def told(self) -> list[tuple[float, float]]:
        """What the ranks have said of their progress: done, total."""
        pairs = [(self.progress / str(number)).read_text().split() for number in range(len(self.processes))]
        return [(float(done), float(total)) for done, total in pairs]

    def left(self) -> set[int]:
        """Processes of the job that there are."""
        word, found = f"{MARK}={self.directory}\0".encode(), set()
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if word in Path("/proc", name, "environ").read_bytes():
                    found.add(int(name))
            except OSError:
                continue  # it has just ended
        return found

    def asleep(self, count: int) -> bool:
        """Whether so many commands of its tasks run."""
        return sum(_name(pid) == "sleep" for pid in self.left()) == count


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    (tmp_path / "flow.py").write_text(SOURCE)
    (tmp_path / "job").mkdir(0o700)
    (tmp_path / "progress").mkdir(0o700)
    job = Job(str(tmp_path / "flow.py"), tmp_path / "job", tmp_path / "progress")
    yield job
    for pid in job.left():
        os.kill(pid, signal.SIGKILL)
    for process in job.processes:
        process.communicate(timeout=BOUND_S)


@pytest.mark.parametrize(("ranks", "cores"), [(1, 1), (3, 1), (2, 2)])
def test_any_number_of_ranks_computes_the_same(job: Job, ranks: int, cores: int) -> None:
    ends = job.start("flow", ranks, cores, ["count=5"]).end()
    assert [code for code, _, _ in ends] == [0] * ranks, ends
    assert ends[0][1].strip() == repr({"total": (30, list(range(ranks))), "count": 5})
    assert [out for _, out, _ in ends[1:]] == [""] * (ranks - 1)
    assert not job.left()


def test_every_rank_reports_its_progress(job: Job) -> None:
    job.start("flow", 3).end()
    # 7 tasks in each of three stages and 3 single ones, those of rank 0
    assert job.told() == [(12, 12), (6, 6), (6, 6)]


def test_results_are_private_and_stay_with_the_job(job: Job) -> None:
    job.start("flow", 2).end()
    results = job.directory / "results"
    assert sorted(path.name for path in (results / "square").iterdir()) == list("0123456")
    for path in [results, *results.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_rank_runs_as_many_tasks_at_once_as_it_has_cores(job: Job) -> None:
    [(code, out, error)] = job.start("meeting", 1, cores=3, settings=["several=3"]).end()
    assert (code, out.strip()) == (0, "[0, 1, 2]"), error


@pytest.mark.parametrize(
    ("name", "ranks", "reason", "first"),
    [
        ("failing", 3, "stage 'picky', task 4 of 6: ValueError: no such band: 4", "rank 1 of 3"),
        ("dying", 1, "stage 'dies', task 1 of 2: the worker process ended with exit code 3", "rank 0 of 1"),
        ("refuses", 2, "there is no catalogue", "rank 0 of 2"),
    ],
)
def test_a_failure_fails_all_ranks_with_its_reason(job: Job, name: str, ranks: int, reason: str, first: str) -> None:
    for code, out, error in job.start(name, ranks).end():
        assert (code, out) == (1, "")
        assert reason in error
    assert (job.directory / "failed").read_text().startswith(f"{first}: {reason}")
    assert not job.left()


def test_tasks_are_tried_again_as_often_as_their_stage_says(job: Job) -> None:
    ends = job.start("retried", 2).end()
    assert [(code, out.strip()) for code, out, _ in ends] == [(0, "[0, 1, 2]"), (0, "")], ends


def test_sigterm_ends_everything(job: Job) -> None:
    job.start("sleeping", 2, cores=2)
    until(lambda: job.asleep(3), "both ranks' tasks to run")
    job.processes[0].send_signal(signal.SIGTERM)
    (ended, _, _), (other, _, error) = job.end()
    assert (ended, other) == (130, 1)
    assert "rank 0 of 2: ended by signal 15" in error
    assert not job.left()


def test_a_rank_that_is_killed_leaves_no_task(job: Job) -> None:
    job.start("sleeping", 1)
    until(lambda: job.asleep(2), "its task to run")
    job.processes[0].kill()
    until(lambda: not job.left(), "its processes to end")


def test_by_hand_it_is_the_only_rank_and_leaves_nothing_but_what_tasks_write(job: Job) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ASA_")}
    argv = [sys.executable, "-m", "asa", "cosched", "rank", f"{job.workflow}:flow", "--set", "count=3"]
    done = subprocess.run(
        argv, cwd=job.directory, env=environment, text=True, capture_output=True, timeout=BOUND_S, check=True
    )
    assert done.stdout.strip() == repr({"total": (5, [0]), "count": 3})
    names = {f"{number}.{ending}" for number in (0, 1, 4) for ending in ("txt", "copy")}
    assert {path.name for path in job.directory.iterdir()} == names


GIVEN = {"ASA_RANK": "1", "ASA_RANKS": "2", "ASA_CORES": "4", "ASA_JOB_DIRECTORY": "/job", "ASA_PROGRESS": "/p/1"}


def test_a_rank_is_what_its_environment_says() -> None:
    with rank_of(GIVEN) as rank:
        assert rank == Rank(1, 2, 4, Path("/job"), Path("/p/1"))
    with rank_of({name: value for name, value in GIVEN.items() if name != "ASA_PROGRESS"}) as rank:
        assert rank.progress is None


def test_the_first_failure_is_reported(tmp_path: Path) -> None:
    files = RankFiles(Rank(0, 2, 1, private_directory(tmp_path / "job"), None))
    files.look()
    files.fail("rank 1 of 2: out of memory")
    files.fail("rank 0 of 2: ended by a signal")
    with pytest.raises(OtherRankFailed, match=r"^rank 1 of 2: out of memory$"):
        files.look()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ASA_RANK", "first", "ASA_RANK='first': a whole number"),
        ("ASA_RANK", "2", "ranks are counted from 0"),
        ("ASA_RANKS", "0", "ASA_RANKS='0': a whole number of at least 1"),
        ("ASA_CORES", "", "ASA_CORES='': a whole number of at least 1"),
        ("ASA_JOB_DIRECTORY", "job", "an absolute path"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said), rank_of({**GIVEN, name: value}):
        pass


def test_a_directory_that_others_can_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(StateError, match="open to other users"):
        run_rank(Rank(0, 1, 1, tmp_path), "flow.py", {})
