from __future__ import annotations

import gzip

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES
from asa.lab.traces.sacct import load_sacct
from tests.lab.traces.shared import shared_file

REAL = """\
JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|Timelimit|ReqTRES|AllocTRES|ReqMem
1|1|a|b|root|root|main|COMPLETED|2026-11-21T13:27:53|2026-11-21T13:27:53|2026-11-21T13:27:54|2026-11-21T13:27:57|3|00:05:00|billing=2,cpu=2,mem=4G,node=1|billing=2,cpu=2,node=1|4G
1.batch|1.batch|batch||root||COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:57|3|||cpu=2,mem=0,node=1|
2|2|wrap|root|root|main|FAILED|2026-11-21T13:27:53|2026-11-21T13:27:53|2026-11-21T13:27:54|2026-11-21T13:27:56|2|1-00:00:00|billing=8,cpu=8,mem=200M,node=2|billing=8,cpu=8,node=2|200M
2.0|2.0|sleep||root||COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:56|2|||cpu=8,mem=0,node=2|
5|5|wrap|root|root|main|CANCELLED by 0|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:28:00|2026-11-21T13:28:04|4|00:05:00|billing=12,cpu=12,mem=4G,node=1|billing=12,cpu=12,node=3|4G
6+0|6|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:28:04|2026-11-21T13:28:05|1|00:05:00|billing=1,cpu=1,mem=4G,node=1|billing=1,cpu=1,node=1|4G
6+1|7|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:28:04|2026-11-21T13:28:05|1|00:05:00|billing=2,cpu=2,mem=4G,node=1|billing=2,cpu=2,node=1|4G
9|9|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:28:00|2026-11-21T13:28:04|2026-11-21T13:28:05|1|00:05:00|billing=1,cpu=1,mem=4G,node=1|billing=1,cpu=1,node=1|4G
10|10|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:57|2026-11-21T13:28:04|2026-11-21T13:28:04|0|00:05:00|billing=1,cpu=1,mem=4G,node=1|billing=1,cpu=1,node=1|4G
3_1|11|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:57|2026-11-21T13:27:59|2|00:05:00|billing=4,cpu=4,mem=4G,node=1|billing=4,cpu=4,node=1|4G
3_3|3|wrap|root|root|main|COMPLETED|2026-11-21T13:27:54|2026-11-21T13:27:54|2026-11-21T13:27:57|2026-11-21T13:27:59|2|00:05:00|billing=4,cpu=4,mem=4G,node=1|billing=4,cpu=4,node=1|4G
"""  # noqa: E501  # what Slurm 22.05 printed of jobs that a test cluster ran; the first one is called a|b

HEADING = "JobID|Submit|Start|End|State|Timelimit|AllocTRES|User|JobName"


@pytest.fixture
def dump(tmp_path):
    def write(text):
        path = tmp_path / "dump.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def of(dump):
    """A trace of rows with the columns of HEADING; what they leave out at their ends is usual."""

    def load(*rows, **options):
        usual = ["1", "100", "110", "170", "COMPLETED", "01:00", "cpu=2,mem=1G,node=1", "ann", "x"]
        lines = ["|".join(row.split("|") + usual[row.count("|") + 1 :]) for row in rows]
        return load_sacct(dump("\n".join([HEADING, *lines])), **options)

    return load


def test_what_slurm_printed(dump):
    trace = load_sacct(dump(REAL))
    jobs = trace.workload
    assert jobs.number.tolist() == [1, 2, 5, 6, 7, 9, 10, 11, 3]
    assert jobs.submit.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert jobs.wait.tolist() == [1, 1, 6, 10, 10, 10, 10, 3, 3]
    assert jobs.run.tolist() == [3, 2, 4, 1, 1, 1, 0, 2, 2]
    assert jobs.cores.tolist() == [2, 8, 12, 1, 2, 1, 1, 4, 4]
    assert jobs.walltime.tolist() == [300, 86400] + 7 * [300]
    assert jobs.label("name", 0) == "a|b"
    assert {jobs.label("user", row) for row in range(9)} == {"root"}
    assert (trace.eligible - jobs.submit).tolist() == [0, 0, 0, 0, 0, 6, 3, 0, 0]
    assert trace.epoch == 1795267673
    assert [OUTCOMES[code] for code in trace.outcome[:3]] == [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]
    assert trace.report.counts == {"step": 2, "delimiter-in-name": 1, "component": 2, "zero-run-time": 1}
    assert load_sacct(dump(REAL), wait_from="eligible").workload.wait.tolist() == [1, 1, 6, 10, 10, 4, 7, 3, 3]


