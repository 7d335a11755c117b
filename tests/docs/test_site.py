"""The documentation site: it builds without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.definitions import ROOT

SITE = ROOT / "docs" / "site"


def hook(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


nav, sites = hook("nav"), hook("sites")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    words = ["build", "--strict", "--quiet", "--config-file", str(SITE / "mkdocs.yml"), "--site-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_built_with_every_page_and_every_docstring(site: Path) -> None:
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    built = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages <= built
    told = (site / "api" / "workflows.html").read_text()
    for name in ("asa.run", "asa.stage", "asa.Run", "asa.Run.result", "asa.core.errors.BackendError"):
        assert f'id="{name}"' in told


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_its_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\s\"'>]+")
    for page in site.rglob("*.html"):
        assert loads.findall(page.read_text()) == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//", styles) == []


@pytest.mark.slow
def test_pages_that_load_a_script_from_elsewhere_would_do_so_with_mermaid_only(site: Path) -> None:
    """The theme has a script that fetches mermaid where a page has a diagram in it: none has."""
    assert not any('class="mermaid"' in page.read_text() for page in site.rglob("*.html"))


def test_stars_stand_for_pages_that_no_line_has() -> None:
    free = ["howto/b.md", "howto/write-a-c.md", "a.md", "howto/deep/x.md"]
    written = [{"How": ["howto/write-a*.md", {"More": ["howto/*.md"]}]}, {"Home": "index.md"}, "*.md"]
    found = nav.expand(written, free)
    assert found == [{"How": ["howto/write-a-c.md", {"More": ["howto/b.md"]}]}, {"Home": "index.md"}, "a.md"]
    assert free == ["howto/deep/x.md"]
    assert nav.leaves(written) == ["howto/write-a*.md", "howto/*.md", "index.md", "*.md"]


def test_what_sites_have_found_is_a_table(tmp_path: Path) -> None:
    rows = [{"what": what, "ok": True, "found": ""} for what in sites.CHECKS]
    rows[1] |= {"ok": None, "found": "no job | has <started>"}
    about = {"format": 1, "asa": "0.1.0", "python": "3.12", "backend": "slurm", "at": 1.8e9, "rows": rows}
    (tmp_path / "theirs.json").write_text(json.dumps(about))
    shown = sites.table([tmp_path / "theirs.json"]).splitlines()
    assert shown[2] == "| theirs | slurm |  | 0.1.0 | 3.12 | 2027-01-15 | yes | not reached | yes |"
    assert shown[-1] == "- theirs: a held place: no job &#124; has &lt;started&gt;"
    for damage in ({"format": 2}, {"rows": []}, {"at": "now"}):
        (tmp_path / "theirs.json").write_text(json.dumps(about | damage))
        with pytest.raises(ValueError, match=r"theirs.json: .*Expected what asa selftest --json has written"):
            sites.table([tmp_path / "theirs.json"])


def test_the_results_that_are_shown_can_be_read() -> None:
    files = sorted((ROOT / "docs" / "sites").glob("*.json"))
    assert files and len(sites.table(files).splitlines()) >= 2 + len(files)
