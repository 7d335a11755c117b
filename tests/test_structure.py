"""What the design promises of the code as a whole."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import asa

ROOT = Path(__file__).parent.parent


def test_rooms_are_small() -> None:
    lengths = sorted(
        len(path.read_text().splitlines())
        for package in ("asa", "executors", "coscheduler")
        for path in ROOT.glob(f"{package}/**/*.py")
    )
    assert statistics.median(lengths) <= 130
    assert lengths[int(0.9 * len(lengths))] < 300
    assert lengths[-1] <= 400, "is it two rooms?"


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


def test_every_public_name_can_be_had() -> None:
    for name in asa.__all__:
        assert getattr(asa, name) is not None


def test_the_documents_link_to_files_that_are_there() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in page.read_text().split("](")[1:]:
            link = target.split(")")[0].split("#")[0]
            if link and "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}"
