"""What the embedded batch system promises beyond the conformance suite: above all, what a killed driver leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from asa.backends.local import JobJournal, JobProcess, JournalRecord, Local
from asa.core.errors import BackendError, InvalidInput, StateError
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, JobStatus, Refused, Resources
from asa.core.registry import BACKENDS

DRIVER = """
import sys, time
from asa.backends.local import Local
from asa.core.job import JobHandle, JobRequest, Resources
batch = Local(cores=2, directory=sys.argv[1])
def put(token, script, cores=1, walltime_s=60.0):
    (handle,) = batch.submit([JobRequest(token, Resources(cores=cores), walltime_s, ("sh", "-c", script), sys.argv[2])])
    assert isinstance(handle, JobHandle)
put("ends", "sleep 0.2; exit 7")
put("overruns", "sleep 60", walltime_s=0.3)
put("waits", "touch waited", cores=2)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Callable[..., Local]]:
    """Makes batch systems on one directory; their jobs are ended with the test."""
    made: list[Local] = []

    def make(cores: int = 4) -> Local:
        made.append(Local(cores=cores, directory=tmp_path / "jobs", grace_s=0.5))
        return made[-1]

    yield make
    last = Local(cores=4, directory=tmp_path / "jobs")
    last.cancel([JobHandle(**record["entry"]["status"]["handle"]) for record in records(tmp_path)])
    last.close()
    for batch in made:
        batch.close()


@pytest.fixture
def batch(local: Callable[..., Local]) -> Local:
    return local()


def records(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((tmp_path / "jobs").glob("*.json"))]


def sh(token: str, script: str, work: Path, walltime_s: float = 60.0, cores: int = 1) -> JobRequest:
    return JobRequest(token, Resources(cores=cores), walltime_s, ("sh", "-c", script), str(work))


def put(batch: Local, request: JobRequest) -> JobHandle:
    (outcome,) = batch.submit([request])
    assert isinstance(outcome, JobHandle)
    return outcome


def wait_until(condition: Callable[[], object], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.01)


def reach(batch: Local, handle: JobHandle, state: JobState) -> JobStatus:
    wait_until(lambda: batch.query([handle])[0].state.final or batch.query([handle])[0].state is state)
    (status,) = batch.query([handle])
    assert status.state is state, status
    return status


