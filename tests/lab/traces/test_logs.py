"""Logs of jobs become workloads: what is recognised, read, dropped and noted."""

from __future__ import annotations

import datetime
import gzip
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asa.core.errors import AsaWarning, InvalidInput, UnknownName
from asa.core.job import JobState
from asa.core.units import clock, moment
from asa.lab.core.cluster import Cluster, Partition, Qos
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import why_refused
from asa.lab.traces.accounting import Accounting, each, load_pbs, load_sacct, seconds, size, timezone
from asa.lab.traces.load import FORMATS, load_trace
from asa.lab.traces.records import RULES, Sieve
from asa.lab.traces.swf import FIELDS, SwfHeader, SwfLog, load_swf, log_of, make_header, read_swf, write_swf
from tests.lab.traces.shared import shared_file, swf_columns

# -- Load -------------------------------------------------------------------------------------------------------------

SWF = "1 0 10 60 4 -1 -1 4 100 -1 1 3 2 1 1 -1 -1 -1\n"
LOGS = {
    "swf": SWF,
    "sacct": "JobID|Submit|Start|End|NCPUS\n1|100|110|170|4\n",
    "pbs": "04/01/2014 00:00:00;E;1.s;ctime=100 start=110 end=170 Resource_List.ncpus=4\n",
}


@pytest.fixture
def file(tmp_path):
    def write(data):
        (tmp_path / "log").write_bytes(data if isinstance(data, bytes) else data.encode())
        return tmp_path / "log"

    return write


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_logs_are_recognised_by_what_they_hold(file, name, pack):
    for trace in (load_trace(file(pack("\n" + LOGS[name]))), load_trace(file(pack(LOGS[name])), format=name)):
        assert (trace.workload.run.tolist(), trace.workload.cores.tolist()) == ([60], [4])
        assert trace.workload.wait.tolist() == [10]
        assert trace.source.endswith("log")
        assert repr(trace).endswith("log: 1 jobs on an unknown machine>")


@pytest.mark.parametrize(
    ("log", "said", "expected"),
    [
        (Cluster.of(6, 4), {}, (6, 4)),
        (Cluster.of(6, 4), {"cores": 8}, (3, 8)),
        (Cluster.of(6, 4), {"nodes": 2}, (2, 4)),
        (Cluster.of(6, 4), {"nodes": 2, "cores": 16}, (2, 16)),
        (Cluster.of(6, 4), {"gpus": 1}, (6, 4)),
        (None, {"nodes": 5}, (5, 1)),
        (None, {"nodes": 5, "cores": 3}, (5, 3)),
        (Cluster(np.array([[1], [7]])), {"nodes": 5}, (5, 1)),
    ],
)
def test_what_the_log_does_not_say_of_the_machine_can_be_said(file, log, said, expected):
    made = replace(load_trace(file(SWF)), cluster=log).machine(**said)
    assert (made.nodes, int(made.capacity[0, 0])) == expected
    assert ("gpus" in made.resources) == ("gpus" in said)


def test_a_machine_of_unknown_size_is_refused(file):
    trace = load_trace(file(SWF))
    with pytest.raises(InvalidInput, match="does not say how large its machine is: give nodes, and cores per node"):
        trace.machine(cores=4)
    for text in ("1e12", "1,024", "0", "99999999999"):
        trace = load_trace(file(f"; MaxProcs: {text}\n{SWF}"))
        with pytest.raises(InvalidInput, match=rf"machine is \(its header has '; MaxProcs: {text}': whole numbers"):
            trace.machine(cores=4)
        assert trace.machine(nodes=5).nodes == 5
    with pytest.raises(InvalidInput, match="24 cores make no whole nodes of 7: give nodes, too"):
        replace(trace, cluster=Cluster.of(6, 4)).machine(cores=7)


@pytest.mark.parametrize("text", [f"; MaxProcs: 9\n{SWF}", f";\n{SWF}", SWF.replace(" ", "\t"), f"   {SWF}"])
def test_swf_of_all_kinds(file, text):
    assert len(load_trace(file(text)).workload) == 1


@pytest.mark.parametrize("heading", ["JobIDRaw|Submit|Start|End|NCPUS|", "User|JobName|JobID|Submit|Start|End"])
def test_headings_of_all_kinds(file, heading):
    assert load_trace(file(f"{heading}\n1|1|1|5|5|5\n")).report.records == 1