def test_the_parts_of_a_job(dump):
    jobs = load_sacct(dump(REAL), units="chunks").workload
    assert jobs.units.tolist() == [1, 2, 3, 1, 1, 1, 1, 1, 1]
    assert jobs.demands[jobs.kind[:3]].tolist() == [[2, 2**32], [4, 100 * 2**20], [4, -(-(2**32) // 3)]]
    assert (jobs.per_node == 1).all(), "Slurm's nodes are different ones"
    requested = load_sacct(dump(REAL), units="chunks", processors="requested")
    assert requested.workload.units[2] == 1, "it asked for cores, and got three nodes"
    assert requested.workload.demands[requested.workload.kind[2]].tolist() == [12, 2**32]


def test_epochs_packed_dumps_and_headings_in_between(dump):
    rows = "7|100|110|170|COMPLETED|01:00|cpu=2|ann|x\n"
    text = f"{HEADING}\n{rows}{HEADING}\n{rows}8{rows[1:]}"
    trace = load_sacct(dump(gzip.compress(text.encode())))
    assert trace.workload.number.tolist() == [7, 8]
    assert trace.epoch == 100
    assert trace.report.counts == {"repeated": 2}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("2.extern", "step"),
        ("2|100|Unknown|Unknown|PENDING", "unfinished"),
        ("2_[4-9]|100|Unknown|Unknown|PENDING", "unfinished"),
        ("2|100|110|Unknown|RUNNING", "unfinished"),
        ("2|100|None|150|CANCELLED by 1000", "cancelled"),
        ("2_[4-9]|100|150|150|CANCELLED by 1000", "cancelled"),
        ("2|Unknown", "no-submit-time"),
        ("2|100|Unknown|Unknown|NODE_FAIL", "no-run-time"),
        ("2|100|110|109", "negative-run-time"),
        ("2|100|110|170|COMPLETED|01:00||ann", "no-processors"),
        ("2+1", "component"),
        ("1|180|190|250", "requeued"),
        ("1", "repeated"),
        ("2|100|110|110", "zero-run-time"),
        ("2|100|110|170|COMPLETED|UNLIMITED", "no-requested-time"),
        ("2|100|110|170|TIMEOUT|Partition_Limit", "no-requested-time"),
        ("2|100|110|171|TIMEOUT", "overrun"),
        ("2|100|90|100", "no-wait"),
        ("not a job", "unreadable-line"),
        ("2|100|110|170|COMPLETED|01:00|cpu=2,mem=1G,node=1|ann|x|y", "delimiter-in-name"),
    ],
)
def test_every_odd_record_falls_under_its_rule(of, row, rule):
    report = of("1", row, "3|180|190|250").report
    assert report.counts == {rule: 1}
    assert report.findings[0].first == "line 3"


def test_a_line_that_was_cut_off(dump):
    whole = "1|100|110|170|COMPLETED|01:00|cpu=2|ann|x\n"
    trace = load_sacct(dump(f"{HEADING}\n{whole}2{whole[1:]}3|100|11"))
    assert trace.report.counts == {"short-line": 1}


def test_states(of):
    states = "COMPLETED FAILED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED DEADLINE BOOT_FAIL CANCELLED+ WHATEVER"
    trace = of(*(f"{number}|100|110|170|{state}" for number, state in enumerate(states.split(), 1)))
    known = " ".join(OUTCOMES[code].name for code in trace.outcome[:-1])
    assert known == "COMPLETED FAILED TIMEOUT OUT_OF_MEMORY NODE_FAIL PREEMPTED CANCELLED NODE_FAIL CANCELLED"
    assert trace.outcome[-1] == -1


@pytest.mark.parametrize(
    ("memory", "bytes_"), [("4Gn", 2 * 2**32), ("4Gc", 8 * 2**32), ("4G", 2**32), ("4096", 2**32), ("0n", 0), ("", 0)]
)
def test_columns_of_older_slurms(dump, memory, bytes_):
    text = f"JobIDRaw,Submit,Start,End,NCPUS,NNodes,ReqMem,TimelimitRaw,UID\n5,100,100,160,8,2,{memory},90,1007\n"
    jobs = load_sacct(dump(text), units="chunks").workload
    assert (jobs.units[0], jobs.cores[0], jobs.walltime[0], jobs.label("user", 0)) == (2, 8, 5400, "1007")
    assert (jobs.units * jobs.demands[jobs.kind].sum(axis=1))[0] == 8 + bytes_


def test_dates_need_the_zone_of_their_site(dump):
    text = "JobID|Submit|Start|End|NCPUS\n1|2024-03-31T01:30:00|2024-03-31T01:30:00|2024-03-31T03:30:00|1\n"
    assert load_sacct(dump(text)).workload.run.tolist() == [7200]
    assert load_sacct(dump(text), zone="Europe/Stockholm").workload.run.tolist() == [3600]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobID|State\n1|COMPLETED\n", "has no column Submit, only JobID, State: dump it with sacct"),
        (HEADING + "\n", "no dump of sacct: line 1 is 'JobID"),
        (HEADING + "\n1|2\n3\n", "no dump of sacct: line 2 is '1.2', where a job was expected: 9 fields"),
        ("", "is empty"),
    ],
)
def test_files_that_are_no_dump(dump, text, message):
    with pytest.raises(InvalidInput, match=message):
        load_sacct(dump(text))


def test_options_that_are_none(dump):
    with pytest.raises(InvalidInput, match="processors='used'"):
        load_sacct(dump(REAL), processors="used")


@pytest.mark.slow
@pytest.mark.shared
def test_a_table_with_names_of_its_own():
    names = {
        "job_unique_id": "JobID", "submit_time": "Submit", "eligible_time": "Eligible", "start_time": "Start",
        "end_time": "End", "state": "State", "partition_id_x": "Partition", "account_id": "Account",
        "req_cpus": "ReqCPUS", "req_tres": "ReqTRES", "time_limit_sec": "Timelimit",
    }  # fmt: skip
    path = shared_file("accounting", "drac-graham-2021_queued-jobs.csv.gz")
    trace = load_sacct(path, names=names, wait_from="eligible", zone="America/Toronto")
    assert len(trace.workload) == 133_025
    with gzip.open(path, "rt") as file:
        place = file.readline().split(",").index("eligible_wait_sec") - 29  # the column of resources has commas
        waits = sorted(float(line.split(",")[place]) for line in file)
    np.testing.assert_array_equal(np.sort(trace.workload.wait), waits)
