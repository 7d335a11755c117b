"""What large results cost the driver, and what it costs that outputs are put in place.

python benchmarks/files.py [TASKS [BYTES]]       the driver's memory, with so many results of so many bytes
python benchmarks/files.py outputs [COUNT]       CPU time of an output in a directory of its own, and where it is to be
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time

from measure import python, row, show

RUN = """
import asa, resource, sys, time
def memory():
    with open("/proc/self/status") as file:
        found = dict(line.split(":", 1) for line in file)
    return int(found["VmHWM"].split()[0]) * 1024
def big(number):
    return number.to_bytes(4, "big") * ({size} // 4)
def first(value):
    return value[:4]
def add(parts):
    return sum(int.from_bytes(part.load()[:4], "big") for part in parts)
before = memory()
one = asa.stage(cores=2)(big).map(range({tasks}))
workflow = [asa.stage(cores=2)(first).map(one), asa.stage(refs=True)(add)(one)]
run = asa.run(workflow, state={state!r})
_, total = run.result()
assert total == sum(range({tasks}))
refs = run.results("big", refs=True)
assert len(refs) == {tasks} and len(refs[-1].load()) == {size}
run.wait()
used = resource.getrusage(resource.RUSAGE_SELF)
print(before, memory(), used.ru_utime + used.ru_stime, flush=True)
"""


def results(tasks: int, size: int) -> None:
    """Stages one after the other: results, a task for each of them, and one that opens all of them."""
    import subprocess

    rows = []
    for count in (tasks // 10, tasks):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIRECTORY")) as state:
            began = time.perf_counter()
            done = subprocess.run(
                python(RUN.format(tasks=count, size=size, state=state)), stdout=subprocess.PIPE, text=True, check=True
            )
            before, most, seconds = map(float, done.stdout.split())
        rows.append(
            {
                "results": f"{count:,} x {size / 1e6:g} MB",
                "driver before [MB]": before / 1e6,
                "driver at most [MB]": most / 1e6,
                "driver, CPU [s]": seconds,
                "wall [s]": time.perf_counter() - began,
            }
        )
    show("large results", rows)


def outputs(count: int) -> None:
    """One program after the other, in this process."""
    import asa

    templates = {"in a directory of its own": "touch {out}", "where it is to be": "touch out-{x}"}
    found: dict[str, list[float]] = {what: [] for what in templates}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIRECTORY")) as folder:
        os.chdir(folder)
        for _ in range(6):
            for what, template in templates.items():
                function = asa.command(template, outputs={"out": "out-{x}"}).function
                began = cpu()
                for number in range(count):
                    function(number)
                found[what].append((cpu() - began) / count * 1000)
        os.chdir("/")
    show("an output of a program [ms of CPU]", [row(what, times[1:]) for what, times in found.items()])


def cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["outputs"]:
        outputs(*map(int, words[1:] or ["500"]))
    else:
        given = [int(word) for word in words]
        tasks, size = [*given, *(10_000, 1_000_000)[len(given) :]]
        results(tasks, size)


if __name__ == "__main__":
    main()
