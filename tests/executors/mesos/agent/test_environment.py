from __future__ import annotations

from typing import Any

import pytest

from executors.mesos.agent.task_info import variables
from executors.mesos.codec import BadMessage
from executors.mesos.messages import base64_of


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"name": "", "value": "a"}, "'' cannot be set"),
        ({"name": "A=B", "value": "a"}, "'A=B' cannot be set"),
        ({"name": "A", "value": "a\0b"}, "'A' cannot be set: it has no name, a '=' or a zero byte"),
        ({"value": "a"}, "'name'"),
        (
            {"name": "KEY", "type": "SECRET", "secret": {"type": "VALUE", "value": {"data": base64_of(b"\xff")}}},
            "secret of environment variable 'KEY' to be a text in UTF-8",
        ),
    ],
)
def test_what_cannot_be_a_variable_is_named(item: Any, text: str) -> None:
    with pytest.raises(BadMessage, match=text):
        variables({"environment": {"variables": [item]}})
