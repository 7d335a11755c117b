from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import OUTCOMES, Schedule
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.traces.records import RULES
from asa.lab.traces.swf import FIELDS, SwfHeader, SwfLog, load_swf, log_of, make_header, read_swf, write_swf
from tests.lab.traces.shared import shared_file, swf_columns

LINE = "1 0 10 60 4 -1 -1 4 100 -1 1 3 2 1 1 -1 -1 -1"


def records(*jobs):
    """Records with these fields; what is not told is -1, but a job of 1 processor that ran 60 s of 100."""
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


def test_packed_or_not_is_told_by_content(swf):
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
    ],
)
def test_the_machine(nodes, processors, machine):
    found = make_header({"MaxNodes": nodes, "MaxProcs": processors}).machine()
    assert (found and (found.nodes, found.cores)) == machine


def test_a_number_that_is_none():
    header = make_header({"MaxJobs": "many", "UnixStartTime": 0})
    assert header.number("MaxJobs") is None
    assert header.unix_start_time is None
    assert header.get("Note") is None


def test_a_schedule_becomes_a_log_and_comes_back(tmp_path):
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
