"""The page's own files, and the headers that keep it from running or loading anything else."""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources

from asa.web.errors import HTTPError
from asa.web.server import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@cache
def files() -> dict[str, bytes]:
    """The page's files by name, squeezed."""
    found = resources.files("asa.dashboard") / "page"
    names = [file.name for file in found.iterdir() if file.name.rpartition(".")[2] in _TYPES]
    return {name: gzip.compress((found / name).read_bytes(), mtime=0) for name in sorted(names)}


def take(path: str, accepts: str) -> Response:
    """The file for a path: ``/`` or ``/page/NAME``.

    Parameters
    ----------
    accepts
        The request's ``Accept-Encoding``.

    Raises
    ------
    HTTPError
        404 when there is none.
    """
    name = "index.html" if path == "/" else path.removeprefix("/page/")
    if name not in files() or (path != "/" and not path.startswith("/page/")):
        raise HTTPError(404, "there is nothing here")
    return squeezed(files()[name], _TYPES[name.rpartition(".")[2]], accepts)


def squeezed(body: bytes, content: str, accepts: str) -> Response:
    """An answer whose body was compressed by gzip, for whoever accepts that."""
    if "gzip" in accepts:
        return Response(200, body, content, HEADERS | {"Content-Encoding": "gzip"})
    return Response(200, gzip.decompress(body), content, HEADERS)
