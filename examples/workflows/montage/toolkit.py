"""The Montage programs this workflow uses, one function each.

Where the programs are on PATH (Debian: ``apt install montage``) they are run; elsewhere the same C code is
called through MontagePy (``pip install MontagePy``), which needs no root. Both give the same mosaic. The
picture alone differs: MontagePy's mViewer wants a package that MontagePy does not install, so there it is
drawn here. For gzipped images both need the program gunzip.

Every function raises `MontageError` with the program's own message unless the program said OK and left nothing
out: Montage says OK also when it passed over images it could not use. On success it returns the figures of the
program's status line, such as ``[struct stat="OK", module="mImgtbl", count=9, badfits=0]``.

MontagePy keeps its state in C globals: in one process mImgtbl would count the bad files of earlier calls again.
Each call therefore has a process of its own (some 0.03 s), and tasks may run in threads too.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fits import read_image
from picture import stretch, write_png

Status = dict[str, str | float]

PROGRAMS = (
    "mImgtbl", "mMakeHdr", "mOverlaps", "mProject", "mProjectPP", "mDiff", "mFitplane",
    "mBgModel", "mBackground", "mAdd", "mShrink", "mViewer",
)  # fmt: skip
CHILD = """
import json, sys
import MontagePy.main
program, args, options = json.loads(sys.argv[1])
answer = getattr(MontagePy.main, program)(*args, **options)
print()
print(json.dumps(answer, default=lambda text: text.decode(errors="replace").strip()))
"""
LEFT_OUT = "failed", "badfits", "badwcs"  # counts of images that a program passed over while saying OK


class MontageError(RuntimeError):
    """A Montage program failed.

    Parameters
    ----------
    program
        Its name.
    message
        What it said.
    """

    def __init__(self, program: str, message: str) -> None:
        super().__init__(program, message)
        self.program = program
        self.message = message

    def __str__(self) -> str:
        return f"{self.program}: {self.message}"


def implementation() -> str:
    """Return which Montage is used here: ``"programs"`` or ``"MontagePy"``.

    Raises
    ------
    MontageError
        If neither is installed.
    """
    if all(map(shutil.which, PROGRAMS)):
        return "programs"
    if importlib.util.find_spec("MontagePy"):
        return "MontagePy"
    missing = ", ".join(program for program in PROGRAMS if not shutil.which(program))
    raise MontageError(
        "Montage",
        f"not on PATH: {missing}; nor is there MontagePy: install Debian's montage, or MontagePy with pip",
    )


def parse_status(text: str) -> Status:
    """Return the fields of the last status line in a program's output; empty if there is none.

    >>> parse_status('[struct stat="OK", module="mOverlaps", count=17]')
    {'stat': 'OK', 'module': 'mOverlaps', 'count': 17.0}
    """
    found = re.findall(r"\[struct (.*?)\]\s*$", text, re.DOTALL | re.MULTILINE)
    if not found:
        return {}
    fields = re.findall(r'(\w+)=(?:"([^"]*)"|([^\s,]+))', found[-1])
    return {name: _number(bare) if bare else quoted.strip() for name, quoted, bare in fields}


def parse_answer(text: str) -> Status:
    """Return what a MontagePy function gave, from the last line of its process, in the words of a status line.

    >>> parse_answer('{"status": "1", "msg": "No overlap tables."}')
    {'stat': 'ERROR', 'msg': 'No overlap tables.'}
    """
    last = text.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        return {}
    answer: Status = json.loads(last)
    return {"stat": "ERROR" if int(answer.pop("status")) else "OK"} | answer


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def call(program: str, argv: Sequence[object], args: Sequence[object] | None = None, **options: object) -> Status:
    """Run one Montage program and check how it ended.

    Parameters
    ----------
    program
        Its name, e.g. ``"mDiff"``.
    argv
        Its arguments on a command line.
    args, options
        The same for MontagePy's function; by default ``argv``.

    Raises
    ------
    MontageError
        If the program failed, or passed over part of its input.
    """
    if implementation() == "programs":
        done = _run([program, *map(str, argv)])
        status = parse_status(done.stdout)
    else:
        order = json.dumps([program, args or argv, options], default=str)
        done = _run([sys.executable, "-P", "-c", CHILD, order])
        status = parse_answer(done.stdout)
    if not status or (done.returncode and status["stat"] == "OK"):
        tail = (done.stderr or done.stdout).strip()[-500:]
        raise MontageError(program, f"ended with exit code {done.returncode} and no status: {tail}")
    if status["stat"] != "OK":
        raise MontageError(program, str(status.get("msg", "failed without a message")))
    for count in LEFT_OUT:
        if status.get(count, 0):
            raise MontageError(program, f"{count} = {status[count]:g}: part of the input could not be used")
    return status


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")


def mImgtbl(images: Sequence[Path], table: Path) -> Status:
    """Write a table of the geometry of images, which all lie in one directory, in the given order."""
    folder = images[0].parent
    width = max(len(image.name) for image in images)
    head = [f"|{word:>{width}}|\n" for word in ("fname", "char")]
    listing = table.with_suffix(".list")
    listing.write_text("".join(head + [f" {image.name:>{width}} \n" for image in images]))
    status = call("mImgtbl", ["-t", listing, folder, table], [folder, table], imgListFile=str(listing))
    if status["count"] != len(images):
        raise MontageError("mImgtbl", f"{status['count']:g} images found in {folder}, not {len(images)}")
    return status


def mMakeHdr(table: Path, header: Path) -> Status:
    """Write the header template of a mosaic, north up, that covers all images of a table."""
    return call("mMakeHdr", ["-n", table, header], [table, header], northAligned=1)


def mOverlaps(table: Path, overlaps: Path) -> Status:
    """Write the table of pairs of images that overlap on the sky."""
    return call("mOverlaps", [table, overlaps])


def mProject(image: Path, out: Path, header: Path) -> Status:
    """Reproject an image by exact overlap of pixels on the sphere: any projections, slow."""
    return call("mProject", [image, out, header])


def mProjectPP(image: Path, out: Path, header: Path) -> Status:
    """Reproject an image from plane to plane: tangent-plane projections only, some 85 times faster."""
    return call("mProjectPP", [image, out, header])


def mDiff(plus: Path, minus: Path, out: Path, header: Path) -> Status:
    """Write the difference of two projected images where they overlap."""
    return call("mDiff", [plus, minus, out, header])


def mFitplane(image: Path) -> Status:
    """Fit a plane to an image, leaving out what stands off it; the figures are in the status."""
    return call("mFitplane", [image])


def mBgModel(images: Path, fits: Path, corrections: Path) -> Status:
    """Write the planes to take off each image so that their differences vanish in the least-squares sense."""
    return call("mBgModel", [images, fits, corrections])


def mBackground(image: Path, out: Path, a: float, b: float, c: float) -> Status:
    """Take the plane ``a x + b y + c`` off an image."""
    return call("mBackground", [image, out, a, b, c])


def mAdd(folder: Path, table: Path, header: Path, out: Path) -> Status:
    """Co-add the images of a table, which lie in a folder, weighted by how much of each pixel they cover."""
    return call("mAdd", ["-e", "-p", folder, table, header, out], [folder, table, header, out])


def mShrink(image: Path, out: Path, factor: float) -> Status:
    """Make an image smaller by averaging over squares of ``factor`` pixels, at least 1."""
    return call("mShrink", [image, out, factor])


def mViewer(image: Path, out: Path) -> None:
    """Draw an image as PNG, north up, from a little below its background to its brightest pixel."""
    if implementation() == "programs":
        call("mViewer", ["-ct", 0, "-gray", image, "-1s", "max", "gaussian-log", "-out", out])
    else:
        write_png(out, stretch(read_image(image)[1]))
