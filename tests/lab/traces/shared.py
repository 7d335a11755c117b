"""The folder of real data beside the project, where there is one."""

import gzip
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[4] / "shared" / "data"


def shared_file(*parts):
    """A file of the folder; the test is skipped where it is missing."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {path}")
    return path


def swf_columns(name):
    """The numbers of an SWF log, shape (jobs, 18); read here in two lines, so that no reader of ours is needed."""
    with gzip.open(shared_file("swf", f"{name}.swf.gz"), "rt") as file:
        return np.array([line.split() for line in file if line.strip() and line.lstrip()[0] != ";"], dtype=float)
