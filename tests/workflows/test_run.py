from __future__ import annotations

import time
from pathlib import Path

import pytest

import asa
from asa.core.errors import RunFailed, StateError
from asa.log.rundir import RunDirectory, list_runs
from asa.workflows import run
from asa.workflows.settings import Settings, save_settings
from tests.waiting import until


@asa.stage
def one() -> int:
    return 1


@asa.stage
def forever() -> None:
    while True:
        time.sleep(0.01)


class Unstartable:
    """An executor that cannot listen anywhere."""

    def bootstrap(self, *_: object) -> tuple[str, ...]:
        return ("false",)

    def start(self, *_: object) -> None:
        raise StateError("no port can be had")

    def launch(self, *_: object) -> None: ...
    def release(self, *_: object) -> None: ...
    def close(self) -> None: ...


def test_a_run_that_goes_on_is_told_and_cancelled(tmp_path: Path) -> None:
    found = asa.submit(forever(), backend="local:cores=1", state=tmp_path)
    try:
        with pytest.raises(TimeoutError, match=rf"run {found.name} has no result after 0.01 s"):
            found.result(0.01)
        assert repr(found) == f"<run {found.name}: running>" and not found.wait(0.0)
        assert found.now() == pytest.approx(time.time(), abs=60.0)
        assert found.explain().startswith("forever: ")
        found.report(tmp_path / "now.json")
    finally:
        found.cancel("enough")
        found.wait()
    with pytest.raises(RunFailed, match="enough"):
        found.result()
    assert repr(found) == f"<run {found.name}: cancelled>"
    assert found.now() == max(event.at for _, event in found.events())


def test_of_a_run_that_ended_elsewhere_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    name = asa.run(one(), backend="sim:nodes=1,cores=1", state=tmp_path).name
    found = run.open_run(name, state=tmp_path)
    found.cancel()
    assert found.wait(0.0) and found.decided.is_set() and found.result() == 1


def test_an_executor_that_does_not_start_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no port can be had"):
        asa.submit(one(), backend="local:cores=1", executor=Unstartable(), state=tmp_path)
    (directory,) = list_runs(tmp_path)
    found = run.open_run(directory.name, state=tmp_path)
    until(lambda: directory.lock().holder() is None, "the driver to end")
    assert found.status.value == "cancelled"
    with pytest.raises(RunFailed, match="the executor did not start: no port can be had"):
        found.result()


@pytest.mark.parametrize("state", ["~/x", "x", Path("x")])
def test_the_state_directory_is_the_same_for_all_who_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    met: list[Path] = []
    monkeypatch.setattr(run, "_go", lambda directory, *_: met.append(directory.path))
    run.submit(one(), state=state, name="mine")
    save_settings(RunDirectory(met[0]), Settings(one(), "mine"))
    run.resume("mine", state=state)
    met.append(run.open_run("mine", state=state).directory.path)
    assert met == [next(tmp_path.glob("x/runs/mine-*"))] * 3
