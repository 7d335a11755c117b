"""A hook of MkDocs: stars in the navigation stand for all pages that no other line has, so that none is forgotten."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put pages in the place of stars, in the order of their titles."""
    folder = Path(config.docs_dir)
    pages = {str(path.relative_to(folder)): title(path) for path in folder.rglob("*.md")}
    named = set(leaves(config.nav))
    free = sorted((page for page in pages if page not in named), key=pages.__getitem__)
    config.nav = expand(config.nav, free)
    return config


def leaves(nav: Any) -> list[str]:
    """All entries, whatever section they are in."""
    if isinstance(nav, str):
        return [nav]
    inside = nav.values() if isinstance(nav, dict) else nav
    return [leaf for item in inside for leaf in leaves(item)]


def expand(nav: Any, free: list[str]) -> Any:
    """The navigation with pages in the place of stars; each is taken by the first star that fits."""
    if isinstance(nav, dict):
        return {name: expand(item, free) for name, item in nav.items()}
    if not isinstance(nav, list):
        return nav
    found: list[Any] = []
    for item in nav:
        if isinstance(item, str) and "*" in item:
            fits = [page for page in free if fnmatchcase(page, item) and page.count("/") == item.count("/")]
            for page in fits:
                free.remove(page)
            found += fits
        else:
            found.append(expand(item, free))
    return found


def title(path: Path) -> str:
    """The page's first heading."""
    heading = re.search(r"^# (.*)$", path.read_text(), re.M)
    return heading[1] if heading else path.stem
