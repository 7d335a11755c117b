import fcntl
import io
import locale
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from asa.core.event import NodeLost, TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.core.task import Input, Value
from asa.log import proc
from asa.log.curve import SUFFIX, read_curve
from asa.log.values import INLINE_MOST, load
from asa.testing import tasks
from asa.testing.executors import Bench, ExecutorDriver, value_of
from executors.dask import dask
from executors.hub import local
from executors.output import OutputFile
from executors.wire import OrderOutcome, TaskOrder
from executors.worker import Caller, Meter, ThreadPrinter
from tests.waiting import until


@pytest.fixture
def driver(bench: Bench) -> ExecutorDriver:
    """A driver with one node of two cores."""
    driver = bench.driver()
    bench.node()
    return driver


@pytest.fixture(scope="module", params=[local, pytest.param(dask, marks=pytest.mark.slow)], ids=["local", "dask"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A node of two cores, with workers of either kind; each test has stages of its own."""
    place = tmp_path_factory.mktemp("workers")
    context = RunContext("r1", place / "run", str(place), tuple(sys.path), local=True)
    with Bench(request.param, context) as bench:
        bench.node()
        yield bench


@pytest.fixture(scope="module")
def either(shared: Bench) -> ExecutorDriver:
    return shared.driver()


def test_standard_error_is_that_tasks_own(either: ExecutorDriver) -> None:
    def speak_and_fail(number: int) -> None:
        os.write(2, b"I am %d\n" % number)
        if number % 2:
            raise ValueError(number)

    either.launch(speak_and_fail, [(number,) for number in range(100)], stage="speak")
    for index, event in either.ended(100, "speak").items():
        if index % 2:
            assert isinstance(event, TaskFailed) and event.stderr == f"I am {index}\n"


@pytest.mark.parametrize(
    ("number", "words", "outside"),
    [
        (signal.SIGSEGV, "signal 11 (Segmentation fault)", False),
        (signal.SIGKILL, "memory", False),
        (signal.SIGTERM, "signal 15", True),
    ],
)
def test_a_killed_worker_fails_its_task_once(
    either: ExecutorDriver, shared: Bench, number: int, words: str, outside: bool
) -> None:
    stage, begun = f"kill{number}", Path(shared.context.workdir, f"begun{number}")

    def kill_me() -> None:
        with begun.open("a") as file:
            file.write("once")
        os.kill(os.getpid(), number)
        time.sleep(60.0)

    either.launch(kill_me, [()], stage=stage)
    either.launch(tasks.echo, [(number,) for number in range(20)], stage=f"after{number}")
    failed = either.failure(stage)
    assert f"signal {int(number)}" in failed.error and words in failed.error
    assert failed.infrastructure == outside
    assert either.values(20, f"after{number}") == list(range(20))
    assert begun.read_text() == "once"
    assert not any(isinstance(event, NodeLost) for event in either.events)


def test_short_tasks_do_not_stay_behind_a_long_one(either: ExecutorDriver, shared: Bench) -> None:
    place = shared.directory("behind")
    # number 60 waits for all others, those included that were given to the same worker behind it
    either.launch(tasks.meet, [(place, number, 120 if number == 60 else 0) for number in range(120)], stage="mixed")
    assert either.values(120, "mixed") == [True] * 120
    ended = [event.index for event in either.events if isinstance(event, TaskDone) and event.stage == "mixed"]
    assert len(ended) == 120, "each once"


def test_libraries_keep_to_the_tasks_cores(either: ExecutorDriver) -> None:
    def threads() -> str | None:
        return os.environ.get("OMP_NUM_THREADS")

    either.launch(threads, [()], stage="one")
    either.launch(threads, [()], stage="two", resources=Resources(cores=2))
    assert either.values(1, "one") + either.values(1, "two") == ["1", "2"]


def test_a_segmentation_fault_is_located(driver: ExecutorDriver) -> None:
    def kill_me() -> None:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    driver.launch(kill_me, [()])
    assert "kill_me" in driver.failure().stderr, "the worker's own last words"


def test_of_several_tasks_in_a_worker_only_the_guilty_one_fails(driver: ExecutorDriver) -> None:
    def return_or_die(number: int) -> int:
        if number == 150:
            os._exit(9)
        return number

    driver.launch(tasks.echo, [(number,) for number in range(300)], stage="learn")
    driver.ended(300, "learn")
    driver.launch(return_or_die, [(number,) for number in range(300)])
    ended = driver.ended(300)
    assert [index for index, event in ended.items() if isinstance(event, TaskFailed)] == [150]
    assert isinstance(ended[150], TaskFailed) and "exit code 9" in ended[150].error
    assert sum(isinstance(event, TaskDone | TaskFailed) for event in driver.events) == 600


def test_what_was_sent_ahead_in_error_goes_to_another_node(bench: Bench) -> None:
    driver, place = bench.driver(), bench.directory("meeting")
    one = Resources(cores=1)
    bench.node("a", one, "n1")
    driver.launch(tasks.meet, [(place, -1, 0)] * 200)
    driver.ended(200)
    driver.launch(tasks.meet, [(place, number, 41 if number == 0 else 0) for number in range(40)], stage="mixed")
    bench.node("a", one, "n2")
    assert driver.values(40, "mixed") == [True] * 40
    assert {event.node for event in driver.ended(40, "mixed").values()} == {"n1", "n2"}


def test_workers_are_kept(driver: ExecutorDriver) -> None:
    driver.launch(tasks.where, [()] * 50)
    assert len({pid for _, pid in driver.values(50)}) <= 2


def test_a_worker_holds_no_descriptor_of_its_supervisor(driver: ExecutorDriver) -> None:
    def held() -> list[str]:
        found = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
        return [target.split(":")[0] for target in found]

    def _is_open(name: str) -> bool:
        return os.path.lexists(f"/proc/self/fd/{name}")

    driver.launch(held, [()] * 4)
    for targets in driver.values(4):
        assert targets.count("socket") == 1 and "pipe" not in targets and "anon_inode:[eventpoll]" not in targets


def test_each_task_has_its_own_gpus(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    place = bench.directory("meeting")

    def visible(number: int) -> tuple[bool, str]:
        return tasks.meet(place, number, 2), os.environ["CUDA_VISIBLE_DEVICES"]

    def none_visible() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    driver = bench.driver()
    bench.node("a", Resources(cores=2, gpus=2))
    driver.launch(visible, [(0,), (1,)], resources=Resources(gpus=1), stage="each")
    assert sorted(driver.values(2, "each")) == [(True, "3"), (True, "5")]
    driver.launch(none_visible, [()], resources=Resources(gpus=2), stage="both")
    assert driver.values(1, "both") == ["3,5"]
    driver.launch(none_visible, [()], stage="none")
    assert driver.values(1, "none") == ["-1"]
    driver.launch(none_visible, [()], resources=Resources(gpus=3), stage="more")
    assert "needs 3 GPUs" in driver.failure("more").error


def test_a_working_directory_that_is_not_there_is_named(context: RunContext, tmp_path: Path) -> None:
    with Bench(local, replace(context, workdir=str(tmp_path / "gone"))) as bench:
        (tmp_path / "gone").mkdir()
        driver = bench.driver()
        bench.node()
        driver.joined()
        (tmp_path / "gone").rmdir()
        driver.launch(tasks.echo, [(1,)])
        failed = driver.failure()
        assert "exit code 1" in failed.error and "FileNotFoundError" in failed.stderr and "gone" in failed.stderr


def test_memory_limits_how_many_run(bench: Bench) -> None:
    driver, place = bench.driver(), bench.directory("room")
    bench.node("a", Resources(cores=2, memory=1000))
    driver.launch(tasks.alone, [(place, 0.03)] * 3, resources=Resources(memory=600))
    assert driver.values(3) == [True] * 3


def state() -> dict[str, Any]:
    """What a task meets in its process."""
    with os.scandir("/proc/self/task") as threads:
        count = len([*threads])
    os.umask(mask := os.umask(0))
    return {
        "directory": os.getcwd(),
        "variables": dict(os.environ),
        "streams": [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)],
        "objects": [sys.stdout.fileno(), sys.stderr.fileno()],
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "processors": os.sched_getaffinity(0),
        "umask": mask,
        "locale": locale.setlocale(locale.LC_ALL),
        "handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)],
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "depth": sys.getrecursionlimit(),
        "threads": count,
    }


def _change(what: str) -> None:
    match what:
        case "directory":
            os.chdir("/")
        case "variables":
            os.environ["LEFT"] = "over"
            os.environ.pop("HOME", None)
            os.environ["PATH"] = "/nowhere"
            os.environ = dict(os.environ)  # noqa: B003  # as a careless task may
        case "standard output":
            os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        case "standard streams":
            for number in (0, 1, 2):
                os.close(number)
        case "sys.stdout":
            sys.stdout = sys.stderr = io.StringIO()
        case "limits":
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        case "processors":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        case "umask":
            os.umask(0o777)
        case "locale":
            locale.setlocale(locale.LC_ALL, "C")
        case "signals":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no exit code of a child is ever known
            signal.setitimer(signal.ITIMER_PROF, 0.01)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        case "depth":
            sys.setrecursionlimit(60)
        case "a child":
            os.spawnvp(os.P_NOWAIT, "sleep", ["sleep", "987"])
        case "a thread":
            threading.Thread(target=time.sleep, args=(60.0,), daemon=True).start()
        case "all descriptors":
            os.closerange(0, 512)
        case "a closed stream":
            sys.stdout.close()
        case "Python's own process":
            shared = shared_memory.SharedMemory(create=True, size=1)
            shared.close()
            shared.unlink()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorDriver]:
    """A driver with one node of one core."""
    place = tmp_path_factory.mktemp("alone")
    with Bench(local, RunContext("r1", place / "run", str(place), tuple(sys.path), local=True)) as bench:
        bench.node("a", Resources(cores=1), "n1")
        yield bench.driver()


RESTORED = (
    "directory", "variables", "standard output", "standard streams", "sys.stdout", "limits", "processors", "umask",
    "locale", "signals", "depth", "Python's own process",
)  # fmt: skip
REPLACED = "a child", "a thread", "a closed stream"


@pytest.mark.parametrize("what", [*RESTORED, *REPLACED])
@pytest.mark.parametrize("fails", [False, True])
def test_the_next_task_meets_nothing_of_what_a_task_has_changed(alone: ExecutorDriver, what: str, fails: bool) -> None:
    """It goes on in the same process where that is put in order, and in a new one where it cannot be."""

    def named(stage: str) -> str:
        return f"{stage} {what} {fails}"

    def change(what: str) -> int:
        _change(what)
        if fails:
            raise ValueError("as it should be")
        return os.getpid()

    def look() -> tuple[int, dict[str, Any]]:
        time.sleep(0.3 if what == "signals" else 0.0)  # until an alarm would come
        return os.getpid(), state()

    alone.launch(look, [()], stage=named("before"))
    ((process, before),) = alone.values(1, named("before"))
    alone.launch(change, [(what,)], stage=named("change"))
    if fails:
        assert "as it should be" in alone.failure(named("change")).error
    else:
        assert alone.values(1, named("change")) == [process]
    alone.launch(look, [()] * 3, stage=named("after"))
    for other, after in alone.values(3, named("after")):
        assert {name: value for name, value in after.items() if name != "streams"} == {
            name: value for name, value in before.items() if name != "streams"
        }
        assert (other != process) == (what in REPLACED)
        assert what in REPLACED or after["streams"] == before["streams"]
    if what == "a child":
        until(lambda: not [pid for pid, found in proc.living() if found.session == process])


def test_who_closes_everything_is_who_fails(bench: Bench) -> None:
    driver = bench.driver()
    bench.node("a", Resources(cores=1), "n1")

    def close_or_not(number: int) -> int:
        if number == 150:
            _change("all descriptors")
        return number

    driver.launch(tasks.echo, [(number,) for number in range(300)], stage="learn")
    driver.ended(300, "learn")
    driver.launch(close_or_not, [(number,) for number in range(300)])
    assert [index for index, event in driver.ended(300).items() if isinstance(event, TaskFailed)] == [150]


def test_a_worker_starts_below_descriptors_that_are_above_its_limit(bench: Bench) -> None:
    """As where a shell holds a number that a limit set later forbids."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = fcntl.fcntl(0, fcntl.F_DUPFD, 900)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (800, limits[1]))
        driver = bench.driver()
        bench.node()
        driver.launch(tasks.echo, [(1,)])
        assert driver.values(1) == [1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(high)


class TestThreads:
    @pytest.fixture
    def bench(self, context: RunContext) -> Iterator[Bench]:
        with Bench(lambda: local(workers="threads"), context) as bench:
            yield bench

    def test_all_tasks_are_in_one_process(self, bench: Bench) -> None:
        driver, place = bench.driver(), bench.directory("meeting")
        bench.node()

        def meet(number: int) -> Any:
            return tasks.meet(place, number, 2), os.getpid()

        driver.launch(meet, [(0,), (1,)])
        (first, one), (second, other) = driver.values(2)
        assert first and second and one == other

    def test_a_dead_process_fails_what_ran_in_it(self, bench: Bench) -> None:
        driver, place = bench.driver(), bench.directory("meeting")
        bench.node()

        def die_together(number: int) -> None:
            tasks.meet(place, number, 2)
            time.sleep(0.05)
            os._exit(4)

        driver.launch(die_together, [(0,), (1,)])
        driver.launch(tasks.echo, [(1,)], stage="after")
        assert all("exit code 4" in event.error for event in driver.ended(2).values() if isinstance(event, TaskFailed))
        assert value_of(driver.ended(1, "after")[0]) == 1


# ------------------------------------------------------- one call


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a function as a worker would."""

    def run(function: Any, *args: Any, inputs: tuple[Value, ...] = (), stage: str = "s") -> OrderOutcome:
        file = tmp_path / "function"
        file.write_bytes(cloudpickle.dumps(function))
        order = TaskOrder(1, stage, 5, str(file), pickle.dumps((args, {})), inputs, 1, 0, 0, 1)
        return Caller(str(tmp_path)).run(order)

    return run


def test_a_value_returns(run: Any) -> None:
    outcome = run(lambda a, b: a + b, 1, 2)
    assert load(outcome.value) == 3 and outcome.error == "" and outcome.started <= outcome.ended


def test_a_long_result_goes_to_a_file(run: Any, tmp_path: Path) -> None:
    outcome = run(lambda: b"x" * INLINE_MOST)
    assert Path(outcome.value).parent == tmp_path
    assert load(outcome.value) == b"x" * INLINE_MOST


def test_a_disk_that_takes_no_result_is_named(run: Any, tmp_path: Path) -> None:
    def fill_disk() -> bytes:
        tmp_path.joinpath("function").unlink()
        tmp_path.rmdir()
        return b"x" * INLINE_MOST

    outcome = run(fill_disk)
    assert outcome.value is None
    assert "keeping the result, of type 'bytes'" in outcome.error and str(tmp_path) in outcome.error


def test_the_step_that_fails_is_named(run: Any, tmp_path: Path) -> None:
    lost = TaskOrder(1, "s", 0, str(tmp_path / "absent"), b"", (), 1, 0, 0, 1)
    assert "loading the function: StateError: " in (error := Caller("").run(lost).error) and "absent" in error
    assert "loading an input: StateError" in run(abs, Input(0), inputs=(str(tmp_path / "no"),)).error
    assert run(abs, "text").error.startswith("TypeError: bad operand")
    assert run(sys.exit, 3).error == "SystemExit: 3"
    assert "keeping the result, of type 'generator': TypeError: cannot pickle" in run(lambda: (n for n in (1,))).error


def test_an_exception_that_cannot_say_what_it_is_fails_the_task_and_no_more(run: Any) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def fail() -> None:
        raise Mute

    outcome = run(fail)
    assert outcome.error == "Mute" and "in fail" in outcome.traceback


def test_the_traceback_begins_in_the_task(run: Any) -> None:
    def outer() -> None:
        raise KeyError("band")

    outcome = run(outer)
    assert outcome.traceback.count("File") == 1 and "in outer" in outcome.traceback
    assert outcome.traceback.endswith("KeyError: 'band'\n")


def test_a_list_that_is_in_itself_may_be_an_argument(tmp_path: Path) -> None:
    ring: list[Any] = ["a"]
    ring.append(ring)
    outcome = measured(tmp_path, len, ring)
    assert outcome.error == "" and load(outcome.value) == 2


def test_a_file_that_was_given_counts_wherever_the_task_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reads").write_bytes(bytes(100_000))
    assert 100_000 < measured(tmp_path, lambda name: os.chdir("/"), "reads").given < 101_000


def measured(directory: Path, function: Any, *args: Any) -> OrderOutcome:
    file = directory / "function"
    file.write_bytes(cloudpickle.dumps(function))
    order = TaskOrder(1, "s", 5, str(file), pickle.dumps((args, {})), (), 1, 0, 0, 1)
    return Caller(str(directory), meter=Meter()).run(order)


@pytest.mark.parametrize("limit", [0, 1000])
def test_what_a_thread_prints_is_bounded_and_not_held_back(tmp_path: Path, limit: int) -> None:
    output, stderr = OutputFile.create(str(tmp_path), "job", "w", limit), os.dup(2)
    printer, order = ThreadPrinter(output), TaskOrder(1, "s", 5, "", b"", (), 1, 0, 0, 1)
    os.dup2(output.text, 2)
    try:
        printer.begin(order)
        before = output.size
        for _ in range(1000):
            printer.write(100 * ".")
        assert limit or output.size - before > 90_000, "it has not ended a line"
        printer.flush()
        printer.begin(order)
        printer.write(100_000 * "x" + "\n")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    text = os.pread(output.text, 1 << 20, before).decode()
    assert text.count("x") == text.count(".") == (limit or 100_000)
    assert text.count("\n[the rest is cut: see --output-limit]\n") == (2 if limit else 0)
    output.close()


@pytest.mark.slow
def test_what_a_long_task_takes_is_noted_as_time_goes_on(driver: ExecutorDriver) -> None:
    """Beside what it prints, and of no task that is short."""

    def burn(work_s: float) -> float:
        held = bytearray(os.urandom(1 << 20) * (200 if work_s else 0))
        before = time.process_time()
        while time.process_time() - before < work_s:
            pass
        return time.process_time() - before if held else 0.0

    run = driver.context.directory
    driver.launch(burn, [(0.0,)] * 50, stage="short")
    driver.ended(50, "short")
    driver.launch(burn, [(9.0,)], stage="long")
    event = driver.ended(1, "long")[0]
    assert isinstance(event, TaskDone)
    files = [path.name for path in (run / "output").iterdir() if path.suffix == SUFFIX]
    assert len(files) == 1 and files[0].startswith("n1-")
    samples = read_curve(run, "a", "n1", ("long", 0), event.started)
    assert 1 <= len(samples) <= 60
    assert 200 << 20 <= max(each.memory for each in samples) <= 400 << 20
    work = sum(each.span_s * each.cores for each in samples)
    assert 0.3 * event.cpu_s < work <= event.cpu_s + 0.1
    assert all(event.started < each.at <= event.at for each in samples)
    assert read_curve(run, "a", "n1", ("short", 0), 0.0, exact=False) == []
