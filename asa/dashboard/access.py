"""Who may look: a one-time code, from a file that only its owner can read, is changed for a token of the page's own.

The code is in the fragment of a link, which browsers keep to themselves; the page sends it once, in the body of a
request, and forgets it. The token it gets is kept by the browser for this page alone (host *and* port: cookies would go
to every port of the host, and so to servers of other users of a login node), and ends with this process.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from asa.security.files import write_private
from asa.web.errors import HTTPError
from asa.web.hosts import FailedAttempts, host_of, is_loopback

SESSIONS_MOST = 32
"""Pages that may be open at a time; of more, the oldest has to be opened anew."""
CODE_MOST = 200
"""Longest body of a request for a token [bytes]."""


class Access:
    """Codes and tokens.

    Parameters
    ----------
    file
        Where the link with the next code is kept; mode 0600.
    address
        The page's, such as ``http://127.0.0.1:8765``.
    clock
        Seconds that never go backwards [s].
    """

    def __init__(self, file: Path, address: str, clock: Callable[[], float]) -> None:
        self._file, self._address = file, address
        self._code = ""
        self._tokens: dict[str, None] = {}
        self._failures = FailedAttempts(clock)
        self.renew()

    @property
    def link(self) -> str:
        """Opens the page, once."""
        return f"{self._address}/#{self._code}"

    def renew(self) -> None:
        """Make a new code, and write the link with it to the file.

        Raises
        ------
        StateError
            When it cannot be written.
        """
        self._code = secrets.token_urlsafe(32)
        write_private(self._file, f"{self.link}\n".encode())

    def token_for(self, code: str, peer: str) -> str:
        """A token for who has the code, which is used up by that.

        Raises
        ------
        HTTPError
            403 when it is another; 429 when that has happened too often from this address.
        """
        if not hmac.compare_digest(code.encode(errors="replace"), self._code.encode()):
            if self._failures.too_many(peer):
                raise HTTPError(429, "too many codes that are not ours: wait a second")
            raise HTTPError(403, "this link was used already, or is not of this page: take the one in the file again")
        self.renew()
        token = secrets.token_urlsafe(32)
        while len(self._tokens) >= SESSIONS_MOST:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[token] = None
        return token

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises `HTTPError` (401) when these headers have no token of ours."""
        scheme, _, rest = headers.get("Authorization", "").strip().partition(" ")
        given, known = rest.strip().encode(errors="replace"), False
        for token in self._tokens:  # all of them: the time it takes tells nothing
            known |= hmac.compare_digest(token.encode(), given)
        if scheme.lower() != "bearer" or not known:
            raise HTTPError(401, "expected the token of an open page: open the link that asa dashboard has written")

    def close(self) -> None:
        """Nobody may look any more."""
        self._tokens.clear()
        self._file.unlink(missing_ok=True)


def check_addressed(headers: Mapping[str, str], host: str, scheme: str) -> None:
    """Refuse what a browser sends for the page of somebody else, even one whose name resolves to this machine.

    Parameters
    ----------
    host
        What we listen on; names of loopback are taken where that is loopback.
    scheme
        ``http`` or ``https``.

    Raises
    ------
    HTTPError
        421 when another host is meant, 403 when another page asks.
    """
    header = headers.get("Host", "")
    named = host_of(header)
    if named != host.lower() and not (is_loopback(host) and is_loopback(named)):
        raise HTTPError(421, f"this is not {header[:100]!r}: open the address that asa dashboard has told")
    origin = headers.get("Origin")
    if origin is not None and (urlsplit(origin).scheme, urlsplit(origin).netloc) != (scheme, header):
        raise HTTPError(403, "another page has asked for this")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise HTTPError(403, "another page has asked for this")