def test_options_go_to_the_reader(file):
    assert load_trace(file(SWF.replace(" 4 -1 -1 4 ", " 9 -1 -1 4 ")), processors="allocated").workload.cores[0] == 9


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            "submit,cores\n1,2\n",
            r"no known format: its first line is 'submit,cores'. Known are:\n  swf: .*\n  sacct: .*\n",
        ),
        ("1 2 3\n", "no known format"),
        (b"\x7fELF\0\0", "binary file: line 1"),
        (gzip.compress(b"\x7fELF\0\0", mtime=0), "binary file: line 1"),
        (gzip.compress(b"what", mtime=0)[:-3], "truncated gzip file"),
        (b"PK\x03\x04...", "packed with zip: unpack it"),
        ("", "is empty"),
    ],
)
def test_files_that_are_no_log(file, data, message):
    with pytest.raises(InvalidInput, match=message):
        load_trace(file(data))


def test_what_is_not_there(file, tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read .*: No such file"):
        load_trace(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"cannot read .*: Is a directory"):
        load_trace(tmp_path)
    with pytest.raises(UnknownName, match="unknown trace format 'sact': did you mean 'sacct'"):
        load_trace(file(SWF), format="sact")


DROPPING = [name for name, rule in RULES.items() if rule.drops]
KEEPING = [name for name, rule in RULES.items() if not rule.drops]


@given(st.lists(st.tuples(st.sets(st.sampled_from(DROPPING)), st.sets(st.sampled_from(KEEPING))), max_size=8))
def test_records_are_jobs_or_left_out_under_one_rule_each(records):
    sieve = Sieve("log", len(records), str)
    for name in KEEPING[::2]:
        sieve.note(name, [name in odd for _, odd in records])
    for name in DROPPING:
        sieve.drop(name, [name in wrong for wrong, _ in records])
    for name in KEEPING[1::2]:
        sieve.note(name, [name in odd for _, odd in records])
    report = sieve.report()
    assert report.records == report.jobs + sum(report.count(name) for name in DROPPING)
    first = [next((name for name in DROPPING if name in wrong), None) for wrong, _ in records]
    for name in DROPPING:
        assert report.count(name) == first.count(name)
    for name in KEEPING:
        assert report.count(name) == sum(name in odd for wrong, odd in records if not wrong)


def test_the_report_says_what_where_and_what_was_done():
    report = Sieve("my.log", 3, "line {}".format).note("overrun", [0, 0, 1]).drop("step", [0, 1, 0]).report()
    assert str(report).splitlines() == [
        "my.log: 2 jobs of 3 records",
        "  step: 1, first line 1: a step of a job, which has a record of its own; left out",
        "  overrun: 1, first line 2: ran past its requested time; kept: the simulator's rule for overruns decides",
    ]
    assert report.counts == {"step": 1, "overrun": 1}


def test_two_steps_make_one_report():
    reading = Sieve("log", 5, str).drop("short-line", [0, 1, 0, 0, 0]).note("extra-fields", [1, 0, 0, 0, 0]).report()
    sorting = Sieve("log", 4, str).drop("cancelled", [1, 1, 0, 0]).note("extra-fields", [0, 0, 1, 0]).report()
    both = reading.then(sorting)
    assert (both.records, both.jobs) == (5, 2)
    assert both.counts == {"short-line": 1, "cancelled": 2, "extra-fields": 2}
    assert [finding.rule.drops for finding in both.findings] == [True, True, False]


def test_a_rule_may_apply_twice():
    sieve = Sieve("log", 4, str)
    sieve.drop("step", [0, 0, 1, 0]).drop("step", [0, 1, 1, 0]).note("overrun", [1, 0, 0, 0]).note(
        "overrun", [1, 0, 0, 1]
    )
    assert [(item.rule.name, item.count, item.first) for item in sieve.report().findings] == [
        ("step", 2, "1"), ("overrun", 2, "0"),
    ]  # fmt: skip


def test_what_stands_further_up_is_left_out():
    sieve = Sieve("log", 4, str).drop("step", [1, 0, 0, 0]).drop_repeated("aaba")
    assert sieve.keep.tolist() == [False, True, True, False]
    assert sieve.report().counts == {"step": 1, "repeated": 1}


def test_a_rule_that_does_not_exist():
    with pytest.raises(UnknownName, match="unknown rule 'overun': did you mean 'overrun'"):
        Sieve("log", 0, str).report().count("overun")


# -- Swf --------------------------------------------------------------------------------------------------------------

LINE = "1 0 10 60 4 -1 -1 4 100 -1 1 3 2 1 1 -1 -1 -1"


def records(*jobs):
    """Records with these fields; what is not given is -1, but a job of 1 processor that ran 60 s of 100."""
    usual = {"submit": 0, "run": 60, "requested": 1, "walltime": 100, "wait": 0}
    rows = [{"number": number} | usual | job for number, job in enumerate(jobs, 1)]
    return np.array([[row.get(name, -1) for name in FIELDS] for row in rows], dtype=float)


def log(*jobs, **header):
    return SwfLog(make_header(header), records(*jobs))


@pytest.fixture
def swf(tmp_path):
    def write(text, name="a.swf"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_columns_become_a_workload():
    trace = log(
        {"submit": 5, "wait": 7, "run": 60, "requested": 4, "allocated": 8, "walltime": 100, "user": 3, "group": 2,
         "executable": 9, "queue": 1, "status": 1},
        {"submit": 9, "wait": -1, "walltime": -1, "status": 0},
        UnixStartTime=1000, MaxProcs=8, Queue=["1 short"],
    ).trace()  # fmt: skip
    jobs = trace.workload
    assert jobs.submit.tolist() == [5, 9]
    assert jobs.run.tolist() == [60, 60]
    assert jobs.cores.tolist() == [4, 1]
    np.testing.assert_array_equal(jobs.walltime, [100, np.nan])
    np.testing.assert_array_equal(jobs.wait, [7, np.nan])
    assert (jobs.user[0], jobs.group[0], jobs.name[0], jobs.partition[0]) == (3, 2, 9, 1)
    assert (jobs.user[1], jobs.name[1]) == (UNKNOWN, UNKNOWN)
    assert jobs.label("partition", 0) == "short"
    assert jobs.resources == ("cores",)
    assert [OUTCOMES[code] for code in trace.outcome] == [JobState.COMPLETED, JobState.FAILED]
    assert (trace.epoch, trace.cluster.cores) == (1000, 8)


def test_names_of_queues_partitions_and_neither():
    both = {"Queue": ["1 short"], "Partition": ["0 thin", "2 fat"]}
    jobs = log({"queue": 1, "partition": 2}, {"partition": 1}, {"queue": 1}, **both).trace().workload
    assert [jobs.label("partition", row) for row in range(3)] == ["fat", "1", ""]
    assert log({"queue": 1}, **both).trace().workload.label("partition", 0) == "short"
    assert log({"queue": 3}).trace().workload.label("partition", 0) == "3"
    assert log({"queue": 10**12}, **both).trace().workload.label("partition", 0) == str(10**12)


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        ({"submit": -1}, "no-submit-time"),
        ({"run": -1}, "no-run-time"),
        ({"run": -7}, "negative-run-time"),
        ({"requested": -1}, "no-processors"),
        ({"requested": 0, "allocated": 0}, "no-processors"),
        ({"status": 5, "run": -1}, "cancelled"),
        ({"status": 5, "run": 0, "allocated": 0}, "cancelled"),
        ({"requested": -1, "allocated": 2}, "processors-missing"),
        ({"requested": 1, "allocated": 2}, "processors-differ"),
        ({"requested": 9}, "larger-than-machine"),
        ({"run": 0}, "zero-run-time"),
        ({"walltime": -1}, "no-requested-time"),
        ({"walltime": 59}, "overrun"),
        ({"wait": -1}, "no-wait"),
        ({"number": 1}, "duplicate-number"),
    ],
)
def test_every_odd_record_falls_under_its_rule(job, rule):
    report = log({}, job, {}, MaxProcs=8).trace().report
    assert report.counts == {rule: 1}
    assert report.jobs == 3 - RULES[rule].drops
    assert report.findings[0].first in ("job 2", "job 1")


