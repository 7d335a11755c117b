"""Files as arguments and results, outputs that are put in place when they are whole, and results that stay files."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asa
from asa.core.errors import CommandFailed, InvalidInput, RunFailed, StateError
from asa.core.event import TaskDone
from asa.core.task import Input
from asa.log.files import UNFINISHED
from asa.log.rundir import RunDirectory
from asa.log.values import call_with, dump, fill, keep
from tests.waiting import until

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def program(text: str, outputs: dict[str, Any], *args: Any, **options: Any) -> Any:
    """What a command returns, and that it leaves nothing unfinished."""
    try:
        return asa.command(text, outputs=outputs, **options).function(*args)
    finally:
        assert not [*Path().rglob(UNFINISHED)]


def tree(path: Path) -> dict[str, str]:
    return {str(each.relative_to(path)): each.read_text() for each in sorted(path.rglob("*")) if each.is_file()}


# ------------------------------------------------------------ outputs of programs


def test_an_output_has_its_name_only_when_the_program_has_ended_well(here: Path) -> None:
    (here / "a.txt").write_text("before")
    script = "echo one > {out}; cat a.txt > seen; echo two >> {out}"
    assert program(script, {"out": "a.txt"}, shell=True) == Path("a.txt")
    assert tree(here) == {"a.txt": "one\ntwo\n", "seen": "before"}
    with pytest.raises(CommandFailed, match=r"echo half > a\.txt; exit 3"):
        program("echo half > {out}; exit 3", {"out": "a.txt"}, shell=True)
    assert (here / "a.txt").read_text() == "one\ntwo\n"


def test_what_is_written_beside_an_output_comes_along(here: Path) -> None:
    (here / "logs").mkdir()
    (here / "logs" / "other").write_text("stays")
    script = "cd {out.parent}; mkdir logs; echo 1 > logs/mine; echo 2 > {out.name}.bai; echo 3 > {out.name}"
    assert program(script, {"out": "x.bam"}, shell=True) == Path("x.bam")
    assert tree(here) == {"logs/mine": "1\n", "logs/other": "stays", "x.bam": "3\n", "x.bam.bai": "2\n"}


def test_a_program_that_writes_where_the_output_is_to_be_keeps_working(here: Path) -> None:
    (here / "x.dat").write_text("old")
    assert program("echo 1 > {out.stem}.dat", {"out": "x.dat"}, shell=True) == Path("x.dat")
    assert program("echo 2 > y.dat", {"out": "y.dat"}, shell=True) == Path("y.dat")
    assert tree(here) == {"x.dat": "1\n", "y.dat": "2\n"}
    with pytest.raises(CommandFailed, match=r"ended well but did not write out = x\.dat"):
        program("true {out.stem}", {"out": "x.dat"})
    with pytest.raises(CommandFailed, match=r"ended well but did not write out = y\.dat"):
        program("true", {"out": "y.dat"})


def test_a_device_is_written_as_it_is() -> None:
    assert program("cp /bin/true {out}", {"out": "/dev/null"}) == Path("/dev/null")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("made", ["{out}", "fixed"])
def test_a_directory_is_put_in_place_as_a_whole(here: Path, made: str) -> None:
    (here / "fixed").mkdir()
    (here / "fixed" / "old").write_text("old")
    assert program(f"echo 1 > {made}/a; mkdir {made}/b; echo 2 > {made}/b/c", {"out": "fixed/"}, shell=True) == Path(
        "fixed"
    )
    old = {} if made == "{out}" else {"old": "old"}  # the program's own way is not touched
    assert tree(here / "fixed") == {"a": "1\n", "b/c": "2\n"} | old
    if not old:
        with pytest.raises(CommandFailed, match="exit code 1"):
            program("echo 3 > {out}/a; exit 1", {"out": "fixed/"}, shell=True)
        assert tree(here / "fixed") == {"a": "1\n", "b/c": "2\n"}


def test_a_directory_that_the_program_makes_itself(here: Path) -> None:
    (here / "d").mkdir()
    (here / "d" / "old").write_text("old")
    assert program("mkdir {out}; echo 1 > {out}/new", {"out": "d"}, shell=True) == Path("d")
    assert tree(here) == {"d/new": "1\n"}
    with pytest.raises(CommandFailed, match="cannot put in place d: Is a directory"):
        program("echo 1 > {out}", {"out": "d"}, shell=True)
    assert tree(here) == {"d/new": "1\n"}


@pytest.mark.parametrize("made", ["{parts}", "c[1] x"])
def test_names_with_wildcards_stand_for_the_files_that_were_written(here: Path, made: str) -> None:
    (here / "c[1] x").mkdir()
    (here / "c[1] x" / "old.fq").write_text("of an earlier run")
    place = made if made == "{parts}" else '"c[1] x"'
    script = f"for n in {{x}}; do echo $n > {place}/$n.fq; done; echo no > {place}/log; echo c > {place}/.hidden.fq"
    found = program(script, {"parts": "{folder}/*.fq"}, ["2", "1"], "c[1] x", shell=True)
    assert found == [Path("c[1] x", name) for name in (".hidden.fq", "1.fq", "2.fq")]
    assert tree(here / "c[1] x")["2.fq"] == "2\n" and tree(here / "c[1] x")["log"] == "no\n"
    with pytest.raises(CommandFailed, match=r"did not write parts = c\[1\] x/\*\.fq"):
        program(f"touch {place}/no.txt", {"parts": "{folder}/*.fq"}, "c[1] x", shell=True)


def test_wildcards_in_the_current_directory_and_below_it(here: Path) -> None:
    (here / "in").write_text("1\n2\n3\n")
    assert program("split -l 2 in {parts}/p.", {"parts": "p.?a"}) == [Path("p.aa")]
    found = program("mkdir {all}/u {all}/v; touch {all}/u/1.x {all}/v/2.x", {"all": "deep/*/?.x"}, shell=True)
    assert found == [Path("deep/u/1.x"), Path("deep/v/2.x")]
    assert sorted(tree(here)) == ["deep/u/1.x", "deep/v/2.x", "in", "p.aa", "p.ab"]


def test_what_an_attempt_left_goes_with_the_next_and_that_of_others_stays(here: Path) -> None:
    for name in ("a.txt.0123456789abcdef", "a.txt.more.0123456789abcdef"):
        (here / UNFINISHED / name).mkdir(parents=True)
        (here / UNFINISHED / name / "a.txt").write_text("half")
    asa.command("touch {out}", outputs={"out": "a.txt"}).function()
    assert os.listdir(here / UNFINISHED) == ["a.txt.more.0123456789abcdef"]


def test_an_attempt_that_was_given_up_does_not_write_over_the_next(here: Path) -> None:
    """The first is slow, the second ends; what the first writes then has no name any more."""
    slow = asa.command("bash -c 'echo first > {out}; until test -e go; do sleep .05; done'", outputs={"out": "a"})
    child = subprocess.Popen(
        [PYTHON, "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin
    child.stdin.write(pickle.dumps(slow.function))
    child.stdin.close()
    until(lambda: [*here.glob(f"{UNFINISHED}/a.*/a")])
    asa.command("bash -c 'echo second > {out}'", outputs={"out": "a"}).function()
    (here / "go").touch()
    assert child.stderr
    assert b"`bash -c" in child.stderr.read() and child.wait() == 1
    assert (here / "a").read_text() == "second\n"


NAMES = st.sampled_from(["a", "b.txt", "c d", "[x]", "é"])
FILES = st.dictionaries(st.tuples(NAMES, NAMES) | st.tuples(NAMES), st.text("xyz", max_size=9), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES, FILES, st.sampled_from(["out", "out/", "out/*"]), st.booleans())
def test_outputs_are_all_or_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[tuple[str, ...], str],
    after: dict[tuple[str, ...], str],
    output: str,
    fails: bool,
) -> None:
    """Whatever was there and is written: a task that fails changes nothing, one that ends well does all it has to."""
    folder = tmp_path_factory.mktemp("any")
    os.chdir(folder)
    write(Path("out"), before)
    before_tree = tree(Path("out"))
    Path("write.py").write_text(
        "import sys, json, pathlib\n"
        "for name, text in json.loads(sys.argv[2]):\n"
        "    path = pathlib.Path(sys.argv[1], *name)\n"
        "    try:\n"
        "        path.parent.mkdir(parents=True, exist_ok=True); path.write_text(text)\n"
        "    except OSError: pass\n"
        f"sys.exit({int(fails)})\n"
    )
    made = write(folder / "wanted", after)
    run = asa.command(f"{PYTHON} write.py {{out}} {{what}}", outputs={"out": output}).function
    wrong = any(is_in_the_way(Path("out"), folder / "wanted", each) for each in made) and output == "out/*"
    try:
        run(json.dumps([*after.items()]))
    except CommandFailed:
        assert fails or wrong or not made
        if not wrong:
            assert tree(Path("out")) == before_tree
        return
    assert not fails
    kept = before_tree if output == "out/*" else {}
    assert tree(Path("out")) == kept | tree(folder / "wanted")


def write(path: Path, files: dict[tuple[str, ...], str]) -> list[Path]:
    path.mkdir()
    for name, text in files.items():
        try:
            path.joinpath(*name).parent.mkdir(parents=True, exist_ok=True)
            path.joinpath(*name).write_text(text)
        except OSError:  # a file and a directory of the same name
            pass
    return [each.relative_to(path) for each in path.rglob("*")]


def is_in_the_way(there: Path, wanted: Path, each: Path) -> bool:
    return (there / each).exists() and ((there / each).is_dir() or (wanted / each).is_dir())


# ------------------------------------------------------------ asa.File


@asa.stage
def lines(file: asa.File) -> int:
    return len(Path(file).read_text().splitlines())


def test_files_are_looked_at_before_the_run_and_before_the_task(here: Path) -> None:
    with pytest.raises(InvalidInput, match=r"stage 'lines': file .*/in\.txt cannot be read: No such file"):
        asa.run(lines(asa.File("in.txt")))
    (here / "in.txt").write_text("1\n2\n")
    with pytest.raises(InvalidInput, match=r"file .*in\.txt has 4 bytes, and should have 5"):
        asa.run(lines.map([asa.File("in.txt", size=5)]))
    assert asa.run(lines.map([asa.File("in.txt", size=4, hash=True)])).result() == [2]

    @asa.stage
    def spoil(path: str) -> None:
        Path(path).write_text("3\n4\n")

    checked = asa.File("in.txt", hash=True)
    with pytest.raises(RunFailed, match=r"loading the arguments: InvalidInput: file in\.txt has the hash sha256:"):
        asa.run(lines(checked).after(spoil("in.txt")))
    with pytest.raises(InvalidInput, match=r"hash='crc' of in\.txt: expected True, or such as 'sha256'"):
        asa.File("in.txt", hash="crc")
    (here / "d").mkdir()
    with pytest.raises(RunFailed, match="is a directory, and should have 4"):
        asa.run(lines(asa.File("d", size=4)).after(spoil("x")))


def test_files_that_functions_make(here: Path) -> None:
    @asa.stage
    def make(number: int) -> dict[str, Any]:
        out, plain = asa.File.new(f"o{number}.txt", hash="md5"), Path(f"p{number}.txt")
        os.chdir("/")  # it does not matter then
        assert out.name == f"o{number}.txt" and not (here / out.name).exists()
        Path(out).write_text("x" * number)
        Path(out.parent, f"o{number}.idx").write_text("index")
        os.chdir(here)
        plain.write_text("y\n")
        return {"out": out, "plain": [asa.File(plain)]}

    made = make.map([1, 2])
    found = asa.run([made, lines.map(asa.stage(lambda all: [each["plain"][0] for each in all], name="p")(made))])
    (first, second), counted = found.result()
    assert counted == [1, 1]
    assert first["out"] == asa.File(here / "o1.txt", size=1, hash=f"md5:{hashlib.md5(b'x').hexdigest()}")
    assert (second["out"].size, second["plain"][0].size) == (2, 2)
    assert Path(first["out"]).read_text() == "x" and (here / "o2.idx").exists()
    assert not (here / UNFINISHED).exists()


def test_a_file_that_is_not_returned_or_not_written_is_none(here: Path) -> None:
    @asa.stage
    def forget(fails: bool) -> None:
        out = asa.File.new("a/out.txt")
        Path(out).write_text("half")
        if fails:
            raise ValueError("no")

    @asa.stage
    def empty() -> asa.File:
        return asa.File.new("b")

    with pytest.raises(RunFailed, match="ValueError: no"):
        asa.run(forget.map([False, True]))
    with pytest.raises(RunFailed, match=r"keeping the result, of type 'File': InvalidInput: file .*b cannot be read"):
        asa.run(empty())
    assert sorted(os.listdir(here)) == ["a", "state"] and os.listdir(here / "a") == []


def test_outputs_of_programs_as_files(here: Path) -> None:
    (here / "in.txt").write_text("1\n2\n3\n")
    split = asa.command("split -l 1 {x} {parts}/{x.stem}.", outputs={"parts": asa.File("parts/*", hash=True)})
    run = asa.run(lines.map(split(asa.File("in.txt"))))
    assert run.result() == [1, 1, 1]
    files = run.results("split")
    assert [each.name for each in files] == ["in.aa", "in.ab", "in.ac"]
    assert files[0].hash == "sha256:" + hashlib.sha256(b"1\n").hexdigest()


def test_a_result_with_files_is_reused_while_they_are_as_they_were(here: Path) -> None:
    (here / "in.txt").write_text("1\n2\n3\n")
    split = asa.command("split -l 1 {x} {parts}/p.", outputs={"parts": asa.File("parts/*")})

    def ran() -> int:
        run = asa.run(lines.map(split(asa.File("in.txt"))), reuse=True)
        run.wait()
        return sum(isinstance(event, TaskDone) for _, event in run.events())

    assert [ran(), ran()] == [4, 0]
    (here / "parts" / "p.ab").write_text("1\n2\n")
    assert ran() == 4  # it is divided anew, and each part is another file then
    assert ran() == 0


# ------------------------------------------------------------ a worker is killed


FLOW = """
import os, signal, time
from pathlib import Path
import asa

