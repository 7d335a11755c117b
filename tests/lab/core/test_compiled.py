"""Where compiled code is kept: numba sees one file of a function, we see all that it calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from asa.lab.core.compiled import fingerprint

KNAPSACK = "from asa.lab.dispatchers.packing import best_set; print(best_set([6.0, 5.0, 5.0], [4, 3, 3], 6).tolist())"


def test_a_change_of_any_compiled_module_is_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "simulator"
    folder.mkdir()
    (folder / "loop.py").write_text("from asa.lab.core.compiled import inner\n")
    before = fingerprint(tmp_path)
    (folder / "plain.py").write_text("x = 1\n")
    assert fingerprint(tmp_path) == before
    (folder / "state.py").write_text("WORLD = np.dtype([])\n")
    assert fingerprint(tmp_path) != before


def test_each_version_has_a_directory_and_old_ones_go(tmp_path: Path) -> None:
    old, recent = tmp_path / "asa-numba-old", tmp_path / "asa-numba-recent"
    old.mkdir()
    recent.mkdir()
    os.utime(old, (0, 0))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", KNAPSACK], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[False, True, True]"
    assert not old.exists()
    assert recent.exists()
    (compiled,) = tmp_path.glob("asa-numba-*/**/*.nbi")
    assert "solve" in compiled.name
