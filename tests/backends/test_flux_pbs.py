"""Flux and PBS, over those of `tests.backends.fakes`; outputs as their manuals, RFCs and designs show them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import flux, pbs
from asa.backends.batch import AGAIN_S
from asa.backends.flux import Flux, FluxOptions
from asa.backends.pbs import Pbs, PbsOptions
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, QueueRegime, Refused, Resources
from asa.core.registry import BACKENDS
from asa.core.units import MIB
from asa.testing.backends import BatchSemantics, TestedSite
from tests.backends.fakes import FakeFlux, FakePbs, f58
from tests.waiting import until

System = tuple[Flux, FakeFlux] | tuple[Pbs, FakePbs]


def made(name: str) -> System:
    clock = ManualClock(1_700_000_000.0)
    if name == "flux":
        fake = FakeFlux(clock)
        return Flux(clock=clock, ask=fake, poll_s=1.0), fake
    there = FakePbs(clock)
    return Pbs(clock=clock, ask=there, poll_s=1.0), there


@pytest.fixture(params=["flux", "pbs"])
def system(request: pytest.FixtureRequest) -> System:
    """Each of the two, and the commands behind it."""
    return made(request.param)


def asked(token: str = "asa-1", cores: int = 1, nodes: int | None = None, **fields: Any) -> JobRequest:
    given: dict[str, Any] = {"walltime_s": 60.0, "argv": ("sh", "-c", "sleep 9; exit 0")} | fields
    return JobRequest(token, Resources(cores, nodes), **given)


def put(backend: Flux | Pbs, *requests: JobRequest) -> list[JobHandle]:
    handles = [outcome for outcome in backend.submit(requests) if isinstance(outcome, JobHandle)]
    assert len(handles) == len(requests)
    return handles


# ------------------------------------------------------------------------------------------------ what both do


class TestBoth(BatchSemantics):
    @pytest.fixture(params=["flux", "pbs"])
    def site(self, request: pytest.FixtureRequest, tmp_path: Path) -> TestedSite:
        backend, fake = made(request.param)
        return TestedSite(
            backend,
            fake.clock,
            tmp_path,
            run_s=10.0,
            resolution_s=1.0,
            shortest_s=60.0,
            walltime_s=600.0,
            patience_s=200.0,
        )

    # Flux changes nothing of a job that waits but its wall time, and says so.

    def test_a_begin_time_can_be_moved(self, site: TestedSite) -> None:
        if not self._refused(site, JobChanges(begin=site.clock.now())):
            super().test_a_begin_time_can_be_moved(site)

    def test_a_dependency_can_be_added_and_taken_away(self, site: TestedSite) -> None:
        first = site.submit(site.request(begin=site.clock.now() + 3600))
        if not self._refused(site, JobChanges(dependencies=(Dependency(first),))):
            super().test_a_dependency_can_be_added_and_taken_away(site)

    def test_a_job_can_be_made_smaller(self, site: TestedSite) -> None:
        if not self._refused(site, JobChanges(resources=site.half)):
            super().test_a_job_can_be_made_smaller(site)

    def test_a_wall_time_can_be_changed(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 5, run_s=200.0))
        site.backend.update(handle, JobChanges(walltime_s=site.shortest_s))
        site.reach(handle, JobState.TIMEOUT)

    def _refused(self, site: TestedSite, changes: JobChanges) -> bool:
        if not isinstance(site.backend, Flux):
            return False
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        with pytest.raises(BackendError, match="only the wall time") as caught:
            site.backend.update(handle, changes)
        assert not caught.value.transient
        assert site.status(handle).state is JobState.PENDING
        return True


@pytest.mark.parametrize(
    ("backend", "extra"),
    [
        *((Flux, extra) for extra in ("--ntasks=3", "-N4", "--output=x")),
        *((Pbs, extra) for extra in ("-N mine", "-lwalltime=1", "-W depend=1")),
    ],
)
def test_an_option_that_asa_gives_itself_cannot_be_passed_through(backend: type[Flux] | type[Pbs], extra: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        backend(extra=extra)


@pytest.mark.parametrize("name", ["flux", "pbs"])
def test_jobs_have_a_queue_of_their_own(name: str) -> None:
    backend, _ = made(name)
    own = Resources(options=(("partition", "debug"), ("setup", "module load cuda")))
    (line,) = backend.preview([JobRequest("a", own, 60.0, ("true",))])
    assert {"flux": "--queue=debug", "pbs": "-q debug"}[name] in line
    with pytest.raises(InvalidInput, match="'qos' for the jobs of one stage: partition, account, setup expected"):
        backend.capabilities().for_jobs((("qos", "high"),))


def test_a_job_that_never_fits_is_refused(system: System) -> None:
    backend, _ = system
    outcomes = backend.submit([asked(cores=8), asked("asa-2", array="a"), asked("asa-3", walltime_s=7200.0)])
    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Refused)]
    assert "has room for 4 cores" in reasons[0] and "no job arrays" in reasons[1]
    assert isinstance(backend, Flux) or "02:00:00" in reasons[2], "Flux shows no limit of wall times"


def test_one_question_for_all_and_more_for_the_unknown(system: System) -> None:
    backend, fake = system
    handles = put(backend, asked("a"), asked("b"))
    fake.said.clear()
    backend.query(handles)
    assert len(fake.said) == 1
    states = [status.state for status in backend.query([handles[0], JobHandle("77.pbs1", "c", 0.0), handles[1]])]
    assert states == [JobState.RUNNING, JobState.LOST, JobState.RUNNING]
    first, second, *own = [[word for word in said if word in ("77.pbs1", handles[0].job_id)] for said in fake.said[1:]]
    assert (first, second) == ([handles[0].job_id, "77.pbs1"], [handles[0].job_id])
    assert own == [["77.pbs1"], ["77.pbs1"]], "then it is asked about by its own id, twice"


@pytest.mark.parametrize("silent", range(4))
def test_a_job_is_lost_when_it_is_unknown_to_two_questions_of_its_own(system: System, silent: int) -> None:
    backend, fake = system
    handles, begin = put(backend, asked("a"), asked("b")), fake.clock.now()
    fake.hidden = {handles[1].job_id: silent}
    first, second = backend.query(handles)
    assert first.state is JobState.RUNNING
    assert second.state is (JobState.LOST if silent == 3 else JobState.RUNNING)
    assert fake.clock.now() - begin == (AGAIN_S if silent >= 2 else 0.0)


def test_a_job_that_one_answer_does_not_show_is_cancelled(system: System) -> None:
    backend, fake = system
    (handle,) = put(backend, asked("a"))
    fake.hidden = {handle.job_id: 2}
    backend.cancel([handle])
    assert backend.query([handle])[0].state is JobState.CANCELLED


def test_a_token_is_unknown_when_it_is_not_found_twice(system: System) -> None:
    backend, fake = system
    handles, begin = put(backend, asked("a"), asked("b")), fake.clock.now()
    assert backend.find(["a", "b"]).keys() == {"a", "b"} and fake.clock.now() == begin
    fake.hidden = {handles[1].job_id: 1}
    assert backend.find(["a", "b"]).keys() == {"a", "b"} and fake.clock.now() == begin + AGAIN_S


def test_a_job_after_one_that_failed_is_refused(system: System) -> None:
    backend, fake = system
    (failed,) = put(backend, asked("bad", argv=("sh", "-c", "sleep 1; exit 3")))
    fake.clock.wait(threading.Event(), fake.clock.now() + 20)
    (outcome,) = backend.submit([asked(dependencies=(Dependency(failed),))])
    assert isinstance(outcome, Refused) and "which ended as failed" in outcome.reason


def test_a_change_is_one_command_and_no_change_is_none(system: System) -> None:
    backend, fake = system
    _, handle = put(backend, asked("a", cores=4), asked("b", cores=4))
    fake.said.clear()
    backend.update(handle, JobChanges())
    assert not {"qalter", "update"} & {word for said in fake.said for word in said}
    backend.update(handle, JobChanges(walltime_s=90.0))
    assert {"walltime=00:01:30", "duration=90s"} & {word for said in fake.said for word in said}
    for changes in (JobChanges(throttle=2), JobChanges(parked=True)):
        with pytest.raises(BackendError, match=r"neither throttles nor parking|only the wall time of a job that waits"):
            backend.update(handle, changes)


@pytest.mark.parametrize("parse", [flux.parse_jobs, lambda text: pbs.document(text, "Jobs")], ids=["flux", "pbs"])
def test_output_that_is_no_json_is_an_error(parse: Any) -> None:
    assert parse("") == {}
    for text in ("Job id            Name             User", "[]"):
        with pytest.raises(BackendError, match="no JSON"):
            parse(text)


@pytest.mark.parametrize(
    ("parse", "text", "found"),
    [
        (pbs.parse_job_id, "qsub: waiting is over\n1234.pbs1\n", "1234.pbs1"),
        (pbs.parse_job_id, "\n", None),
        (flux.parse_job_id, "", None),
        (flux.parse_job_id, "ƒ0", None),
        (flux.parse_job_id, "xyz", None),
    ],
)
def test_job_id_that_is_printed(parse: Any, text: str, found: str | None) -> None:
    if found is not None:
        assert parse(text) == found
        return
    with pytest.raises(BackendError, match="job id"):
        parse(text)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


@pytest.mark.parametrize(
    ("spec", "name", "silence"),
    [
        ("flux:queue=short,timeout_s=20", "flux", "flux-jobs: ERROR: Unable to connect to Flux: ENOENT"),
        ("pbs:queue=short,timeout_s=20", "qstat", "qstat: cannot connect to server pbs1 (errno=15010)"),
    ],
)
def test_commands_are_those_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, name: str, silence: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    backend, handle = BACKENDS.create(spec), JobHandle("1", "hostname", 0.0)
    with pytest.raises(BackendError, match=f"no program '{name}' in PATH"):
        backend.query([handle])
    program(tmp_path / name, f"echo '{silence}' >&2; exit 1")
    with pytest.raises(BackendError) as caught:
        backend.query([handle])
    assert caught.value.transient
    if name == "flux":
        program(tmp_path / "flux", f"cat <<'END'\n{json.dumps(FLUX_JOB)}\nEND")
        assert backend.query([handle])[0].state is JobState.COMPLETED
        return
    program(tmp_path / "qstat", 'case "$*" in *-B*) echo \'{"Server":{"pbs1":{}}}\';; *) echo \'{"Queue":{}}\';; esac')
    program(tmp_path / "pbsnodes", "echo '{}'")
    program(tmp_path / "qsub", "cat >script; echo 'qsub: Unauthorized Request' >&2; exit 159")
    monkeypatch.chdir(tmp_path)
    assert backend.submit([asked()]) == [Refused("asa-1", "Unauthorized Request")]
    assert (tmp_path / "script").read_text().startswith("#!/bin/sh\n")
    assert "job history" in backend.capabilities().details


# ------------------------------------------------------------------------------------------------ Flux

FLUX_HANDLE = JobHandle("1", "hostname", 1687838671.4)
FLUX_JOB = json.loads(
    """{"t_depend": 1687838671.51842, "t_run": 1687838671.9197195, "t_cleanup": 1687838672.1305885,
    "t_inactive": 1687838672.1725576, "duration": 0, "expiration": 4841438671, "name": "hostname",
    "cwd": "/tmp/workflow", "ntasks": 6, "ncores": 624, "nnodes": 6, "priority": 16, "ranks": "[44-49]",
    "nodelist": "burst[44-49]", "success": true, "result": "COMPLETED", "waitstatus": 0, "id": 1,
    "t_submit": 1687838671.4, "state": "INACTIVE", "username": "flux", "userid": 1000, "urgency": 16,
    "runtime": 0.2108690738677978, "status": "COMPLETED", "returncode": 0, "dependencies": [], "annotations": {},
    "exception": {"occurred": false, "severity": "", "type": "", "note": ""}}"""
)
FLUX_WAITING = {
    key: value for key, value in FLUX_JOB.items() if not key.startswith(("t_run", "t_cl", "t_in", "result", "ret"))
}


def flux_failed(kind: str = "", **attributes: Any) -> dict[str, Any]:
    exception = {"occurred": bool(kind), "severity": 0, "type": kind, "note": f"a {kind}"}
    return FLUX_JOB | {"result": "FAILED", "exception": exception} | attributes


def test_a_job_that_ended_well_in_flux() -> None:
    (job,) = flux.parse_jobs(json.dumps(FLUX_JOB)).values()
    status = flux.parse_status(FLUX_HANDLE, job)
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0)
    assert (status.started, status.ended) == (1687838671.9197195, 1687838672.1305885)
    assert status.nodes == tuple(f"burst{number}" for number in range(44, 50))
    assert status.cores == 624, "whole nodes for its 6 tasks"


@pytest.mark.parametrize(
    ("job", "state", "code"),
    [
        (flux_failed(returncode=3), JobState.FAILED, 3),
        (flux_failed(returncode=-9), JobState.FAILED, 137),
        (flux_failed("exec", returncode=127), JobState.FAILED, 127),
        (flux_failed("node-failure"), JobState.NODE_FAIL, 0),
        (flux_failed("cancel", result="CANCELED", returncode=-15), JobState.CANCELLED, 143),
        (flux_failed("timeout", result="TIMEOUT", returncode=-15), JobState.TIMEOUT, 143),
        (FLUX_WAITING | flux_failed("dependency", t_run=0), JobState.CANCELLED, None),
    ],
)
def test_how_a_job_ended_in_flux(job: dict[str, Any], state: JobState, code: int | None) -> None:
    status = flux.parse_status(FLUX_HANDLE, job)
    assert (status.state, status.exit_code) == (state, code)
    assert status.ended is not None


def test_a_state_that_flux_does_not_have_yet_is_no_end() -> None:
    assert flux.parse_status(FLUX_HANDLE, FLUX_WAITING | {"state": "NEWER"}).state is JobState.PENDING
    running = FLUX_WAITING | {"state": "NEWER", "t_run": 1687838671.9}
    assert flux.parse_status(FLUX_HANDLE, running).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("changes", "reason", "eligible"),
    [
        ({"state": "SCHED"}, "Resources", True),
        ({"state": "SCHED", "urgency": 0}, "JobHeldUser", True),
        ({"state": "DEPEND", "dependencies": ["after-success=1"]}, "Dependency", False),
        ({"state": "DEPEND", "dependencies": ["begin-time=1700000000"]}, "BeginTime", False),
    ],
)
def test_why_a_job_waits_in_flux(changes: dict[str, Any], reason: str, eligible: bool) -> None:
    job = FLUX_WAITING | changes | {"annotations": {"sched": {"t_estimate": 1687838700.0}}}
    status = flux.parse_status(FLUX_HANDLE, job)
    assert (status.state, status.reason, status.planned) == (JobState.PENDING, reason, 1687838700.0)
    assert (status.eligible is not None) is eligible


@given(st.integers(0, 2**63))
def test_ids_are_read_as_flux_writes_them(number: int) -> None:
    assert flux.parse_job_id(f58(number) + "\n") == flux.parse_job_id(f58(number).replace("ƒ", "f")) == str(number)


def test_a_submission_in_words_in_flux() -> None:
    needs, after = Resources(16, 2, None, 4), (Dependency(JobHandle("7", "a", 0.0)),)
    job = JobRequest("asa-1", needs, 90.5, ("prog", "--two words"), "/work", "/out", after, begin=130.0)
    words = flux.submit_command(job, FluxOptions("short", "p123", (), "--env=X=1"), now=100.0)
    assert words == [
        "flux", "submit", "--job-name=asa-1", "--nodes=2", "--ntasks=2", "--cores-per-task=8", "--gpus-per-task=2",
        "--time-limit=91s", "--cwd=/work", "--input=/dev/null", "--output=/dev/null", "--error=/dev/null",
        "--dependency=afterok:7", "--begin-time=+30s", "--queue=short", "--bank=p123", "--env=X=1", "--",
        "/bin/sh", "-c", flux.SCRIPT.replace("SETUP\n", ""), "/out", "prog", "--two words",
    ]  # fmt: skip


def as_flux_runs_it(path: Path, *setup: str, argv: tuple[str, ...]) -> subprocess.Popen[str]:
    """A task of Flux: the leader of a process group, whose output is a pipe that Flux reads to its end."""
    words = flux.submit_command(asked(argv=argv, output=str(path)), FluxOptions(setup=setup), now=0.0)
    return subprocess.Popen(words[words.index("--") + 1 :], stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_lines_before_the_program(tmp_path: Path) -> None:
    argv = ("sh", "-c", 'echo "$X $1"; echo 2 >&2; echo 3; exit 3', "-", "a  b")
    assert as_flux_runs_it(tmp_path / "out", "export X=1", argv=argv).wait(20) == 3
    assert (tmp_path / "out").read_text() == "1 a  b\n2\n3\n"


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_a_child_that_is_left_behind_does_not_hold_the_allocation(tmp_path: Path, stubborn: str) -> None:
    child = f"{stubborn}while :; do sleep 0.05; done"
    argv = ("sh", "-c", f"({child}) & echo $! >{tmp_path / 'child'}; echo done")
    task = as_flux_runs_it(tmp_path / "out", argv=argv)
    assert task.communicate(timeout=20) == ("", None) and task.returncode == 0
    assert (tmp_path / "out").read_text() == "done\n"
    child_pid = int((tmp_path / "child").read_text())
    until(lambda: not psutil.pid_exists(child_pid) or psutil.Process(child_pid).status() == psutil.STATUS_ZOMBIE)


def test_a_program_ends_in_its_own_way_when_flux_asks_it_to(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    argv = ("sh", "-c", f"trap 'sleep 0.2; echo asked; exit 7' TERM; echo >{ready}; while :; do sleep 0.05; done")
    task = as_flux_runs_it(tmp_path / "out", argv=argv)
    until(ready.exists)
    os.killpg(task.pid, signal.SIGTERM)
    assert task.wait(20) == 7
    assert (tmp_path / "out").read_text().endswith("asked\n")


def test_a_program_that_a_signal_ended_in_flux(tmp_path: Path) -> None:
    assert as_flux_runs_it(tmp_path / "out", argv=("sh", "-c", "kill -9 $$")).wait(20) == 137
    assert as_flux_runs_it(tmp_path / "out", argv=("/no/such/program",)).wait(20) == 127


def test_a_job_after_one_that_fails_on_the_way_is_refused_in_the_words_of_flux() -> None:
    clock = ManualClock(1_700_000_000.0)
    fake = FakeFlux(clock)
    backend = Flux(clock=clock, ask=lambda argv, stdin: _late(fake, argv, stdin))
    (first,) = put(backend, asked("bad", argv=("sh", "-c", "sleep 1; exit 3")))
    (outcome,) = backend.submit([asked(dependencies=(Dependency(first),))])
    assert (
        isinstance(outcome, Refused) and "afterok: job" in outcome.reason and "failed or was canceled" in outcome.reason
    )


def _late(fake: FakeFlux, argv: Sequence[str], stdin: str) -> str:
    """Time passes before a job that depends on another gets there."""
    if any(word.startswith("--dependency") for word in argv):
        fake.clock.wait(threading.Event(), fake.clock.now() + 20)
    return fake(argv, stdin)


def test_only_nodes_that_are_up_count() -> None:
    text = """\
     STATE NNODES NCORES NGPUS NODELIST
      free      2     16     4 n[0-1]
 allocated      1      8     2 n2
      down      1      8     2 n3
