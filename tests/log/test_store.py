import multiprocessing
import time

import pytest

from asa.log.store import LearnedStore


@pytest.fixture
def store(tmp_path):
    return LearnedStore(tmp_path / "learned.db")


def count(record):
    return {"n": (record or {}).get("n", 0) + 1}


def test_records_are_made_changed_and_dropped(store):
    assert store.get("a") is None
    assert store.update("a", count) == {"n": 1}
    assert store.update("a", count) == {"n": 2}
    assert store.get("a") == {"n": 2}
    assert store.update("a", lambda record: None) is None
    assert store.get("a") is None and store.keys() == []


def test_a_change_may_be_made_in_place(store):
    store.update("a", count)

    def add(record):
        record["m"] = [1.5, None, "é"]
        return record

    store.update("a", add)
    assert store.get("a") == {"n": 1, "m": [1.5, None, "é"]}


def test_a_change_that_raises_changes_nothing_and_teaches_nothing(store):
    def broken(record):
        raise ZeroDivisionError

    for attempt in (lambda: store.update("a", broken), lambda: store.learn_once("a", "job-1", broken)):
        with pytest.raises(ZeroDivisionError):
            attempt()
    assert store.get("a") is None
    assert store.learn_once("a", "job-1", count)


def test_keys_by_prefix_taken_literally(store):
    for key in ("waits b", "waits a", "runtime a", "waits%x", "w"):
        store.update(key, count)
    assert store.keys("waits ") == ["waits a", "waits b"]
    assert store.keys("waits%") == ["waits%x"]
    assert len(store.keys()) == 5


def test_a_token_teaches_a_key_once(store):
    assert store.learn_once("a", "job-1", count)
    assert not store.learn_once("a", "job-1", count)
    assert store.learn_once("a", "job-2", count)
    assert store.learn_once("b", "job-1", count)
    assert (store.get("a"), store.get("b")) == ({"n": 2}, {"n": 1})


def test_it_outlives_its_process(store, tmp_path):
    store.learn_once("a", "job-1", count)
    store.close()
    again = LearnedStore(tmp_path / "learned.db")
    assert again.get("a") == {"n": 1}
    assert not again.learn_once("a", "job-1", count)


def count_slowly(record):
    time.sleep(0.0005)  # long enough for the other process to come between
    return count(record)


def hammer(path, barrier, news):
    store = LearnedStore(path)
    barrier.wait()
    first = 0
    for job in range(200):
        first += store.learn_once("a", f"job-{job}", count_slowly)
        store.update("b", count_slowly)
    news.put(first)


def test_processes_lose_no_change_and_learn_each_job_once(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, news = context.Barrier(2), context.Queue()
    path = tmp_path / "learned.db"
    processes = [context.Process(target=hammer, args=(path, barrier, news)) for _ in range(2)]
    for process in processes:
        process.start()
    first = [news.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    store = LearnedStore(path)
    assert sum(first) == 200
    assert (store.get("a"), store.get("b")) == ({"n": 200}, {"n": 400})
