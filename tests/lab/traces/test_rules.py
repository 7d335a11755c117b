from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import UnknownName
from asa.lab.traces.rules import RULES, Sieve

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
