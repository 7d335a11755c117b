from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities
from asa.lab.studies.paper import MODELS, model
from asa.lab.studies.published import SCALES, TABLE1, published
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
