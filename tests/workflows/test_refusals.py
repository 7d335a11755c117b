"""What would silently give a wrong result is refused, as early as it can be known, with the remedy."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asa
from asa.core import units
from asa.core.errors import AsaWarning, GraphError, InvalidInput, RunFailed
from asa.core.event import RunState
from asa.workflows.graph import make_graph
from asa.workflows.stage import Outputs


@asa.stage
def make(x: int = 0) -> int:
    return x


@asa.stage
def names(count: int, step: int = 1) -> list[str]:
    return [f"part{number // step}" for number in range(count)]


@asa.stage
def fail(x: int = 0) -> int:
    raise ValueError(f"no {x}")


def write(template: str = "{x}.txt", **more: Any) -> Any:
    return asa.command("touch {out}", outputs={"out": template}, name="write", **more)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def go(workflow: Any, directory: Path, **options: Any) -> Any:
    return asa.run(workflow, backend="local:cores=2", state=directory / "state", **options)


# ------------------------------------------------------------------------------------ one file, two writers


@pytest.mark.parametrize(
    "call",
    [
        lambda: asa.command("cp {x} {out}", outputs={"out": "same.txt"}).map(["a", "b"]),
        lambda: asa.command("cp {x} {out}", outputs={"out": "same.txt"}).map(names(4)),
        lambda: asa.command("cp {x} {out}", outputs={"out": "{x.stem}.txt"}).map([Path("1/a.fq"), Path("2/a.fq")]),
        lambda: asa.command("cp {x} {out}", outputs={"out": "{x}"}).map(["a.txt", Path("./deep/../a.txt")]),
        lambda: asa.command("cp {x} {n} {out}", outputs={"out": "{n}.txt"}).map(["a", "b"], n=np.str_("same")),
        lambda: asa.command("cat {x} >{out}", outputs={"out": "o"}, shell=True).map([1, 2]),
    ],
)  # fmt: skip
def test_tasks_of_a_stage_that_write_one_file_are_refused_where_they_are_declared(call: Callable[[], Any]) -> None:
    with pytest.raises(GraphError, match=r"tasks 0 and 1 of stage '\w+' would both write .*: name the output after an"):
        call()


def test_one_task_may_write_a_file_of_a_constant_name() -> None:
    assert make_graph(asa.command("cp {x} {out}", outputs={"out": "same.txt"}).map(["a"])).widths == {"cp": 1}
    assert make_graph(asa.command("cp {x} {out}", outputs={"out": "same.txt"}).map([])).widths == {"cp": 0}
    assert make_graph(write().map(["a", "b"])).widths == {"write": 2}


@pytest.mark.parametrize(
    ("one", "other"), [("a.txt", "./a.txt"), ("a.txt", "deep/../a.txt"), ("{x}.txt", "a.txt"), ("/tmp/a", "/tmp/./a")]
)
def test_stages_that_write_one_file_are_refused_unless_one_waits_for_the_other(one: str, other: str) -> None:
    first, second = (write(text)("a") if "{" in text else write(text)() for text in (one, other))
    with pytest.raises(GraphError, match=r"stages 'write' and 'write-2' would both write .*, and neither waits for"):
        make_graph([first, second])
    make_graph([first, second.after(first)])


def test_a_stage_between_orders_two_that_write_one_file() -> None:
    first = write("a.txt")()
    between = make(first)
    make_graph([write("a.txt")().after(between), first])


def test_a_file_is_the_same_however_it_is_spelt_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    both = [write("a.txt")(), write(str(tmp_path / "link" / "a.txt"))()]
    with pytest.raises(GraphError, match="neither waits for the other"):
        asa.submit(both, backend="local:cores=2", workdir=tmp_path / "there", state=tmp_path / "state")
    assert not list((tmp_path / "state").glob("runs/*")), "refused before there is a run"
    assert go(both, tmp_path).result() == [Path("a.txt"), tmp_path / "link" / "a.txt"]


def test_files_named_after_results_are_refused_when_these_are_known(tmp_path: Path) -> None:
    mapped = asa.command("sh -c 'echo $0 >$1' {x} {out}", outputs={"out": "{x}.txt"}, name="echo")
    with pytest.raises(RunFailed, match=r"tasks 0 and 1 of stage 'echo' would both write part0.txt"):
        go(mapped.map(names(4, 2)), tmp_path)
    assert not list(tmp_path.glob("*.txt")), "before any of them has run"
    assert len(go(mapped.map(names(4)), tmp_path).result()) == 4

    of_each = mapped.map(asa.stage(str).map([1, 2, 1]))
    with pytest.raises(RunFailed, match=r"tasks 0 and 2 of stage 'echo' would both write 1.txt"):
        go(of_each, tmp_path)
    with pytest.raises(RunFailed, match=r"stages 'echo' and 'echo-2' would both write 3.txt, and neither waits"):
        go([mapped(make(3)), mapped(make.options(name="same")(3))], tmp_path)
    with pytest.raises(RunFailed, match=r"stages 'echo' and 'echo-2' would both write 3.txt, and neither waits"):
        go([mapped(make(3)), mapped(3)], tmp_path)


def test_what_an_earlier_driver_has_begun_still_counts(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    @asa.stage
    def later(x: int) -> int:
        if not gate.exists():
            raise ValueError("not yet")
        return x

    both = [write()(make(3)), write()(later(3))]
    run = go(both, tmp_path, check=False)
    run.wait()
    gate.touch()
    with pytest.raises(RunFailed, match=r"stages 'write' and 'write-2' would both write 3.txt"):
        asa.resume(run.name, state=tmp_path / "state").result()


@given(st.data())
def test_writers_are_taken_exactly_when_each_two_of_one_file_are_in_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    before = {str(n): [str(k) for k in range(n) if data.draw(st.booleans())] for n in range(count)}
    after: dict[str, set[str]] = {}
    for name, others in before.items():
        after[name] = set(others).union(*(after[other] for other in others))
    files = {name: data.draw(st.sampled_from(["a", "./a", "b/../b", "b"])) for name in before}
    spelt = {"a": "a", "./a": "a", "b/../b": "b", "b": "b"}
    ordered = all(
        one in after[other] or other in after[one]
        for one in before
        for other in before
        if one != other and spelt[files[one]] == spelt[files[other]]
    )
    outputs = Outputs(before, "/work")
    try:
        for name in data.draw(st.permutations(list(before))):
            outputs.add(name, 0, [files[name]])
            outputs.add(name, 0, [files[name]])
    except GraphError:
        assert not ordered
    else:
        assert ordered


# ------------------------------------------------------------------------------------------- nodes as values


@pytest.mark.parametrize("use", [str, "{}".format, lambda node: f"{node}.txt", "{:>9}".format, "%s.txt".__mod__])
def test_a_node_is_no_text(use: Callable[[Any], str]) -> None:
    with pytest.raises(InvalidInput, match=r"stage 'make' is not known .* cannot be made a text: pass the node"):
        use(make())
    assert repr(make()) == "<node make>" and f"{make()!r}" == "<node make>"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("ab", r"a str, 'ab', of which it would get the characters: say \[value\] for one task, or list"),
        (np.str_("ab"), "a str_"),
        (b"ab", "a bytes, .* of which it would get the numbers"),
        (bytearray(b"ab"), "a bytearray"),
        ({"x": 1}, r"a dict, of which it would get the keys alone: say .items\(\), .values\(\) or list"),
        (OrderedDict(x=1), "an? OrderedDict"),
        (MappingProxyType({"x": 1}), "a mappingproxy"),
    ],
)
def test_texts_and_dicts_are_not_mapped_over(value: Any, said: str) -> None:
    for call in (make.map, asa.parallel(make), asa.parallel(asa.sequence(make))):
        with pytest.raises(InvalidInput, match=said):
            call(value)
    assert make.map(list(value)).mapped


def test_results_that_are_texts_or_dicts_are_not_mapped_over(tmp_path: Path) -> None:
    for value, said in (("ab", "is a str, 'ab'"), ({"x": 1}, "is a dict, of which it would get the keys alone")):
        with pytest.raises(RunFailed, match=f"stage 'make' is mapped over the result of stage 'text', which {said}"):
            go(make.map(asa.stage(name="text")(lambda value=value: value)()), tmp_path)


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize("wrap", [lambda node: node, lambda node: [1, {"x": (node,)}], Holder])
@pytest.mark.parametrize("backend", ["local:cores=1", "sim:nodes=1,cores=1"])
def test_a_stage_that_returns_nodes_fails(tmp_path: Path, wrap: Any, backend: str) -> None:
    @asa.stage
    def outer() -> Any:
        return wrap(make(1))

    with pytest.raises(RunFailed, match=r"it returned <node make>, a call that has not happened: .* make.function"):
        asa.run(outer(), backend=backend, state=tmp_path / "state")


# ------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("line", "acted_on"),
    [
        ("sort {x} > {out}", ">"),
        ("sort <{x}", "<"),
        ("a {x} | b", "|"),
        ("a {x}; b", ";"),
        ("a {x} & b", "&"),
        ("a {x}&&b", "&"),
        ("cat *.txt", "*"),
        ("cat part?.txt", "?"),
        ("echo $HOME", "$H"),
        ('echo "in $HOME"', "$H"),
        ("echo ${{HOME}}", "${"),
        ("echo $(date)", "$("),
        ("echo `date`", "`"),
        ('echo "`date`"', "`"),
        ("cp {x} ~/here", "~"),
        ("one {x}\ntwo", "\n"),
        ("one {x} \\\n --two", "\n"),
        ("(cd {x})", "("),
    ],
)
def test_what_only_a_shell_would_act_on_is_refused(line: str, acted_on: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        asa.command(line, outputs={"out": "o"})
    said = f"is not read by a shell, so {acted_on!r} would be passed on as it stands: say shell=True"
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "sh -c 'a | b > $HOME' {x}",
        "awk '{{print $1}}' {x}",
        'printf "a;b" {x}',
        r"echo a\;b \$HOME \> {x}",
        "grep foo$ {x}",
        "convert {x}[0] 50% a~b --set k=v",
        "  prog {x}\n",
        "cost {x:>3} 5$",
    ],
)
def test_what_is_quoted_is_the_programs_own(line: str) -> None:
    assert [*asa.command(line).function.inputs] == ["x"]


@pytest.mark.parametrize(
    ("line", "value", "printed"),
    [
        ("printf '%s\\n' {x} | tr a-z A-Z", "a b; echo $HOME `id` 'q' \"z\"", "A B; ECHO $HOME `ID` 'Q' \"Z\"\n"),
        ("for f in {x}; do printf '[%s]' \"$f\"; done", ["a b", Path("c"), "$(id)"], "[a b][c][$(id)]"),
        ("X={x}; echo \"${{X}}.txt\"", "a b", "a b.txt\n"),
        ("echo $(echo {x}).txt", "a", "a.txt\n"),
        ("echo {x}.txt >&2; echo {x!r}", "a", "'a'\n"),
        ("printf '[%s]' {x}", [], "[]"),
        ("grep -c 'b$' <<<{x}", "a\nb", "1\n"),
    ],
)  # fmt: skip
def test_a_shell_acts_on_the_line_and_on_no_value(line: str, value: Any, printed: str) -> None:
    assert asa.command(line, shell=True).function(value) == printed


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=20))
def test_a_value_in_a_shell_is_what_it_was(value: str) -> None:
    assert asa.command("printf %s {x} | cat - <(printf %s {x})", shell=True).function(value) == 2 * value


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("echo '{x}'", "in quotes"),
        ('echo "a {x}"', "in quotes"),
        ('echo "$(cat {x})"', "in quotes"),
        (r"echo \{x}", "after a backslash"),
        ("echo `cat {x}`", "in backticks; write $(...)"),
        ("echo ${x}", "after '$'; a variable of the shell is written ${{NAME}}"),
        ("true # {x}", "in a comment"),
        ("cat <<END\n{x}\nEND", "in a here-document"),
        ("echo $(( {x} + 1 ))", "in arithmetic"),
        ("echo $'a' {x}", "after $'...'"),
    ],
)
def test_a_value_must_not_stand_where_quotes_do_not_hold_it(line: str, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        asa.command(line, shell=True)
    assert f"has a value {where}: values are quoted as they are put in" in str(caught.value)


@pytest.mark.parametrize("line", ["false | cat", "false; true", "echo $NOT_SET_ANYWHERE", "cat /nowhere | sort"])
def test_no_part_of_a_line_fails_unseen(tmp_path: Path, line: str) -> None:
    with pytest.raises(RunFailed, match="ended with exit code 1"):
        go(asa.command(line, shell=True)(), tmp_path)


def test_a_line_for_a_shell_runs(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("2\n1\n")
    sort = asa.command("sort {x} >{out}", outputs={"out": "{x.stem}.sorted"}, shell=True)
    (made,) = go(sort.map([Path("a b.txt")]), tmp_path).result()
    assert (sort.name, made.read_text()) == ("sort", "1\n2\n")
    assert asa.command("(cd /; pwd)", shell=True).name == "cd"


# ---------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize("size", ["64", 64, 64.0, "1.5", np.int64(2**30), " 64 "])
def test_memory_without_a_unit_is_refused(size: Any) -> None:
    text = str(size).strip()
    with pytest.raises(InvalidInput, match=rf"memory .* has no unit: write '{text}G', '{text}M', or '{text}B' for"):
        asa.stage(memory=size)(len)
    with pytest.raises(InvalidInput, match="has no unit"):
        asa.submit(make(), backend=f"local:memory={text}")


@pytest.mark.parametrize("size", ["", "-1G", "G", "0G", "1P", True, None, 0, -5, "4 G B"])
def test_what_is_no_memory(size: Any) -> None:
    with pytest.raises(InvalidInput, match="is not a positive memory size"):
        units.memory(size)


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 2**29), ("4 GiB", 2**32), ("1.5k", 1536), ("7B", 7), ("2MB", 2**21), ("1t", 2**40)]
)
def test_memory_with_a_unit(text: str, size: int) -> None:
    assert units.memory(text) == size


def test_a_wall_time_that_slurm_reads_otherwise_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'1:30' has two readings: Slurm's, 1 min 30 s, and 1 h 30 min: write"):
        asa.stage(walltime="1:30")(len)
    with pytest.raises(InvalidInput, match="two readings"):
        asa.submit(make(), orphan_grace=" 90:00 ")
    assert (units.duration("1:30:00"), units.duration("1-01:30")) == (5400.0, 91800.0), "as Slurm reads them"


# ------------------------------------------------------------------------------------------------- warnings


def warned(workflow: Any, directory: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asa.run(workflow, state=directory / "state", **{"backend": "local:cores=8", **options})
    assert all(each.filename == __file__ for each in found), "where the user's program says it"
    return [str(each.message) for each in found if each.category is AsaWarning]


def test_cores_that_one_task_leaves_idle_are_warned_of_once(tmp_path: Path) -> None:
    wide = make.options(cores=8)
    assert warned([wide(1), make(2), wide(wide(3)), wide.map([1, 2])], tmp_path) == [
        "stage 'make': cores=8 with one task of 1 leaves 7 idle: say task_cores=8 where the task itself uses them, or "
        "give it more tasks with .map; likewise make-3, make-4"
    ]
    assert warned([make.options(task_cores=8)(1), wide.map([1, 2])], tmp_path) == []


def test_memory_that_nothing_limits_is_warned_of(tmp_path: Path) -> None:
    both = [make.options(memory="1M")(1), fail.options(memory="1M", name="never").map([]), make(2)]
    (said,) = warned(both, tmp_path)
    assert said.startswith("memory= of make, never is counted, but not enforced: nothing on local keeps")
    assert "nothing on local keeps" in next((tmp_path / "state").glob("runs/*/asa.log")).read_text()
    assert warned(both, tmp_path, backend="sim:nodes=1,cores=8,memory=1G") == []


SCRIPT = """
import asa
@asa.stage(cores=2)
def fail():
    raise ValueError("no")