def gone(pid: int) -> bool:
    """Whether a process has ended, even if it has not been waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_driver_leaves_its_jobs_to_the_next(
    number: signal.Signals, tmp_path: Path, work: Path, local: Callable[..., Local]
) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "jobs"), str(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as driver:
        assert driver.stdout
        assert driver.stdout.readline() == b"ready\n"
        os.killpg(driver.pid, number)  # as Ctrl-C does: the driver and all that share its process group
    wait_until((tmp_path / "jobs" / "1.exit").exists)
    time.sleep(0.1)
    resumed = time.time()
    batch = local(cores=2)
    found = batch.find(["ends", "overruns", "waits", "never"])
    assert sorted(found) == ["ends", "overruns", "waits"]
    ended = reach(batch, found["ends"], JobState.FAILED)
    assert ended.exit_code == 7
    assert ended.ended is not None
    assert ended.ended < resumed, "the end is when it ended, not when that was noticed"
    reach(batch, found["overruns"], JobState.TIMEOUT)
    reach(batch, found["waits"], JobState.COMPLETED)
    assert (work / "waited").exists()
    assert int(put(batch, sh("new", "exit 0", work)).job_id) == 4, "ids go on"


def test_a_job_goes_on_and_can_be_cancelled_by_the_next_driver(work: Path, local: Callable[..., Local]) -> None:
    handle = put(local(), sh("a", "echo $$ >pid; sleep 60", work))
    wait_until(lambda: (work / "pid").exists() and (work / "pid").read_text())
    batch = local()
    assert batch.query([handle])[0].state is JobState.RUNNING
    batch.cancel([handle])
    reach(batch, handle, JobState.CANCELLED)
    assert gone(int((work / "pid").read_text()))


def test_a_kill_that_was_under_way_is_finished_by_the_next_driver(work: Path, local: Callable[..., Local]) -> None:
    first = local()
    handle = put(first, sh("stubborn", "trap '' TERM; touch on; while :; do sleep 0.1; done", work))
    wait_until((work / "on").exists)
    first.cancel([handle])
    reach(local(), handle, JobState.CANCELLED)


def test_a_recycled_process_number_is_not_taken_for_the_job(
    tmp_path: Path, work: Path, local: Callable[..., Local]
) -> None:
    handle = put(local(), sh("a", "sleep 60", work, walltime_s=0.1))
    (record,) = records(tmp_path)
    time.sleep(0.05)  # the kernel counts starts in steps of 10 ms
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as innocent:
        wrapper = record["process"]["pid"]
        record["process"]["pid"] = innocent.pid
        (tmp_path / "jobs" / "1.json").write_text(json.dumps(record))
        status = reach(local(), handle, JobState.NODE_FAIL)
        assert "no exit code" in status.reason
        time.sleep(0.1)
        assert innocent.poll() is None, "another process was killed"
        innocent.kill()
        os.killpg(wrapper, signal.SIGKILL)


def test_a_job_of_an_earlier_boot_is_gone(tmp_path: Path, work: Path, local: Callable[..., Local]) -> None:
    handle = put(local(), sh("a", "sleep 60", work))
    (record,) = records(tmp_path)
    os.killpg(record["process"]["pid"], signal.SIGKILL)
    record["process"] |= {"boot": "another", "pid": os.getpid(), "started": 0}
    (tmp_path / "jobs" / "1.json").write_text(json.dumps(record))
    reach(local(), handle, JobState.NODE_FAIL)


class Crash(BaseException):
    """Stands for the driver's death."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_a_crash_at_any_write_loses_nothing_and_runs_nothing_twice(
    at: int, after: bool, work: Path, local: Callable[..., Local], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = JobJournal.write, [at]

    def crashing(journal: JobJournal, record: JournalRecord) -> None:
        left[0] -= 1
        if left[0] >= 0 or after:
            write(journal, record)
        if left[0] < 0:
            raise Crash

    acknowledged: dict[str, JobHandle] = {}

    def drive(batch: Local) -> None:
        """As a run does: look for the job first, submit what is not there."""
        for token in ("a", "b", "c"):
            if token not in acknowledged:
                on = (Dependency(acknowledged["a"]),) if token == "b" else ()
                request = replace(sh(token, f"echo {token} >>ran", work, cores=4), dependencies=on)
                acknowledged[token] = batch.find([token]).get(token) or put(batch, request)
        wait_until(lambda: all(status.state.final for status in batch.query(list(acknowledged.values()))))

    with monkeypatch.context() as patch:
        patch.setattr(JobJournal, "write", crashing)
        with pytest.raises(Crash):
            drive(local())
    batch = local()
    before = batch.query(list(acknowledged.values()))
    assert JobState.LOST not in {status.state for status in before}, "an acknowledged job is known"
    drive(batch)
    ran = (work / "ran").read_text().split() if (work / "ran").exists() else []
    ended = {status.handle.token: status.state for status in batch.query(list(acknowledged.values()))}
    assert sorted(ran) == sorted(token for token, state in ended.items() if state is JobState.COMPLETED)
    assert set(ended.values()) <= {JobState.COMPLETED, JobState.NODE_FAIL, JobState.CANCELLED}


def test_nothing_runs_when_it_cannot_be_written_down(work: Path, tmp_path: Path) -> None:
    batch = Local(cores=1, directory=tmp_path / "jobs")
    (tmp_path / "jobs").rmdir()
    with pytest.raises(StateError, match=r"1\.json"):
        put(batch, sh("a", "touch ran", work))
    time.sleep(0.1)
    assert not (work / "ran").exists()


