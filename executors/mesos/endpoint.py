"""Where a master or an agent listens, how it is known, and how clients prove who they are."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from asa.core.errors import InvalidInput
from executors.mesos.pool_directory import AGENT_NAME, FRAMEWORK, MASTER_NAME, PoolDirectory

CONNECT_S = 5.0
"""How long one address may take to answer, TLS included [s]."""
PORT = 5050
"""Where a master listens, when nothing else is said."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens, and how clients prove who they are.

    The first of `hosts` that answers is taken. `context` and `name`, that in the server's certificate, are for TLS;
    None for plain HTTP.
    """

    hosts: tuple[str, ...]
    port: int
    authorization: str | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)
    name: str | None = None

    def redirected(self, location: str) -> Endpoint:
        """Where a redirect leads, over the same protocol: a URL, ``//host:port/path`` or ``host:port``.

        Raises
        ------
        InvalidInput
            When it is none of these, or leads away from TLS.

        Examples
        --------
        >>> Endpoint(("a",), 5050).redirected("//b:5051/api/v1/scheduler")
        Endpoint(hosts=('b',), port=5051, name=None)
        """
        target = of_url(location if "//" in location else f"//{location}")
        if "://" in location and (target.context is None) != (self.context is None):
            raise InvalidInput(f"a redirect to {location!r} changes between HTTP and HTTPS: give that URL yourself")
        return replace(self, hosts=target.hosts, port=target.port)


Finder = Callable[[], Endpoint | None]
"""Looks for a server, at each connection anew; None while there is none."""


def of_pool(directory: PoolDirectory, role: str = FRAMEWORK) -> Finder:
    """Finds the master of a pool, of which only its certificate is believed; its `StateError` may come up."""

    def find() -> Endpoint | None:
        address = directory.master()
        if address is None:
            return None
        context = directory.client_context() if address.tls else None
        return Endpoint(address.hosts, address.port, bearer(directory.token(role)), context, MASTER_NAME)

    return find


def of_agent(directory: PoolDirectory, url: str, role: str) -> Finder:
    """Finds an agent of a pool at ``host:port``; as `of_pool` else."""

    def find() -> Endpoint | None:
        master = directory.master()
        context = directory.client_context() if master is None or master.tls else None
        return replace(of_url(url, bearer(directory.token(role))), context=context, name=AGENT_NAME)

    return find


def of_url(url: str, authorization: str | None = None) -> Endpoint:
    """The server that a URL or ``host:port`` names; for ``https://`` one that this machine's authorities vouch for.

    Raises
    ------
    InvalidInput
        When it is no such text; ZooKeeper is not supported.

    Examples
    --------
    >>> of_url("http://head:5051"), of_url("head")
    (Endpoint(hosts=('head',), port=5051, name=None), Endpoint(hosts=('head',), port=5050, name=None))
    """
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise InvalidInput(f"{url!r} is no URL of a master: {error}") from error
    if parts.scheme not in ("", "http", "https") or not host:
        raise InvalidInput(f"expected a master as host:port, http:// or https://, found {url!r}")
    if parts.scheme == "https":
        return Endpoint((host,), port, authorization, ssl.create_default_context(), host)
    return Endpoint((host,), port, authorization)


def bearer(token: str) -> str:
    """The header's value for a token."""
    return f"Bearer {token}"


def basic(principal: str, secret: str) -> str:
    """The header's value for a name and a password.

    >>> basic("me", "secret")
    'Basic bWU6c2VjcmV0'
    """
    return "Basic " + base64.b64encode(f"{principal}:{secret}".encode()).decode()