def test_requested_or_allocated():
    odd = log({"requested": 3, "allocated": 5}, {"allocated": 5, "requested": -1}, {"requested": 3})
    assert odd.trace().workload.cores.tolist() == [3, 5, 3]
    allocated = odd.trace(processors="allocated")
    assert allocated.workload.cores.tolist() == [5, 5, 3]
    assert allocated.report.counts == {"processors-missing": 1, "processors-differ": 1}


def test_jobs_are_put_in_order_of_submission_and_ties_keep_theirs():
    trace = log({"submit": 50}, {"submit": 20}, {"submit": 50}, {"submit": 20}).trace()
    assert trace.workload.number.tolist() == [2, 4, 1, 3]
    assert trace.report.counts == {"out-of-order": 2}


def test_parts_of_a_checkpointed_job_count_once():
    trace = log(
        {"status": 1}, {"number": 1, "status": 2}, {"number": 1, "status": 3}, {"number": 7, "status": 4}
    ).trace()
    assert trace.workload.number.tolist() == [1, 7], "a part without a whole is all there is"
    assert trace.report.counts == {"partial": 2}


def test_cancelled_jobs_take_part_when_asked_for():
    both = log({"status": 5, "run": -1}, {})
    assert both.trace(cancelled=True).workload.run.tolist() == [0, 60]
    assert both.trace(cancelled=True).report.counts == {"zero-run-time": 1}