def test_jobs_can_be_ended_when_nothing_can_be_written_down(
    tmp_path: Path, work: Path, local: Callable[..., Local]
) -> None:
    batch = local()
    handle = put(batch, sh("a", "echo $$ >pid; sleep 60", work))
    wait_until(lambda: (work / "pid").exists() and (work / "pid").read_text())
    (tmp_path / "jobs").rename(tmp_path / "away")
    with pytest.raises(StateError):
        batch.cancel([handle])
    wait_until(lambda: gone(int((work / "pid").read_text())))
    (tmp_path / "away").rename(tmp_path / "jobs")
    reach(batch, handle, JobState.CANCELLED)
    assert local().query([handle])[0].state is JobState.CANCELLED, "it was written down as soon as it could be"


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, local: Callable[..., Local]) -> None:
    local()
    (tmp_path / "jobs" / "1.json").write_text("{")
    with pytest.raises(StateError, match=r"1\.json is not the record of a job"):
        Local(directory=tmp_path / "jobs")
    (tmp_path / "jobs" / "1.json").unlink()


def test_a_wrapper_whose_gate_is_closed_runs_nothing(work: Path) -> None:
    program = JobProcess.spawn(sh("a", "touch ran", work), work / "exit")
    assert program.poll() is None
    program.abandon()
    wait_until(lambda: program.poll() is not None)
    assert not (work / "ran").exists()
    assert not (work / "exit").exists()


def test_an_idle_machine_starts_a_job_before_submit_returns(work: Path, batch: Local) -> None:
    put(batch, sh("a", "echo $$ >pid; sleep 60", work))
    wait_until(lambda: (work / "pid").exists())  # without another call


def test_a_program_may_end_in_its_own_way(work: Path, batch: Local) -> None:
    on_term = "trap 'sleep 0.2; touch saved; exit 0' TERM; "
    handle = put(batch, sh("a", on_term + "touch on; while :; do sleep 0.05; done", work))
    wait_until((work / "on").exists)
    batch.cancel([handle])
    batch.close()
    assert (work / "saved").exists()
    assert batch.query([handle])[0].state is JobState.CANCELLED


def test_children_in_process_groups_of_their_own_are_killed_too(work: Path, batch: Local) -> None:
    child = "import os, time; os.setpgid(0, 0); open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    handle = put(batch, sh("a", f'"{sys.executable}" -IS -c "{child}" & while ! [ -s pid ]; do sleep 0.05; done', work))
    reach(batch, handle, JobState.COMPLETED)
    assert gone(int((work / "pid").read_text()))


@pytest.mark.parametrize("end", ["ends", "is killed", "ends while there is no driver"])
def test_a_daemon_ends_with_its_job(work: Path, local: Callable[..., Local], end: str) -> None:
    """It has a session of its own and is forked, so its environment is that of the program."""
    daemon = (
        "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); "
        "open('new', 'w').write(str(os.getpid())); os.rename('new', 'pid'); time.sleep(60)"
    )
    batch = local()
    script = f'"{sys.executable}" -IS -c "{daemon}"; while ! [ -e go ]; do sleep 0.05; done'
    handle = put(batch, sh("a", script, work))
    wait_until((work / "pid").exists)
    pid = int((work / "pid").read_text())
    assert not gone(pid)
    if end == "is killed":
        batch.cancel([handle])
        reach(batch, handle, JobState.CANCELLED)
    else:
        (work / "go").touch()
        if end == "ends while there is no driver":
            wait_until((work.parent / "jobs" / f"{handle.job_id}.exit").exists)
            batch = local()
        reach(batch, handle, JobState.COMPLETED)
    assert gone(pid)


def test_an_exit_code_is_known_even_if_another_part_of_the_program_waited_for_the_process(
    tmp_path: Path, work: Path, batch: Local
) -> None:
    handle = put(batch, sh("a", "exit 5", work))
    (record,) = records(tmp_path)
    os.waitpid(record["process"]["pid"], 0)
    assert reach(batch, handle, JobState.FAILED).exit_code == 5


