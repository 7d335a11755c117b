"""The programs on docs/howto/integrations.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "integrations.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
LOCAL = [block for block in BLOCKS if 'state="state"' in block]
PRINTED = {"concurrent.futures": "[0, 1, 4, 9, 16]\n", "sizes": "6 7\n", "joblib": "[1, 2, 3]\n", "dask": "7\n"}


@pytest.mark.slow
@pytest.mark.parametrize(("block", "door"), list(zip(LOCAL, PRINTED, strict=True)))
def test_it_runs(
    block: str, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(PAGE), "exec"), {"__name__": "__main__"})
    assert capfd.readouterr().out == PRINTED[door]
