"""Make a queue of jobs that really run: the mix of the ASA_X paper, scaled down, with its input data.

    python benchmarks/cosched_queue.py --nodes 8 --seconds 20 --seed 1 --out DIR

writes ``DIR/queue.toml`` and the data below DIR: Montage, BLAST and Statistics on 1, 2, 4 and 8 nodes and Synthetic on
2, 4 and 8, in random order, as far as they fit on the machine. Nodes have one core each, which is worth ``--speed`` of
a core of the processor. Alone, each job takes at least ``--seconds``; wall times are 1.1 to 1.6 times what is expected.
With ``--files`` there are jobs, too, that write files and wait for the disk, which the paper's mix has not.

How large jobs must be for that is measured here, in CPU time: workflows are gone through once, task after task. BLAST
and Synthetic do more in their parallel stages then. Montage and Statistics get the same data on however many nodes, as
in the paper, and are repeated as a whole, with the stages of one task in which all nodes but one are idle: Statistics
unpacks its data first, which takes as long as all that follows. What jobs write goes to their own directories.
"""

from __future__ import annotations

import argparse
import bz2
import json
import math
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.workflows.graph import make_graph
from asa.workflows.settings import load_workflow
from asa.workflows.stage import Node, replace_nodes

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "workflows"
RANK = sys.executable, "-m", "asa", "cosched", "rank"
SIZES = {"montage": (1, 2, 4, 8), "blast": (1, 2, 4, 8), "statistics": (1, 2, 4, 8), "synthetic": (2, 4, 8)}
FILES = {"files": (1, 2, 4)}
FEWEST = 4  # nodes of a machine: on less some application has one size only
MARGIN = 1.15  # on the CPU time that a job must use
TASK_S = 0.002  # CPU time that a rank uses for each task, besides the task's own [s]
STARTS = 1.5  # of a rank, one after the other: what is loaded is waited for
LAG_S = 0.05  # until a rank sees that others have ended a stage, on average [s]
PADDING = 1.1, 1.6  # wall time, in expected run times

TILES, TILE = "2x2", 300  # of Montage, and their side [pixels]
SEQUENCES, QUERIES = 2000, 50  # of BLAST: in its database, and of each task
MINUTES, CHUNKS = 250_000, 8  # of Statistics: in its file, and tasks
WRITTEN = "dd if=/dev/zero of=part.$ASA_RANK bs=1M count=16 conv=fsync"  # of a job that writes files: a round
FLOATS, TASKS, ROUNDS = 125_000, 8, 100  # of Synthetic: of each task, tasks a node, and rounds of the trial

Settings = dict[str, Any]
Kind = tuple[str, int]  # application and nodes


@dataclass(frozen=True)
class Work:
    """What a job runs.

    Parameters
    ----------
    target, settings
        What `asa cosched rank` is given; without settings: what the shell is.
    cpu_s
        CPU time of the node that has most to do [s], of each stage; of a shell's line its whole time.
    barriers
        How often all wait for all.
    """

    target: str
    settings: Settings
    cpu_s: float
    barriers: int

    @property
    def command(self) -> str:
        """The line for the shell of each node."""
        if not self.settings:
            return self.target
        assignments = [f"{name}={value}" for name, value in self.settings.items()]
        return shlex.join([*RANK, self.target, *(word for each in assignments for word in ("--set", each))])


@dataclass(frozen=True)
class Cost:
    """CPU time of each stage of a workflow [s], after its number of tasks."""

    stages: tuple[tuple[int, float], ...]

    def path(self, nodes: int) -> float:
        """CPU time of the node that has most to do in each stage [s]."""
        return sum(math.ceil(tasks / nodes) * (total / tasks + TASK_S) for tasks, total in self.stages)

    @property
    def sequential(self) -> float:
        """CPU time of the stages that have one task [s]."""
        return sum(total for tasks, total in self.stages if tasks == 1)

    @property
    def task(self) -> float:
        """CPU time of one task of the parallel stages [s]."""
        return sum(total / tasks + TASK_S for tasks, total in self.stages if tasks > 1)


def repeated(file: str, times: int, **settings: Any) -> Node:
    """The workflow in a file, so many times, one after the other; each time it writes the same files."""
    graph = make_graph(load_workflow(file, settings))
    before: list[Node] = []
    for _ in range(times):
        copies: dict[Node, Node] = {}
        for node in graph.nodes.values():
            args, kwargs = replace_nodes(node.args, copies.__getitem__), replace_nodes(node.kwargs, copies.__getitem__)
            copies[node] = Node(node.stage, args, kwargs, node.mapped)
            copies[node].after(*map(copies.__getitem__, node.predecessors), *before)
        before = [copies[graph.result]]
    return before[0]


