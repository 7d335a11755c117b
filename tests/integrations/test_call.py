from __future__ import annotations

from typing import Any

import pytest

from asa.integrations.call import call, raised


class Fragile(Exception):
    """Cannot be made anew, whatever libraries have taught pickle of exceptions."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("none",)


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [KeyError("band 7"), SystemExit(3)])
def test_what_is_raised_travels_with_where(error: BaseException) -> None:
    answer = call(fail, (error,), {})
    assert not answer[0]
    found = raised(answer)
    assert type(found) is type(error) and found.args == error.args
    said = str(found.__cause__)
    assert "raise error" in said and "function(*args" not in said


def test_an_exception_that_cannot_travel_is_told_in_words() -> None:
    found = raised(call(fail, (Fragile(1, 2),), {}))
    assert type(found) is RuntimeError and str(found) == "Fragile: 1 and 2"


def test_no_function_is_no_call() -> None:
    assert call(None, (), {}) == (True, None, "")