"""
    site = flux.parse_capabilities(text, site="flux", queue="", poll_s=1.0)
    assert (site.largest, site.cores_per_node) == (Resources(24, None, None, 6), 8)
    none = flux.parse_capabilities("STATE NNODES NCORES NGPUS NODELIST\n", site="flux", queue="", poll_s=1.0)
    assert (none.largest, none.cores_per_node) == (None, None)


def test_the_site_under_flux() -> None:
    site = made("flux")[0].capabilities()
    assert (site.site, site.regime, site.largest, site.cores_per_node) == ("flux", QueueRegime.LIMITS, Resources(4), 4)


# ------------------------------------------------------------------------------------------------ PBS

PBS_HANDLE = JobHandle("1.vbox", "asa-1", 0.0)
QUEUED = """{"timestamp":1479277336, "pbs_version":"14.1", "pbs_server":"vbox", "Jobs":{"1.vbox":{
    "Job_Name":"asa-1", "Job_Owner":"root@vbox", "job_state":"Q", "queue":"workq", "server":"vbox", "Checkpoint":"u",
    "ctime":"Fri Nov 11 17:57:05 2016", "Error_Path":"vbox:/home/me/asa-1.e1", "Hold_Types":"n", "Join_Path":"oe",
    "Keep_Files":"n", "mtime":"Fri Nov 11 17:57:05 2016", "Priority":0, "qtime":"Fri Nov 11 17:57:05 2016",
    "Rerunable":"False", "Resource_List":{"ncpus":16, "nodect":2, "place":"scatter", "select":"2:ncpus=8",
    "walltime":"01:00:00"}, "substate":10, "Variable_List":{"PBS_O_HOME":"/root", "PBS_O_LANG":"en_US.UTF-8"},
    "comment":"Not Running: Insufficient amount of resource: ncpus (R: 16 A: 8 T: 8)",
    "etime":"Fri Nov 11 17:57:05 2016", "Submit_arguments":"-N asa-1", "project":"_pbs_project_default"}}}"""
PBS_JOB = json.loads(QUEUED)["Jobs"]["1.vbox"]
VNODES = {"exec_host": "n1/0*8+n2/0*8", "exec_vnode": "(n1:ncpus=8)+(n2[0]:ncpus=4+n2[1]:ncpus=4)"}
STARTED = {"stime": "Fri Nov 11 18:00:00 2016", **VNODES, "run_count": 1}


def at(text: str) -> float:
    return time.mktime(time.strptime(f"2016-11-11 {text}", "%Y-%m-%d %H:%M:%S"))


def ended(**attributes: Any) -> dict[str, Any]:
    return (
        PBS_JOB | STARTED | {"job_state": "F", "substate": 92, "resources_used": {"walltime": "00:10:00"}} | attributes
    )


def test_a_job_that_waits_in_pbs() -> None:
    jobs = pbs.document(QUEUED, "Jobs")
    status = pbs.parse_status(PBS_HANDLE, jobs["1.vbox"])
    assert (status.state, status.reason, status.started) == (JobState.PENDING, "Resources", None)
    assert status.cores is None
    assert status.eligible == pbs.submit_time(jobs["1.vbox"]) == at("17:57:05")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job_state": "W"}, "BeginTime"),
        ({"job_state": "H", "depend": "afterok:0.vbox@vbox"}, "Dependency"),
        ({"job_state": "H"}, "JobHeldUser"),
        ({"comment": ""}, "Priority"),
        ({"comment": "Not Running: Queue not started."}, "Not Running: Queue not started."),
    ],
)
def test_why_a_job_waits_in_pbs(changes: dict[str, str], reason: str) -> None:
    assert pbs.parse_status(PBS_HANDLE, PBS_JOB | changes).reason == reason


def test_a_job_that_runs_in_pbs() -> None:
    status = pbs.parse_status(PBS_HANDLE, PBS_JOB | STARTED | {"job_state": "R", "run_count": 2})
    assert (status.state, status.started, status.ended) == (JobState.RUNNING, at("18:00:00"), None)
    assert (status.nodes, status.restarts, status.cores) == (("n1", "n2"), 1, 16)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"job_state": "Z"}, JobState.PENDING),
        (STARTED | {"job_state": "Z"}, JobState.RUNNING),
        (STARTED | {"job_state": "U"}, JobState.RUNNING),  # suspended: somebody works at its machine
        (STARTED | {"job_state": "X", "Exit_status": 0}, JobState.COMPLETED),
    ],
)
def test_a_letter_that_pbs_does_not_explain_is_no_end(changes: dict[str, Any], state: JobState) -> None:
    assert pbs.parse_status(PBS_HANDLE, PBS_JOB | changes).state is state


@pytest.mark.parametrize(
    ("attributes", "state", "code"),
    [
        ({"Exit_status": 0}, JobState.COMPLETED, 0),
        ({"Exit_status": 3}, JobState.FAILED, 3),
        ({"Exit_status": 265}, JobState.FAILED, 137),
        ({"Exit_status": 271, "substate": 91}, JobState.CANCELLED, 143),
        ({"Exit_status": -29}, JobState.TIMEOUT, None),
        ({"Exit_status": 271, "resources_used": {"walltime": "01:00:03"}}, JobState.TIMEOUT, 143),
        ({"Exit_status": -27}, JobState.OUT_OF_MEMORY, None),
        ({"Exit_status": -1}, JobState.FAILED, None),
    ],
)
def test_how_a_job_ended_in_pbs(attributes: dict[str, Any], state: JobState, code: int | None) -> None:
    status = pbs.parse_status(PBS_HANDLE, ended(**attributes))
    assert (status.state, status.exit_code) == (state, code)
    assert status.started == at("18:00:00") and status.ended is not None and status.ended > status.started


def test_a_job_that_was_deleted_before_it_ran_never_started() -> None:
    job = PBS_JOB | {"job_state": "F", "substate": 91, "mtime": "Fri Nov 11 19:00:00 2016"}
    status = pbs.parse_status(PBS_HANDLE, job)
    assert (status.state, status.started, status.ended) == (JobState.CANCELLED, None, at("19:00:00"))


def test_the_end_of_a_pbs_job_is_reported_or_follows_from_what_was_used() -> None:
    assert pbs.parse_status(PBS_HANDLE, ended(Exit_status=0)).ended == at("18:10:00")
    reported = ended(Exit_status=0, obittime="Fri Nov 11 18:10:02 2016")
    assert pbs.parse_status(PBS_HANDLE, reported).ended == at("18:10:02")


@given(st.floats(0, 4e9, allow_nan=False))
def test_times_are_read_as_they_are_written(moment: float) -> None:
    text = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(moment))
    read = pbs.parse_time(text)
    assert read is not None and abs(read - int(moment)) in (0, 3600)  # the hour that summer time says twice


def test_a_submission_in_words_in_pbs() -> None:
    wanted = PbsOptions(queue="short", account="p123", chunk="model=bro", extra="-M 'a b' -m n")
    job = JobRequest("asa-1", Resources(16, 2, 3 * MIB + 1, 4), 5400.5, ("true",), begin=0.0)
    words = pbs.qsub_options(job, wanted)
    assert words[:10] == [
        "-N", "asa-1", "-l", "select=2:ncpus=8:mem=2mb:ngpus=2:model=bro", "-l", "place=scatter", "-l",
        "walltime=01:30:01", "-j", "oe",
    ]  # fmt: skip
    assert words[-8:] == ["-q", "short", "-A", "p123", "-M", "a b", "-m", "n"]


def test_changes_in_words() -> None:
    wanted = JobChanges(5400.5, Resources(4, 2), (), begin=0.0)
    words = pbs.qalter_options(wanted, now=0.0, chunk="model=bro")
    assert words[:6] == ["-l", "select=2:ncpus=2:model=bro", "-l", "place=scatter", "-l", "walltime=01:30:01"]
    assert words[6:8] == ["-W", "depend="] and words[8] == "-a"
    assert pbs.qalter_options(JobChanges(), now=0.0) == []


def test_the_script_runs_its_program(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    words = ("printf", "%s|", "two words", "", "'\"`$HOME`", "*", "grün", "two\nlines")
    job = JobRequest("a", Resources(), 60.0, words, str(tmp_path / "a b"), str(tmp_path / "out put"))
    subprocess.run(["sh"], input=pbs.job_script(job, PbsOptions(setup=("pwd",))), text=True, check=True, cwd="/")
    assert (tmp_path / "out put").read_text() == f"{tmp_path / 'a b'}\n" + "|".join(words[2:]) + "|"


def test_the_script_of_several_nodes_starts_it_on_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "pbsdsh"
    shell.write_text('#!/bin/sh\nshift\nfor node in 1 2; do (cd / && env -i NODE=$node "$@"); done\n')
    shell.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ("sh", "-c", 'echo "$NODE $PWD $1"', "-", "x  y")
    job = JobRequest("a", Resources(4, 2), 60.0, words, str(tmp_path), str(tmp_path / "out"))
    subprocess.run(["sh"], input=pbs.job_script(job, PbsOptions()), text=True, check=True)
    assert (tmp_path / "out").read_text() == f"1 {tmp_path} x  y\n2 {tmp_path} x  y\n"


def test_a_server_without_a_name_is_called_pbs() -> None:
    assert pbs.parse_server('{"Server": {}}') == ("pbs", {})
    assert pbs.parse_server('{"Server": {"pbs1": {"pbs_version": "23"}}}') == ("pbs1", {"pbs_version": "23"})


def test_a_token_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a letter expected first"):
        made("pbs")[0].submit([asked("1-asa")])


def test_the_site_under_pbs() -> None:
    found = made("pbs")[0].capabilities()
    assert (found.site, found.partition, found.regime) == ("pbs1", "workq", QueueRegime.LIMITS)
    assert (found.largest, found.cores_per_node) == (Resources(4, None, 32 * 2**30), 4)
    assert found.longest_s == 3600.0 and "job history" not in found.details


@pytest.mark.parametrize(("most", "expected"), [({}, 8), ({"ncpus": 4}, 4), ({"ncpus": 99}, 8)])
def test_the_largest_job_of_a_pbs_queue_is_within_its_own_limit(most: dict[str, Any], expected: int) -> None:
    node = {"state": "free", "resources_available": {"ncpus": 4}}
    found = pbs.site_capabilities("pbs1", "small", {}, {"resources_max": most}, [node, node], poll_s=1.0)
    assert found.largest == Resources(expected)


@pytest.mark.parametrize("system", ["flux", "pbs"])
def test_units_are_asked_for_anywhere_and_shown_before(system: str) -> None:
    request = JobRequest("a", Resources(8, unit=2), 60.0, ("true",), withheld=("LICENSE",))
    backend = Flux(clock=ManualClock(0.0)) if system == "flux" else Pbs(clock=ManualClock(0.0))
    (line,) = backend.preview([request])
    if system == "flux":
        assert line.startswith("env -u LICENSE flux submit --job-name=a --ntasks=4 --cores-per-task=2 ")
        assert "--setopt=per-resource.type=node" in line
    else:
        assert line.startswith("env -u LICENSE qsub -N a -l select=4:ncpus=2 -l place=free ")


def test_a_pbs_script_starts_one_program_on_each_host_and_says_how_many_cores_it_has(tmp_path: Path) -> None:
    nodes, shell = tmp_path / "nodes", tmp_path / "pbsdsh"
    nodes.write_text("n1\nn2\nn2\nn2\nn3\n")
    shell.write_text('#!/bin/sh\necho "index $2"\nshift 3\nexec "$@"\n')
    shell.chmod(0o755)
    argv = ("/bin/sh", "-c", 'echo "cores $ASA_CPUS_ON_NODE"; exit 3')
    request = JobRequest("a", Resources(10, unit=2), 60.0, argv, str(tmp_path), "out")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PBS_NODEFILE": str(nodes), "PBS_JOBID": "1"}
    script = pbs.job_script(request, pbs.PbsOptions())
    done = subprocess.run(["sh"], input=script, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 3
    words = (tmp_path / "out").read_text().splitlines()
    assert sorted(words) == ["cores 2", "cores 2", "cores 6", "index 0", "index 1", "index 4"]