def test_memory_becomes_kinds_of_demands():
    odd = log({"requested_memory": 1024, "used_memory": 3}, {"requested_memory": 2048}, {"requested_memory": 1024}, {})
    trace = odd.trace(memory="requested")
    assert trace.workload.demands[trace.workload.kind].tolist() == [[1, 2**20], [1, 2**21], [1, 2**20], [1, 0]]
    assert trace.report.counts == {"no-memory": 1}
    assert odd.trace(memory="used").workload.demands.tolist() == [[1, 0], [1, 3072]]


def test_preceding_jobs():
    odd = log(
        {"number": 10, "submit": 5},
        {"number": 11, "submit": 0},
        {"number": 12, "submit": 9, "preceding": 10, "think": 30},
        {"number": 13, "submit": 9, "preceding": 12},
        {"number": 14, "submit": 9, "preceding": 99, "think": 5},
        {"number": 15, "submit": 9, "preceding": 15},
        {"number": 16, "submit": 9, "preceding": 17},
        {"number": 17, "submit": 10, "run": -1},
    )
    assert (odd.trace().workload.after == UNKNOWN).all()
    trace = odd.trace(dependencies=True)
    assert trace.workload.number.tolist() == [11, 10, 12, 13, 14, 15, 16]
    assert trace.workload.after.tolist() == [-1, -1, 1, 2, -1, -1, -1]
    assert trace.workload.think.tolist() == [0, 0, 30, 0, 0, 0, 0]
    assert trace.report.count("bad-preceding") == 3


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(18)), elements=st.integers(-2, 5).map(float)))
def test_every_record_is_a_job_or_was_left_out(values):
    odd = SwfLog(SwfHeader(), values)
    for options in ({}, {"dependencies": True}, {"cancelled": True}, {"processors": "allocated", "memory": "used"}):
        trace = odd.trace(**options)
        report = trace.report
        dropped = sum(finding.count for finding in report.findings if finding.rule.drops)
        assert len(trace.workload) + dropped == report.jobs + dropped == report.records == len(values)
        assert (trace.workload.after < np.arange(len(trace.workload))).all(), "no circles"
        assert len(trace.outcome) == len(trace.eligible) == len(trace.workload)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.just(18)),
        elements=st.integers(-(2**60), 2**60).map(float) | st.floats(allow_nan=False, allow_infinity=False),
    ),
    st.booleans(),
)
def test_what_is_written_reads_back(tmp_path_factory, values, packed):
    path = tmp_path_factory.mktemp("swf") / ("a.swf.gz" if packed else "a.swf")
    header = make_header({"Version": "2.2", "MaxProcs": 7, "Queue": ["1 a", "2 b"], "Note": "ünïcode"})
    write_swf(SwfLog(header, values), path)
    back = read_swf(path)
    assert back.header == header
    np.testing.assert_array_equal(back.records, values)
    assert path.read_bytes().startswith(b"\x1f\x8b") == packed
    assert [item.name for item in path.parent.iterdir()] == [path.name], "no draft is left"


def test_packing_is_recognised_by_content(swf):
    plain = read_swf(swf(f"; MaxProcs: 4\n{LINE}\n", "a.swf.gz"))
    packed = read_swf(swf(gzip.compress(f"{LINE}\n".encode()) + gzip.compress(LINE.encode()), "b.swf"))
    assert (len(plain), len(packed)) == (1, 2)


def test_lines_of_all_kinds(swf):
    path = swf(
        f"\ufeff; Version: 2.2\r\n\r\n  {LINE}\r\n; a note between\n{LINE.replace(' ', chr(9))} ; and behind\n{LINE}"
    )
    found = read_swf(path)
    assert found.reading is None, "the fast way took them all"
    assert (found.records == found.records[0]).all()
    assert len(found) == 3
    assert found.header.fields == (("Version", "2.2"), ("", "a note between"))


