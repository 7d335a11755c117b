"""Futures of calls, whatever becomes of these."""

from __future__ import annotations

from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from asa.core.errors import RunFailed
from asa.core.event import TaskDone, TaskFailed
from asa.core.job import Resources
from asa.integrations.book import CallBook
from asa.log.rundir import RunDirectory
from asa.log.values import dump, load


@pytest.fixture
def book(tmp_path: Path) -> CallBook:
    return CallBook("calls", RunDirectory.create(tmp_path, "run"))


def made(book: CallBook, index: int) -> object:
    """What a worker makes of a call."""
    task = book.task("calls", index, Resources(1))
    assert isinstance(task.arguments, bytes)
    args, kwargs = load(task.arguments)
    return load(Path(task.function).read_bytes())(*args, **kwargs)


def done(value: object, index: int = 0) -> TaskDone:
    return TaskDone(2.0, "calls", index, "a", "n1", 1.0, dump(value))


def test_a_call_is_made_and_answered(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda: None)
    answer = made(book, 0)
    assert answer == (True, (3, 1), "") and future.running()
    book.settle(done(answer))
    assert future.result(0) == (3, 1)
    book.settle(done((True, "told twice", "")))
    assert future.result(0) == (3, 1)


def test_a_call_that_is_cancelled_as_it_is_sent_does_nothing_there(book: CallBook) -> None:
    told: list[bool] = []
    future = book.add(divmod, (1, 0), {}, lambda: told.append(True))
    assert future.cancel() and future.cancel()
    assert told == [True]
    assert made(book, 0) == (True, None, "")
    assert list(book.cancelled()) == [], "it counts as sent"
    with pytest.raises(CancelledError):
        future.result(0)


def test_a_call_whose_node_was_lost_has_no_answer_yet(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda: None)
    made(book, 0)
    book.settle(TaskFailed(2.0, "calls", 0, "a", "n1", 1.0, "the node was lost", infrastructure=True))
    assert not future.done()
    assert made(book, 0) == (True, (3, 1), "")


def test_an_answer_that_cannot_be_read_is_an_error(book: CallBook) -> None:
    future = book.add(divmod, (7, 2), {}, lambda: None)
    made(book, 0)
    book.settle(TaskDone(2.0, "calls", 0, "a", "n1", 1.0, b"cno_such_module\nthing\n."))
    assert isinstance(future.exception(0), ModuleNotFoundError)


def test_when_the_runner_is_gone_nothing_stays_open(book: CallBook) -> None:
    sent, waiting, cancelled = (book.add(divmod, (7, 2), {}, lambda: None) for _ in range(3))
    made(book, 0)
    cancelled.cancel()
    book.fail_all(RunFailed("the executor was shut down"))
    assert cancelled.cancelled()
    for future in (sent, waiting):
        assert "the executor was shut down" in str(future.exception(0))
