"""Results of earlier runs in the place of tasks, with real processes: what runs again, what does not, and why."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import AsaError, RunFailed, StateError
from asa.core.event import StageLookedUp, Submitting, TaskDone
from asa.integrations.container import container
from asa.integrations.recorded import recorded
from asa.integrations.rocrate import crate
from asa.integrations.wfformat import wfformat
from asa.log.reuse import REUSE_VERSION, KeepLimits, ReuseStore
from asa.workflows.reuse import code_of, why
from asa.workflows.run import Run, open_run, resume, run
from asa.workflows.settings import Settings, load_workflow
from asa.workflows.stage import DEFAULT_NEEDS, Stage, command
from tests.waiting import until

FLOW = """
import asa
from pathlib import Path

FACTOR = 2

def scaled(x):
    return x * FACTOR

@asa.stage
def clean(sample):
    return sample + 1

@asa.stage
def align(sample):
    return scaled(sample)

@asa.stage
def merge(parts):
    return sum(parts)

def main(samples=(1, 2, 3)):
    return merge(align.map(clean.map(list(samples))))
"""


class Place:
    """A directory with a workflow file, in which it is run."""

    def __init__(self, path: Path) -> None:
        self.path, self.file, self.state = path, path / "flow.py", path / "state"
        self.state.mkdir(mode=0o700)
        self.write(FLOW)

    def write(self, text: str) -> None:
        self.file.write_text(textwrap.dedent(text))

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def run(self, reuse: bool = True, name: str = "main", set: dict[str, Any] | None = None, **options: Any) -> Run:
        sys.modules.pop("asa_file_flow", None)
        sys.modules.pop("beside", None)
        workflow = load_workflow(f"{self.file}:{name}", set)
        given = {"backend": "local:cores=2", "state": self.state, "workdir": self.path} | options
        found = run(workflow, reuse=reuse, check=False, **given)
        found.wait()
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Place(tmp_path)


def ran(found: Run) -> dict[str, list[int]]:
    """Which tasks ran, by stage."""
    tasks: dict[str, list[int]] = {}
    for _, event in found.events():
        if isinstance(event, TaskDone):
            tasks.setdefault(event.stage, []).append(event.index)
    return {stage: sorted(indices) for stage, indices in tasks.items()}


def troubles(found: Run) -> list[str]:
    return [event.trouble for _, event in found.events() if isinstance(event, StageLookedUp) and event.trouble]


ALL = {"clean": [0, 1, 2], "align": [0, 1, 2], "merge": [0]}


def test_what_is_not_changed_does_not_run_again(place: Place) -> None:
    assert place.run(reuse=False).result() == 18
    same = place.run()
    assert same.result() == 18
    assert ran(same) == {}
    assert not [event for _, event in same.events() if isinstance(event, Submitting)], "no allocation is asked for"
    assert "clean: done, 3 tasks, 3 of them reused from " in same.explain()
    summary = same.summary.to_json()
    assert summary["core_hours_used"] == 0 and summary["total_perceived_wait_s"] == 0
    assert [stage["reused"] for stage in summary["stages"]] == [3, 3, 1]
    exported = wfformat((event for _, event in same.events()), "1")["workflow"]["execution"]["tasks"]
    assert {task["command"]["arguments"][0].split()[0] for task in exported} == {"reused"} and len(exported) == 7
    kept = crate(recorded(event for _, event in same.events()), "1")["@graph"]
    assert sum("which had done the same" in entity.get("description", "") for entity in kept) == 7


def test_of_an_edited_stage_only_what_follows_runs(place: Place) -> None:
    place.run(reuse=False).result()
    place.edit("return scaled(sample)", "return scaled(sample) + 1")
    again = place.run()
    assert again.result() == 21
    assert ran(again) == {"align": [0, 1, 2], "merge": [0]}


def test_comments_lines_docstrings_and_the_file_s_place_do_not_matter(place: Place) -> None:
    place.run(reuse=False).result()
    place.edit("return x * FACTOR", '"""Larger."""\n    # much\n\n    return x * FACTOR')
    place.edit("import asa", "# moved\n\n\nimport asa")
    (place.path / "elsewhere").mkdir()
    place.file = place.file.rename(place.path / "elsewhere" / "flow.py")
    assert ran(place.run()) == {}


def test_a_helper_and_a_constant_that_are_reached_count(place: Place) -> None:
    place.run(reuse=False).result()
    place.edit("FACTOR = 2", "FACTOR = 3")
    again = place.run()
    assert (again.result(), ran(again)) == (27, {"align": [0, 1, 2], "merge": [0]})
    place.edit("return x * FACTOR", "return FACTOR * x + 0")
    assert place.run().result() == 27


def test_of_an_added_sample_only_that_runs(place: Place) -> None:
    place.run(reuse=False).result()
    more = place.run(set={"samples": (0, 1, 2, 9, 3)})
    assert (more.result(), ran(more)) == (40, {"clean": [0, 3], "align": [0, 3], "merge": [0]})
    assert [stage.reused for stage in more.summary.stages] == [3, 3, 0]
    assert ran(place.run(set={"samples": (3, 2)})) == {"merge": [0]}


def test_a_module_beside_the_file_counts(place: Place) -> None:
    beside = "def f(x):\n    return g(x)\ndef g(x):\n    return x\ndef unused():\n    "
    (place.path / "beside.py").write_text(f"{beside}pass\n")
    place.write("""
        import asa, beside
        @asa.stage
        def one(x): return beside.f(x)
        @asa.stage
        def late(x):
            from beside import g
            return g(x)
        def main(): return [one(1), late(2)]
    """)
    assert place.run(reuse=False).result() == [1, 2]
    (place.path / "beside.py").write_text(f"{beside}return 1\n")
    assert ran(place.run()) == {}
    (place.path / "beside.py").write_text("def f(x):\n    return g(x) + 10\ndef g(x):\n    return x\n")
    again = place.run()
    assert (again.result(), ran(again)) == ([11, 2], {"one": [0]})


FILES = """
    import asa
    from pathlib import Path
    @asa.stage
    def count(path): return len(path.read_text())
    @asa.stage
    def write(n):
        Path("out.txt").write_text("x" * n)
        return Path("out.txt")
    @asa.stage
    def read(path): return path.read_text()
    @asa.stage
    def into(n, name):
        Path(name).write_text(str(n))
        return n
    def main(): return read(write(count(Path("in.txt"))))
    def named(): return into(7, "named.txt")
