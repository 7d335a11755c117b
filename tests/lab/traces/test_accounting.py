from __future__ import annotations

import datetime
import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.core.units import clock
from asa.lab.core.schedule import OUTCOMES
from asa.lab.traces.accounting import Accounting, each, load_pbs, load_sacct, moment, seconds, size, timezone
from asa.lab.traces.records import Sieve
from tests.lab.traces.shared import shared_file

NAN = float("nan")


def accounting(*rows, **constants):
    """Records with these columns; what is not told is a job of one core that ran 60 s at once."""
    usual = {
        "job": "1", "submit": 1000, "eligible": NAN, "start": 1000, "run": 60, "walltime": 100, "nodes": 1, "cores": 1,
        "memory": 0, "gpus": 0, "outcome": OUTCOMES.index(JobState.COMPLETED), "spread": False, "user": "", "group": "",
        "name": "", "partition": "",
    } | constants  # fmt: skip
    full = [usual | {"job": str(number)} | row for number, row in enumerate(rows, 1)]
    columns = {name: [row[name] for row in full] for name in usual}
    texts = ("job", "user", "group", "name", "partition")
    return Accounting(**{
        name: values if name in texts else np.array(values, dtype={"outcome": "i1", "spread": "?"}.get(name, "f8"))
        for name, values in columns.items()
    })  # fmt: skip


def trace(log, units="cores", wait_from="submit"):
    return log.trace(Sieve("log", len(log.job), str), units=units, wait_from=wait_from)


@given(st.integers(0, 10**7))
def test_durations_read_back(whole):
    assert seconds(clock(whole)) == whole
    assert seconds(str(whole)) == whole


def test_sizes_and_times_that_are_none():
    assert [size(text) for text in ("", "0", "4X", "-1", "1.5K")] == [0, 0, 0, 0, 1536]
    assert np.isnan([seconds(text) for text in ("", "UNLIMITED", "Partition_Limit", "1-2-3", "a:b")]).all()
    assert np.isnan([moment(text, datetime.UTC) for text in ("", "Unknown", "0", "2024-13-01")]).all()


def test_dates_are_read_in_their_zone_across_the_change_of_clocks():
    umea = timezone("Europe/Stockholm")
    before, after = moment("2024-03-31T01:59:59", umea), moment("2024-03-31T03:00:00", umea)
    assert after - before == 1
    assert moment("2024-03-31 03:00:00", umea) == moment("2024-03-31T01:00:00", datetime.UTC)
    with pytest.raises(InvalidInput, match="time zone 'Umea' is not known"):
        timezone("Umea")


def test_texts_that_repeat_are_parsed_once():
    asked = []
    assert each(["7", "8", "7"], lambda text: asked.append(text) or float(text)).tolist() == [7, 8, 7]
    assert asked == ["7", "8"]


def test_the_clock_starts_with_the_first_submission():
    found = trace(accounting({"submit": 2000, "start": 2010}, {"submit": 1500, "start": 1500, "eligible": 1500}))
    assert found.epoch == 1500
    assert found.workload.submit.tolist() == [0, 500]
    assert found.workload.number.tolist() == [2, 1]
    assert found.workload.wait.tolist() == [0, 10]
    np.testing.assert_array_equal(found.eligible, [0, NAN])
    assert found.report.counts == {"out-of-order": 1}
    assert found.cluster is None


def test_waits_from_submission_or_from_eligibility():
    log = accounting(
        {"submit": 0, "eligible": 40, "start": 100},
        {"submit": 0, "eligible": NAN, "start": 100},
        {"submit": 50, "eligible": 40, "start": 100},
        {"submit": 50, "eligible": 300, "start": 100},
    )
    assert trace(log).workload.wait.tolist() == [100, 100, 50, 50]
    eligible = trace(log, wait_from="eligible")
    np.testing.assert_array_equal(eligible.workload.wait, [60, 100, 50, NAN])
    assert eligible.report.counts == {"no-wait": 1}


def test_runs_of_a_requeued_job_follow_one_another():
    log = accounting(
        {"job": "7", "submit": 0, "start": 10, "run": 50},
        {"job": "8", "submit": 5, "start": 5},
        {"job": "7", "submit": 0, "start": 90},
        {"job": "7", "submit": 200, "start": 210},
    )
    found = trace(log)
    assert found.workload.number.tolist() == [7, 8, 7, 7]
    assert found.workload.submit.tolist() == [0, 5, 60, 200]
    assert found.workload.wait.tolist() == [10, 0, 30, 10]
    assert found.report.counts == {"requeued": 2}


