"""What one function, and many, cost through other people's tools and through ASA: docs/comparison.md.

    python -m benchmarks.peers [TOOL ...]

pip puts each tool into an environment of its own in .venv/peers; ASA is of this environment. None runs on Slurm.

- Lines: of the first example of a tool's documentation, which says hello from a function, or from a program.
- First result: from the start of Python to that hello (Snakemake: to its end); median of five, after a first one.
- Tasks/s: no-op tasks more than one, by the seconds that they take more than one; median of three, after some. Two at a
  time; submitit and PSI/J start all at once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

from benchmarks.measure import first_line, show
from tests.definitions import ROOT

ENVIRONMENTS = ROOT / ".venv" / "peers"
CONSTRAINTS = {
    "dask-jobqueue": "constraints.txt",
    "executorlib": "tests/integrations/constraints.txt",
    "parsl": "tests/integrations/constraints.txt",
    "snakemake": "plugins/snakemake/constraints.txt",
}
"""The tested versions of what a tool needs."""


class Tool(NamedTuple):
    package: str  # for pip, with its version; "": ASA
    hello: str  # a program whose last line prints what begins with "hello"
    run: str  # with the names of that program, this runs the function `no_op` as so many `tasks`
    tasks: int

    @property
    def many(self) -> str:
        """A program that takes the number of tasks, and prints rates: `hello` with another last line."""
        *before, last = self.hello.rstrip().splitlines() if self.is_python else [""]
        measure = f"{last[: len(last) - len(last.lstrip())]}rates()"
        return "\n".join([_RATES, "def run(tasks):", indent(self.run, "    "), *before, measure])

    @property
    def is_python(self) -> bool:
        return not self.package.startswith("snakemake")

    @property
    def command(self) -> str:
        """What runs `hello`, for a shell."""
        snakemake = "rm -f hello.txt; python -m snakemake --snakefile hello.py --cores 2 && cat hello.txt"
        return "python -u hello.py" if self.is_python else snakemake


_RATES = """
import subprocess, sys, time
from pathlib import Path

def no_op(x):
    return x

def seconds(tasks):
    began = time.perf_counter()
    run(tasks)
    return time.perf_counter() - began

def rates():
    tasks = int(sys.argv[1])
    seconds(4)
    for _ in range(3):
        one = seconds(1)
        print("rate", tasks / (seconds(tasks + 1) - one), flush=True)
"""

_ASA = """
import asa

@asa.stage
def hello(name):
    return f"hello {name}"

print(asa.run(hello("world"), executor="local").result())
"""
_RUN_ASA = """\
nodes = asa.stage(no_op).map(range(tasks))
asa.run(nodes, backend="local:cores=2", executor="local").result()
"""

_EXECUTORLIB = """
from executorlib import SingleNodeExecutor

def hello(name):
    return f"hello {name}"

with SingleNodeExecutor(max_workers=2, block_allocation=True) as executor:
    print(executor.submit(hello, "world").result())
"""

_SUBMITIT = """
import submitit

def hello(name):
    return f"hello {name}"

executor = submitit.AutoExecutor(folder="log_test", cluster="local")
executor.update_parameters(timeout_min=1)
print(executor.submit(hello, "world").result())
"""

_DASK_JOBQUEUE = """
from dask.distributed import Client
from dask_jobqueue.local import LocalCluster

def hello(name):
    return f"hello {name}"

with LocalCluster(cores=2, processes=2, memory="2GB") as cluster, Client(cluster) as client:
    cluster.scale(jobs=1)
    print(client.submit(hello, "world").result())
"""

_HYPERQUEUE = """
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

def hello(name):
    print(f"hello {name}")

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job()
    job.function(hello, args=("world",), stdout="hello.txt")
    client.wait_for_jobs([client.submit(job)])
    print(open("hello.txt").read())
"""
_HYPERQUEUE_PROGRAM = """
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job()
    job.program(["echo", "hello world"], stdout="hello.txt")
    client.wait_for_jobs([client.submit(job)])
    print(open("hello.txt").read())
"""
_RUN_HYPERQUEUE = """\
job = Job()
for x in range(tasks):
    job.ADD
client.wait_for_jobs([client.submit(job)])
"""

_PARSL = """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor

@parsl.python_app
def hello(name):
    return f"hello {name}"

with parsl.load(Config(executors=[HighThroughputExecutor(max_workers_per_node=2)])):
    print(hello("world").result())
"""
_RUN_PARSL = """\
app = parsl.python_app(no_op)
[future.result() for future in [app(x) for x in range(tasks)]]
"""

_PSIJ = """
from pathlib import Path
from psij import Job, JobExecutor, JobSpec

executor = JobExecutor.get_instance("local")
job = Job(JobSpec(executable="/bin/echo", arguments=["hello world"], stdout_path=Path("hello.txt")))
executor.submit(job)
job.wait()
print(Path("hello.txt").read_text())
"""
_RUN_PSIJ = """\
jobs = [Job(JobSpec(executable="/bin/true")) for _ in range(tasks)]
for job in jobs:
    executor.submit(job)