"""


def test_input_files_are_compared_and_outputs_have_to_be_there(place: Place) -> None:
    place.write(FILES)
    (place.path / "in.txt").write_text("abc")
    assert place.run(reuse=False).result() == "xxx"
    assert ran(place.run()) == {}
    (place.path / "in.txt").write_text("abcd")
    again = place.run()
    assert (again.result(), ran(again)) == ("xxxx", {"count": [0], "write": [0], "read": [0]})
    (place.path / "out.txt").unlink()
    gone = place.run()
    assert (gone.result(), ran(gone)) == ("xxxx", {"write": [0], "read": [0]})
    (place.path / "out.txt").write_text("edited")
    changed = place.run()
    assert (changed.result(), ran(changed)) == ("xxxx", {"write": [0], "read": [0]})
    os.utime(place.path / "in.txt")
    assert "count" in ran(place.run())


def test_a_stage_that_rewrites_a_file_is_followed_although_it_returns_the_same_path(place: Place) -> None:
    place.write(FILES)
    (place.path / "in.txt").write_text("abc")
    place.run(reuse=False).result()
    place.edit('"x" * n', '"y" * n')
    again = place.run()
    assert (again.result(), ran(again)) == ("yyy", {"write": [0], "read": [0]})


def test_a_file_that_a_task_makes_at_a_path_it_is_given_is_output(place: Place) -> None:
    place.write(FILES)
    place.run(name="named", reuse=False).result()
    assert ran(place.run(name="named")) == {}
    (place.path / "named.txt").write_text("other")
    assert ran(place.run(name="named")) == {"into": [0]}


def test_an_input_that_changes_while_the_task_runs_is_no_reason_to_reuse(place: Place) -> None:
    place.write("""
        import asa
        from pathlib import Path
        @asa.stage
        def careless(path):
            text = path.read_text()
            path.write_text(text + "!")
            return text
        def main(): return careless(Path("in.txt"))
    """)
    (place.path / "in.txt").write_text("a")
    assert [place.run().result() for _ in range(3)] == ["a", "a!", "a!!"]


def test_files_by_their_contents(place: Place) -> None:
    place.write(FILES)
    place.edit("@asa.stage\ndef count", "@asa.stage(reuse='hash')\ndef count")
    (place.path / "in.txt").write_text("abc")
    place.run(reuse=False).result()
    os.utime(place.path / "in.txt", (1, 1))
    assert ran(place.run()) == {}
    (place.path / "in.txt").write_text("abd")
    os.utime(place.path / "in.txt", (1, 1))
    assert ran(place.run()) == {"count": [0]}, "what follows has the same to do"


def test_a_stage_may_say_no_or_yes_and_have_a_version(place: Place) -> None:
    place.write("""
        import asa
        @asa.stage(reuse=False)
        def dice(x): return x
        @asa.stage(reuse=True, version="1")
        def sure(x): return x
        @asa.stage(version=["numpy"])
        def plain(x): return x
        def main(): return [dice(1), sure(2), plain(3)]
    """)
    place.run(reuse=False).result()
    assert ran(place.run()) == {"dice": [0]}
    assert ran(place.run(reuse=False)) == {"dice": [0], "plain": [0]}
    place.edit('version="1"', 'version="2"')
    assert ran(place.run()) == {"dice": [0], "sure": [0]}


def test_programs_count_by_command_line_inputs_and_environment(place: Place) -> None:
    place.write("""
        import asa
        from pathlib import Path
        upper = asa.command("sh up.sh {source} {out}", outputs={"out": "{source.stem}.up"}, env={"A": "1"})
        def main(): return upper.map([Path("a.txt"), Path("b.txt")])
    """)
    (place.path / "up.sh").write_text("tr a-z A-Z < $1 > $2\n")
    for name in ("a.txt", "b.txt"):
        (place.path / name).write_text(name)
    assert place.run(reuse=False).result() == [Path("a.up"), Path("b.up")]
    assert ran(place.run()) == {}
    (place.path / "b.txt").write_text("other")
    assert ran(place.run()) == {"sh": [1]}
    (place.path / "a.up").write_text("touched")
    assert ran(place.run()) == {"sh": [0]}
    (place.path / "up.sh").write_text("tr a-y A-Y < $1 > $2\n")
    assert ran(place.run()) == {"sh": [0, 1]}
    place.edit('"A": "1"', '"A": "2"')
    assert ran(place.run()) == {"sh": [0, 1]}
    assert (place.path / "a.up").read_text() == "A.TXT"


LARGE = """
    import asa
    @asa.stage
    def large(n): return bytes(n)
    @asa.stage
    def size(data): return len(data)
    def main(): return [large(200_000), size(large(200_000))]
