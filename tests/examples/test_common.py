import gzip
import json

import pytest

import asa


@pytest.fixture
def parser(common):
    return common.make_parser("An example.", "made")


@asa.stage
def fine():
    return 42


@asa.stage
def broken():
    raise ValueError("no such luck")


def test_what_is_not_given_is_left_to_the_library(parser, common, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(asa, "run", lambda workflow, **options: asked.update(options) or _Done())
    common.run("name", parser, parser.parse_args([]), fine)
    assert asked == {"name": "name"}
    words = "--backend slurm --strategy asa --executor dask"
    common.run("name", parser, parser.parse_args(words.split()), fine)
    assert asked == {"name": "name", "backend": "slurm", "strategy": "asa", "executor": "dask"}


class _Done:
    def result(self):
        return 42


def test_run_returns_the_result_and_writes_the_report(parser, common, tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    options = parser.parse_args(["--backend", "local:cores=1", "--report", str(tmp_path / "run.json")])
    assert common.run("name", parser, options, fine) == 42
    assert json.loads((tmp_path / "run.json").read_text())["state"] == "succeeded"


def test_a_run_that_fails_ends_the_program_with_the_reason(parser, common, tmp_path, monkeypatch):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(SystemExit, match=r"stage 'broken' failed: .* no such luck"):
        common.run("name", parser, parser.parse_args([]), broken)


def test_so_does_a_workflow_that_cannot_be_built(parser, common):
    def build():
        raise ValueError("parts must be at least 1, not 0")

    with pytest.raises(SystemExit, match=": parts must be at least 1, not 0"):
        common.run("name", parser, parser.parse_args([]), build)


def test_find(common, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    assert common.find(common.Path("there")) == tmp_path / "there"
    with pytest.raises(FileNotFoundError, match="there is no file elsewhere"):
        common.find(common.Path("elsewhere"))


def test_unpack(common, tmp_path):
    packed = tmp_path / "text.fa.gz"
    packed.write_bytes(gzip.compress(b"hello"))
    plain = common.unpack(packed, tmp_path / "new" / "folder")
    assert plain == tmp_path / "new" / "folder" / "text.fa"
    assert plain.read_bytes() == b"hello"
