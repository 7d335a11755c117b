"""The page's files: all there, small, and nothing in them that its policy forbids."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import asa.dashboard
from asa.dashboard.site import files, take
from asa.web.errors import HTTPError

PAGE = Path(asa.dashboard.__file__).parent / "page"
SCRIPTS = sorted(PAGE.glob("*.js"))
INDEX = (PAGE / "index.html").read_text()


def test_all_files_are_served_and_small() -> None:
    assert set(files()) == {path.name for path in PAGE.iterdir()}
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 300_000  # of the 1.5 MB that a page may have
    assert sum(map(len, files().values())) < 100_000


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    assert not re.search(r"<script(?![^>]*\bsrc=\"/page/)", INDEX)
    assert not re.search(r"<style|\sstyle=|\son\w+=", INDEX)
    for path in PAGE.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_text_becomes_a_page(path: Path) -> None:
    text = path.read_text()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(\"", text
    )
    assert "localStorage" not in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_a_script_imports_is_there(path: Path) -> None:
    for names, home in re.findall(r"import \{([^}]*)\} from \"\./([\w.]+)\"", path.read_text()):
        exported = set(
            re.findall(r"export (?:const|function|class|let|async function) (\w+)", (PAGE / home).read_text())
        )
        exported |= {name for group in re.findall(r"export const ([A-Z_]+ = .*);", (PAGE / home).read_text())
                     for name in re.findall(r"(\w+) =", group)}  # fmt: skip
        assert {name.strip() for name in names.split(",")} <= exported, home


def test_all_scripts_are_fetched_at_once() -> None:
    assert re.findall(r"modulepreload\" href=\"/page/([\w.]+)\"", INDEX) == [path.name for path in SCRIPTS]


def test_what_scripts_look_for_is_on_the_page() -> None:
    there = set(re.findall(r"\bid=\"([\w-]+)\"", INDEX))
    wanted = {name for path in SCRIPTS for name in re.findall(r"byId\(\"([\w-]+)\"\)", path.read_text())}
    assert wanted <= there


@pytest.mark.parametrize("path", ["/x", "/page/x.js", "/page/index.html/", "page/main.js", ""])
def test_other_files_are_refused(path: str) -> None:
    with pytest.raises(HTTPError):
        take(path, "")


def test_colours_can_be_told_apart() -> None:
    """The seven of Okabe and Ito's colours that are neither black nor white."""
    palette = re.findall(r"#[0-9a-f]{6}", (PAGE / "palette.js").read_text())
    assert sorted(palette) == sorted(["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"])
