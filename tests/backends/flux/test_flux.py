"""Over a Flux that exists only in `tests.backends.flux.fake`; outputs as Flux's manual pages and RFCs show them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import flux
from asa.backends.flux import Flux, FluxOptions
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, QueueRegime, Refused, Resources
from asa.core.registry import BACKENDS
from asa.testing.backends import BatchSemantics, TestedSite, program
from tests.backends.flux.fake import FakeFlux, f58

HANDLE = JobHandle("1", "hostname", 1687838671.4)
ENDED = """{
  "t_depend": 1687838671.51842,
  "t_run": 1687838671.9197195,
  "t_cleanup": 1687838672.1305885,
  "t_inactive": 1687838672.1725576,
  "duration": 0,
  "expiration": 4841438671,
  "name": "hostname",
  "cwd": "/tmp/workflow",
  "ntasks": 6,
  "ncores": 624,
  "nnodes": 6,
  "priority": 16,
  "ranks": "[44-49]",
  "nodelist": "burst[44-49]",
  "success": true,
  "result": "COMPLETED",
  "waitstatus": 0,
  "id": 1,
  "t_submit": 1687838671.4,
  "state": "INACTIVE",
  "username": "flux",
  "userid": 1000,
  "urgency": 16,
  "runtime": 0.2108690738677978,
  "status": "COMPLETED",
  "returncode": 0,
  "dependencies": [],
  "annotations": {},
  "exception": {"occurred": false, "severity": "", "type": "", "note": ""}
}"""
JOB = json.loads(ENDED)
WAITING = {key: value for key, value in JOB.items() if not key.startswith(("t_run", "t_cl", "t_in", "result", "ret"))}


def failed(kind: str = "", **attributes: Any) -> dict[str, Any]:
    exception = {"occurred": bool(kind), "severity": 0, "type": kind, "note": f"a {kind}"}
    return JOB | {"result": "FAILED", "exception": exception} | attributes


@pytest.fixture
def cluster() -> Flux:
    clock = ManualClock(1_700_000_000.0)
    return Flux(clock=clock, ask=FakeFlux(clock))


def test_a_job_that_ended_well() -> None:
    (job,) = flux.parse_jobs(ENDED).values()
    status = flux.parse_status(HANDLE, job)
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0)
    assert (status.started, status.ended) == (1687838671.9197195, 1687838672.1305885)
    assert status.nodes == tuple(f"burst{number}" for number in range(44, 50))


@pytest.mark.parametrize(
    ("job", "state", "code"),
    [
        (failed(returncode=3), JobState.FAILED, 3),
        (failed(returncode=-9), JobState.FAILED, 137),
        (failed("exec", returncode=127), JobState.FAILED, 127),
        (failed("node-failure"), JobState.NODE_FAIL, 0),
        (failed("cancel", result="CANCELED", returncode=-15), JobState.CANCELLED, 143),
        (failed("timeout", result="TIMEOUT", returncode=-15), JobState.TIMEOUT, 143),
        (WAITING | failed("dependency", t_run=0), JobState.CANCELLED, None),
    ],
)
def test_how_a_job_ended(job: dict[str, Any], state: JobState, code: int | None) -> None:
    status = flux.parse_status(HANDLE, job)
    assert (status.state, status.exit_code) == (state, code)
    assert status.ended is not None


@pytest.mark.parametrize(
    ("changes", "reason", "eligible"),
    [
        ({"state": "SCHED"}, "Resources", True),
        ({"state": "SCHED", "urgency": 0}, "JobHeldUser", True),
        ({"state": "DEPEND", "dependencies": ["after-success=1"]}, "Dependency", False),
        ({"state": "DEPEND", "dependencies": ["begin-time=1700000000"]}, "BeginTime", False),
    ],
)
def test_why_a_job_waits(changes: dict[str, Any], reason: str, eligible: bool) -> None:
    job = WAITING | changes | {"annotations": {"sched": {"t_estimate": 1687838700.0}}}
    status = flux.parse_status(HANDLE, job)
    assert (status.state, status.reason, status.planned) == (JobState.PENDING, reason, 1687838700.0)
    assert (status.eligible is not None) is eligible


def test_what_is_no_json_is_told() -> None:
    assert flux.parse_jobs("") == flux.parse_jobs('{"jobs": []}') == {}
    for text in ("       JOBID USER", "[]", '{"jobs": [{}]}'):
        with pytest.raises(BackendError, match="no JSON"):
            flux.parse_jobs(text)


@given(st.integers(0, 2**63))
def test_ids_are_read_as_flux_writes_them(number: int) -> None:
    assert flux.parse_job_id(f58(number) + "\n") == flux.parse_job_id(f58(number).replace("ƒ", "f")) == str(number)


@pytest.mark.parametrize("text", ["", "ƒ0", "xyz"])
def test_what_is_no_id_is_told(text: str) -> None:
    with pytest.raises(BackendError, match="job id"):
        flux.parse_job_id(text)


def test_a_submission_in_words() -> None:
    asked = JobRequest(
        "asa-1",
        Resources(16, 2, None, 4),
        90.5,
        ("prog", "--two words"),
        "/work",
        "/out",
        (Dependency(JobHandle("7", "a", 0.0)),),
        begin=130.0,
    )
    words = flux.submit_command(asked, FluxOptions("short", "p123", (), "--env=X=1"), now=100.0)
    assert words == [
        "flux", "submit", "--job-name=asa-1", "--nodes=2", "--ntasks=2", "--cores-per-task=8", "--gpus-per-task=2",
        "--time-limit=91s", "--cwd=/work", "--input=/dev/null", "--output=/out", "--error=/out",
        "--setopt=output.mode=append", "--dependency=afterok:7", "--begin-time=+30s", "--queue=short", "--bank=p123",
        "--env=X=1", "--", "prog", "--two words",
    ]  # fmt: skip


def test_lines_before_the_program(tmp_path: Path) -> None:
    asked = JobRequest("a", Resources(), 60.0, ("sh", "-c", 'echo "$X $1"', "-", "a  b"))
    words = flux.submit_command(asked, FluxOptions(setup=("export X=1",)), now=0.0)
    program = words[words.index("--") + 1 :]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "1 a  b\n"


@pytest.mark.parametrize("extra", ["--ntasks=3", "-N4", "--output=x"])
def test_what_asa_says_itself_cannot_be_said_twice(extra: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        Flux(extra=extra)


def test_the_site(cluster: Flux) -> None:
    site = cluster.capabilities()
    assert (site.site, site.regime, site.largest, site.cores_per_node) == ("flux", QueueRegime.LIMITS, Resources(4), 4)


def test_what_never_fits_is_refused_in_words(cluster: Flux) -> None:
    asked = [JobRequest("a", Resources(8), 60.0, ("true",)), JobRequest("b", Resources(), 60.0, ("true",), array="x")]
    reasons = [outcome.reason for outcome in cluster.submit(asked) if isinstance(outcome, Refused)]
    assert len(reasons) == 2 and "has room for 4 cores" in reasons[0] and "no job arrays" in reasons[1]


def test_it_speaks_to_the_program_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    flux = BACKENDS.create("flux:queue=short,timeout_s=20")
    handle = JobHandle("1", "hostname", 0.0)
    with pytest.raises(BackendError, match="no program 'flux' in PATH"):
        flux.query([handle])
    program = tmp_path / "flux"
    program.write_text("#!/bin/sh\necho 'flux-jobs: ERROR: Unable to connect to Flux: ENOENT' >&2\nexit 1\n")
    program.chmod(0o700)
    with pytest.raises(BackendError) as caught:
        flux.query([handle])
    assert caught.value.transient
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{ENDED}\nEND\n")
    assert flux.query([handle])[0].state is JobState.COMPLETED


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


def test_no_change_is_no_change(cluster: Flux) -> None:
    _, handle = cluster.submit([JobRequest(token, Resources(4), 60.0, program(9.0)) for token in ("a", "b")])
    assert isinstance(handle, JobHandle)
    cluster.update(handle, JobChanges())
    with pytest.raises(BackendError, match="only the wall time of a job that waits can be changed"):
        cluster.update(handle, JobChanges(begin=1.0))


class TestFlux(BatchSemantics):
    @pytest.fixture
    def site(self, tmp_path: Path) -> TestedSite:
        clock = ManualClock(1_700_000_000.0)
        backend = Flux(clock=clock, ask=FakeFlux(clock), poll_s=1.0)
        return TestedSite(
            backend, clock, tmp_path, run_s=10.0, resolution_s=1.0, shortest_s=60.0, walltime_s=600.0, patience_s=200.0
        )

    # Flux changes nothing of a job that waits but its wall time, and says so.

    def test_a_begin_time_can_be_moved(self, site: TestedSite) -> None:
        self._refused(site, JobChanges(begin=site.clock.now()))

    def test_a_dependency_can_be_added_and_taken_away(self, site: TestedSite) -> None:
        first = site.submit(site.request(begin=site.clock.now() + 3600))
        self._refused(site, JobChanges(dependencies=(Dependency(first),)))

    def test_a_job_can_be_made_smaller(self, site: TestedSite) -> None:
        self._refused(site, JobChanges(resources=site.half))

    def test_a_wall_time_can_be_changed(self, site: TestedSite) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 5, run_s=200.0))
        site.backend.update(handle, JobChanges(walltime_s=site.shortest_s))
        site.reach(handle, JobState.TIMEOUT)

    def _refused(self, site: TestedSite, changes: JobChanges) -> None:
        handle = site.submit(site.request(begin=site.clock.now() + 3600))
        with pytest.raises(BackendError, match="only the wall time") as caught:
            site.backend.update(handle, changes)
        assert not caught.value.transient
        assert site.status(handle).state is JobState.PENDING
