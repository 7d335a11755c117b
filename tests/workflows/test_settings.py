from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput, RunNotFound
from asa.log.rundir import RunDirectory
from asa.workflows.settings import Settings, load_settings, make_settings, new_directory, save_settings


def settings(pool: str) -> Settings:
    return Settings(None, "w", pool=pool)


class TestPool:
    @pytest.mark.parametrize("pool", ["shared", "per-stage"])
    def test_without_a_name(self, pool: str) -> None:
        assert settings(pool).pool_name is None

    @pytest.mark.parametrize("name", ["a", "my-lab.2026_x", "7", "x" * 64])
    def test_with_a_name(self, name: str) -> None:
        assert settings(f"shared:{name}").pool_name == name

    @pytest.mark.parametrize(
        "pool",
        ["", "mine", "shared:", "shared:..", "shared:.x", "shared:-x", "shared:a/b", "shared:a b", "shared:a\n",
         "shared:caf\u00e9", "shared:" + "x" * 65, "per-stage:a", "Shared:a"],
    )  # fmt: skip
    def test_a_name_that_is_none_is_refused(self, pool: str) -> None:
        with pytest.raises(InvalidInput, match="shared:NAME with a name of letters, digits") as caught:
            settings(pool)
        assert repr(pool) in str(caught.value)


def test_what_people_give_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    found = make_settings(None, "w", workdir="work", orphan_grace="2m", backend="sim")
    assert (found.workdir, found.orphan_grace_s, found.backend) == (str(tmp_path / "work"), 120.0, "sim")
    assert make_settings(None, "w").workdir == str(tmp_path)


def test_a_working_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(InvalidInput, match=f"workdir '.*{name}': there is no such directory"):
            make_settings(None, "w", workdir=tmp_path / name)


def test_a_grace_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="orphan_grace 'soon' is not a positive duration"):
        make_settings(None, "w", orphan_grace="soon")


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    directory, kept = RunDirectory.create(tmp_path, "run"), Settings([1, 2], "w", pool="shared:ours")
    with pytest.raises(RunNotFound, match="run never began"):
        load_settings(directory)
    save_settings(directory, kept)
    assert load_settings(directory) == kept and kept.sys_path == tuple(sys.path)
    assert directory.settings.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("fit", "fit"),
        ("größe", "gr--e"),
        ("_hidden", "hidden"),
        ("a/b c", "a-b-c"),
        ("??", "run"),
        ("x" * 60, "x" * 40),
    ],
)
def test_any_name_begins_that_of_a_directory(tmp_path: Path, name: str, begins: str) -> None:
    with new_directory(name, tmp_path) as first, new_directory(name, tmp_path) as second:
        assert first.name.rpartition("-")[0] == second.name.rpartition("-")[0] == begins
        assert first.name != second.name


@pytest.mark.parametrize("kept", [True, False])
def test_of_what_never_came_to_be_a_run_nothing_is_left(tmp_path: Path, kept: bool) -> None:
    def begin() -> None:
        with new_directory("w", tmp_path) as directory:
            if kept:
                save_settings(directory, settings("shared"))
            raise InvalidInput("a stage does not fit")

    with pytest.raises(InvalidInput, match="does not fit"):
        begin()
    assert len(os.listdir(tmp_path / "runs")) == kept


def test_a_directory_that_cannot_be_entered_is_refused(ordinary_user: Path) -> None:
    (ordinary_user / "shut").mkdir(mode=0o600)
    with pytest.raises(InvalidInput, match="cannot be entered"):
        make_settings(None, "w", workdir=ordinary_user / "shut")