def measure(file: str, settings: Settings) -> Cost:
    """Go through a workflow, task after task, in this process."""
    graph = make_graph(load_workflow(file, settings))
    values: dict[Node, Any] = {}
    stages = []
    for node in graph.nodes.values():
        columns = [replace_nodes(column, values.__getitem__) for column in node.args]
        common = replace_nodes(node.kwargs, values.__getitem__)
        calls = list(zip(*columns, strict=True)) if node.mapped else [tuple(columns)]
        began = cpu_time()
        results = [node.stage.function(*args, **common) for args in calls]
        stages.append((len(calls), cpu_time() - began))
        values[node] = results if node.mapped else results[0]
    return Cost(tuple(stages))


def cpu_time() -> float:
    """CPU time of this process, and of its children that have ended [s]."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def trial(application: str, settings: Settings) -> Cost:
    """Cost of an example with these settings, in processes of their own: all examples have modules of the same names.

    It is the least of two, stage by stage: what else runs on the machine only makes tasks slower.
    """
    import multiprocessing

    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as out, multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(measure, (file_of(application), {**settings, "out": out})).stages)
    return Cost(tuple(map(min, *found)))


def file_of(application: str) -> str:
    return str(EXAMPLES / application / "workflow.py")


def make(application: str, *options: object) -> None:
    """Have the example make input data."""
    argv = [sys.executable, str(EXAMPLES / application / "make_data.py"), *map(str, options)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def repeat(application: str, settings: Settings, nodes: int, budget: float) -> Work:
    """An example, as often as it takes to use `budget` [s] of CPU time on the busiest node."""
    cost = trial(application, settings)
    times = math.ceil(budget / cost.path(nodes))
    given = {"file": file_of(application), "times": times, **settings, "out": "out"}
    target = f"{Path(__file__).resolve()}:{repeated.__name__}"
    return Work(target, given, times * cost.path(nodes), times * len(cost.stages))


def montage(data: Path, nodes: int, budget: float) -> Work:
    """Repeated mosaics."""
    tiles = data / "tiles"
    if not tiles.exists():
        make("montage", "--tiles", TILES, "--size", TILE, "--out", tiles)
    return repeat("montage", {"tiles": tiles}, nodes, budget)


def statistics(data: Path, nodes: int, budget: float) -> Work:
    """Repeated statistics of a packed file."""
    plain, packed = data / "power.txt", data / "power.txt.bz2"
    if not packed.exists():
        make("statistics", "--minutes", MINUTES, "--out", plain)
        with plain.open("rb") as source, bz2.open(packed, "wb") as copy:
            shutil.copyfileobj(source, copy)
        plain.unlink()
    return repeat("statistics", {"data": packed, "chunks": CHUNKS}, nodes, budget)


def blast(data: Path, nodes: int, budget: float) -> Work:
    """One search for many queries."""
    sample = data / "blast-trial"
    if not sample.exists():
        make("blast", "--sequences", SEQUENCES, "--queries", 8 * QUERIES, "--out", sample)
    cost = trial("blast", {**searched(sample), "parts": 8})
    each = math.ceil((budget - cost.sequential) / cost.task)
    folder = data / f"blast-{nodes}"
    make("blast", "--sequences", SEQUENCES, "--queries", each * nodes * QUERIES, "--out", folder)
    settings = {**searched(folder), "parts": each * nodes, "out": "out"}
    return Work(file_of("blast"), settings, cost.sequential + each * cost.task, len(cost.stages))


def searched(folder: Path) -> Settings:
    return {"query": folder / "query.fa", "database": folder / "database.fa"}


def synthetic(data: Path, nodes: int, budget: float) -> Work:
    """Many rounds through numbers."""
    tasks = TASKS * nodes
    settings = {"floats": FLOATS * tasks, "tasks": tasks}
    cost = trial("synthetic", {**settings, "rounds": ROUNDS})
    rounds = math.ceil(ROUNDS * (budget - cost.sequential) / (TASKS * cost.task))
    cpu_s = cost.sequential + TASKS * cost.task * rounds / ROUNDS
    return Work(file_of("synthetic"), {**settings, "rounds": rounds, "out": "out"}, cpu_s, len(cost.stages))


def files(data: Path, nodes: int, budget: float) -> Work:
    """Files that are written to the disk, one after the other, all nodes at once: `budget` is time, not CPU time."""
    rounds, began = 5, time.monotonic()
    for _ in range(rounds):
        subprocess.run(WRITTEN, shell=True, check=True, cwd=data, stderr=subprocess.DEVNULL)
    (data / "part.").unlink()
    rounds = math.ceil(rounds * budget / (time.monotonic() - began) / nodes)
    line = f'for n in $(seq {rounds}); do {WRITTEN} || exit 1; echo "$n {rounds}" >"$ASA_PROGRESS"; done'
    return Work(line, {}, budget, 0)


MAKERS: dict[str, Callable[[Path, int, float], Work]] = {
    maker.__name__: maker for maker in (montage, blast, statistics, synthetic, files)
}


def start_cost() -> float:
    """CPU time of a rank that has next to nothing to do [s]."""
    with tempfile.TemporaryDirectory() as out:
        work = Work(file_of("synthetic"), {"floats": 1000, "tasks": 2, "rounds": 1, "out": out}, 0.0, 0)
        began = cpu_time()
        subprocess.run(work.command, shell=True, check=True, stdout=subprocess.DEVNULL)
        return cpu_time() - began


def chosen(jobs: int, nodes: int, files: bool, random_: random.Random) -> list[Kind]:
    """Applications and nodes of so many jobs, in random order: two sizes of each, all once, or all twice."""
    wanted = SIZES | FILES if files else SIZES
    kinds = {name: [size for size in sizes if size <= nodes] for name, sizes in wanted.items()}
    if jobs == 8:
        found = [(name, size) for name, sizes in kinds.items() for size in random_.sample(sizes, 2)]
    else:
        found = [(name, size) for name, sizes in kinds.items() for size in sizes] * (jobs // 15)
    random_.shuffle(found)
    return found


def lines(
    jobs: Sequence[Kind], works: Mapping[Kind, Work], expected: Mapping[Kind, float], random_: random.Random
) -> list[str]:
    """The jobs as TOML."""
    found, count = [], dict[Kind, int]()
    for job in jobs:
        name, nodes = job
        count[job] = count.get(job, 0) + 1
        found += [
            "",
            f"[[jobs]]  # expected to take {expected[job]:.0f} s alone",
            f"name = {json.dumps(f'{name}-{nodes}' + 'bc'[count[job] - 2] * (count[job] > 1))}",
            f"application = {json.dumps(name)}",
            f"cores = {nodes}",
            f"walltime = {round(expected[job] * random_.uniform(*PADDING), 1)}",
            f"command = {json.dumps(works[job].command)}",
        ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a queue of jobs that really run, with its input data.")
    parser.add_argument("--nodes", type=int, default=8, help=f"of the machine, at least {FEWEST} (8)")
    parser.add_argument("--speed", type=float, default=0.25, help="what the core of a node is worth, in cores (0.25)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that each job takes alone, at least [s] (20)")
    parser.add_argument("--jobs", type=int, default=15, choices=(8, 15, 30), help="how many, on 8 nodes (15)")
    parser.add_argument("--files", action="store_true", help="with jobs that write files")
    parser.add_argument("--seed", type=int, default=1, help="of order and wall times (1)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into; made, must not exist")
    options = parser.parse_args()
    if options.nodes < FEWEST or not 0 < options.speed <= 1 or not options.seconds > 0:
        parser.error(f"at least {FEWEST} nodes, a speed in (0, 1] and a positive number of seconds expected")
    out = options.out.resolve()
    if out.exists():
        parser.error(f"{out} exists: name a new folder")
    out.mkdir(parents=True)
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

    random_, start_s = random.Random(options.seed), start_cost()
    jobs = chosen(options.jobs, options.nodes, options.files, random_)
    works, expected = dict[Kind, Work](), dict[Kind, float]()
    for job in sorted(set(jobs)):
        name, nodes = job
        speed = 1.0 if name in FILES else options.speed
        work = works[job] = MAKERS[name](out, nodes, MARGIN * speed * options.seconds)
        starts, lag_s = (STARTS, LAG_S * work.barriers) if nodes > 1 else (1.0, 0.0)
        expected[job] = (starts * start_s + work.cpu_s) / speed + lag_s
        print(f"{name}-{nodes}: {work.cpu_s:.1f} s of work on the busiest node, {expected[job]:.0f} s", file=sys.stderr)
    head = f"# python benchmarks/cosched_queue.py {shlex.join(sys.argv[1:])}\ncores = {options.nodes}"
    (out / "queue.toml").write_text("\n".join([head, *lines(jobs, works, expected, random_)]) + "\n")
    print(out / "queue.toml")


if __name__ == "__main__":
    main()
