from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.cluster import Cluster
from asa.lab.traces.load import FORMATS, load_trace
from asa.lab.traces.records import RULES, Sieve

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
    with pytest.raises(InvalidInput, match="does not say how large its machine is: give nodes"):
        trace.machine(cores=4)
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
