import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.placement.hostlist import MOST, expand


@given(st.lists(st.integers(0, 500), min_size=1, max_size=20), st.integers(1, 4))
def test_numbers_one_by_one_or_as_ranges(numbers: list[int], width: int) -> None:
    names = [f"cn{number:0{width}}" for number in numbers]
    assert expand(",".join(names)) == names
    first, last = min(numbers), max(numbers)
    spelled = [f"cn{number:0{width}}" for number in range(first, last + 1)]
    assert expand(f"cn[{first:0{width}}-{last:0{width}}]") == spelled


def test_several_brackets_stand_for_all_combinations() -> None:
    assert expand("a[1-2]b[08,10]c,d") == ["a1b08c", "a1b10c", "a2b08c", "a2b10c", "d"]
    assert expand("gpu-[a,b]") == ["gpu-a", "gpu-b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no name"),
        ("a,,b", "no name"),
        ("a[1-2", "brackets do not match"),
        ("a1-2]", "brackets do not match"),
        ("a[[1]]", "brackets do not match"),
        ("a[]", "in brackets"),
        ("a[1,]", "in brackets"),
        ("a[1-2-3]", "in brackets"),
        ("a[5-3]", "falls"),
        (f"a[0-{MOST}]", "numbers"),
        ("a[1-2000][1-2000]", "too many"),
    ],
)
def test_what_is_no_host_list(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        expand(text)
