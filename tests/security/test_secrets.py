"""Secrets of tasks: in the environment of the tasks of one stage, and nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import asa
from asa.backends.batch import run
from asa.core.errors import GraphError, InvalidInput
from asa.core.job import JobRequest, Resources
from asa.log.proc import environment

VALUE = "s3cret-5f0c6a1e"


@asa.stage(secrets=["LICENSE"])
def licensed(_: object = None) -> tuple[int, bool, bool]:
    """The length of the secret; whether the job's own processes have it; whether a command line has."""
    above = [environment(pid) or b"" for pid in ancestors()]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ancestors()]
    value = os.environ["LICENSE"].encode()
    return len(value), any(value in one for one in above), any(value in one for one in lines)


@asa.stage
def plain(_: object = None) -> str | None:
    return os.environ.get("LICENSE")


def ancestors() -> list[int]:
    """This process and those that started it, up to the job's first; the driver of the test is above that."""
    found, pid = list[int](), os.getpid()
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if os.environ.get("DRIVER") == str(pid):
            break
        found.append(pid)
        pid = int(fields[1])
    return found


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICENSE", VALUE)
    monkeypatch.setenv("DRIVER", str(os.getpid()))


def files_with(folder: Path, value: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "mesos"])
def test_only_tasks_of_the_stage_have_it(tmp_path: Path, executor: str) -> None:
    told = licensed.map([1, 2])
    node = [told, plain(told)]  # the second runs in a worker that ran the first
    done = asa.run(node, backend="local:cores=1", executor=executor, state=tmp_path)
    first, second = done.result()
    assert first == [(len(VALUE), False, False)] * 2 and second is None
    assert files_with(tmp_path, VALUE) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="not on PATH: mpirun")
def test_ranks_of_mpirun_have_it(tmp_path: Path) -> None:
    @asa.stage(cores=2, launcher="mpirun", secrets=["LICENSE"])
    def length() -> int:
        return len(os.environ["LICENSE"])

    assert asa.run(length(), state=tmp_path, backend="local:cores=2").result() == len(VALUE)
    assert files_with(tmp_path, VALUE) == []


def test_a_secret_that_is_not_there_is_named_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LICENSE")
    with pytest.raises(GraphError, match="stage 'licensed' needs the secret LICENSE"):
        asa.submit(licensed(), state=tmp_path)
    assert list((tmp_path / "runs").glob("*")) == []


@pytest.mark.parametrize(
    ("executor", "why"), [("local:workers=threads", "one environment"), ("dask", "dask's scheduler sees")]
)
def test_executors_that_would_show_it_are_refused(tmp_path: Path, executor: str, why: str) -> None:
    if executor == "dask":
        pytest.importorskip("distributed")
    with pytest.raises(InvalidInput, match=why):
        asa.submit(licensed(), state=tmp_path, executor=executor)


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ({"secrets": "LICENSE"}, "a list of names"),
        ({"secrets": ["a=b"]}, "one of these is no name"),
        ({"secrets": ["SLURM_JWT"]}, "needed by more than the tasks"),
    ],
)
def test_what_cannot_be_kept_is_refused_where_it_is_declared(needs: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidInput, match=f"stage 'blur'.*{why}"):
        asa.stage(name="blur", **needs)(len)  # type: ignore[call-overload]


def test_a_submission_hands_no_secret_on() -> None:
    from asa.backends.batch import without

    assert run(without(["LICENSE"], ["printenv", "HOME"]), timeout_s=10).strip() == os.environ["HOME"]
    assert VALUE in run(["env"], timeout_s=10)
    assert VALUE not in run(without(["LICENSE"], ["env"]), timeout_s=10)
    assert JobRequest("a", Resources(), 60.0, ("x",), withheld=("LICENSE",)).withheld == ("LICENSE",)
