from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.hostlist import MOST, InvalidHostList, expand

RANGES = st.tuples(
    st.sampled_from(["n", "node-", "rack1-n", "gpu", "7", "0x"]),
    st.integers(1, 4),
    st.integers(0, 300),
    st.integers(0, 40),
)


@given(st.lists(RANGES, min_size=1))
def test_a_list_is_its_parts_one_after_the_other(parts: list[tuple[str, int, int, int]]) -> None:
    text = ",".join(f"{prefix}[{first:0{width}}-{first + more}]" for prefix, width, first, more in parts)
    names = [
        f"{prefix}{str(number).zfill(width)}"
        for prefix, width, first, more in parts
        for number in range(first, first + more + 1)
    ]
    assert list(expand(text)) == names


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 4))
def test_a_range_is_its_numbers_one_by_one_at_the_width_of_the_first(first: int, more: int, width: int) -> None:
    names = tuple(f"cn{number:0{width}}" for number in range(first, first + more + 1))
    assert expand(",".join(names)) == names
    assert expand(f"cn[{first:0{width}}-{first + more}]") == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("c21554n[1-4]", ("c21554n1", "c21554n2", "c21554n3", "c21554n4")),  # recorded
        ("n[1-2,7],m2,k[08-10]", ("n1", "n2", "n7", "m2", "k08", "k09", "k10")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("a[1-2]b[08,10]c,d", ("a1b08c", "a1b10c", "a2b08c", "a2b10c", "d")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("gpu-[a,b]", ("gpu-a", "gpu-b")),
    ],
)
def test_forms(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        (",n1", "a name is missing"),
        ("a[1-2", "brackets do not match"),
        ("a1-2]", "brackets do not match"),
        ("n]1[", "brackets do not match"),
        ("a[[1]]", "brackets do not match"),
        ("a[]", "in brackets"),
        ("a[1,]", "in brackets"),
        ("n[a-b]", "'a-b' in brackets"),
        ("a[1-2-3]", "in brackets"),
        ("a[5-3]", "the range 5-3 falls"),
        (f"a[0-{MOST}]", "too many names"),
        ("n[1-3000000]", "too many names"),
        ("a[1-2000][1-2000]", "too many names"),
        ("a[1-1000000],b[1-1000000]", "too many names"),
    ],
)
def test_what_is_no_host_list_is_named_with_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(InvalidHostList, match=f"^host list .*{words}.*: expected something like 'n") as found:
        expand(text)
    assert repr(text) in str(found.value)
