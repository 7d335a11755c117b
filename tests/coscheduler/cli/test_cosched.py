import argparse
import json

import pytest

from asa.core.errors import InvalidInput
from coscheduler.cli.cosched import Cosched

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


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_queue_runs(queue, tmp_path):
    with pytest.raises(InvalidInput, match=r"end the name with \.png"):
        asa_cosched("run", queue, "--plot", tmp_path / "shares.txt", "--work", tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("words", "told"), [((), "run anew"), (("--on", "local"), "Give its directory, too")])
def test_what_cannot_be_gone_on_with(tmp_path, words, told):
    queue = tmp_path / "queue.toml"
    queue.write_text('cores = 1\n[[jobs]]\ncores = 1\nwalltime = "1m"\ncommand = "true"\n')
    with pytest.raises(InvalidInput, match=told):
        asa_cosched("run", queue, "--resume", *words)


def test_compare():
    found = asa_cosched("compare", "--rules", "space,static:hard=true", "--cores", "64", "--seeds", "2")
    assert [row["rule"] for row in found.data["rows"]] == ["space", "static:hard=true"]
    for words in ("Table 3", "Table 2", "static:hard=true", "statistics", "3.5 h, 53 %, 4.4 h"):
        assert words in found.text


def test_compare_refuses_what_is_no_number():
    with pytest.raises(InvalidInput, match="whole numbers"):
        asa_cosched("compare", "--cores", "64,many")
