"""The paper's workflows as models, and which cases a word of the command line means."""

from __future__ import annotations

from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities
from asa.lab.asa_paper.published import SCALES, TABLE1, published
from asa.lab.asa_paper.workflows import MODELS, cases, model
from asa.workflows.graph import make_graph

CASES = [(name, cores) for name in MODELS for scales in SCALES.values() for cores in scales]


def test_table_1_has_all_54_runs() -> None:
    assert len(TABLE1) == 54
    assert len({(run.workflow, run.cores, run.strategy) for run in TABLE1}) == 54
    assert sum(run.core_hours for run in TABLE1 if run.strategy == "asa") == 1282  # the text's sums
    assert sum(run.core_hours for run in TABLE1 if run.strategy == "big-job") == 2217
    assert sum(run.makespan_s for run in TABLE1 if run.strategy == "asa") == 109796


@pytest.mark.parametrize(("name", "cores"), CASES)
def test_a_model_runs_as_long_and_is_charged_as_much_as_the_paper_printed(name: str, cores: int) -> None:
    run, stages = published(name, cores, "per-stage"), model(name, cores).stages
    assert sum(stage.run_time_s for stage in stages) == pytest.approx(run.makespan_s - run.total_wait_s, abs=0.01)
    charged = sum(stage.cores * stage.run_time_s for stage in stages) / 3600
    if (name, cores) == ("statistics", 28):
        assert charged == pytest.approx(run.core_hours / 2, abs=1.0)  # the paper's outlier
    else:
        assert charged == pytest.approx(run.core_hours, abs=1.5)  # they are printed in whole hours


@pytest.mark.parametrize(("name", "shape"), [("montage", "PSPS"), ("blast", "PS"), ("statistics", "SPSP")])
def test_stages_alternate_as_in_the_paper(name: str, shape: str) -> None:
    assert "".join("P" if stage.cores > 1 else "S" for stage in model(name, 56).stages) == shape


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_a_workflow(name: str) -> None:
    made = model(name, 56)
    graph = make_graph(made.workflow())
    specs = graph.specs(Capabilities(site="hpc2n", cores_per_node=28))
    assert [spec.name for spec in specs] == [stage.name for stage in made.stages]
    assert [spec.predecessors for spec in specs] == [(), *((spec.name,) for spec in specs[:-1])]
    for spec, stage in zip(specs, made.stages, strict=True):
        assert spec.width is not None
        assert spec.width * spec.task.cores == spec.resources.cores == stage.cores  # all side by side
        assert graph.nodes[spec.name].stage.needs.run_time == stage.run_time_s
        assert stage.run_time_s * 1.5 <= spec.walltime_s <= stage.run_time_s * 1.5 + 300


def test_a_scale_that_tasks_of_four_cores_do_not_fill() -> None:
    specs = make_graph(model("blast", 30).workflow()).specs(Capabilities(site="here"))
    assert (specs[0].width, specs[0].task.cores) == (15, 2)


def test_scales_between_the_papers_lie_between() -> None:
    low, middle, high = (model("montage", cores).stages[1].run_time_s for cores in (56, 80, 112))
    assert low < middle < high
    assert model("statistics", 80).cores == 80


def test_what_the_paper_did_not_run_is_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'montage'"):
        model("montag", 28)
    with pytest.raises(InvalidInput, match="28 to 640"):
        model("blast", 1024)


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
