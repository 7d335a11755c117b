from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest

from asa.core.errors import InvalidInput
from asa.core.task import Input, last_words, substitute


class Pair(NamedTuple):
    left: Any
    right: Any


class Labels(dict[str, Any]):
    """A user's own dict, with an attribute."""

    unit = ""


class Row(list[Any]):
    pass


class Names(set[Any]):
    pass


class Version(tuple[Any, ...]):
    """No named tuple: nobody knows what it is to be made of."""

    def __new__(cls, first: Any, second: Any) -> Version:
        return super().__new__(cls, (first, second))


class Frozen(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("it is frozen")


def filled(value: Any) -> Any:
    return substitute(value, Input, lambda place: 10 + place.first)


ONE = Input(1)
STRUCTURES = [
    (ONE, 11),
    ([ONE, 5], [11, 5]),
    ((ONE, 5), (11, 5)),
    ({ONE, 5}, {11, 5}),
    (frozenset({ONE}), frozenset({11})),
    ({"a": ONE, "b": 5}, {"a": 11, "b": 5}),
    ({ONE: "a", (ONE, 1): "b"}, {11: "a", (11, 1): "b"}),
    (Pair(ONE, 5), Pair(11, 5)),
    (OrderedDict(b=5, a=ONE), OrderedDict(b=5, a=11)),
    (defaultdict(list, a=ONE), defaultdict(list, a=11)),
    (Counter({ONE: 3}), Counter({11: 3})),
    (Labels(a=ONE), Labels(a=11)),
    (Row([ONE, 5]), Row([11, 5])),
    (Names({ONE, 5}), Names({11, 5})),
    ([{"deep": [Pair((5, [ONE]), 5)]}], [{"deep": [Pair((5, [11]), 5)]}]),
]


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"x": value}])
@pytest.mark.parametrize(("given", "expected"), STRUCTURES)
def test_it_is_replaced_in_every_structure(given: Any, expected: Any, wrap: Any) -> None:
    made = filled(wrap(given))
    assert made == wrap(expected)
    assert type(made) is type(wrap(expected))


@pytest.mark.parametrize("expected", [expected for _, expected in STRUCTURES])
def test_a_structure_without_it_stays_the_same_object(expected: Any) -> None:
    assert filled(expected) is expected
    (kept, new) = filled([expected, ONE])
    assert kept is expected and new == 11


def test_what_a_structure_knows_beside_its_items_is_kept() -> None:
    labels = Labels(a=ONE)
    labels.unit = "K"
    assert filled(labels).unit == "K"
    assert filled(defaultdict(list, a=ONE))["b"] == []
    assert list(filled(OrderedDict(b=ONE, a=5))) == ["b", "a"]
    assert labels == {"a": ONE}, "the caller's own is left alone"


@pytest.mark.parametrize("given", [Version(ONE, 2), [Version(ONE, 2)], Frozen(a=ONE)])
def test_what_cannot_be_made_anew_is_refused(given: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"a (Version|Frozen) cannot be made anew .*: pass a plain list, tuple or dict"
    ):
        filled(given)


def test_what_cannot_be_in_a_set_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match=r"a set cannot be made anew .*unhashable type: 'list'"):
        substitute({ONE}, Input, lambda place: [])


def test_last_words() -> None:
    assert last_words(ValueError("first\nsecond"))[0] == "ValueError: first"
    assert last_words(KeyError())[0] == "KeyError"
    line, trace = last_words(ValueError("x" * 10_000))
    assert len(line) == 500 and len(trace) == 4096
