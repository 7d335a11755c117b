"""What it costs that tasks print: CPU time of all processes of a run whose tasks are silent, or print 1 kB each.

python benchmarks/output.py [TASKS [REPEATS]]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from measure import python, row, show

RUN = """
import asa, sys
def task(number):
    {body}
    return number
run = asa.run(asa.stage(cores=2)(task).map(range({tasks})), state={state!r})
assert run.status.value == "succeeded"
run.wait()
"""
BODIES = {
    "silent": "pass",
    "1 kB in one print": "print('x' * 1000)",
    "1 kB in ten prints": "for _ in range(10): print('x' * 99)",
}


def seconds(body: str, tasks: int) -> float:
    """CPU seconds of driver, supervisor and workers."""
    with tempfile.TemporaryDirectory() as state:
        process = subprocess.Popen(python(RUN.format(body=body, tasks=tasks, state=state)))
        _, code, used = os.wait4(process.pid, 0)
        assert code == 0
        return used.ru_utime + used.ru_stime


def main() -> None:
    given = [int(word) for word in sys.argv[1:]]
    tasks, repeats = [*given, *(10_000, 7)[len(given) :]]
    found: dict[str, list[float]] = {name: [] for name in BODIES}
    for _ in range(repeats + 1):  # in turn, for the machine may be busy with other things meanwhile
        for name, body in BODIES.items():
            found[name].append(seconds(body, tasks))
    silent = row("", found["silent"][1:])["median"]
    rows = [row(name, used[1:]) for name, used in found.items()]
    show(f"{tasks:,} tasks that print [CPU s]", [each | {"of silent": each["median"] / silent} for each in rows])


if __name__ == "__main__":
    main()
