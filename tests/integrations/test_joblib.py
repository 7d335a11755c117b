from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.integrations.futures import PoolExecutor
from asa.log.rundir import list_runs

joblib = pytest.importorskip("joblib")
AsaBackend = pytest.importorskip("asa.integrations.joblib").AsaBackend


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolExecutor]:
    with PoolExecutor("local:cores=2", state=tmp_path_factory.mktemp("joblib")) as executor:
        yield executor


def square(number: int) -> int:
    return number * number


def fail_at(number: int, at: int) -> int:
    if number == at:
        raise KeyError(number)
    time.sleep(0.01)
    return number


def nested(number: int) -> list[int]:
    found: list[int] = joblib.Parallel(n_jobs=2)(joblib.delayed(square)(number + more) for more in range(3))
    return found


def test_it_does_what_joblib_does(executor: PoolExecutor) -> None:
    calls = [joblib.delayed(square)(number) for number in range(60)]
    expected = joblib.Parallel(n_jobs=1)(calls)
    with joblib.parallel_config("asa", where=executor):
        assert joblib.Parallel()(calls) == expected
        assert joblib.Parallel(n_jobs=2, batch_size=7)(calls) == expected
        assert list(joblib.Parallel(return_as="generator")(calls)) == expected
        assert joblib.effective_n_jobs() == 2


def test_calls_run_in_other_processes(executor: PoolExecutor) -> None:
    with joblib.parallel_config("asa", where=executor):
        assert os.getpid() not in joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))


def test_what_a_call_raises_is_raised_and_ends_the_rest(executor: PoolExecutor) -> None:
    with joblib.parallel_config("asa", where=executor):
        with pytest.raises(KeyError, match="3"):
            joblib.Parallel(batch_size=1)(joblib.delayed(fail_at)(number, 3) for number in range(2000))
        assert joblib.Parallel()(joblib.delayed(square)(number) for number in range(3)) == [0, 1, 4]


def test_calls_may_use_joblib_themselves(executor: PoolExecutor) -> None:
    with joblib.parallel_config("asa", where=executor):
        assert joblib.Parallel()(joblib.delayed(nested)(number) for number in range(2)) == [[0, 1, 4], [1, 4, 9]]


@pytest.mark.slow
def test_an_executor_of_its_own_serves_a_whole_block(tmp_path: Path) -> None:
    with joblib.parallel_config("asa", where="local:cores=1", state=tmp_path):
        for _ in range(2):
            assert joblib.Parallel()(joblib.delayed(square)(number) for number in range(3)) == [0, 1, 4]
    assert [run.name.split("-")[0] for run in list_runs(tmp_path)] == ["joblib"]


def test_what_cannot_be_is_refused(executor: PoolExecutor) -> None:
    with pytest.raises(InvalidInput, match="cores cannot be set"):
        AsaBackend(executor, cores=2)
    with pytest.raises(InvalidInput, match="n_jobs=0"):
        AsaBackend(executor).effective_n_jobs(0)
    assert AsaBackend(executor).effective_n_jobs(-2) == 1
    assert AsaBackend(executor).effective_n_jobs(5) == 5
