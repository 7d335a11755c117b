import os
import subprocess
import sys

import pytest

import asa

pytestmark = pytest.mark.slow

STAGES = {  # number of tasks for the standard 3 x 3 tiles
    "project": 9,
    "fit": 20,
    "concat": 1,
    "model": 1,
    "correct": 9,
    "tabulate": 1,
    "add": 1,
    "shrink": 1,
    "picture": 1,
}
PARALLEL = "project", "fit", "correct"  # the paper's first two stages and its fifth


@pytest.fixture(scope="module")
def graph(workflow, tmp_path_factory):
    """Of the standard small data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("example"))
        return asa.make_graph(workflow.workflow(cores=4))


def test_nine_stages_grouped_as_in_the_paper(graph):
    assert list(graph.nodes) == list(STAGES)
    assert {name: graph.width(name) for name in graph.nodes} == STAGES
    assert [name for name, node in graph.nodes.items() if node.mapped] == list(PARALLEL)
    assert {name: node.stage.needs.resources.cores for name, node in graph.nodes.items()} == {
        name: 4 if name in PARALLEL else 1 for name in STAGES
    }


def test_every_stage_waits_for_the_one_before(graph):
    for before, name in zip(list(STAGES), list(STAGES)[1:], strict=False):
        assert before in graph.predecessors[name]


def test_a_folder_without_tiles_is_refused_before_anything_runs(workflow, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no .fits or .fits.gz files in .*: give a folder of tiles"):
        workflow.build(tmp_path, tmp_path / "out")


def test_command_line_names_what_is_wrong(workflow, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", f"workflow.py --tiles {tmp_path} --out {tmp_path}/out".split())
    with pytest.raises(SystemExit, match=r"no .fits or .fits.gz files"):
        workflow.main()


def test_it_runs_and_gives_what_the_functions_give_by_hand(workflow, montage, run_by_hand, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    by_hand = run_by_hand(tmp_path / "tiles", tmp_path / "hand")
    node = workflow.build(tmp_path / "tiles", tmp_path / "out", cores=2)
    made = asa.run(node, backend="local:cores=2", strategy="per-stage", state=tmp_path / "state").result()
    assert made == {"mosaic": tmp_path / "out" / "mosaic.fits", "picture": tmp_path / "out" / "mosaic.png"}
    for name, path in by_hand.items():
        assert made[name].read_bytes() == path.read_bytes()


def test_a_tile_that_breaks_later_fails_the_run_with_the_program_s_words(workflow, montage, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    node = workflow.build(tmp_path / "tiles", tmp_path / "out", cores=2)
    tile = tmp_path / "tiles" / "tile_0_1.fits"
    tile.write_bytes(tile.read_bytes()[:2880])
    with pytest.raises(asa.RunFailed, match=r"mProjectPP: ") as failure:
        asa.run(node, backend="local:cores=2", state=tmp_path / "state").result()
    assert failure.value.stage == "project"


def test_as_a_script_its_workers_find_the_modules_beside_it(montage, any_form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    script = montage.folder / "workflow.py"
    done = subprocess.run(
        [sys.executable, str(script), "--tiles", "tiles", "--out", "out", "--cores", "1", "--backend", "local:cores=1"],
        cwd=tmp_path,
        env=os.environ | {"ASA_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == f"mosaic: {tmp_path}/out/mosaic.fits\npicture: {tmp_path}/out/mosaic.png\n"
    assert (tmp_path / "out" / "mosaic.png").exists()
