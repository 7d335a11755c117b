"""Requests that are refused. What handlers raise; the server answers with its status and reason."""

from __future__ import annotations


class HTTPError(Exception):
    """A request that cannot be carried out: the HTTP status and the text of its answer.

    Parameters
    ----------
    status
        400 for what makes no sense, 403 for what is not allowed now, 501 for what is not supported.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class MethodNotAllowed(HTTPError):
    """Another method than the one that is `allowed` here."""

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(405, f"expected {allowed}, found {found[:20]}")
        self.allowed = allowed
