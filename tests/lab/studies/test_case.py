from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.lab.studies.case import cases
from asa.workflows.graph import make_graph

FILE = """
import asa

@asa.stage(cores=6, run_time="5m")
def work(x): return x

@asa.stage(run_time=60)
def join(xs): return sum(xs)

def scaled(cores): return join(work.options(cores=cores).map(range(cores)))
workflow = join(work.map(range(6)))
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "flow.py"
    path.write_text(FILE)
    return str(path)


def test_all_models_at_all_scales() -> None:
    found = cases("all", (28, 56))
    assert [(case.name, case.cores) for case in found] == [
        (name, cores) for name in ("montage", "blast", "statistics") for cores in (28, 56)
    ]


def test_a_file_at_scales_of_its_own(file: str) -> None:
    found = cases(f"{file}:scaled", (3, 4))
    assert [(case.name, case.cores, make_graph(case.workflow).width("work")) for case in found] == [
        ("flow", 3, 3),
        ("flow", 4, 4),
    ]


def test_a_file_with_one_scale(file: str) -> None:
    (case,) = cases(file)
    assert (case.name, case.cores) == ("flow", 6)


def test_a_function_in_a_file_takes_arguments(file: str) -> None:
    (alone,) = cases(f"{file}:scaled", arguments={"cores": 2})
    assert alone.cores == 2
    with pytest.raises(InvalidInput, match="give one of them"):
        cases(f"{file}:scaled", (3,), {"cores": 2})
    with pytest.raises(InvalidInput, match=r"unexpected keyword argument 'width'.*--set"):
        cases(f"{file}:scaled", (3,), {"width": 2})
    with pytest.raises(InvalidInput, match="montage takes no --set"):
        cases("montage", (28,), {"width": 2})


def test_what_has_no_scales_refuses_them(file: str) -> None:
    with pytest.raises(InvalidInput, match=r"--cores 4: .*has no such scale"):
        cases(file, (4,))


def test_a_model_without_a_scale_asks_for_one() -> None:
    with pytest.raises(InvalidInput, match="say at which with --cores"):
        cases("blast")


def test_a_misspelt_model_is_told_which_there_are() -> None:
    with pytest.raises(InvalidInput, match="give montage, blast, statistics, all, or a Python file"):
        cases("montag", (28,))