@asa.stage(retries=2)
def write(way):
    out = asa.File.new(f"{way}.txt")
    with open(out, "w") as file:
        for number in range(100):
            print(number, file=file, flush=True)
            if number == 50 and not Path(f"{way}.died").exists():
                Path(f"{way}.died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
    return out

program = asa.command(
    "bash -c 'mkdir -p {folder}/sub; for n in $(seq 0 99); do echo $n >> {out}; echo $n >> {folder}/sub/$n; "
    "if test $n = 50 -a ! -e died; then touch died; kill -9 $PPID; sleep 60; fi; done'",
    outputs={"out": "{x}.txt", "folder": "{x}.d/"}, retries=2, name="program",
)
workflow = [write.map(["one", "two"]), program("prog")]
"""


def test_killed_while_it_writes_a_task_leaves_nothing_half_written(here: Path) -> None:
    """A thread looks all the time: no output is ever seen that is not whole."""
    (here / "flow.py").write_text(FLOW)
    argv = [PYTHON, "-m", "asa", "run", "flow.py", "--backend", "local:cores=2", "--quiet"]
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    whole = "".join(f"{number}\n" for number in range(100))
    seen: set[str] = set()
    while run.poll() is None:
        for name in ("one.txt", "two.txt", "prog.txt"):
            if (here / name).exists():
                assert (here / name).read_text() == whole
                seen.add(name)
        if (here / "prog.d").exists():
            assert len(os.listdir(here / "prog.d" / "sub")) == 100
        time.sleep(0.01)
    assert run.stdout
    assert run.returncode == 0, run.stdout.read()
    run.stdout.close()
    assert {"one.died", "two.died", "died"} <= {*os.listdir(here)}, "each was killed once"
    for name in ("one.txt", "two.txt", "prog.txt"):
        assert (here / name).read_text() == whole
    assert not (here / UNFINISHED).exists()


def test_killed_with_its_driver_a_run_that_is_resumed_writes_it_anew(here: Path) -> None:
    text = FLOW.replace("os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)")
    (here / "flow.py").write_text(text.replace('[write.map(["one", "two"]), program("prog")]', 'write("one")'))
    argv = [PYTHON, "-m", "asa", "run", "flow.py", "--backend", "local:cores=2", "--quiet", "--orphan-grace", "1s"]
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (here / "one.died").exists())
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert not (here / "one.txt").exists()
    (found,) = [*(here / "state" / "runs").iterdir()]
    again = subprocess.run([PYTHON, "-m", "asa", "resume", found.name, "--quiet"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (here / "one.txt").read_text().count("\n") == 100
    assert not (here / UNFINISHED).exists()


# ------------------------------------------------------------ asa.Ref


@asa.stage
def big(number: int) -> bytes:
    return bytes([number]) * 100_000


@asa.stage
def length(value: Any) -> int:
    return len(value)


@asa.stage(refs=True)
def kinds(parts: list[asa.Ref], more: Any = None) -> Any:
    return [type(part).__name__ for part in parts], sum(len(part.load()) for part in parts), type(more).__name__


def test_results_are_opened_where_they_are_asked_for(here: Path) -> None:
    run = asa.run([big.map([1, 2]), kinds(big.map([3, 4]), length("abc")), length.map(big.map([5]))])
    assert run.result()[1:] == [(["Ref", "Ref"], 200_000, "Ref"), [100_000]]
    (first, second), small, _ = run.result(refs=True)
    assert second.load() == bytes([2]) * 100_000 and second.size == first.size > 100_000
    assert small.load()[1] == 200_000 and isinstance(small.stored, bytes)
    assert [each.load()[:1] for each in run.results("big", refs=True)] == [b"\1", b"\2"]
    assert os.path.dirname(first.stored) == str(run.directory.values)
    os.truncate(first.stored, 1000)
    with pytest.raises(StateError, match=r"big-0-\w+\.pkl"):
        first.load()


def test_a_task_returns_parts_which_go_to_tasks_by_themselves(here: Path) -> None:
    @asa.stage
    def divide(count: int) -> list[asa.Ref]:
        return [asa.Ref(bytes(100_000 + number)) for number in range(count)]

    run = asa.run(length.map(divide(3)))
    assert run.result() == [100_000, 100_001, 100_002]
    assert len(run.results("divide")[0].load()) == 100_000
    rows = [row.stat().st_size for row in run.directory.values.iterdir()]
    assert len(rows) == 3, "and the list of them is short"


@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_a_part_that_only_a_ref_holds_is_made_again(here: Path, how: str) -> None:
    """By the task that made it; who has passed it on, and whoever opened it, runs again, too."""

    @asa.stage
    def divide(count: int) -> list[asa.Ref]:
        with Path("divided").open("a") as file:
            file.write("x")
        return [asa.Ref({"part": bytes(100_000 + number)}) for number in range(count)]

    @asa.stage(refs=True)
    def last(parts: list[asa.Ref]) -> asa.Ref:
        return parts[-1].load()[-1]  # of the list itself, too, only a Ref is given

    @asa.stage
    def fail_once(part: Any) -> int:
        last = max(Path().glob("state/runs/*/values/divide-0-*"), key=lambda path: path.stat().st_size)
        if not Path("failed").exists():
            Path("failed").touch()
            last.unlink() if how == "gone" else last.write_bytes(last.read_bytes()[:-20] + bytes(20))
            raise OSError("no")
        return len(part["part"])

    run = asa.run(fail_once(last([divide(3)])), check=False)
    with pytest.raises(RunFailed, match="no"):
        run.result()
    run.wait()
    again = asa.resume(run.name)
    assert again.result() == 100_002 and again.wait()
    ran = [event.stage for _, event in again.events() if isinstance(event, TaskDone)]
    assert ran == ["divide", "last", "divide", "last", "fail_once"] and Path("divided").read_text() == "xx"
    assert asa.resume(run.name).result() == 100_002, "nothing is left to do"


def test_a_damaged_part_of_a_result_is_named_and_made_again(here: Path) -> None:
    run = asa.run(asa.stage(lambda: asa.Ref(bytes(100_000)), name="made")())
    ref = run.result()
    os.truncate(ref.stored, 1000)
    with pytest.raises(StateError, match=rf"of run {run.name} has returned it: asa resume {run.name} runs that again"):
        ref.load()
    run.wait()
    again = asa.resume(run.name)
    assert len(again.result().load()) == 100_000 and again.result().stored != ref.stored


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 200_000), max_size=4), st.integers(0, 3))
def test_what_is_opened_is_what_was_returned(tmp_path_factory: pytest.TempPathFactory, sizes: Any, deep: int) -> None:
    values = tmp_path_factory.mktemp("run") / "runs" / "r" / "values"
    values.mkdir(parents=True)
    value: Any = [asa.Ref(bytes(size)) for size in sizes]
    plain: Any = [bytes(size) for size in sizes]
    for _ in range(deep):
        value, plain = {"x": (value, 1)}, {"x": (plain, 1)}
    kept = keep(value, values, "s", 0)
    for refs in (False, True):
        args, kwargs, wanted = call_with(dump((([Input(0)],), {"y": Input(0)}, *([True] if refs else []))))
        args, kwargs = fill((args, kwargs), (kept,), wanted)
        if refs:
            assert isinstance(args[0][0], asa.Ref)
        else:
            assert args == ([plain],) and kwargs == {"y": plain}


def test_what_refers_to_a_run_is_named_when_that_is_removed(here: Path) -> None:
    def command(*words: str) -> str:
        done = subprocess.run([PYTHON, "-m", "asa", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return done.stderr + done.stdout

    @asa.stage(refs=True)
    def choose(parts: list[asa.Ref]) -> asa.Ref:
        return parts[-1]

    first = asa.run(choose(big.map([1, 2])), name="first")
    second = asa.run(asa.stage(refs=True)(lambda ref: [ref])(first.result()), name="second")
    third = asa.run(choose(big.map([1, 2])), name="third", reuse=True)
    third.wait()
    assert not [event for _, event in third.events() if isinstance(event, TaskDone)], "all of it is reused"
    for run in (first, second, third):
        run.wait()
    assert sorted(RunDirectory.open(here / "state", first.name).referring()) == sorted([second.name, third.name])
    said = command("rm", "--keep", "1", "--yes")
    assert f"run {first.name} is not removed: run {third.name} refers to results of it" in said
    assert not second.directory.path.exists(), "nothing refers to that one"
    assert third.result().load() == bytes([2]) * 100_000
    said = command("rm", first.name, "--yes")
    assert f"warning: run {third.name} refers to results of run {first.name}, which will be gone" in said
    with pytest.raises(StateError, match="cannot be read"):
        third.result().load()
    fourth = asa.run(choose(big.map([1, 2])), name="fourth", reuse=True)
    fourth.wait()
    ran = [event.stage for _, event in fourth.events() if isinstance(event, TaskDone)]
    assert ran == ["choose"], "what refers to something that is gone is made anew"