"""


def test_a_large_result_outlives_the_run_it_is_of(place: Place) -> None:
    place.write(LARGE)
    first = place.run(reuse=False)
    first.result()
    again = place.run()
    assert ran(again) == {}
    (one, *_) = again.directory.values.glob("large-*.pkl")
    assert one.stat().st_nlink >= 2
    shutil.rmtree(first.directory.path)
    assert open_run(again.name, state=place.state).result() == [bytes(200_000), 200_000]
    assert ran(place.run()) == {}, "the second run has it, too"
    shutil.rmtree(place.state / "runs")
    last = place.run()
    assert last.result()[1] == 200_000 and set(ran(last)) == {"large", "large-2", "size"}


def test_a_damaged_result_is_not_used(place: Place) -> None:
    place.write(LARGE)
    first = place.run(reuse=False)
    first.result()
    for path in first.directory.values.glob("large-*.pkl"):
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
    again = place.run()
    assert again.result() == [bytes(200_000), 200_000] and set(ran(again)) >= {"large", "large-2"}


def test_results_of_another_state_directory(place: Place, tmp_path: Path) -> None:
    place.run(reuse=False).result()
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    assert ran(place.run(state=other)) == ALL
    shutil.rmtree(other)
    other.mkdir(mode=0o700)
    assert ran(place.run(state=other, reuse=False, reuse_from=[place.state])) == {}
    assert ran(place.run(state=other)) == {}, "they are this one's now"


@pytest.mark.parametrize("damage", ["garbage", "newer", "empty", "unreadable rows", "directory"])
def test_a_store_that_cannot_be_used_is_named_and_tasks_run(place: Place, damage: str) -> None:
    place.run(reuse=False).result()
    store = place.state / "reuse.db"
    for extra in ("-wal", "-shm"):
        store.with_name(store.name + extra).unlink(missing_ok=True)
    if damage == "garbage":
        store.write_bytes(b"not a database" * 1000)
    elif damage == "newer":
        with closing(sqlite3.connect(store)) as connection:
            connection.execute(f"PRAGMA user_version = {REUSE_VERSION + 1}")
    elif damage == "empty":
        store.write_bytes(b"")
    elif damage == "directory":
        store.unlink()
        store.mkdir(mode=0o700)
    else:
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE calls SET task = task + 1")
    again = place.run()
    assert (again.result(), ran(again)) == (18, ALL)
    assert bool(troubles(again)) == (damage != "unreadable rows")
    if troubles(again):
        assert "reuse.db" in again.explain()
        assert "reuse.db" in again.directory.log.read_text()


def test_a_full_disk_fails_no_run(place: Place) -> None:
    """A limit of file size stands for it: the store is larger than what may be written."""
    place.run(reuse=False).result()
    with closing(sqlite3.connect(place.state / "reuse.db")) as connection, connection:
        connection.execute("CREATE TABLE fill (x BLOB)")
        connection.execute("INSERT INTO fill VALUES (zeroblob(3000000))")
    place.edit("FACTOR = 2", "FACTOR = 5")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000));"
        "from asa.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "run", f"{place.file}:main", "--reuse", "--quiet"]
    environ = os.environ | {"ASA_STATE_DIR": str(place.state)}
    done = subprocess.run(words, cwd=place.path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "45\n"), done.stderr


@pytest.mark.shared
def test_twenty_runs_at_once(place: Place) -> None:
    environ = os.environ | {"ASA_STATE_DIR": str(place.state)}
    words = [sys.executable, "-m", "asa", "run", f"{place.file}:main", "--reuse", "--quiet"]
    started = [
        subprocess.Popen(words, cwd=place.path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    for each in started:
        out, err = each.communicate(timeout=300)
        assert (each.returncode, out) == (0, "18\n"), err
    assert ran(place.run()) == {}


def test_a_store_forgets_what_is_oldest_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run(reuse=False).result()
    monkeypatch.setenv("ASA_REUSE_KEEP", "calls=8")
    last = place.run(set={"samples": (7, 8, 9)})
    last.result()
    assert "are forgotten" in last.directory.log.read_text()
    with closing(ReuseStore(place.state / "reuse.db")) as store:
        assert store.count() <= 8
    assert ran(place.run(set={"samples": (7, 8, 9)}, reuse=True)) == {}


def test_what_is_kept_can_be_limited() -> None:
    assert KeepLimits.of({"ASA_REUSE_KEEP": "calls=10,days=2"}) == KeepLimits(10, 2.0)
    for wrong in ("calls", "calls=x", "runs=3", "calls=-1"):
        with pytest.raises(Exception, match="ASA_REUSE_KEEP"):
            KeepLimits.of({"ASA_REUSE_KEEP": wrong})


def test_what_cannot_be_compared_runs(place: Place) -> None:
    text = "import threading\nLOCK = threading.Lock()\ndef f(x):\n    with LOCK: return x\n"
    (place.path / "beside.py").write_text(text)
    place.write("""
        import asa, beside
        @asa.stage
        def one(x): return beside.f(x)
        def main(): return one(1)
    """)
    assert place.run(reuse=False).result() == 1
    again = place.run()
    assert (again.result(), ran(again)) == (1, {"one": [0]})
    assert "LOCK" in troubles(again)[0]


BUGGY = """
    import asa
    @asa.stage(reuse=False)
    def draw(n): return n
    @asa.stage
    def check(x):
        if x == 2: raise ValueError("a bug")
        return x
    @asa.stage
    def total(xs): return sum(xs)
    def main(): return total(check.map([draw(1), draw(2), draw(3)]))
