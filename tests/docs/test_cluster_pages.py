"""Programs on pages that need a cluster, on a real Slurm: docs/howto/test-cluster.md and docs/howto/mpi.md."""

from __future__ import annotations

import os
import platform
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.host import open_mpi
from tests.definitions import ROOT
from tests.docs.blocks import follow, printed, read, steps
from tests.executors.mpi import needs_mpirun

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slow, pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(300)]

(TEST,) = [step.text for step in steps(read("howto/test-cluster.md")) if step.language == "python"]
(MPI,) = [step.text for step in steps(read("howto/mpi.md")) if step.language == "python"]

MPIRUN = "mpirun --mca btl tcp,self"
"""All nodes are this machine, whose shared memory the ranks of one of them must not look for on another."""
MPI4PY = '''
"""What the page takes of mpi4py, over what srun tells each rank; they find one another's values in files."""

import os
import time
from pathlib import Path


class MPI:
    class COMM_WORLD:
        rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])

        @classmethod
        def allreduce(cls, value):
            Path(f"rank-{cls.rank}.tmp").write_text(repr(value))
            Path(f"rank-{cls.rank}.tmp").rename(f"rank-{cls.rank}")
            while len(found := list(Path().glob("rank-?"))) < cls.size:
                time.sleep(0.05)
            return sum(float(path.read_text()) for path in found)
'''
SOLVER = """#!/bin/sh
echo "rank of $OMPI_COMM_WORLD_SIZE: $*" >> "$4"
"""
RUN = """
print(asa.run(simulate(2), backend="slurm:poll_s=1").result())
"""
SOLVE = """
from pathlib import Path
print(asa.run(solve(Path("case.inp")), backend="slurm:poll_s=1").result())
"""


def on_cluster(program: str, cluster: Cluster, folder: Path) -> str:
    """What a reader's program prints that is run on this cluster."""
    given = {
        "SLURM_CONF": str(cluster.config.slurm_conf),
        "ASA_STATE_DIR": str(folder / "state"),
        "PYTHONPATH": f"{folder}:{ROOT}",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    return printed(program, folder, given)


def test_a_test_of_ones_own_has_a_cluster(slurm_cluster: Cluster) -> None:
    space: dict[str, Any] = {}
    exec(compile(TEST, "test-cluster.md", "exec"), space)
    assert space["pytest_plugins"] == pytest_plugins
    space["test_something"](slurm_cluster)


def test_a_function_in_every_rank(slurm_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "mpi4py.py").write_text(MPI4PY)
    assert on_cluster(f"{MPI}{RUN}", slurm_cluster, tmp_path) == "56.0\n"
    assert len(list(tmp_path.glob("rank-?"))) == 8


def this_version(cluster: Cluster, release: str) -> str:
    """The line that a table of tested versions has of a cluster on this Debian release."""
    shown = cluster.run("scontrol", "show", "config")
    plugins = Path(re.findall(r"^PluginDir\s*= (.*)$", shown, re.MULTILINE)[0]).glob("*_v0*.so")
    found = (re.search(r"(?:data_parser|openapi)_(v0[._]0[._]\d+)", path.name) for path in plugins)
    spoken = ", ".join(sorted({item[1].replace("_", ".") for item in found if item}))
    slurm = ".".join(f"{part:02}" for part in cluster.version[:2])
    python = ".".join(map(str, sys.version_info[:2]))
    return f"| {slurm} | {release} | {python} | {spoken} | Open MPI {open_mpi()} |"


def test_the_table_of_tested_versions_has_this_one(slurm_cluster: Cluster) -> None:
    """With ASA_WRITE_TABLES set, its line is put in. Of a release to come, another version is a warning."""
    page, system = ROOT / "docs/howto/slurm.md", platform.freedesktop_os_release()
    release = system["VERSION_CODENAME"]
    line, text = this_version(slurm_cluster, release), page.read_text()
    table = text[text.index("| Slurm | Debian |") :].partition("\n\n")[0]
    if os.environ.get("ASA_WRITE_TABLES"):
        head, rows = table.splitlines()[:2], table.splitlines()[2:]
        kept = [row for row in rows if f"| {release} |" not in row]
        page.write_text(text.replace(table, "\n".join([*head, *sorted([*kept, line])])))
    elif line not in table and "VERSION_ID" not in system:
        warnings.warn(f"not in docs/howto/slurm.md: {line}; write it with ASA_WRITE_TABLES=1", stacklevel=1)
    else:
        assert line in table, "written by this test with ASA_WRITE_TABLES=1"


@needs_mpirun
def test_a_program_of_many_ranks(slurm_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "solver").write_text(SOLVER)
    (tmp_path / "solver").chmod(0o700)
    program = f"{MPI}{SOLVE}".replace("tasks_per_node=28", "tasks_per_node=2").replace('"mpirun"', f'"{MPIRUN}"')
    assert on_cluster(program, slurm_cluster, tmp_path) == "case.h5\n"
    lines = (tmp_path / "case.h5").read_text().splitlines()
    assert len(lines) == 8 and len({*lines}) == 1, "all ranks are told the same path"
    assert re.fullmatch(r"rank of 8: -i case.inp -o \S+/case\.h5", lines[0])


def test_a_driver_in_a_job(slurm_cluster: Cluster, tmp_path: Path) -> None:
    conf = {"SLURM_CONF": str(slurm_cluster.config.slurm_conf)}
    first, _, rest = read("howto/detach.md").partition("## In a batch job")
    (program,) = [step.text for step in steps(first) if step.file == "nap.py"]
    (tmp_path / "nap.py").write_text(program)
    assert follow(rest, tmp_path, conf) == 2