def test_a_program_killed_by_a_signal_is_failed(work: Path, batch: Local) -> None:
    assert reach(batch, put(batch, sh("a", "kill -KILL $$", work)), JobState.FAILED).exit_code == 137
    assert reach(batch, put(batch, sh("b", "kill -KILL $PPID; sleep 60", work)), JobState.FAILED).exit_code == 137


def test_output_is_private_and_relative_to_the_working_directory(work: Path, batch: Local) -> None:
    request = JobRequest("a", Resources(), 60.0, ("sh", "-c", "umask; ps -o sid= -p $$"), str(work), "out")
    reach(batch, put(batch, request), JobState.COMPLETED)
    umask, session = (work / "out").read_text().split()
    assert stat.S_IMODE((work / "out").stat().st_mode) == 0o600
    assert int(session) != os.getsid(0)
    mine = os.umask(0)
    os.umask(mine)
    assert int(umask, 8) == mine


def test_a_job_that_cannot_be_started_is_failed_and_makes_room(work: Path, batch: Local) -> None:
    nowhere = JobRequest("a", Resources(cores=4), 60.0, ("true",), str(work / "nowhere"))
    first, second = batch.submit([nowhere, sh("b", "exit 0", work, cores=4)])
    assert isinstance(first, JobHandle)
    assert isinstance(second, JobHandle)
    status = reach(batch, first, JobState.FAILED)
    assert "nowhere" in status.reason
    reach(batch, second, JobState.COMPLETED)


def test_a_job_of_several_nodes_runs_once_on_this_one(work: Path, batch: Local) -> None:
    request = replace(sh("a", "echo once >>ran", work), resources=Resources(cores=4, nodes=2))
    assert len(reach(batch, put(batch, request), JobState.COMPLETED).nodes) == 1
    assert (work / "ran").read_text() == "once\n"


def test_close_leaves_jobs_running_and_findable(work: Path, local: Callable[..., Local]) -> None:
    batch = local()
    handle = put(batch, sh("a", "sleep 0.3; touch done", work))
    batch.close()
    reach(local(), handle, JobState.COMPLETED)
    assert (work / "done").exists()


def test_the_next_driver_knows_arrays_throttles_and_parked_jobs(work: Path, local: Callable[..., Local]) -> None:
    batch = local()
    requests = [replace(sh(token, "sleep 60", work), array="x") for token in "abcd"]
    handles = [outcome for outcome in batch.submit(requests) if isinstance(outcome, JobHandle)]
    batch.update(handles[1], JobChanges(parked=True))
    batch.update(handles[0], JobChanges(throttle=2))
    again = local()
    found = again.query(handles)
    assert [status.state.value for status in found] == ["running", "pending", "running", "pending"]
    assert [found[k].reason for k in (1, 3)] == ["BadConstraints", "JobArrayTaskLimit"]
    assert again.find(["c"]) == {"c": handles[2]}
    again.update(handles[1], JobChanges(parked=False))
    again.cancel(handles[:1])
    reach(again, handles[1], JobState.RUNNING)
    assert again.query(handles)[3].state is JobState.PENDING