def test_bad_lines_are_counted_and_the_good_ones_kept(swf):
    lines = ["; MaxProcs: 4", LINE, "what is this?", LINE + " 19", LINE, LINE, LINE.replace("60", "nan"), "", LINE[:20]]
    found = read_swf(swf("\n".join(lines)))
    assert found.reading.counts == {"unreadable-line": 2, "short-line": 1, "extra-fields": 1}
    assert {item.rule.name: item.first for item in found.reading.findings} == {
        "unreadable-line": "line 3", "short-line": "line 9", "extra-fields": "line 4",
    }  # fmt: skip
    np.testing.assert_array_equal(found.records, [[float(word) for word in LINE.split()]] * 4)
    report = found.trace().report
    assert (report.records, report.jobs) == (7, 4)
    assert report.count("duplicate-number") == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"; MaxProcs: 4\n", "has a header but no records"),
        (LINE.encode() + b"\n\x89PNG\0\0", r"is a binary file: line 2 is '.PNG.x00"),
        (b"time,job\n1,2\n3,4\n", "is not in the Standard Workload Format: line 1 is 'time,job', where 18 numbers"),
        (b"1 2 3\n4 5 6\n", "line 1 is '1 2 3', where 18 numbers were expected .*2 of 2 lines"),
        (
            gzip.compress(1000 * f"; x\n{LINE}\n".encode(), mtime=0)[:60],
            r"is a truncated gzip file: it ends after \d+ whole",
        ),
        (gzip.compress(LINE.encode(), mtime=0)[:-8] + 8 * b"x", "is a damaged .* gzip file"),
        (b"BZh91AY&SY", "is packed with bzip2: unpack it"),
    ],
)
def test_broken_files_are_refused(swf, text, message):
    with pytest.raises(InvalidInput, match=message):
        read_swf(swf(text))


