"""The laws of docs/design.md that can be checked by reading the source tree, or by watching what a run executes."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house

MODULES = house.load(*house.PRODUCT)
ARROWS = {name: house.imports(module, MODULES) for name, module in MODULES.items()}
ENTRY_POINTS = house.entry_points()
OFFERED = {target.partition(":")[0] for group in ENTRY_POINTS.values() for target in group.values()}
TABLE = re.compile(r"^```\n +budget +imports.*?\n(.*?)^```$", re.M | re.S)
"""In docs/design.md: packages, the lines each may have, and which others they import."""

SHARED_NAMES = {"Resources"}
"""Names that classes of several modules may have; at most 15."""

PROGRAMS = {"asa.integrations.inside", "asa.testing.tasks"}
"""Modules that run where nothing else of their package is loaded: in a container, in a worker."""

LEAST = 120
"""Lines: a smaller module with one importer, its sibling, belongs into that."""


# Floors and arrows.


def floor(name: str) -> str:
    words = name.split(".")
    return "asa.lab" if words[:2] == ["asa", "lab"] else words[0]


@pytest.mark.parametrize(
    ("above", "forbidden"),
    [
        ("asa", ("asa.lab", "executors", "coscheduler")),
        ("asa.lab", ("asa.cli", "asa.dashboard", "executors", "coscheduler")),
        ("executors", ("asa.lab", "coscheduler")),
        ("coscheduler", ("asa.cli",)),
    ],
)
def test_no_floor_imports_what_it_must_not_know(above: str, forbidden: tuple[str, ...]) -> None:
    """Not through a string either: such parts are found by entry points."""
    wrong = [
        f"{name} imports {other}"
        for name, others in ARROWS.items()
        if floor(name) == above
        for other in sorted(others)
        if any(f"{other}.".startswith(f"{each}.") for each in forbidden)
    ]
    assert wrong == []


def test_executors_see_four_packages_of_asa() -> None:
    seen = {
        house.room(other)
        for name in ARROWS
        if floor(name) == "executors"
        for other in ARROWS[name]
        if floor(other) == "asa"
    }
    assert seen <= {"asa", "asa.core", "asa.log", "asa.security", "asa.web"}


def test_the_core_is_pure() -> None:
    """Standard library and NumPy; nothing is printed, opened or started."""
    for name, module in MODULES.items():
        if house.room(name) != "asa.core":
            continue
        assert {house.room(other) for other in ARROWS[name]} <= {"asa.core"}, name
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "open", "os.open", "subprocess.run"), (
                    f"{name}:{node.lineno}"
                )
            elif isinstance(node, ast.Import | ast.ImportFrom):
                words = {alias.name for alias in node.names} if isinstance(node, ast.Import) else {node.module or ""}
                tops = {word.partition(".")[0] for word in words}
                assert tops <= {*sys.stdlib_module_names, "asa", "numpy"}, f"{name}:{node.lineno}"


def test_every_entry_point_leads_somewhere() -> None:
    for group, entries in ENTRY_POINTS.items():
        for name, target in entries.items():
            module, _, attribute = target.partition(":")
            assert module in MODULES, f"{group}: {name} = {target}"
            made = rf"^(class|def) {attribute}\b|^{attribute}\b.*=|^from .* import .*\b{attribute}\b"
            assert re.search(made, MODULES[module].text, re.M), target


def test_there_are_no_circles() -> None:
    assert house.circles(ARROWS) == []


def test_the_picture_of_packages_is_as_they_are() -> None:
    """Arrows exactly; no package has more lines than its budget, which only a commit that says why may raise."""
    drawn = TABLE.search((house.ROOT / "docs/design.md").read_text())
    assert drawn, "docs/design.md has no table of packages"
    rows = {line.split()[0]: line.split()[1:] for line in re.sub(r"\n {20,}", " ", drawn[1]).splitlines()}
    sizes = house.sizes(MODULES.values())
    assert sorted(rows) == sorted(sizes)
    needed = {name: house.imports(module, MODULES, for_types=False) for name, module in MODULES.items()}
    for package, (budget, *arrows) in rows.items():
        assert sizes[package][1] <= int(budget), f"{package} has more lines than docs/design.md allows"
        imported = {
            house.room(MODULES[other].package)
            for name, others in needed.items()
            if house.room(MODULES[name].package) == package
            for other in others
        }
        assert sorted(arrows) == sorted(imported - {package, "asa", "asa.core"}), f"docs/design.md: {package}"


# Cohesion.


def test_no_module_is_an_antechamber() -> None:
    importers = house.importers(ARROWS)
    found = []
    for name, module in MODULES.items():
        only = importers.get(name, set())
        if module.lines < LEAST and len(only) == 1 and name not in OFFERED | PROGRAMS and module.package != name:
            (other,) = only
            if MODULES[other].package == module.package:
                found.append(f"{name} ({module.lines} lines) belongs into {other}")
    assert found == []


def test_a_class_name_stands_for_one_concept() -> None:
    where: dict[str, list[str]] = {}
    for name, module in MODULES.items():
        for each in module.classes:
            where.setdefault(each, []).append(name)
    doubled = {each: names for each, names in where.items() if len(names) > 1}
    assert len(SHARED_NAMES) <= 15
    assert {each: names for each, names in doubled.items() if each not in SHARED_NAMES} == {}
    assert doubled.keys() >= SHARED_NAMES


def test_a_run_is_folded_once() -> None:
    """But for oracles in `asa.testing`."""
    folds = [
        name for name, module in MODULES.items() if module.matches("TaskDone") and house.room(name) != "asa.testing"
    ]
    assert folds == ["asa.core.run"]


PUBLIC = {"_replace", "_asdict", "_fields", "_exit", "_repr_html_"}
"""Names with an underscore that are no private ones: of named tuples, of `os`, and what notebooks call."""


def test_tests_leave_the_product_its_privacy() -> None:
    """Neither imports of private names, nor private attributes of what is not a test's own, nor patches of them."""
    found = []
    for name, module in house.load("tests").items():
        nodes = list(ast.walk(module.tree))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)} | PUBLIC
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"}
        for node in nodes:
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in house.PRODUCT:
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "getattr")):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                names = [text.rpartition(".")[2] for text in texts if text.replace(".", "").isidentifier()]
            found += [f"{name}: {each}" for each in names if re.match("_[^_]", each) and each not in own]
    assert found == []


