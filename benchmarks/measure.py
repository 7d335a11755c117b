"""What the benchmarks share: repeated timing of whole processes, the machine's name, and tables."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any


def first_line(argv: Sequence[str], repeats: int = 7, **options: Any) -> list[float]:
    """Seconds from the start of a process to the first line it prints, `repeats` times after one warm-up."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        with subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0, **options) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds.append(time.perf_counter() - began)
            assert line, f"{argv} printed nothing"
    return seconds[1:]


def python(code: str) -> list[str]:
    """Command line of this interpreter for some code; unbuffered."""
    return [sys.executable, "-u", "-c", code]


def row(what: str, seconds: Sequence[float], **more: Any) -> dict[str, Any]:
    """A row of a table: median and extremes [s]."""
    return {"what": what, "median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), **more}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a Markdown table, and the same as JSON to the file that $BENCHMARK_JSON names."""
    load = os.getloadavg()[0]
    print(f"\n### {title}\n")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{datetime.date.today()}, {machine}, load {load:.1f}\n")
    names = list(dict.fromkeys(name for each in rows for name in each))
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for each in rows:
        print("| " + " | ".join(_cell(each.get(name)) for name in names) + " |")
    if path := os.environ.get("BENCHMARK_JSON"):
        with open(path, "a") as file:
            file.write(json.dumps({"title": title, "load": load, "rows": rows}) + "\n")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
