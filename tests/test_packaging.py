"""What is built of the sources, and whether it works where nothing but that is installed."""

from __future__ import annotations

import ast
import configparser
import json
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import jinja2
import pytest
import yaml
from easybuild.framework.easyconfig.parser import EasyConfigParser

from tests.definitions import ROOT
from tests.wheels import PACKAGES, run

pytest_plugins = ("tests.wheels",)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECIPES = ROOT / "docs" / "packaging"
HELLO = """
import asa

@asa.stage(cores=2)
def double(x):
    return 2 * x

@asa.stage
def where(xs):
    import asa, executors
    return sum(xs), asa.__file__, executors.__file__

workflow = where(double.map(range(4)))
"""


def config() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg")
    return found


APART = {"dev", "executorlib", "parsl"}
"""Extras that are not in this environment; the last two are installed, and tested, in one of their own."""
EXTRAS = [name for name in config()["options.extras_require"] if name not in APART]


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_every_file_of_the_packages_is_in_the_wheel_and_nothing_else(built: dict[str, Path]) -> None:
    files = {
        str(path.relative_to(ROOT))
        for top in PACKAGES
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert contents(built["wheel"]) == files
    assert "asa/py.typed" in files and not [name for name in files if name.endswith(".safetensors")]
    assert contents(built["again"]) == files


def test_the_same_sources_make_the_same_wheel(built: dict[str, Path]) -> None:
    assert built["again"].name == built["wheel"].name
    assert built["again"].read_bytes() == built["wheel"].read_bytes()


def test_what_is_said_of_it_is_complete(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name.partition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
        said = HeaderParser().parsestr(archive.read(names["METADATA"]).decode())
        points = archive.read(names["entry_points.txt"]).decode()
    assert {"licenses/LICENSE", "entry_points.txt"} <= set(names)
    assert said["Name"] == "asa-hpc" and said["Version"] and said["Requires-Python"] == ">=3.11"
    assert "Apache-2.0" in (said["License-Expression"], said["License"])
    assert said["Description-Content-Type"] == "text/markdown" and said["Summary"] and said["Keywords"]
    assert set(said.get_all("Provides-Extra", [])) >= set(EXTRAS)
    assert "asa = asa.__main__:main" in points and "asa = asa.lab.testing" in points
    assert said["Version"] == config()["metadata"]["version"]


@pytest.mark.parametrize("executor", ["local", "mesos"])
def test_the_wheel_runs_a_workflow(clean: Path, tmp_path: Path, executor: str) -> None:
    (tmp_path / "hello.py").write_text(HELLO)
    words = ["run", "hello.py", "--backend", "local:cores=2", "--executor", executor, "--quiet"]
    said = run([str(clean / "bin" / "asa"), *words], tmp_path)
    assert said.startswith("(12, ") and said.count(str(clean)) == 2


def test_the_wheel_has_a_command_line(clean: Path, tmp_path: Path) -> None:
    asa = str(clean / "bin" / "asa")
    assert run([asa, "--version"], tmp_path).split() == ["asa", config()["metadata"]["version"]]
    assert "works: workflows on this machine" in run([asa, "doctor", "--backend", "local"], tmp_path)
    assert "complete -o default" in run([asa, "completion", "bash"], tmp_path)
    log, job = tmp_path / "tiny.swf", "60 2 -1 -1 2 90 -1 1 1 1 1 1 1 -1 -1"
    log.write_text(f"; MaxProcs: 4\n1 10 -1 {job}\n2 20 -1 {job}\n")
    assert "easy" in run([asa, "simulate", str(log), "--dispatcher", "easy"], tmp_path)


def test_a_folder_of_the_users_that_hides_a_package_is_named(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "executors").mkdir()
    (tmp_path / "executors" / "__init__.py").touch()
    (tmp_path / "hello.py").write_text(HELLO + "asa.run(workflow, backend='local:cores=2')\n")
    done = subprocess.run(
        [clean / "bin" / "python", "hello.py"],
        cwd=tmp_path,
        env={"ASA_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"package 'executors' is not ASA's: {tmp_path}/executors/__init__.py: rename" in done.stderr.splitlines()[-1]


def test_another_system_is_refused_by_name(clean: Path) -> None:
    words = [clean / "bin" / "python", "-c", "import sys; sys.platform = 'darwin'; import asa"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "ASA runs on Linux only, and this is darwin" in done.stderr


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_can_be_had_in_the_versions_that_were_tested(built: dict[str, Path], extra: str) -> None:
    """All is here already, so nothing is fetched: what an extra asks for, this environment must satisfy."""
    asked = f"asa-hpc[{extra}] @ {built['wheel'].as_uri()}"
    words = ["install", "--dry-run", "--no-index", "--no-build-isolation", asked]
    said = run([sys.executable, "-m", "pip", *words])
    assert "Would install asa-hpc" in said or "Requirement already satisfied" in said
    assert said.count("Would install") == 0 or said.split("Would install")[1].split() == ["asa-hpc-0.1.0"]


def needed(extra: str | None = None) -> dict[str, str]:
    """What ASA, or an extra of it, needs: name -> least version."""
    section, key = ("options.extras_require", extra) if extra else ("options", "install_requires")
    return dict(line.split(">=") for line in config()[section][key].split())


def test_the_recipe_for_conda_says_the_same() -> None:
    text = (RECIPES / "conda" / "meta.yaml").read_text()
    recipe = yaml.safe_load(jinja2.Template(text).render(PYTHON="python"))
    assert recipe["package"]["version"] == config()["metadata"]["version"]
    assert {f"{name} >={version}" for name, version in needed().items()} <= set(recipe["requirements"]["run"])
    assert recipe["build"]["entry_points"] == ["asa = asa.__main__:main"]


def test_the_recipe_for_spack_says_the_same() -> None:
    """Spack cannot be installed from a package index: it is read as Python."""
    recipe = ast.parse((RECIPES / "spack" / "package.py").read_text())
    calls = {
        (call.func.id, ast.literal_eval(call.args[0])): {
            word.arg: ast.literal_eval(word.value) for word in call.keywords
        }
        for call in ast.walk(recipe)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    assert ("version", config()["metadata"]["version"]) in calls
    for extra in (None, "lab", "plots", "dask"):
        for name, version in needed(extra).items():
            assert calls["depends_on", f"py-{name}@{version}:"].get("when") == (f"+{extra}" if extra else None)


def test_the_recipe_for_easybuild_says_the_same() -> None:
    """As EasyBuild reads it."""
    version = config()["metadata"]["version"]
    recipe = EasyConfigParser(str(RECIPES / "easybuild" / f"ASA-{version}-gfbf-2024a.eb")).get_config_dict()
    assert (recipe["name"], recipe["version"], recipe["easyblock"]) == ("ASA", version, "PythonBundle")
    assert [name for name, *_ in recipe["exts_list"]] == ["httptools", "asa-hpc"]
    bundled = {"cloudpickle", "cryptography", "psutil", "requests", "rich"}  # in Python-bundle-PyPI
    assert set(needed()) == bundled | {"httptools", "numpy"}


def test_how_it_is_cited_says_the_same() -> None:
    cited, described = (
        yaml.safe_load((ROOT / "CITATION.cff").read_text()),
        json.loads((ROOT / "codemeta.json").read_text()),
    )
    metadata, needed = config()["metadata"], config()["options"]["install_requires"].split()
    assert cited["version"] == described["version"] == metadata["version"]
    assert cited["license"] == metadata["license"] == described["license"].rpartition("/")[2]
    assert described["description"] == metadata["description"]
    assert described["softwareRequirements"] == [line.partition(">")[0] for line in needed]
    assert {key for item in cited["references"] for key in item} == {"type", "title", "authors", "notes"}
