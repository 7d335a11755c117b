"""Newcomers' scripts, played in an empty home directory, where nothing but the installed wheel is known."""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.definitions import ROOT


@dataclass(frozen=True)
class Step:
    """What a newcomer does next; without `wants`, he writes a file."""

    wants: str
    does: str  # typed into a shell, where $DOCS is the folder of the pages; or the text of the file
    sees: tuple[str, ...] = ()  # regular expressions of what must be printed
    never: tuple[str, ...] = ()  # and of what must not
    stuck: str = ""  # where a newcomer stuck here on 2026-11-23 (commit 931c5e1), if he did
    fails: bool = False  # whether the command must fail; others must not
    writes: str = ""  # the file's name


class Played(NamedTuple):
    """A step, what it took [s], and what was not as expected, or ""."""

    newcomer: str
    wants: str
    seconds: float
    stuck: str
    wrong: str


def play(newcomer: str, steps: Iterable[Step], environment: Path, home: Path) -> list[Played]:
    """Do all steps in an empty `home`, also those after one that went wrong; ASA is in the virtual `environment`.

    No process that they started is left.
    """
    env = {"HOME": str(home), "PATH": f"{environment / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    env["DOCS"] = str(ROOT / "docs")
    env["NUMBA_CACHE_DIR"] = str(home / "compiled")  # nobody has used the simulator before
    played = []
    try:
        for step in steps:
            if step.writes:
                (file := home / step.writes).parent.mkdir(exist_ok=True)
                file.write_text(step.does)
                file.chmod(0o755)
                continue
            began = time.monotonic()
            wrong = _type(step, home, env)
            played.append(Played(newcomer, step.wants, time.monotonic() - began, step.stuck, wrong))
    finally:
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("HOME") == str(home):
                process.kill()
    return played


def _type(step: Step, home: Path, env: dict[str, str]) -> str:
    """What was wrong with what came of a command, or ""."""
    words = ["bash", "-c", f"exec 2>&1; {step.does}"]
    done = subprocess.run(words, cwd=home, env=env, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    wrong = [f"ended with {done.returncode}"] if (done.returncode != 0) is not step.fails else []
    wrong += [f"did not say {each!r}" for each in step.sees if not re.search(each, done.stdout, re.M)]
    wrong += [f"said {each!r}" for each in step.never if re.search(each, done.stdout, re.M)]
    return f"$ {step.does}\n{done.stdout}\n{'; '.join(wrong)}" if wrong else ""


def table(played: Sequence[Played], before: Sequence[Played] = ()) -> str:
    """All steps in Markdown: where one stuck before, or what it took then [s]; what it takes now, or STUCK."""
    lines = ["| wants to | before [s] | now [s] |", "|---|---:|---:|"]
    took = {(it.newcomer, it.wants): f"{it.seconds:.1f}" for it in before}
    for newcomer, steps in itertools.groupby(played, lambda each: each.newcomer):
        lines.append(f"| **{newcomer}** | | |")
        for it in steps:
            old, now = it.stuck or took.get((newcomer, it.wants), ""), "STUCK" if it.wrong else f"{it.seconds:.1f}"
            lines.append(f"| {it.wants} | {old} | {now} |")
    return "\n".join(lines)
