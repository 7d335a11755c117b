"""Pages whose code is run as it stands, pages whose code needs something before it, and where others are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.definitions import ROOT
from tests.docs.blocks import follow, read, steps
from tests.lab.traces.shared import shared_file

pytestmark = pytest.mark.timeout(600)

FOLLOWED = {
    "howto/calibrate-your-queue.md": 5,
    "howto/files.md": 4,
    "howto/checkpoint.md": 4,
    "howto/containers.md": 1,
    "howto/gpus.md": 1,
    "howto/migrate.md": 4,
    "howto/notebook.md": 1,
    "howto/set-up-a-site.md": 2,
    "howto/troubleshooting.md": 4,
    "howto/twin.md": 1,
    "howto/write-a-backend.md": 1,
    "howto/write-a-dispatcher.md": 1,
    "howto/write-a-strategy.md": 1,
    "index.md": 1,
    "lab/placement.md": 1,
    "shape.md": 10,
}
"""Pages, and how many steps of theirs are done."""

WORKFLOW = "import asa\nworkflow = asa.stage(len)([1, 2])\n"
STAGES = """
import asa
double = asa.stage(lambda x: 2 * x, name="double", cores=16)
project = correct = double
background = asa.stage(list, name="background")
add = asa.stage(sum, name="add")
images = [1, 2, 3]
mosaic = add(double.map(images))
run = asa.run(asa.stage(abs, name="align")(1), backend="local")
"""
HERE = {
    '"slurm:partition=core,account=p123"': '"local"',
    '"slurm:partition=core"': '"local:cores=16"',
    'backend="slurm"': 'backend="local", executor="mesos"',
    "asa.run(workflow, backend=slurm)": "",
}
"""What stands for a cluster where there is none."""
FRAGMENTS = {
    "howto/agents.md": (WORKFLOW, 1),
    "howto/dask.md": (WORKFLOW + "step = abs\n", 2),
    "howto/dynamic.md": (
        "import asa\n"
        "measure = asa.stage(lambda letter, text: (letter in 'aeiou', text.count(letter)), name='measure')\n",
        5,
    ),
    "howto/failures.md": (
        "import asa\nworkflow = asa.stage(abs, name='align').map([1, -2])\n",
        3,
    ),
    "howto/reuse.md": ("import asa\nfrom pathlib import Path\nPath('uv.lock').touch()\n", 1),
    "howto/run-a-workflow.md": (STAGES, 2),
    "howto/share-cores.md": ("", 1),
    "howto/shared-pools.md": (WORKFLOW, 1),
    "howto/slurm.md": (WORKFLOW, 2),
    "howto/write-a-workflow.md": (STAGES, 6),
}
"""Pages, what a reader has before them, and how many blocks of Python they have."""

ELSEWHERE = {
    "howto/detach.md": "tests/docs/test_cluster_pages.py",
    "howto/integrations.md": "tests/integrations/test_page.py",
    "howto/mpi.md": "tests/docs/test_cluster_pages.py",
    "howto/simulate-a-trace.md": "tests/docs/test_pages.py",
    "howto/simulated-backend.md": "tests/lab/test_study.py",
    "howto/test-cluster.md": "tests/docs/test_cluster_pages.py",
    "howto/test-your-workflow.md": "tests/testing/test_plugin.py",
    "howto/write-a-sharing-rule.md": "tests/coscheduler/test_queues.py",
    "howto/write-an-estimator.md": "tests/estimators/test_howto.py",
    "howto/write-an-executor.md": "tests/executors/test_howto.py",
    "mesos.md": "tests/docs/test_mesos_page.py",
    "tutorial.md": "tests/docs/test_tutorial.py",
}
"""Pages whose Python another test runs."""

NOT_COUNTED = (
    *("api/*", "sites/*", "states.md"),  # made from code, or from results
    *("lab/*", "*-experiments.md", "coscheduler*.md"),
    *("howto/calibrate-your-queue.md", "howto/compare-strategies.md", "howto/twin.md"),
    *("howto/simulate*.md", "howto/write-a-dispatcher.md", "howto/write-a-sharing-rule.md"),
    *(f"decisions/{name}.md" for name in ("compiled-engine", "constraint-solver", "model-files", "two-levels")),
)
"""Pages that are generated, and the laboratory's."""
MOST_WORDS = 39_000
"""All others together, as ``wc -w`` counts."""


@pytest.mark.slow
@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    assert follow(read(page), tmp_path) == FOLLOWED[page]


@pytest.mark.slow
def test_a_run_outlives_the_terminal(tmp_path: Path) -> None:
    """The rest of the page needs a batch system: tests/docs/test_cluster_pages.py."""
    assert follow(read("howto/detach.md").partition("## In a batch job")[0], tmp_path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("page", FRAGMENTS)
def test_pieces_of_code_run_where_their_names_mean_something(page: str, tmp_path: Path) -> None:
    if page == "howto/dask.md":
        pytest.importorskip("distributed")
    before, count = FRAGMENTS[page]
    blocks = [step.text for step in steps(read(page)) if step.language == "python"]
    assert len(blocks) == count
    for text in blocks:
        for theirs, ours in HERE.items():
            text = text.replace(theirs, ours)
        follow(f"```python\n{before}{text}```\n", tmp_path)


@pytest.mark.slow
@pytest.mark.shared
def test_a_trace_is_simulated_as_the_page_has_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copy(shared_file("swf", "KTH-SP2-1996-2.swf.gz"), tmp_path)
    (code,) = [step.text for step in steps(read("howto/simulate-a-trace.md")) if step.language == "python"]
    assert follow(f"```python\n{code}```\n", tmp_path) == 1
    assert (tmp_path / "kth.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_name_of_ones_own_is_found_once_its_package_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    follow(read("howto/write-a-dispatcher.md"), tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", "installed", "."], cwd=tmp_path, check=True, timeout=300)
    program = "from asa.core.registry import DISPATCHERS; print(DISPATCHERS.create('smallest-first').__module__)"
    env = os.environ | {"PYTHONPATH": f"{tmp_path / 'installed'}:{ROOT}"}
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd="/", env=env, capture_output=True, text=True)
    assert done.stdout == "smallest\n", done.stderr


def test_every_page_with_python_is_run() -> None:
    pages = {str(path.relative_to(ROOT / "docs")): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    coded = {name for name, text in pages.items() if any(step.language == "python" for step in steps(text))}
    assert coded - {*FOLLOWED, *FRAGMENTS, *ELSEWHERE} == set()
    for name, test in ELSEWHERE.items():
        assert Path(name).name in (ROOT / test).read_text()


def test_pages_are_short() -> None:
    words = {}
    for path in (ROOT / "docs").rglob("*.md"):
        name = str(path.relative_to(ROOT / "docs"))
        if not any(fnmatchcase(name, each) for each in NOT_COUNTED):
            words[name] = len(path.read_text().split())
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])


def test_code_of_other_libraries_is_not_taken_for_ours() -> None:
    for path in (ROOT / "docs").rglob("*.md"):
        theirs = [step.text for step in steps(path.read_text()) if step.language == "py"]
        assert all(re.search(r"^(import|from) (submitit|parsl|dask)", text, re.M) for text in theirs), path
        assert not theirs or path.name == "migrate.md"
