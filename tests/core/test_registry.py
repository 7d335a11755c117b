from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import Registry


class Sized:
    def __init__(self, size: int, *, share: float | None = None, name: str = "", quick: bool = False) -> None:
        self.options = size, share, name, quick


def passing(**options: Any) -> Sized:
    return Sized(**{"size": 1} | options)


def refusing(*, depth: Any = 1, **options: Any) -> float:
    for option in options:
        raise UnknownName("option of inner thing:", option, ["width"])
    return float(depth)


def broken(size: int = 1) -> None:
    len(size)  # type: ignore[arg-type]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module: Any = types.ModuleType("things_of_this_test")
    module.sized, module.passing, module.broken, module.refusing = Sized, passing, broken, refusing
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Registry("thing", {name: f"{module.__name__}:{name}" for name in ("sized", "passing", "broken", "refusing")})


def test_options_come_as_the_factory_takes_them(registry: Registry) -> None:
    assert registry.create("sized:size=2,share=1,name=7,quick").options == (2, 1, "7", True)
    assert registry.create("sized", size=3, other=4).options == (3, None, "", False)
    assert registry.create("sized:size=2", size=3).options == (2, None, "", False)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sized", "thing 'sized': missing a required argument: 'size'"),
        ("sized:size=abc", "thing 'sized:size=abc': size=abc is no number"),
        ("sized:size", "thing 'sized:size': size=True is no number"),
        ("sized:size=1,share=half", "thing 'sized:size=1,share=half': share=half is no number"),
        ("sized:size=1,quick=maybe", "thing 'sized:size=1,quick=maybe': quick=maybe: true or false expected"),
        ("refusing:depth=deep", "thing 'refusing:depth=deep': could not convert string to float: 'deep'"),
        ("passing:sice=1", "thing 'passing:sice=1': Sized.__init__() got an unexpected keyword argument 'sice'"),
    ],
)
def test_a_mistake_in_a_spec_is_named(registry: Registry, spec: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.create(spec)
    assert str(caught.value) == message


def test_an_unknown_option_is_named_with_the_nearest(registry: Registry) -> None:
    with pytest.raises(UnknownName, match=r"'sice'.*did you mean 'size'"):
        registry.create("sized:sice=1")


def test_an_option_that_is_passed_on_may_have_been_meant_for_the_thing_itself(registry: Registry) -> None:
    with pytest.raises(UnknownName, match=r"thing 'refusing': 'dept': did you mean 'depth'\? Known: depth, width"):
        registry.create("refusing:dept=1")


@pytest.mark.parametrize("spec", ["broken", "broken:size=2"])
def test_a_mistake_of_the_factory_is_not_the_users(registry: Registry, spec: str) -> None:
    with pytest.raises(TypeError, match="has no len"):
        registry.create(spec)
