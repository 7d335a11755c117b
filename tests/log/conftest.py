import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def ordinary_user():
    """A directory of an ordinary user, and that user's rights: those of root ignore a read-only directory."""
    root, nobody = os.geteuid() == 0, 65534
    if root:
        os.seteuid(nobody)
    try:
        directory = Path(tempfile.mkdtemp())
        yield directory
        directory.chmod(0o700)
        shutil.rmtree(directory)
    finally:
        if root:
            os.seteuid(0)
