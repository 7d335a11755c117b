"""Programs for Parsl and for executorlib, with the real libraries, in an environment of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.definitions import ROOT
from tests.docs.blocks import steps

PYTHON = ROOT / ".venv/others/bin/python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs Parsl and executorlib in their environment: make others"),
]


def run(program: str, folder: Path) -> str:
    """What a program prints."""
    (folder / "program.py").write_text(program)
    more = {"ASA_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [PYTHON, "program.py"], cwd=folder, env=os.environ | more | as_root, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("module", "printed"), [("parsl", "20\n"), ("executorlib", "7\n")])
def test_the_programs_on_the_page(module: str, printed: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/integrations.md").read_text()
    (block,) = [step.text for step in steps(page) if f"from asa.integrations.{module} import" in step.text]
    assert run(block, tmp_path) == printed


PARSL = """
import os
import parsl
from parsl import Config, File, bash_app, python_app
from {module} import {name}

@python_app
def double(x):
    return 2 * x

@python_app
def add(*parts):
    return sum(parts)

@python_app
def fail():
    raise KeyError("band")

@bash_app
def write(text, outputs=(), stdout=parsl.AUTO_LOGNAME):
    return f"echo {{text}} > {{outputs[0]}}; echo said"

@python_app
def read(inputs=()):
    with open(inputs[0]) as file:
        return file.read()

with parsl.load(Config(executors=[{make}], retries=1)):
    print(add(*[double(x) for x in range(10)]).result())
    print(add(double(1), 2).result())
    try:
        fail().result()
    except KeyError as error:
        print(repr(error))
    written = write("hello", outputs=[File(os.path.abspath("out.txt"))])
    print(read(inputs=[written.outputs[0]]).result().strip())
"""


def test_an_unchanged_parsl_program(tmp_path: Path) -> None:
    said = []
    for number, (module, name, make) in enumerate(
        [
            ("parsl.executors", "ThreadPoolExecutor", "ThreadPoolExecutor()"),
            ("asa.integrations.parsl", "AsaExecutor", "AsaExecutor(backend='local:cores=2')"),
        ]
    ):
        (folder := tmp_path / str(number)).mkdir()
        said.append(run(PARSL.format(module=module, name=name, make=make), folder))
    assert said[0] == said[1] == "90\n4\nKeyError('band')\nhello\n"
    (log,) = (tmp_path / "1" / "state" / "runs").glob("*/events.db")
    assert log.stat().st_size > 10_000, "ASA has run them"


def test_what_parsl_apps_need(tmp_path: Path) -> None:
    program = """
import os, time
import parsl
from parsl import Config, python_app
from asa.integrations.parsl import AsaExecutor

@python_app
def threads(parsl_resource_specification={}):
    import os
    return os.environ["OMP_NUM_THREADS"]

with parsl.load(Config(executors=[AsaExecutor(backend="local:cores=4")])):
    print(threads().result(), threads(parsl_resource_specification={"cores": 3, "memory": 100}).result())
    try:
        threads(parsl_resource_specification={"cores": 1, "disk": 9}).result()
    except Exception as error:
        print(type(error).__name__)
"""
    assert run(program, tmp_path) == "1 3\nInvalidResourceSpecification\n"


EXECUTORLIB = """
from {module} import {name}

def add(x, y=1):
    return x + y

def threads():
    import os
    return os.environ.get("OMP_NUM_THREADS", "2")

def ranks(word):
    from mpi4py import MPI
    return word, MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()

def fail(x):
    raise KeyError("band")

def total(values):
    return sum(values)

if __name__ == "__main__":
    with {make} as exe:
        first = exe.submit(add, 1, y=2)
        second = exe.submit(add, first, y=first, resource_dict={{"cores": 1}})
        print(second.result(), *exe.map(add, [1, 2, 3]))
        print(exe.submit(total, [first, second]).result())
        print(exe.submit(threads, resource_dict={{"threads_per_core": 2}}).result())
        print(exe.submit(ranks, "here", resource_dict={{"cores": 2}}).result())
        try:
            exe.submit(add, exe.submit(fail, 1)).result()
        except KeyError as error:
            print(repr(error))
        last = exe.submit(add, exe.submit(add, second))
    print(last.result())
"""


def test_an_unchanged_executorlib_program(tmp_path: Path) -> None:
    said = []
    for number, (module, name, make) in enumerate(
        [
            ("executorlib", "SingleNodeExecutor", "SingleNodeExecutor(max_cores=2)"),
            ("asa.integrations.executorlib", "ResourceExecutor", "ResourceExecutor('local:cores=2')"),
        ]
    ):
        (folder := tmp_path / str(number)).mkdir()
        said.append(run(EXECUTORLIB.format(module=module, name=name, make=make), folder))
    assert said[1] == "6 2 3 4\n9\n2\n[('here', 2, 0), ('here', 2, 1)]\nKeyError('band')\n8\n"
    assert said[0] == said[1]


def test_what_means_nothing_here_is_refused(tmp_path: Path) -> None:
    program = """
from asa.integrations.executorlib import ResourceExecutor

with ResourceExecutor("local:cores=2") as exe:
    for needs in ({"slurm_cmd_args": ["-x"]}, {"cores": 99}):
        try:
            exe.submit(abs, -1, resource_dict=needs)
        except ValueError as error:
            print(str(error)[:50])
"""
    said = run(program, tmp_path).splitlines()
    assert said[0] == "resource_dict: 'slurm_cmd_args' means nothing here"
    assert len(said) == 2