def test_a_temporary_directory_goes_with_the_last_job(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batch = Local(cores=1)
    (directory,) = tmp_path.glob("asa-local-*")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    handle = put(batch, sh("a", "exit 0", work))
    reach(batch, handle, JobState.COMPLETED)
    batch.close()
    assert not directory.exists()


def test_a_job_too_large_is_refused_with_a_remedy(work: Path) -> None:
    batch = Local(cores=2, memory="1G")
    too_large = JobRequest("big", Resources(cores=64, memory=2**31), 60.0, ("true",))
    (outcome,) = batch.submit([too_large])
    assert isinstance(outcome, Refused)
    assert "64 cores, more than the 2" in outcome.reason
    assert "local:cores=64,memory=2147483648B" in outcome.reason
    handle = put(batch, JobRequest("later", Resources(), 60.0, ("true",), str(work), begin=time.time() + 3600))
    with pytest.raises(BackendError, match="64 cores"):
        batch.update(handle, JobChanges(resources=too_large.resources))
    batch.close()


def test_the_machine_is_what_the_process_may_use() -> None:
    batch = Local()
    largest = batch.capabilities().largest
    assert largest is not None
    assert largest.cores == len(os.sched_getaffinity(0))
    assert largest.memory == psutil.virtual_memory().total
    batch.close()


@pytest.mark.parametrize(
    "options", [{"poll_s": 0.0}, {"grace_s": 0.0}, {"cores": 0}, {"memory": "much"}, {"dispatcher": "fastest"}]
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Local(**options)


@pytest.mark.parametrize("option", ["poll_s", "timeout_s", "grace_s"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize("backend", ["local", "slurm", "pbs", "flux"])
def test_a_time_out_of_range_is_refused_by_the_name_of_its_option(backend: str, option: str, value: str) -> None:
    if option == ("timeout_s" if backend == "local" else "grace_s"):
        return
    with pytest.raises(InvalidInput, match=rf"\b{option}={value}: a finite number (above 0|below 2..63) expected"):
        BACKENDS.create(f"{backend}:{option}={value}")


def test_a_gate_that_is_opened_twice_lets_the_program_run_once(tmp_path: Path) -> None:
    program = JobProcess.spawn(sh("a", "echo again >>ran", tmp_path), tmp_path / "exit")
    program.go()
    program.go()
    deadline = time.monotonic() + 60
    while program.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert (tmp_path / "ran").read_text() == "again\n"
    program.kill()  # no process is left
    later = JobProcess(program.identity, tmp_path / "exit")  # as the next driver finds it
    later.kill()
    assert later.poll() == program.poll()


def test_arguments_that_no_program_can_have_leave_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="null byte"):
        JobProcess.spawn(sh("a", "echo \0", tmp_path), tmp_path / "exit")
    assert os.listdir("/proc/self/fd") == before


def test_processes_are_logged(work: Path, batch: Local, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "asa.backends")
    handle = put(batch, sh("a", "exit 3", work))
    reach(batch, handle, JobState.FAILED)
    nowhere = put(batch, JobRequest("b", Resources(), 60.0, ("true",), str(work / "nowhere")))
    started, ended, failed = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(rf"job {handle.job_id} \(a\): process \d+ runs sh -c 'exit 3'", started)
    assert ended == f"job {handle.job_id}: its process has ended with exit code 3"
    assert failed.startswith(f"job {nowhere.job_id} (b) could not be started: ")


def test_each_job_sees_gpus_of_its_own_whichever_driver_started_it(tmp_path: Path, work: Path) -> None:
    def put_gpus(batch: Local, token: str, count: int) -> JobHandle:
        script = (
            f'echo "$CUDA_VISIBLE_DEVICES" >{token}.new && mv {token}.new {token}; until [ -e go ]; do sleep .02; done'
        )
        return put(batch, replace(sh(token, script, work), resources=Resources(cores=1, gpus=count)))

    def seen(*tokens: str) -> list[str]:
        wait_until(lambda: batch.query(handles) and all((work / token).exists() for token in tokens))
        return [(work / token).read_text().strip() for token in tokens]

    batch = Local(cores=4, gpus=4, directory=tmp_path / "jobs")
    handles = [put_gpus(batch, "one", 1), put_gpus(batch, "two", 2)]
    assert seen("one", "two") == ["0", "1,2"]
    batch.close()
    batch = Local(cores=4, gpus=4, directory=tmp_path / "jobs")
    handles += [put_gpus(batch, "none", 0), put_gpus(batch, "last", 1)]
    assert seen("none", "last") == [os.environ.get("CUDA_VISIBLE_DEVICES", ""), "3"]
    (work / "go").touch()
    for handle in handles:
        reach(batch, handle, JobState.COMPLETED)
    batch.close()


def test_gpus_that_are_there_are_what_jobs_may_ask_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7e,GPU-5f")
    batch = Local(directory=tmp_path / "jobs")
    assert batch.capabilities().largest.gpus == 2
    batch.close()
