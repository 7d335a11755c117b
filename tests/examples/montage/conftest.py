import importlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "workflows" / "montage"
MODULES = "fits", "picture", "toolkit", "stages", "make_data", "check", "workflow"


def load(*names: str) -> list[ModuleType]:
    """Import modules of the example. Others have modules of the same names: nothing may stay behind."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@pytest.fixture(scope="session")
def montage():
    names = [name for name in MODULES if name != "workflow"]
    return SimpleNamespace(folder=FOLDER, **dict(zip(names, load(*names), strict=True)))


@pytest.fixture(scope="session")
def any_form(montage):
    """Whichever form of Montage there is."""
    try:
        return montage.toolkit.implementation()
    except montage.toolkit.MontageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def workflow(any_form):
    return load("workflow")[0]


@pytest.fixture
def use_form(monkeypatch, tmp_path_factory, montage):
    """Call it to make one form of Montage the one that is found; skips the test where that is missing."""
    path = os.environ["PATH"]

    def use(form):
        monkeypatch.setenv("PATH", path)
        if form == "programs":
            if missing := [program for program in montage.toolkit.PROGRAMS if not shutil.which(program)]:
                pytest.skip(f"not on PATH: {', '.join(missing)} (Debian package montage)")
        else:
            if not importlib.util.find_spec("MontagePy"):
                pytest.skip("MontagePy is not installed")
            bare = tmp_path_factory.mktemp("path")
            for program in ("sh", "gzip", "gunzip"):  # what MontagePy runs to read gzipped tiles
                if found := shutil.which(program):
                    (bare / program).symlink_to(found)
            monkeypatch.setenv("PATH", str(bare))
        assert montage.toolkit.implementation() == form

    return use


@pytest.fixture(params=["programs", "MontagePy"])
def form(request, use_form):
    """Each form of Montage in turn."""
    use_form(request.param)
    return request.param


@pytest.fixture(scope="session")
def run_by_hand(montage):
    """Call it to run all stages in this process, one after another."""

    def run(tiles, out):
        stages = montage.stages
        plan = stages.plan(tiles, out)
        projected = [stages.project(tile, plan.header, out, False) for tile in plan.tiles]
        fits = [stages.fit(pair, projected, plan.header, out) for pair in plan.pairs]
        planes = stages.model(stages.concat(fits, projected, out), projected, out)
        corrected = [stages.correct(image, plane, out) for image, plane in zip(projected, planes, strict=True)]
        mosaic = stages.add(stages.tabulate(corrected, out), plan.header, out)
        return stages.picture(stages.shrink(mosaic, out), mosaic, out)

    return run
