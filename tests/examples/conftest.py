import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "workflows"


@pytest.fixture(scope="session")
def load_example():
    """Call it to import modules of an example. Others have modules of the same names: nothing may stay behind."""

    def load(example, *names):
        folder = EXAMPLES / example
        stems = {path.stem for path in folder.glob("*.py")}
        before, path = {name: sys.modules.pop(name) for name in stems & sys.modules.keys()}, sys.path.copy()
        sys.path.insert(0, str(folder))
        try:
            return SimpleNamespace(folder=folder, **{name: importlib.import_module(name) for name in names})
        finally:
            sys.path[:] = path
            for name in stems:
                sys.modules.pop(name, None)
            sys.modules.update(before)

    return load


@pytest.fixture(scope="session")
def common():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module("common")


@pytest.fixture
def run_script(tmp_path, monkeypatch):
    """Call it to run a file of the examples as a program in another folder."""
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))

    def run(script, *words):
        argv = [sys.executable, EXAMPLES / script, *map(str, words)]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data beside the project."""
    folder = EXAMPLES.parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return folder
