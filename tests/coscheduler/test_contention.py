import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from coscheduler.workload import PAPER_LIKE, Contention, capped, named, weighted

CORES = st.integers(1, 128)
JOBS = st.lists(st.tuples(st.floats(0.1, 128), st.floats(0.05, 0.95)), min_size=1, max_size=5)


@given(CORES, st.floats(0.05, 0.95), st.floats(0.1, 128), st.floats(0.1, 128))
def test_two_jobs_get_what_the_closed_form_says(cores, share, host, guest):
    host = min(host, cores)
    got = weighted(cores, [host, guest], [1 - share, share])
    expected = min(host, max((1 - share) * cores, cores - guest))
    assert got == pytest.approx([expected, min(guest, cores - expected)])


@given(CORES, JOBS)
def test_weights_waste_nothing_and_keep_promises(cores, jobs):
    demands, shares = zip(*jobs, strict=True)
    got = weighted(cores, demands, shares)
    assert sum(got) == pytest.approx(min(cores, sum(demands)))
    for each, demand, share in zip(got, demands, shares, strict=True):
        assert min(demand, share / sum(shares) * cores) - 1e-9 <= each <= demand + 1e-9


@given(CORES, JOBS)
def test_quotas_never_give_more_than_weights_would_promise(cores, jobs):
    demands, shares = zip(*jobs, strict=True)
    for got, demand, share in zip(capped(cores, demands, shares), demands, shares, strict=True):
        assert got == min(demand, share * cores)


def test_the_factor_counts_heads_and_memory():
    assert PAPER_LIKE.factor(1, 0.9) == 1
    assert PAPER_LIKE.factor(2, 1.0) == pytest.approx(0.97)
    assert PAPER_LIKE.factor(3, 1.01) == pytest.approx(0.97**2 * 0.4)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidInput, match="tax is 0"):
        Contention(tax=0)
    with pytest.raises(UnknownName, match="paper-like"):
        named("paperlike")