def test_equal_parts_over_nodes():
    log = accounting(
        {"nodes": 2, "cores": 16, "memory": 2**34, "gpus": 2, "spread": True},
        {"nodes": 2, "cores": 16, "memory": 2**34, "gpus": 2},
        {"nodes": 6, "cores": 64, "memory": 130},
        {"nodes": 2, "cores": 20, "gpus": 3},
        {"nodes": 0, "cores": 3},
    )
    jobs = trace(log, units="chunks").workload
    assert jobs.units.tolist() == [2, 2, 64, 1, 3]
    assert jobs.demands[jobs.kind].tolist() == [[8, 2**33, 1], [8, 2**33, 1], [1, 3, 0], [20, 0, 3], [1, 0, 0]]
    assert jobs.per_node.tolist() == [1, 0, 0, 0, 0]
    assert jobs.resources == ("cores", "memory", "gpus")
    assert trace(log, units="chunks").report.counts == {"uneven": 3}
    plain = trace(log).workload
    assert plain.cores.tolist() == jobs.cores.tolist() == [16, 16, 64, 20, 3]
    assert plain.demands.tolist() == [[1]]
    assert trace(accounting({"gpus": 2, "cores": 4}), units="chunks").workload.resources == ("cores", "gpus")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99), st.integers(0, 9)), min_size=1, max_size=5))
def test_parts_are_whole_and_lose_nothing(shapes):
    log = accounting(*({"nodes": nodes, "cores": cores, "gpus": gpus} for nodes, cores, gpus in shapes))
    jobs = trace(log, units="chunks").workload
    held = jobs.units[:, None] * jobs.demands[jobs.kind]
    assert held[:, 0].tolist() == [cores for _, cores, _ in shapes]
    if "gpus" in jobs.resources:
        assert held[:, jobs.resources.index("gpus")].tolist() == [gpus for *_, gpus in shapes]
    else:
        assert not any(gpus for *_, gpus in shapes)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"outcome": OUTCOMES.index(JobState.CANCELLED), "run": NAN, "start": NAN}, "cancelled"),
        ({"outcome": OUTCOMES.index(JobState.CANCELLED), "run": 0}, "cancelled"),
        ({"submit": NAN}, "no-submit-time"),
        ({"run": NAN}, "no-run-time"),
        ({"run": -5}, "negative-run-time"),
        ({"cores": 0}, "no-processors"),
        ({"run": 0}, "zero-run-time"),
        ({"walltime": NAN}, "no-requested-time"),
        ({"walltime": 0}, "no-requested-time"),
        ({"run": 101}, "overrun"),
        ({"start": 900}, "no-wait"),
    ],
)
def test_every_odd_record_falls_under_its_rule(row, rule):
    found = trace(accounting({}, row, {}))
    assert found.report.counts == {rule: 1}
    assert len(found.workload) == 3 - found.report.findings[0].rule.drops


def test_nothing_left():
    found = trace(accounting({"run": NAN}))
    assert len(found.workload) == 0
    assert np.isnan(found.epoch)


def test_options_that_are_none():
    with pytest.raises(InvalidInput, match="units='nodes', wait_from='submit'"):
        trace(accounting({}), units="nodes")
    with pytest.raises(InvalidInput, match="wait_from='end'"):
        trace(replace(accounting({})), wait_from="end")


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
def test_every_odd_record_falls_under_its_rule_sacct(of, row, rule):
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


def test_options_that_are_none_sacct(dump):
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


SELECT = "Resource_List.select=2:ncpus=8:mem=14gb:ngpus=1 Resource_List.ncpus=16 Resource_List.nodect=2"


@pytest.fixture
def pbs_trace(tmp_path):
    """A trace of lines given as "TYPE;ID;fields"; an E record gets what it leaves out of times and user."""

    def load(*lines, **options):
        usual = "user=ann group=phys queue=par jobname=run ctime=1000 qtime=1001 etime=1005 start=1100 end=1160"
        path = tmp_path / "20140401"
        path.write_text("".join(
            f"04/01/2014 00:00:{number:02};{line}{f' {usual}' * (line[0] == 'E')}\n"
            for number, line in enumerate(lines)
        ))  # fmt: skip
        return load_pbs(path, **options)

    return load


def test_a_day_in_the_life_of_a_batch_system(pbs_trace):
    trace = pbs_trace(
        "Q;1.srv;queue=par",
        "S;1.srv;user=ann",
        f'E;1.srv;{SELECT} account="my project" Resource_List.walltime=00:30:00 Exit_status=0',
        "Q;2.srv;queue=par",
        "D;2.srv;requestor=ann@login",
        "A;2.srv;",
        "Q;3.srv;queue=par",
        "Q;4.srv;queue=par",
        "S;4.srv;user=ann",
        "L;license;floating license hour:3 day:10",
    )
    jobs = trace.workload
    assert jobs.number.tolist() == [1]
    assert (jobs.submit[0], jobs.wait[0], jobs.run[0], jobs.walltime[0]) == (0, 100, 60, 1800)
    assert (trace.epoch, trace.eligible[0]) == (1000, 5)
    texts = [jobs.label(column, 0) for column in ("user", "group", "name", "partition")]
    assert texts == ["ann", "my project", "run", "par"]
    assert trace.report.counts == {"cancelled": 1, "unfinished": 2, "event": 6}
    assert trace.report.records == 10