def test_a_truncated_file_tells_after_how_many_records(swf):
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 10**6, size=(2000, 18))
    text = "; Version: 2.2\n" + "\n".join(" ".join(map(str, row)) for row in numbers.tolist())
    whole = gzip.compress(text.encode())
    with pytest.raises(InvalidInput) as caught:
        read_swf(swf(whole[: len(whole) // 2]))
    count = int(str(caught.value).split()[-3])
    assert 900 < count < 1100, "as far as half of it goes"


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read .*nowhere.swf: No such file"):
        read_swf(tmp_path / "nowhere.swf")
    with pytest.raises(InvalidInput, match=r"cannot write .*a.swf: No such file"):
        write_swf(log({}), tmp_path / "nowhere" / "a.swf")
    with pytest.raises(InvalidInput, match="the log has no records"):
        write_swf(SwfLog(SwfHeader(), np.empty((0, 18))), tmp_path / "a.swf")
    assert list(tmp_path.iterdir()) == []


def test_records_that_are_none():
    with pytest.raises(InvalidInput, match=r"shape \(3, 4\): \(n, 18\) expected"):
        SwfLog(SwfHeader(), np.zeros((3, 4)))
    with pytest.raises(InvalidInput, match="record 1 has run nan: write -1"):
        SwfLog(SwfHeader(), records({}, {"run": np.nan}))
    with pytest.raises(InvalidInput, match="processors='used'"):
        log({}).trace(processors="used")


JOBS = {
    "HPC2N-2002-2.2-cln": (202_871, 240),
    "CTC-SP2-1996-3.1-cln": (77_222, 338),
    "KTH-SP2-1996-2": (28_489, 100),
    "CEA-Curie-2011-2.1-cln": (312_826, 93_312),
    "ANL-Intrepid-2009-1": (68_936, 163_840),
    "theta_argonne_2023_norm": (23_387, 4_392),
    "KIT-FH2-2016-1_first25k-derived": (25_326, 24_048),
    "lublin_256": (10_000, 256),
    "lf10k": (10_000, 256),
    "lf50k": (50_000, 256),
}


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", JOBS)
def test_real_logs_have_as_many_jobs_and_processors_as_their_table_says(name):
    trace = load_swf(shared_file("swf", f"{name}.swf.gz"))
    dropped = sum(finding.count for finding in trace.report.findings if finding.rule.drops)
    assert (len(trace.workload) + dropped, trace.cluster.cores) == JOBS[name]
    assert dropped == 0 or name == "CEA-Curie-2011-2.1-cln"


@pytest.mark.shared
def test_the_fast_way_reads_what_the_plain_one_does():
    np.testing.assert_array_equal(
        read_swf(shared_file("swf", "KTH-SP2-1996-2.swf.gz")).records, swf_columns("KTH-SP2-1996-2")
    )


@pytest.mark.slow
@pytest.mark.shared
def test_rules_that_real_logs_need():
    curie = load_swf(shared_file("swf", "CEA-Curie-2011-2.1-cln.swf.gz"))
    assert curie.report.counts == {
        "cancelled": 14_730, "no-processors": 4, "processors-missing": 80_106, "processors-differ": 20_005,
        "zero-run-time": 2_552, "overrun": 5_416,
    }  # fmt: skip
    assert curie.workload.label("partition", int(np.argmax(curie.workload.partition == 8))) == "hybrid"
    ctc = load_swf(shared_file("swf", "CTC-SP2-1996-3.1-cln.swf.gz"))
    assert ctc.report.count("processors-missing") == len(ctc.workload), "the allocated ones are all there are"
    hpc2n = read_swf(shared_file("swf", "HPC2N-2002-2.2-cln.swf.gz"))
    missing = hpc2n.trace(memory="requested").report.count("no-memory")
    assert round(1 - missing / len(hpc2n), 2) == 0.86, "memory for 86 %"
    assert np.median(hpc2n.trace().workload.wait[hpc2n.trace().workload.wait >= 0]) == pytest.approx(1599, abs=1)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "processors", "slowdown"), [("KTH-SP2", 100, "92.58"), ("CTC-SP2", 338, "49.57")])
def test_waits_of_the_oracle_give_its_slowdown_and_never_exceed_the_machine(name, processors, slowdown):
    trace = load_swf(shared_file("oracle", f"pyss-EASY-result_{name}.swf.gz"))
    jobs = trace.workload
    bounded = np.maximum(1, (jobs.wait + jobs.run) / np.maximum(jobs.run, 10))
    assert f"{bounded.mean():.2f}" == slowdown
    start = jobs.submit + jobs.wait
    times = np.concatenate([start + jobs.run, start])  # ends first at the same instant
    change = np.concatenate([-jobs.cores, jobs.cores])
    order = np.lexsort((change, times))
    assert np.cumsum(change[order]).max() == processors == trace.cluster.cores


CURIE = r"""
;   --- SWF file converted from SACCT ---
; Version: 2.2
;
; Information: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm
;              http://www.cs.huji.ac.il/labs/parallel/workload/
; MaxJobs: 773138
; UnixStartTime: 1296571124
; TimeZoneString: Europe/Paris
; Note: Curie is composed of 3 types of nodes: thin, fat, and hybrid,
;	see: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm
; MaxNodes: 5544
; MaxProcs: 93312
; Queue:  1
; Partition:  1  test
; Partition:  7  test,batch
""".splitlines()


def test_fields_of_a_real_header():
    header = SwfHeader.parse(CURIE)
    assert (header.number("MaxJobs"), header.max_nodes, header.max_procs) == (773138, 5544, 93312)
    assert (header.unix_start_time, header.get("TimeZoneString")) == (1296571124, "Europe/Paris")
    assert header.partitions == {1: "test", 7: "test,batch"}
    assert header.queues == {}, "a queue without a name has none"
    assert header.get("") == "--- SWF file converted from SACCT ---"
    assert header.get("Information").split("\n")[1] == "http://www.cs.huji.ac.il/labs/parallel/workload/"
    assert header.get("Note").endswith("hybrid,\nsee: http://www-hpc.cea.fr/en/complexe/tgcc-curie.htm")
    assert [key for key, _ in header.fields].count("Partition") == 2


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n")).map(";".__add__), max_size=8))
def test_what_is_written_reads_back_swf_header(lines):
    header = SwfHeader.parse(lines)
    assert SwfHeader.parse(header.lines()) == header


@pytest.mark.parametrize(
    ("nodes", "processors", "machine"),
    [
        (None, None, None),
        ("-1", "-1", None),
        ("-1", "338", (338, 338)),
        ("256", None, (256, 256)),
        ("338 (batch partition; 512 total)", "338", (338, 338)),
        ("40960", "163840", (40960, 163840)),
        ("5544", "93312", (93312, 93312)),  # several kinds of nodes
        ("4 (thin)", "12.5", (4, 4)),
        ("100, of two kinds", "1,024", (100, 100)),
        ("4; 2 of them fat", "1e12", (4, 4)),
        ("1 024 nodes", "2048", (2048, 2048)),
        ("99999999999", "64", (64, 64)),
        (None, "1e12", None),
        (None, "1'024", None),
    ],
)
def test_the_machine(nodes, processors, machine):
    found = make_header({"MaxNodes": nodes, "MaxProcs": processors}).machine()
    assert (found and (found.nodes, found.cores)) == machine


@given(st.integers(1, 10**6), st.sampled_from([",", ".", "'", "_", " ", "e", "-", "/", "x"]), st.integers(100, 999))
def test_a_number_with_something_in_it_is_no_number(first, between, then):
    """Whoever reads its first digits only has another machine."""
    for text in (f"{first}{between}{then}", f"{first}{between}{then} cores"):
        header = make_header({"MaxNodes": 4, "MaxProcs": text})
        assert header.max_procs is None and header.passed_over() == [f"MaxProcs: {text}"]
    good = make_header({"MaxNodes": 4, "MaxProcs": f"{4 * first} (all; {then})"})
    assert (good.max_procs, good.passed_over()) == (4 * first, [])


def test_a_field_of_the_header_that_is_passed_over_is_named(swf):
    job = "1 0 0 8 2 -1 -1 2 10 -1 1 1 1 1 1 1 -1 -1\n"
    with pytest.warns(AsaWarning) as said:
        trace = read_swf(swf(f"; MaxNodes: 4\n; MaxProcs: 1,024\n; UnixStartTime: 1e9\n{job}")).trace()
    assert (trace.machine().cores, np.isnan(trace.epoch)) == (4, True)
    texts = [str(each.message) for each in said]
    assert len(texts) == 2 and "'; MaxProcs: 1,024' is passed over" in texts[0] and "UnixStartTime: 1e9'" in texts[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_swf(swf(f"; MaxNodes: -1\n; MaxProcs: 8\n; UnixStartTime: 0\n{job}")).trace()


def test_a_number_that_is_none():
    header = make_header({"MaxJobs": "many", "UnixStartTime": 0})
    assert header.number("MaxJobs") is None
    assert header.unix_start_time is None
    assert header.get("Note") is None


def test_a_schedule_is_written_as_a_log_and_read_again(tmp_path):
    jobs = Workload.of(
        submit=[0, 1, 2, 3, 4.5], run=[10, 20, 30, 40, 50], units=[1, 2, 3, 4, 5], walltime=[10, 15, 30, 40, np.nan],
        demands=[[2, 2**20]], user=[4, 5, -1, 7, 8], after=[-1, -1, 0, -1, -1], think=[0, 0, 3, 0, 0],
        partition=[0, 0, 1, 0, 0], labels={"partition": ("long", "short")},
    )  # fmt: skip
    states = [JobState.COMPLETED, JobState.TIMEOUT, JobState.CANCELLED, JobState.PENDING, JobState.COMPLETED]
    schedule = Schedule(
        jobs,
        Cluster.of(4, 8),
        eligible=jobs.submit,
        start=np.array([5, 5, np.nan, np.nan, 60.5]),
        end=np.array([15, 20, np.nan, np.nan, 110.75]),
        outcome=np.array([OUTCOMES.index(state) for state in states], dtype=np.int8),
        restarts=np.zeros(5, dtype=np.int64),
    )
    made = log_of(schedule)
    write_swf(made, tmp_path / "a.swf.gz")
    back = read_swf(tmp_path / "a.swf.gz")
    np.testing.assert_array_equal(back.records, made.records)
    assert back["wait"].tolist() == [5, 4, -1, -1, 56]
    assert back["run"].tolist() == [10, 15, -1, -1, 50.25]
    assert back["status"].tolist() == [1, 0, 5, -1, 1]
    assert back["requested"].tolist() == [2, 4, 6, 8, 10]
    assert back["requested_memory"].tolist() == [512] * 5
    assert back["preceding"].tolist() == [-1, -1, 1, -1, -1]
    trace = back.trace(dependencies=True)
    assert trace.workload.number.tolist() == [1, 2, 5], "those that ran"
    assert trace.workload.wait.tolist() == [5, 4, 56]
    assert trace.report.counts == {"cancelled": 1, "no-run-time": 1, "no-requested-time": 1}
    assert (trace.cluster.nodes, trace.cluster.cores) == (4, 32)
    assert trace.workload.label("partition", 0) == "long"


# -- Accounting -------------------------------------------------------------------------------------------------------

NAN = float("nan")


def accounting(*rows, **constants):
    """Records with these columns; what is not given is a job of one core that ran 60 s at once."""
    usual = {
        "job": "1", "submit": 1000, "eligible": NAN, "start": 1000, "run": 60, "walltime": 100, "nodes": 1, "cores": 1,
        "memory": 0, "gpus": 0, "outcome": OUTCOMES.index(JobState.COMPLETED), "spread": False, "user": "", "group": "",
        "name": "", "partition": "", "qos": "",
    } | constants  # fmt: skip
    full = [usual | {"job": str(number)} | row for number, row in enumerate(rows, 1)]
    columns = {name: [row[name] for row in full] for name in usual}
    texts = ("job", "user", "group", "name", "partition", "qos")
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
def test_every_odd_record_of_an_accounting_log_falls_under_its_rule(row, rule):
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


def test_what_jobs_ask_for_besides_cores(dump):
    rows = [f"{HEADING}|Constraints"]
    rows += [
        f"{number}|100|110|170|COMPLETED|01:00|{tres}|ann|x|{features}"
        for number, (tres, features) in enumerate(
            [("cpu=8,mem=8G,node=2,gres/gpu=4", "a100&ib"), ("cpu=2,mem=1G,node=1", ""), ("cpu=2,node=1", "a100|ib")], 1
        )
    ]
    plain, whole = (load_trace(dump("\n".join(rows)), amounts=amounts).workload for amounts in (False, True))
    for jobs in (plain, whole):
        assert [jobs.label("constraint", row) for row in range(3)] == ["a100&ib", "", "a100|ib"]
    assert plain.resources == ("cores",)
    assert whole.resources == ("cores", "memory", "gpus")
    assert whole.demands[whole.kind].tolist() == [[4, 4 * 2**30, 2], [2, 2**30, 0], [2, 0, 0]]
    assert whole.units.tolist() == [2, 1, 1]
    typed = f"{HEADING}|ReqTRES\n1|100|110|170|COMPLETED|01:00|cpu=4,gres/gpu:t4=4,gres/gpu=4,node=2|ann|x|"
    typed += "cpu=4,node=2,gres/gpu:a100=2,gres/nvme=4\n2|101|110|170|COMPLETED|01:00|cpu=4,gres/gpu:t4=2,node=1|ann|x|"
    jobs = load_trace(dump(typed), amounts=True).workload
    assert jobs.resources == ("cores", "gpus", "gpus:a100", "gpus:t4", "gres/nvme")
    assert jobs.demands[jobs.kind].tolist() == [[2, 1, 1, 0, 2], [4, 2, 0, 2, 0]], "of the first, what was requested"
    alone = f"{HEADING}|ReqTRES\n1|100|110|170|COMPLETED|01:00|cpu=12,gres/gpu=2,node=3|ann|x|cpu=3,node=3"
    assert load_trace(dump(alone), amounts=True).workload.resources == ("cores",), "it has the GPUs of a whole node"
    swf = load_trace(dump(SWF), amounts=True).workload
    assert swf.resources == ("cores", "memory")


CONSTRAINTS = st.sampled_from(["", "fast", "fast&big", "gone|fast", "[fast*2]", "fast,big", "fast&"])


@given(st.lists(st.tuples(st.sampled_from("pqxy"), st.sampled_from("abz"), CONSTRAINTS, st.booleans()), min_size=1))
def test_jobs_for_which_a_machine_lacks_something_are_left_out_and_all_others_can_be_simulated(tmp_path_factory, rows):
    """Of a partition, a QOS, a constraint, or a resource: each job counts once, under the first of these."""
    parts, qos = {"p": Partition((0,)), "q": Partition((0, 1))}, {"a": Qos(grp_jobs=1), "b": Qos()}
    machine = replace(Cluster.of(2, 4, gpus=1), partitions=parts, qos=qos, features={"fast": (0,), "big": (0, 1)})
    path = tmp_path_factory.mktemp("log") / "log.txt"
    lines = ["JobID|Submit|Start|End|State|Timelimit|AllocTRES|Partition|QOS|Constraints"]
    for number, (part, service, features, strange) in enumerate(rows, 1):
        asked = "cpu=1,node=1" + ",gres/nvme=1" * strange
        lines.append(f"{number}|100|110|170|COMPLETED|01:00|{asked}|{part}|{service}|{features}")
    path.write_text("\n".join(lines))
    why = [
        "unknown-partition" if part in "xy"
        else "unknown-qos" if service == "z"
        else "unreadable-constraint" if features in ("[fast*2]", "fast,big", "fast&")
        else "unknown-resource" if strange else ""
        for part, service, features, strange in rows
    ]  # fmt: skip
    trace = load_trace(path, amounts=True)
    if all(why):
        with pytest.raises(InvalidInput, match=r"the machine takes no job of .* it has p, q, a, b, fast"):
            trace.on(machine)
        return
    found = trace.on(machine)
    assert found.workload.number.tolist() == [row for row, rule in enumerate(why, 1) if not rule]
    left = Counter(filter(None, why))
    assert {rule: count for rule, count in found.report.counts.items() if RULES[rule].drops} == left
    assert found.report.jobs == len(found.workload) == len(found.eligible) == len(found.outcome) == len(found.unlimited)
    refused = why_refused(found.workload, machine) > 0
    assert (simulate(found.workload, machine, "easy").ran == ~refused).all()


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
        ("2|100|110|170|COMPLETED|UNLIMITED", "unlimited"),
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
