from __future__ import annotations

import sys
import types
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.ports import Clock
from asa.core.registry import ESTIMATORS, EXECUTORS, STRATEGIES, Registry, check_packages, fitting
from asa.lab.core.registry import PLACEMENTS, PREDICTORS


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


def clocked(plain, *, width: int | None = None, seed=0, path: Path | None = None, clock: Clock | None = None) -> None:  # type: ignore[no-untyped-def]
    """A factory of which a clock cannot be named in a spec."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module: Any = types.ModuleType("things_of_this_test")
    module.sized, module.passing, module.broken, module.refusing = Sized, passing, broken, refusing
    module.clocked = clocked
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = ("sized", "passing", "broken", "refusing", "clocked")
    return Registry("thing", {name: f"{module.__name__}:{name}" for name in names}, group="asa.things_of_this_test")


def test_a_number_is_text_where_text_or_an_object_is_taken() -> None:
    assert [fitting("trace", value, "str | Path") for value in (5, 0.5, Path("x"))] == ["5", "0.5", Path("x")]
    with pytest.raises(InvalidInput, match="grid=5: several are expected"):
        fitting("grid", 5, "tuple[float, ...]")


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
        ("sized:size=1.5", "thing 'sized:size=1.5': size=1.5: a whole number expected"),
        ("sized:size=inf", "thing 'sized:size=inf': size=inf: a whole number expected"),
        ("sized:size=1,share=nan", "thing 'sized:size=1,share=nan': share=nan: a finite number below 2**63 expected"),
        (
            f"sized:size={10**400}",
            f"thing 'sized:size={10**400}': size={10**400}: a finite number below 2**63 expected",
        ),
        (f"sized:size={10**30}", f"thing 'sized:size={10**30}': size={10**30}: a finite number below 2**63 expected"),
        ("sized:size=1,quick=2", "thing 'sized:size=1,quick=2': quick=2: true or false expected"),
        (5, "thing 5: a name expected, one of broken, clocked, passing, refusing, sized"),
        ("refusing:depth=deep", "thing 'refusing:depth=deep': could not convert string to float: 'deep'"),
        ("passing:sice=1", "thing 'passing:sice=1': Sized.__init__() got an unexpected keyword argument 'sice'"),
    ],
)
def test_a_mistake_in_a_spec_is_named(registry: Registry, spec: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.create(spec)
    assert str(caught.value) == message


def test_an_unknown_option_is_named_with_the_nearest(registry: Registry) -> None:
    with pytest.raises(UnknownName, match=r"'sice'.*did you mean 'size'"):
        registry.create("sized:sice=1")


def test_only_what_a_spec_can_give_is_named_as_known(registry: Registry) -> None:
    with pytest.raises(UnknownName) as caught:
        registry.create("clocked:wdth=1")
    assert caught.value.known == ["path", "plain", "seed", "width"]


def test_an_option_that_is_passed_on_may_have_been_meant_for_the_thing_itself(registry: Registry) -> None:
    with pytest.raises(UnknownName, match=r"thing 'refusing': 'dept': did you mean 'depth'\? Known: depth, width"):
        registry.create("refusing:dept=1")


@pytest.mark.parametrize("spec", ["broken", "broken:size=2"])
def test_a_mistake_of_the_factory_is_not_the_users(registry: Registry, spec: str) -> None:
    with pytest.raises(TypeError, match="has no len"):
        registry.create(spec)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose entry points lead to things of this test, or nowhere."""
    entries = [
        EntryPoint(name, f"things_of_this_test:{target}", "asa.things_of_this_test")
        for name, target in (("good", "sized"), ("absent", "nothing"), ("constant", "__name__"))
    ]
    entries.append(EntryPoint("lost", "no_such_module:Thing", "asa.things_of_this_test"))
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [each for each in entries if each.group == group]
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "thing 'absent': its entry point 'things_of_this_test:nothing' cannot be loaded.*no attribute"),
        ("lost", "thing 'lost': its entry point 'no_such_module:Thing' cannot be loaded: No module named"),
        ("constant", "thing 'constant' is 'things_of_this_test': a class or a function that makes one expected"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_named(registry: Registry, name: str, message: str) -> None:
    assert name in registry.names()
    with pytest.raises(InvalidInput, match=message):
        registry.create(name)
    assert registry.create("good:size=3").options == (3, None, "", False)


def test_a_created_object_must_have_the_methods(registry: Registry) -> None:
    owing = Registry("thing", registry.targets(), owes=("options", "decide"))
    with pytest.raises(InvalidInput, match="'sized' makes a Sized, which has no method options, decide: it must have"):
        owing.create("sized:size=1")
    assert Registry("thing", registry.targets(), owes=("__repr__",)).create("sized:size=1").options[0] == 1


def test_all_that_is_built_in_keeps_the_rule() -> None:
    for kind in (ESTIMATORS, PREDICTORS, PLACEMENTS, STRATEGIES):
        for name in kind:
            kind.create(name, **({"runs": {}} if kind is PREDICTORS else {}))


def test_a_package_of_the_same_name_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_packages()
    (tmp_path / "executors").mkdir()
    (tmp_path / "executors" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    for name in [name for name in sys.modules if name.partition(".")[0] == "executors"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InvalidInput, match=f"'executors' is not ASA's: {tmp_path}.*: rename the file or folder"):
        check_packages()
    with pytest.raises(InvalidInput, match="'executors' is not ASA's"):
        EXECUTORS.load("local")
    (tmp_path / "executors" / "__init__.py").write_text("import theirs_is_not_installed")
    monkeypatch.delitem(sys.modules, "executors")
    with pytest.raises(InvalidInput, match="cannot be imported: No module named 'theirs_is_not_installed'"):
        check_packages()