@pytest.mark.parametrize(
    ("asked", "units", "need", "per_node"),
    [
        (SELECT, 2, [8, 14 * 2**30, 1], 0),
        (SELECT + " Resource_List.place=scatter:excl", 2, [8, 14 * 2**30, 1], 1),
        ("Resource_List.select=1:ncpus=16:nmics=2", 1, [16, 2], 0),
        ("Resource_List.select=ncpus=4", 1, [4], 0),
        ("Resource_List.select=1:ncpus=4+2:ncpus=4", 3, [4], 0),
        ("Resource_List.nodes=2:ppn=8 Resource_List.mem=12gb", 2, [8, 6 * 2**30], 1),
        ("Resource_List.nodes=n1:ppn=4+n2:ppn=4", 2, [4], 1),
        ("Resource_List.nodes=3", 3, [1], 1),
        ("Resource_List.ncpus=6 Resource_List.nodect=2", 2, [3], 0),
        ("Resource_List.nodect=2", 2, [1], 0),
        ("Resource_List.ncpus=6", 1, [6], 0),
    ],
)
def test_requests_become_units(pbs_trace, asked, units, need, per_node):
    trace = pbs_trace(f"E;1.srv;{asked}")
    jobs = trace.workload
    assert (jobs.units.tolist(), jobs.demands.tolist(), jobs.per_node.tolist()) == ([units], [need], [per_node])
    assert trace.report.count("uneven") == 0
    plain = pbs_trace(f"E;1.srv;{asked}", units="cores").workload
    assert (plain.units[0], plain.resources) == (units * need[0], ("cores",))


def test_a_request_of_different_chunks_falls_apart(pbs_trace):
    trace = pbs_trace("E;1.srv;Resource_List.select=1:ncpus=8+1:ncpus=4:mem=1200b")
    assert trace.workload.units.tolist() == [12]
    assert trace.workload.demands.tolist() == [[1, 100]]
    assert trace.report.count("uneven") == 1


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Exit_status=0", JobState.COMPLETED),
        ("Exit_status=1", JobState.FAILED),
        ("Exit_status=-11", JobState.FAILED),
        ("Exit_status=271", JobState.CANCELLED),
        ("Exit_status=271 Resource_List.walltime=00:01:00", JobState.TIMEOUT),
        ("Exit_status=0 Resource_List.walltime=00:01:00", JobState.COMPLETED),
    ],
)
def test_how_jobs_ended(pbs_trace, status, state):
    assert OUTCOMES[pbs_trace(f"E;1.srv;{SELECT} {status}").outcome[0]] is state


def test_no_word_of_how_it_ended(pbs_trace):
    assert pbs_trace(f"E;1.srv;{SELECT}").outcome.tolist() == [-1]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("E;1.srv;Resource_List.nodect=1", "repeated"),
        ("E;5[].srv;Resource_List.nodect=1", "event"),
        ("R;1.srv;", "event"),
        ("E;5.srv;", "no-processors"),
        ("D;5.srv;", "cancelled"),
        ("S;5.srv;", "unfinished"),
        ("E no record", "unreadable-line"),
    ],
)
def test_every_odd_line_falls_under_its_rule(pbs_trace, line, rule):
    limit = "Resource_List.nodect=1 Resource_List.walltime=1:00:00"
    report = pbs_trace(f"E;1.srv;{limit}", f"E;2[7].srv;{limit}", line).report
    report_without_limit = {name: count for name, count in report.counts.items() if name != "no-requested-time"}
    assert report_without_limit == {rule: 1}
    assert (report.records, report.jobs) == (3, 2)
    assert report.findings[0].first == "line 3"


def test_runs_of_a_requeued_job(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "04/01/2014 00:00:00;E;1.s;ctime=100 start=110 end=150 Resource_List.ncpus=2 Exit_status=0\n"
        "04/01/2014 00:00:00;E;1.s;ctime=100 start=200 end=260 Resource_List.ncpus=2 Exit_status=0\n"
        "04/01/2014 00:00:00;E;2.s;ctime=100 start=0 end=260 resources_used.walltime=00:00:09 Resource_List.ncpus=2\n"
    )
    trace = load_pbs(path)
    assert trace.workload.submit.tolist() == [0, 0, 50]
    assert trace.workload.run.tolist() == [40, 9, 60]
    assert trace.report.counts == {"requeued": 1, "out-of-order": 1, "no-requested-time": 3, "no-wait": 1}


def test_a_file_that_is_no_log(tmp_path):
    (tmp_path / "log").write_text("04/01/2014 hello\nworld\n")
    with pytest.raises(InvalidInput, match="no accounting log of PBS: line 1 is '04/01/2014 hello'"):
        load_pbs(tmp_path / "log")
