"""Questions to slurmrestd over HTTP. The only place that knows requests."""

from __future__ import annotations

import ipaddress
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from asa.backends.slurm import rest_answer
from asa.backends.slurm.rest_answer import Silent, Unauthorized
from asa.backends.slurm.rest_token import Tokens
from asa.backends.slurm.rest_unix import UnixAdapter
from asa.core.errors import BackendError, InvalidInput

_ADDRESSES = "expected /path/to/socket, http://HOST:PORT or https://HOST"
_CHUNK = 2**16


class Server:
    """One slurmrestd. Nothing is held between questions.

    Proxies, netrc files and redirections are not heeded: they would take the token elsewhere.

    Parameters
    ----------
    address
        ``/path/to/socket``, ``http://HOST:PORT`` or ``https://HOST``.
    tokens
        Where tokens come from. Over a Unix socket one is sent only when the server asks for it: a server that runs as
        the caller needs none.
    always
        Send a token over a Unix socket, too.
    unencrypted
        Allow plain HTTP to other machines, where everybody on the way can read the token.
    timeout_s
        How long an answer may take [s]; twice as long if it comes in drops.
    authorities
        File with the certificate authorities to trust; None for those of requests.

    Raises
    ------
    InvalidInput
        When the address cannot be used.
    """

    def __init__(
        self,
        address: str,
        tokens: Tokens,
        *,
        always: bool = False,
        unencrypted: bool = False,
        timeout_s: float = 60.0,
        authorities: str | None = None,
    ) -> None:
        self._tokens, self._timeout_s, self._verify = tokens, timeout_s, authorities or True
        self._socket = _socket(address)
        self._base = "http://localhost" if self._socket else _base(address, unencrypted)
        self._with_token = always or self._socket is None
        self._welcome = False  # whether it ever took a question of ours
        self.name = address

    def ask(
        self,
        method: str,
        part: str,
        version: str,
        page: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """The answer to a question, such as ``GET /slurm/v0.0.38/jobs``.

        A token that is not accepted is replaced once. When there is no other, that is ``transient`` if the server has
        answered before: a run waits for somebody to put a new one in its file.

        Raises
        ------
        BackendError
            Those of `rest_answer.content`; ``transient`` when there was no answer.
        """
        replaced = False
        while True:
            try:
                answer = self._once(method, f"/{part}/{version}/{page}", query, body)
            except (Silent, Unauthorized) as error:
                problem = self._diagnosis(error, version)
                if not isinstance(problem, Unauthorized):
                    raise
                if replaced or not self._other_token():
                    raise self._turned_away(problem) from error
                replaced = True
            else:
                self._welcome = True
                return answer

    def _diagnosis(self, error: BackendError, version: str) -> BackendError:
        """Tell a token that is not accepted from a silent controller: 22.05 does so for the database only."""
        if isinstance(error, Silent) and self._with_token:
            try:
                self._once("GET", f"/slurmdb/{version}/tres")
            except Unauthorized as refusal:
                return refusal
            except BackendError:
                pass
        return error

    def _other_token(self) -> bool:
        if self._with_token:
            return self._tokens.renew()
        self._with_token = True
        return True

    def _turned_away(self, error: BackendError) -> BackendError:
        hint = f"the token of user {self._tokens.user} is not accepted: name a file with another by rest_token=FILE"
        return Unauthorized(f"{error}\n{hint}", transient=self._welcome)

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        asked = f"{method} {path} at {self.name}"
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._with_token:
            headers |= {"X-SLURM-USER-NAME": self._tokens.user, "X-SLURM-USER-TOKEN": self._tokens.current()}
        try:
            with requests.Session() as session:
                session.trust_env = False
                if self._socket is not None:
                    session.mount("http://", UnixAdapter(self._socket, self._timeout_s))
                with session.request(
                    method,
                    self._base + path,
                    params=query,
                    json=body,
                    headers=headers,
                    timeout=self._timeout_s,
                    verify=self._verify,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    text = self._text(response, asked)
                    return rest_answer.content(response.status_code, text, asked)
        except requests.exceptions.SSLError as error:
            raise BackendError(f"{asked}: {_reason(error)}: is REQUESTS_CA_BUNDLE set to the site's CA?") from error
        except requests.Timeout as error:
            raise self._late(asked) from error
        except requests.RequestException as error:
            raise BackendError(f"{asked}: {_reason(error)}", transient=True) from error

    def _text(self, response: requests.Response, asked: str) -> str:
        """The whole answer; the library bounds the wait for each piece only."""
        deadline = time.monotonic() + self._timeout_s
        pieces = []
        for piece in response.iter_content(_CHUNK):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise self._late(asked)
        return b"".join(pieces).decode(errors="replace")

    def _late(self, asked: str) -> BackendError:
        return BackendError(f"{asked}: no answer within {self._timeout_s:g} s", transient=True)


def _socket(address: str) -> Path | None:
    """The path of a Unix socket, or None if the address is of another kind."""
    if not address.startswith(("/", "unix:")):
        return None
    path = Path(address.removeprefix("unix:"))
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        hint = "is slurmrestd running, and on this machine?"
        raise InvalidInput(f"rest={address!r}: no socket there: {error.strerror}; {hint}") from error
    if not stat.S_ISSOCK(mode):
        raise InvalidInput(f"rest={address!r} is no socket: expected the one that slurmrestd listens on")
    return path


def _base(address: str, unencrypted: bool) -> str:
    """Checked address of a server on the network."""
    try:
        parts = urlsplit(address)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise InvalidInput(f"rest={address!r}: {_ADDRESSES}")
    if parts.scheme == "http" and not unencrypted and not _loopback(host):
        raise InvalidInput(
            f"rest={address!r} would send the token unencrypted to another machine: use https, an ssh tunnel to a port "
            "of this machine, or allow it with rest_unencrypted=True"
        )
    return address.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: BaseException) -> str:
    """The operating system's words, from below the libraries' wrappings."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error)