"""


def test_a_failed_run_goes_on_with_new_code(place: Place) -> None:
    place.write(BUGGY)
    failed = place.run(reuse=False)
    with pytest.raises(RunFailed):
        failed.result()
    done = set(ran(failed).get("check", ()))
    place.edit('if x == 2: raise ValueError("a bug")', "pass")
    sys.modules.pop("asa_file_flow", None)
    again = resume(failed.name, state=place.state, code=load_workflow(f"{place.file}:main"))
    assert again.result() == 6
    assert ran(again) == {"check": [0, 1, 2], "total": [0]}, (
        "what is drawn stays so, as in the run that is gone on with"
    )
    again.wait()
    assert again.name != failed.name and done <= {0, 2}
    place.edit("sum(xs)", "sum(xs) + 1")
    sys.modules.pop("asa_file_flow", None)
    third = resume(again.name, state=place.state, code=load_workflow(f"{place.file}:main"))
    assert (third.result(), ran(third)) == (7, {"total": [0]})
    third.wait()
    assert set(ran(place.run())) == {"draw", "draw-2", "draw-3"}, "another run draws anew; equal results are equal"


def test_new_code_on_the_command_line(place: Place) -> None:
    def asa(*words: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"ASA_STATE_DIR": str(place.state)}
        code = "import sys; from asa.cli.main import main; sys.exit(main(sys.argv[1:]))"
        words = (sys.executable, "-c", code, *words)
        return subprocess.run(words, cwd=place.path, env=environ, capture_output=True, text=True, check=False)

    place.write(BUGGY)
    assert asa("run", "flow.py:main", "--quiet", "--name", "first").returncode == 1
    place.edit('if x == 2: raise ValueError("a bug")', "pass")
    done = asa("resume", "first", "--code", "flow.py:main", "--quiet")
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
    name = max((place.state / "runs").iterdir(), key=lambda path: path.stat().st_ctime).name
    said = asa("why", name, "check[1]")
    assert said.returncode == 0 and "function check has changed since run first-" in said.stdout, said
    assert "did not run: its result is that of run first-" in asa("why", name, "draw").stdout


def test_why_says_what_has_changed(place: Place) -> None:
    (place.path / "beside.py").write_text("def f(x):\n    return x\n")
    (place.path / "in.txt").write_text("abc")
    (place.path / "map.sh").write_text("cat $1\n")
    place.write("""
        import asa, beside
        from pathlib import Path
        LIMIT = 3
        @asa.stage(version="1")
        def one(x, path): return beside.f(x) + LIMIT + len(path.read_text())
        @asa.stage
        def two(x, y): return x + y
        show = asa.command("sh map.sh {path}", name="show")
        def main(): return [two(one(1, Path("in.txt")), 5), show.map([Path("in.txt")])]
    """)

    def said(stage: str) -> str:
        found = place.run()
        found.result()
        return "\n".join(why(found.directory, stage, 0))

    assert "no run before it" in said("one")
    assert "did not run: its result is that of run" in said("one")
    (place.path / "beside.py").write_text("def f(x):\n    return x + 0\n")
    assert "helper f has changed" in said("one")
    place.edit("LIMIT = 3", "LIMIT = 4")
    assert "constant LIMIT has changed" in said("one")
    place.edit('version="1"', 'version="2"')
    assert "version of the stage has changed" in said("one")
    (place.path / "in.txt").write_text("abcd")
    text = said("one")
    assert "file in.txt is not as it was" in text and "changed since" not in text
    place.edit("LIMIT = 4", "LIMIT = 5")
    assert "argument 1 of task 0, the result of one, is not what it was" in said("two")
    place.edit(", 5)", ", 6)")
    assert "argument 2 of task 0 is not what it was" in said("two")
    (place.path / "map.sh").write_text("cat  $1\n")
    assert "file map.sh has changed" in said("show")
    place.edit("sh map.sh {path}", "sh map.sh {path} {path}")
    assert "command line has changed" in said("show")
    plain = place.run(reuse=False)
    assert "start it with --reuse" in "\n".join(why(plain.directory, "one", 0))
    with pytest.raises(AsaError, match=f"^unknown stage of run {plain.directory.name} 'three'"):
        why(plain.directory, "three", 0)
    with pytest.raises(AsaError, match="has 1 tasks"):
        why(plain.directory, "one", 3)


def test_a_run_with_a_driver_does_not_go_on_with_other_code(place: Place) -> None:
    place.write("""
        import asa, time
        @asa.stage
        def slow(x): time.sleep(x)
        def main(): return slow(5)
    """)
    code = "import sys; from asa.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "run", "flow.py:main", "--quiet", "--name", "busy"]
    environ = os.environ | {"ASA_STATE_DIR": str(place.state)}
    driver = subprocess.Popen(words, cwd=place.path, env=environ, stdout=subprocess.PIPE)
    try:
        assert until(lambda: [*(place.state / "runs").glob("busy-*/settings")])
        with pytest.raises(StateError, match="has a driver"):
            resume("busy", state=place.state, code=load_workflow(f"{place.file}:main"))
    finally:
        driver.terminate()
        driver.wait()


def test_a_run_that_was_killed_knows_what_it_has_reused(place: Place) -> None:
    """Nothing is looked for twice, and what the first driver found is not run by the second."""
    place.run(reuse=False).result()
    place.edit(
        "return sum(parts)", "import os, time\n    time.sleep(0 if os.path.exists('go') else 6)\n    return sum(parts)"
    )
    code = "import sys; from asa.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "run", "flow.py:main", "--quiet", "--reuse", "--name", "killed"]
    environ = os.environ | {"ASA_STATE_DIR": str(place.state)}
    driver = subprocess.Popen(words, cwd=place.path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert until(lambda: any(place.state.glob("runs/killed-*/events.db")))
    found = open_run("killed", state=place.state)
    assert until(lambda: any(type(event).__name__ == "TasksLaunched" for _, event in found.events()))
    driver.kill()
    driver.wait()
    (place.path / "go").touch()
    again = resume("killed", state=place.state)
    assert again.result(120) == 18
    assert ran(again) == {"merge": [0]}
    assert sum(isinstance(event, StageLookedUp) for _, event in again.events()) == 3
    again.wait()


def test_a_module_that_is_edited_while_it_is_used_is_no_reason_to_reuse(place: Place) -> None:
    """Which of the two a worker has imported is not known."""
    beside = "from pathlib import Path\ndef f(x):\n    Path('beside.py').open('a').write('\\n')\n    return x\n"
    (place.path / "beside.py").write_text(beside)
    place.write("""
        import asa, beside
        @asa.stage
        def one(x): return beside.f(x)
        def main(): return one(1)
    """)
    assert place.run(reuse=False).result() == 1
    assert ran(place.run()) == {"one": [0]}


def test_functions_of_others_count_by_name(place: Place) -> None:
    place.write("""
        import asa, json, statistics
        import numpy as np
        mean, text, total = asa.stage(statistics.mean), asa.stage(json.dumps), asa.stage(np.sum)
        def main(): return [mean([1, 2, 3]), text({"a": 1}), total([1, 2])]
    """)
    place.run(reuse=False).result()
    again = place.run()
    assert (again.result(), ran(again)) == ([2, '{"a": 1}', 3], {})


def test_an_image_counts_by_its_name_and_as_a_file() -> None:
    def code(image: str, made: Stage[..., Any] | None = None) -> Any:
        inside = container(image)(made or command("sort {x}"))
        return code_of(inside, Settings(None, "run", workdir="/"))

    def plain(x: int) -> int:
        return x

    def other(x: int) -> int:
        return -x

    assert code("a.sif") == code("a.sif") != code("b.sif")
    assert "a.sif" in code("a.sif").files
    assert code("a.sif", Stage(plain, DEFAULT_NEEDS)).number != code("a.sif", Stage(other, DEFAULT_NEEDS)).number
    assert code("a.sif", command("sort {x}", env={"LC_ALL": "C"})).number != code("a.sif").number