for job in jobs:
    job.wait()
"""

_SNAKEMAKE = """
rule hello:
    output: "hello.txt"
    shell: "echo hello world > {output}"
"""
_RUN_SNAKEMAKE = """\
text = 'rule all:\\n input: expand("{x}.txt", x=range(TASKS))\\nrule:\\n output: "{x}.txt"\\n shell: "touch {output}"'
Path("Snakefile").write_text(text.replace("TASKS", str(tasks)))
subprocess.run([sys.executable, "-m", "snakemake", "--cores", "2", "--forceall", "--quiet", "all"], check=True)
"""

_FUTURES = "[future.result() for future in [executor.submit(no_op, x) for x in range(tasks)]]"
TOOLS = {
    "ASA, executor `local`": Tool("", _ASA, _RUN_ASA, 20_000),
    "ASA, executor `dask`": Tool("", _ASA.replace("local", "dask"), _RUN_ASA.replace('"local"', '"dask"'), 2000),
    "executorlib, one allocation": Tool("executorlib==1.11.0", _EXECUTORLIB, _FUTURES, 5000),
    "submitit, local": Tool(
        "submitit==1.5.4", _SUBMITIT, "[job.result() for job in executor.map_array(no_op, range(tasks))]", 20
    ),
    "dask-jobqueue, local": Tool(
        "dask-jobqueue==0.9.0", _DASK_JOBQUEUE, "client.gather(client.map(no_op, range(tasks), pure=False))", 2000
    ),
    "HyperQueue, functions": Tool(
        "hyperqueue==0.27.0", _HYPERQUEUE, _RUN_HYPERQUEUE.replace("ADD", "function(no_op, args=(x,))"), 50
    ),
    "HyperQueue, programs": Tool(
        "hyperqueue==0.27.0", _HYPERQUEUE_PROGRAM, _RUN_HYPERQUEUE.replace("ADD", 'program(["/bin/true"])'), 2000
    ),
    "Parsl, HTEX": Tool("parsl==2026.10.26", _PARSL, _RUN_PARSL, 5000),
    "PSI/J, local programs": Tool("psij-python==0.9.11", _PSIJ, _RUN_PSIJ, 500),
    "Snakemake, local programs": Tool("snakemake==9.27.1", _SNAKEMAKE, _RUN_SNAKEMAKE, 500),
}


def interpreter(package: str) -> Path:
    """A Python that can import the package: this one for ASA, otherwise that of its own environment.

    Raises `CalledProcessError` when pip cannot install it.
    """
    if not package:
        return Path(sys.executable)
    name = package.partition("==")[0]
    python = ENVIRONMENTS / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    pinned = ["--constraint", str(ROOT / CONSTRAINTS[name])] if name in CONSTRAINTS else []
    words = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *pinned, package]
    subprocess.run(words, check=True, stdout=sys.stderr)
    return python


def measured(tool: Tool, python: Path) -> dict[str, Any]:
    """A tool's figures; raises `AssertionError` without a hello, `CalledProcessError` when its program fails."""
    with tempfile.TemporaryDirectory(prefix="asa-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "hello.py").write_text(tool.hello)
        (folder / "many.py").write_text(tool.many)
        env = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "ASA_STATE_DIR": f"{folder}/state"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # pip has compiled the others
        with (folder / "errors").open("w+") as errors:
            options: dict[str, Any] = {"cwd": folder, "env": env, "stderr": errors}
            try:
                command = f"({tool.command}) | grep --line-buffered ^hello"
                first = first_line(["sh", "-c", command], repeats=5, **options)
                words = ["python", "many.py", str(tool.tasks)]
                done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, **options)
            except (AssertionError, subprocess.CalledProcessError):
                errors.seek(0)
                print(errors.read()[-2000:], file=sys.stderr)
                raise
    rates = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("rate ")]
    return {
        "first result [s]": f"{statistics.median(first):.2f} ({min(first):.2f} to {max(first):.2f})",
        "tasks/s": f"{statistics.median(rates):.3g} ({min(rates):.3g} to {max(rates):.3g})",
        "tasks": tool.tasks,
        "lines": sum(bool(line.strip()) for line in tool.hello.splitlines()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"the beginning of one of: {'; '.join(TOOLS)} (all)")
    options = parser.parse_args()
    load, rows = os.getloadavg()[0], []  # before anything of ours runs
    chosen = {name: tool for name, tool in TOOLS.items() if name.startswith(tuple(options.tools or [""]))}
    pythons: dict[str, Path] = {}
    for tool in chosen.values():
        with suppress(subprocess.CalledProcessError):
            pythons[tool.package] = interpreter(tool.package)
    for name, tool in chosen.items():
        row: dict[str, Any] = {"tool": name, "version": tool.package.partition("==")[2]}
        row["first result [s]"] = "cannot be installed"
        if tool.package in pythons:
            try:
                row |= measured(tool, pythons[tool.package])
            except (AssertionError, subprocess.CalledProcessError):
                row["first result [s]"] = "failed"
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    show(f"One function, and many, on this machine; load before {load:.1f}", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
