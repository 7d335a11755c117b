"""Against the reconstruction's own table, and against the targets."""

import pytest

from asa.core.errors import InvalidInput, UnknownName
from coscheduler.compare import RULES, compare

pytestmark = pytest.mark.slow

SPACE = {  # wait h, CPU, response h, makespan h: an independent fluid simulation in steps of 10 s, other random queues
    64: (1.63, 0.57, 2.19, 4.42),
    128: (0.64, 0.52, 1.20, 2.24),
    256: (0.20, 0.42, 0.74, 1.25),
}
METRICS = ("mean_wait_h", "cpu_utilisation", "mean_response_h", "makespan_h")


@pytest.fixture(scope="module")
def rows():
    found = compare(seeds=4, seed=100).to_json()["rows"]
    return {(row["rule"], row["cores"]): row for row in found}


def test_every_row_is_there_with_its_intervals(rows):
    assert set(rows) == {(rule, cores) for rule in RULES for cores in SPACE}
    for row in rows.values():
        for metric in (*METRICS, "mean_slowdown", "over_walltime"):
            low, high = row["intervals"][metric]
            assert low <= row[metric] <= high


@pytest.mark.parametrize("cores", SPACE)
def test_space_sharing_reproduces_the_reference(rows, cores):
    row = rows["space", cores]
    assert [row[metric] for metric in METRICS] == pytest.approx(SPACE[cores], rel=0.07, abs=0.02)
    assert row["mean_slowdown"] == pytest.approx(1)
    assert row["over_walltime"] == 0


@pytest.mark.parametrize("cores", SPACE)
def test_rules_stand_as_the_reference_has_them(rows, cores):
    """The literal rules shorten waits and slow jobs down, many beyond their wall times; the scavenger does not."""
    space, static, asax, scavenger = (rows[rule, cores] for rule in RULES)
    for literal in (static, asax):
        assert literal["mean_wait_h"] < space["mean_wait_h"]
        assert literal["mean_slowdown"] > 1.2
        assert literal["over_walltime"] > 0.1
        assert literal["makespan_h"] > scavenger["makespan_h"]
        assert literal["mean_response_h"] > scavenger["mean_response_h"]


@pytest.mark.parametrize("cores", SPACE)
def test_the_scavenger_is_quicker_and_hurts_little(rows, cores):
    """With queues that its options were not chosen on."""
    space, scavenger = rows["space", cores], rows["scavenger", cores]
    assert scavenger["mean_response_h"] <= 0.86 * space["mean_response_h"]
    assert scavenger["makespan_h"] <= 0.85 * space["makespan_h"]
    assert scavenger["mean_slowdown"] <= 1.08
    assert scavenger["over_walltime"] <= 0.08


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UnknownName, match="sharing rule"):
        compare(["spaced"])
    with pytest.raises(InvalidInput, match="0 seeds"):
        compare(seeds=0)
    with pytest.raises(InvalidInput, match="expected one of 64"):
        compare(cores=[100], seeds=1)
    with pytest.raises(UnknownName, match="contention"):
        compare(["space"], cores=[64], seeds=1, contention="none")
