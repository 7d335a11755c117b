"""The documentation site: it builds without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.definitions import ROOT

SITE = ROOT / "docs" / "site"

spec = importlib.util.spec_from_file_location("site_nav", SITE / "nav.py")
assert spec and spec.loader
nav = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nav)


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