workflow = fail()
if __name__ == "__main__":
    asa.run(workflow, backend="local:cores=2")
"""


def test_the_command_line_warns_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "flow.py").write_text(SCRIPT)
    words = [sys.executable, "-m", "asa", "run", "flow.py", "--backend", "local:cores=2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "idle" in line]
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("asa: warning: stage 'fail': cores=2")


# ------------------------------------------------------------------------------------------ runs that fail


def test_a_run_that_fails_raises_and_is_there_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="ValueError: no 0") as caught:
        go([fail(), make(1)], tmp_path)
    failed = caught.value
    assert (failed.stage, failed.run.status) == ("fail", RunState.FAILED)
    assert "ValueError" in failed.run.explain()
    assert go(fail(), tmp_path, check=False).status is RunState.FAILED
    submitted = asa.submit(fail(), backend="local:cores=1", state=tmp_path / "state")
    assert submitted.wait() and submitted.status is RunState.FAILED, "submit never raises for what tasks do"
    with pytest.raises(RunFailed):
        submitted.check()


def test_its_exception_travels_without_the_run(tmp_path: Path) -> None:
    failed = asa.submit(fail(), backend="local:cores=1", state=tmp_path / "state")
    with pytest.raises(RunFailed) as caught:
        failed.result()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.stage, copy.run) == (str(caught.value), "fail", None)


def test_the_exit_code_of_a_script_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RunFailed: run fail-" in done.stderr and "ValueError: no" in done.stderr
    assert "AsaWarning: stage 'fail': cores=2 with one task" in done.stderr
