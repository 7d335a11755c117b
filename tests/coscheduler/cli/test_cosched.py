import argparse
import json
import sys

import pytest

from asa.core.errors import InvalidInput, StateError, UnknownName
from coscheduler.cli import Cosched

PAPER = "cores = 64\npaper = true\n"


def asa_cosched(*words):
    parser = argparse.ArgumentParser()
    command = Cosched()
    command.configure(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def queue(tmp_path):
    path = tmp_path / "queue.toml"
    path.write_text(PAPER)
    return path


def test_run(queue):
    found = asa_cosched("run", queue, "--sharing", "asax:seed=1")
    data = json.loads(json.dumps(found.data, allow_nan=False))
    assert len(data["jobs"]) == 15
    assert {"mean_wait_h", "makespan_h", "mean_slowdown"} <= set(data["metrics"])
    guests = [each for each in data["decisions"] if each["decision"] == "StartGuest"]
    assert guests and {"at", "job", "host", "share", "why"} <= set(guests[0])
    assert {"state", "votes", "weights", "mixture", "action"} == set(guests[0]["why"])
    assert "guest of" in found.text and "blast-64" in found.text


def test_run_remembers(queue, tmp_path):
    learned = tmp_path / "learned.db"
    first = asa_cosched("run", queue, "--learned", learned).data["metrics"]
    second = asa_cosched("run", queue, "--learned", learned).data["metrics"]
    assert first != second
    assert learned.stat().st_mode & 0o777 == 0o600


def test_run_draws(queue, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "shares.svg"
    asa_cosched("run", queue, "--plot", picture)
    assert all(word in picture.read_text() for word in ("<svg", "Guests", "Happiness", "statistics"))


def test_interrupted_before_a_job_has_ended_it_draws_nothing(queue, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")

    def interrupted(world, rule):
        for _ in range(3):
            world.apply(rule.decide(world.advance()))
        assert world.result().samples and not world.result().jobs
        raise KeyboardInterrupt

    monkeypatch.setattr("coscheduler.run.drive", interrupted)
    found = asa_cosched("run", queue, "--plot", tmp_path / "shares.svg")
    assert found.exit_code == 130
    assert "no job has ended" in found.text and "interrupted" in found.text
    assert f"{tmp_path}/shares.svg is not drawn: no job has ended" in capsys.readouterr().err
    assert not (tmp_path / "shares.svg").exists()


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_queue_runs(queue, tmp_path):
    with pytest.raises(InvalidInput, match=r"end the name with \.png"):
        asa_cosched("run", queue, "--plot", tmp_path / "shares.txt", "--work", tmp_path / "work")
    assert not (tmp_path / "work").exists()


COMMANDS = 'cores = 1\n[[jobs]]\nname = "one"\ncores = 1\nwalltime = "1m"\ncommand = "true"\n'


@pytest.mark.parametrize(
    ("where", "error", "told"),
    [
        ("pool:none", StateError, "no pool with a master in none: asa master --directory none makes one"),
        ("slrum", UnknownName, "did you mean 'slurm'"),
    ],
)
def test_without_nodes_no_directory_is_left_but_one_that_was_asked_for(tmp_path, monkeypatch, where, error, told):
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    queue = tmp_path / "queue.toml"
    queue.write_text(COMMANDS)
    for words in ((), ("--work", tmp_path / "work")):
        with pytest.raises(error, match=told):
            asa_cosched("run", queue, "--on", where, *words)
    assert list(tmp_path.glob("state/cosched/*")) == []
    assert (tmp_path / "work" / "log.jsonl").exists()


def test_explain(queue, tmp_path):
    asa_cosched("run", queue, "--work", tmp_path / "work")
    found = asa_cosched("explain", "blast-8", "--work", tmp_path / "work")
    assert found.text.startswith(f"blast-8 in {tmp_path}/work\n")
    assert found.data["entries"][-1]["event"] == "ended"


@pytest.mark.parametrize(("words", "told"), [((), "run anew"), (("--on", "local"), "Give its directory, too")])
def test_what_cannot_be_gone_on_with(tmp_path, words, told):
    queue = tmp_path / "queue.toml"
    queue.write_text('cores = 1\n[[jobs]]\ncores = 1\nwalltime = "1m"\ncommand = "true"\n')
    with pytest.raises(InvalidInput, match=told):
        asa_cosched("run", queue, "--resume", *words)


def test_compare(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    found = asa_cosched("compare", "--rules", "space,static:hard=true", "--cores", "64", "--seeds", "2")
    assert capsys.readouterr().err.split("\r")[1:] == ["1 of 4 runs", "2 of 4 runs", "3 of 4 runs", "4 of 4 runs\n"]
    assert [row["rule"] for row in found.data["rows"]] == ["space", "static:hard=true"]
    for words in ("Table 3", "Table 2", "static:hard=true", "statistics", "3.5 h, 53 %, 4.4 h"):
        assert words in found.text


def test_compare_refuses_what_is_no_number():
    with pytest.raises(InvalidInput, match="whole numbers"):
        asa_cosched("compare", "--cores", "64,many")