# What is executed, and what is loaded.


def executed(code: str, folder: Path) -> dict[str, list[str]]:
    """What a program prints as JSON, run by itself in this folder."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=110)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


WATCHED = """
import json, sys, threading
ran = set()
def watch(frame, what, argument):
    if what == "call" and frame.f_code.co_name != "<module>":
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("asa", "executors", "coscheduler"):
            ran.add(name)
def watched(do):
    threading.setprofile(watch); sys.setprofile(watch)
    try:
        return do()
    finally:
        sys.setprofile(None); threading.setprofile(None)
def show():
    heavy = ("numba", "dask", "distributed", "torch", "ortools")
    print(json.dumps({"ran": sorted(ran), "heavy": sorted(set(heavy) & set(sys.modules))}))
"""


def test_a_local_run_is_short_and_light(tmp_path: Path) -> None:
    found = executed(
        WATCHED
        + f"""
import asa
def hello(name):
    return f"hello {{name}}"
def go():
    run = asa.run(asa.stage(hello)("you"), state={str(tmp_path)!r})
    run.wait()
    return run.result()
assert watched(go) == "hello you"
show()
""",
        tmp_path,
    )
    assert found["heavy"] == []
    assert len(found["ran"]) <= 50, found["ran"]


FAKE_SLURM = {
    "sbatch": 'case "$*" in *--version*) echo slurm-wlm 23.11.4;; *) echo "sbatch: error: no" >&2; exit 1;; esac',
    "scontrol": """case "$*" in
*config*) printf '%s\\n' 'ClusterName = site' 'SelectType = select/cons_tres';;
*) echo 'PartitionName=batch Default=YES MaxTime=UNLIMITED State=UP Nodes=n[1-4] TotalCPUs=32 TotalNodes=4';;
esac""",
    "sinfo": "echo 'batch|4|8|16000|(null)|idle'",
    "squeue": "",
    "sacct": "",
}


def test_the_way_from_a_decision_to_sbatch_is_short(tmp_path: Path) -> None:
    """Modules run by the runner, from the plan's first decision on, and by the job watch after it, up to sbatch."""
    for name, script in FAKE_SLURM.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    found = executed(
        f"""
import json, os, sys, threading
os.environ["PATH"] = {str(tmp_path)!r} + ":" + os.environ["PATH"]
import asa
ran, way, handed = set(), [], []
def watch(frame, what, argument):
    thread, where = threading.current_thread().name, (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
    runner, watcher = thread.startswith("asa-run") and not handed, thread == "asa-job-watch" and handed and not way
    if what == "call" and where[0].partition(".")[0] in ("asa", "executors", "coscheduler"):
        if runner and (ran or where == ("asa.workflows.plan", "decide")) or watcher:
            ran.add(where[0])
    if what == "return" and where == ("asa.allocations.watch", "submit"):
        handed.append(True)
def look(event, arguments):
    if event == "subprocess.Popen" and arguments[0] == "sbatch" and "--parsable" in arguments[1]:
        way.append(sorted(ran))
sys.addaudithook(look)
threading.setprofile(watch)
stage = asa.stage(walltime="5m")(lambda: None)
run = asa.run(stage(), backend="slurm", strategy="per-stage", check=False, state={str(tmp_path / "state")!r})
run.wait()
threading.setprofile(None)
print(json.dumps({{"ran": way[0]}}))
""",
        tmp_path,
    )
    assert {"asa.workflows.plan", "asa.backends.slurm.commands"} <= set(found["ran"])
    assert len(found["ran"]) <= 31, found["ran"]


def test_one_decision_of_a_dispatcher_is_short(tmp_path: Path) -> None:
    found = executed(
        WATCHED
        + """
from asa.core.backfill import EASY
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
queue = tuple(QueuedJob(str(n), Resources(1 + n % 3), 60.0, float(n)) for n in range(9))
view = QueueView(10.0, Resources(4), queue, (RunningJob("r", Resources(2), 50.0),))
assert watched(lambda: list(EASY.decide(view)))
show()
""",
        tmp_path,
    )
    assert len(found["ran"]) <= 10, found["ran"]


def test_importing_asa_loads_nothing_heavy() -> None:
    heavy = {
        "numpy",
        "torch",
        "ortools",
        "dask",
        "distributed",
        "matplotlib",
        "pandas",
        "cryptography",
        "requests",
        "rich",
    }
    code = f"import asa, sys; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_a_supervisor_loads_nothing_heavy() -> None:
    heavy = {"numpy", "cryptography", "cloudpickle", "asyncio", "dask", "asa.workflows"}
    code = f"import executors.supervisor, sys; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
