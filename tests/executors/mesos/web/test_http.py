from __future__ import annotations

import pytest

from executors.mesos.web.http import Headers


def test_headers_are_found_in_whatever_case() -> None:
    headers = Headers({"host": "n1", "accept": "text/html"})
    assert headers["Host"] == headers.get("HOST") == "n1" and "Accept" in headers and 5 not in headers
    assert dict(headers) == {"host": "n1", "accept": "text/html"} and len(headers) == 2
    assert headers.get("Origin") is None
    with pytest.raises(KeyError):
        headers["Origin"]
