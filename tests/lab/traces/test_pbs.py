from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.lab.core.schedule import OUTCOMES
from asa.lab.traces.pbs import load_pbs

SELECT = "Resource_List.select=2:ncpus=8:mem=14gb:ngpus=1 Resource_List.ncpus=16 Resource_List.nodect=2"


@pytest.fixture
def of(tmp_path):
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


def test_a_day_in_the_life_of_a_batch_system(of):
    trace = of(
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
def test_requests_become_units(of, asked, units, need, per_node):
    trace = of(f"E;1.srv;{asked}")
    jobs = trace.workload
    assert (jobs.units.tolist(), jobs.demands.tolist(), jobs.per_node.tolist()) == ([units], [need], [per_node])
    assert trace.report.count("uneven") == 0
    plain = of(f"E;1.srv;{asked}", units="cores").workload
    assert (plain.units[0], plain.resources) == (units * need[0], ("cores",))


def test_a_request_of_different_chunks_falls_apart(of):
    trace = of("E;1.srv;Resource_List.select=1:ncpus=8+1:ncpus=4:mem=1200b")
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
def test_how_jobs_ended(of, status, state):
    assert OUTCOMES[of(f"E;1.srv;{SELECT} {status}").outcome[0]] is state


def test_no_word_of_how_it_ended(of):
    assert of(f"E;1.srv;{SELECT}").outcome.tolist() == [-1]


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
def test_every_odd_line_falls_under_its_rule(of, line, rule):
    limit = "Resource_List.nodect=1 Resource_List.walltime=1:00:00"
    report = of(f"E;1.srv;{limit}", f"E;2[7].srv;{limit}", line).report
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
