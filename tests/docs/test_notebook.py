"""The notebook of the docs runs, and shows what it shows there.

``python -m tests.docs.test_notebook`` writes down what its cells show.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.definitions import ROOT
from tests.docs.blocks import check_said

PLACE = ROOT / "docs/howto/notebook.ipynb"


def executed(folder: Path) -> Any:
    """The notebook with what its cells show, run by a kernel that is spoken to through sockets in a folder."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    manager = AsyncKernelManager(transport="ipc", ip=str(folder / "kernel"))
    notebook = nbformat.read(PLACE, 4)
    NotebookClient(notebook, km=manager, timeout=100, resources={"metadata": {"path": str(folder)}}).execute(
        env={**os.environ, "ASA_STATE_DIR": str(folder / "state"), "IPYTHONDIR": str(folder)}
    )
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)
    return notebook


def shown(cell: Any) -> str:
    """What a cell shows: what it prints, then the rest in its order, each in all its kinds."""
    outputs = cell.get("outputs", ())
    texts = ["".join(each["text"]) for each in outputs if each["output_type"] == "stream"]
    kinds = [(kind, text) for each in outputs for kind, text in sorted(each.get("data", {}).items())]
    texts += [f"{kind}\n{text if isinstance(text, str) else ''.join(text)}\n" for kind, text in kinds]
    errors = [f"{each['ename']}: {each['evalue']}\n" for each in outputs if each["output_type"] == "error"]
    return re.sub(r"\bcores\b", "core", "".join([*texts, *errors]))


@pytest.mark.slow
def test_the_notebook_shows_what_it_has() -> None:
    for library in ("nbclient", "ipykernel"):
        pytest.importorskip(library)
    import nbformat

    with tempfile.TemporaryDirectory(prefix="nb-") as folder:  # sockets have short names
        found = executed(Path(folder))
    kept = nbformat.read(PLACE, 4)
    assert len([cell for cell in kept.cells if cell.get("outputs")]) >= 8
    for now, then in zip(found.cells, kept.cells, strict=True):
        check_said(now.source, shown(now), shown(then))
    html = "".join(shown(cell) for cell in kept.cells)
    assert "<svg" in html and "<table" in html and "<script" not in html and not re.search(r'(src|href)="', html)


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory(prefix="nb-") as place:
        nbformat.write(executed(Path(place)), PLACE)
