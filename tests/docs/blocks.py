"""The code on a page of the docs, step by step, as a reader would do it.

What follows on "Save this as `NAME`" is written to that file; any other Python is run. In console blocks, lines that
begin with a dollar sign are typed into a shell, and what is printed must be what the lines below show: numbers, times
and names of runs aside, and whatever stands where the page has ``...``. A command that ends with a comment
``# fails`` must fail, all others must not. Blocks in `sh` are for machines that no test has.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.definitions import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_SAVED = re.compile(r"[Ss]ave this\s+as\s+`([\w./-]+)`")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Step:
    """One block of a page: its language, its text, and the file that it is saved as, or ""."""

    language: str
    text: str
    file: str = ""


def steps(page: str) -> list[Step]:
    """The blocks of a page, or of a part of it; what is said of a block is said in the paragraph before it."""
    found, end = [], 0
    for block in _BLOCK.finditer(page):
        before = page[end : block.start()].strip().rpartition("\n\n")[2]
        said = _SAVED.findall(before)
        found.append(Step(block[1], block[2], said[-1] if said else ""))
        end = block.end()
    return found


def read(name: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / name).read_text()


def follow(page: str, folder: Path, environment: Mapping[str, str] | None = None) -> int:
    """Do all steps of a page in a folder; how many there were to run."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "240"}
    env |= {"ASA_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(folder)} | dict(environment or {})
    done = 0
    for step in steps(page):
        if step.file:
            (folder / step.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.file).write_text(step.text)
        elif step.language == "python":
            _run([sys.executable, "-c", step.text], folder, env, fails=False, shown=step.text)
            done += 1
        elif step.language == "console":
            for command, expected in exchanges(step.text):
                fails = command.endswith("# fails")
                said = _run(["bash", "-c", command], folder, env, fails=fails, shown=command)
                check_said(command, said, expected)
                done += 1
    return done


def exchanges(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, and what is printed then."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines(keepends=True)
        count = next(place for place, line in enumerate(lines, 1) if not line.endswith("\\\n"))
        yield "".join(lines[:count]).strip(), "".join(lines[count:])


def check_said(command: str, said: str, expected: str) -> None:
    """Refuse what is not as the page has it."""
    got, want = _plain(said), re.sub(r"\s*\.\.\.\s*", "...", _plain(expected))
    assert doctest.OutputChecker().check_output(want, got, _FLAGS), f"$ {command}\n{said}\nbut the page has\n{expected}"


def _plain(text: str) -> str:
    """Without what is another every time."""
    text = re.sub(r"-[0-9a-f]{6}\b", "-HEX", text)
    text = re.sub(r"\d+([.:-]\d+)*(e-\d+)?", "#", text)
    return re.sub(r"#( (s|min|h|d|ms)\b)?( # (s|min|h|d|ms)\b)*", "#", text)


def _run(argv: list[str], folder: Path, env: Mapping[str, str], *, fails: bool, shown: str) -> str:
    done = subprocess.run(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    assert (done.returncode != 0) is fails, f"{shown}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def printed(program: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a reader's program prints, in this folder."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
