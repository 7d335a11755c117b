from __future__ import annotations

import inspect
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import CommandFailed, InvalidInput
from asa.workflows.stage import StageCommand, command

PYTHON = sys.executable


def run(template: str, *args: Any, **options: Any) -> Any:
    return command(template, **options).function(*args)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------ declaring


def test_inputs_are_the_names_in_order_of_appearance() -> None:
    stage = command("mProject {image} {out} {header.name}", outputs={"out": "{image.stem}_{band}.fits"}, cores=4)
    assert stage.name == "mProject"
    assert stage.needs.resources.cores == 4
    assert list(inspect.signature(stage.function).parameters) == ["image", "header", "band"]
    assert command("/usr/bin/env true", name="nothing").name == "nothing"


def test_arguments_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidInput, match=r"stage 'cp'\(a, b\): missing a required argument: 'b'"):
        command("cp {a} {b}")("x")


@pytest.mark.parametrize(
    ("template", "outputs", "said"),
    [
        ("", {}, "the command is empty: write it like 'mProject {image} {out} {header}'"),
        ("echo {}", {}, "'{}': every place in braces needs a name, like {image}"),
        ("echo {0}", {}, "'{0}': every place in braces needs a name, like {image}"),
        ("awk {print", {}, "'{print' cannot be formatted (expected '}' before end of string): write '{{'"),
        ("cp {a} {out}", {"out": "{}"}, "'{}': every place in braces needs a name, like {image}"),
        ("echo 'half", {}, 'the command "echo \'half" cannot be split into words: No closing quotation'),
    ],
)
def test_a_template_that_cannot_be_used(template: str, outputs: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        command(template, outputs=outputs)
    assert str(caught.value).startswith(said)


def test_needs_that_cannot_be_used_name_the_program() -> None:
    with pytest.raises(InvalidInput, match="stage 'cp': cores must be a whole number"):
        command("cp {a} {b}", cores=0)


# -------------------------------------------------------------------------------------------------- running


def test_without_outputs_the_value_is_what_was_printed() -> None:
    assert run("echo {word}", "hello") == "hello\n"


def test_a_value_is_never_taken_apart_or_executed() -> None:
    assert run("printf [%s] {x}", "a b; echo $HOME `id` 'q'") == "[a b; echo $HOME `id` 'q']"
    assert run("printf [%s] {x}", "{y}") == "[{y}]"
    assert run("printf [%s] a{x}", ["b", "c"]) == "[a['b', 'c']]", "only a word of its own becomes several"


def test_a_list_becomes_several_words() -> None:
    assert run("printf [%s] {xs}", ["a b", Path("c"), 4]) == "[a b][c][4]"
    assert run("printf [%s] {xs} end", ()) == "[end]"


def test_braces_that_are_meant_as_such() -> None:
    assert run("echo {{{x}}}", 1) == "{1}\n"


def test_one_output_is_its_path_and_several_are_a_dict(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    copy = run("cp {source} {out}", Path("a.txt"), outputs={"out": "deep/{source.stem}.copy"})
    assert copy == Path("deep/a.copy")
    assert copy.read_text() == "words"
    two = run("touch {x} {y}", outputs={"x": "1", "y": "2"})
    assert two == {"x": Path("1"), "y": Path("2")}


def test_other_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    assert run("sh -c 'echo $KEPT $MORE'", env={"MORE": "more"}) == "kept more\n"


def test_it_travels() -> None:
    function = pickle.loads(pickle.dumps(StageCommand("echo {x}", {}, (0,))))
    assert function("there") == "there\n"


# ------------------------------------------------------------------------------------------------- failures


def test_a_bad_exit_code_tells_the_command_and_its_last_words() -> None:
    with pytest.raises(CommandFailed, match=r"^`sh -c 'echo oh; exit 3'` ended with exit code 3; it printed: oh$"):
        run("sh -c 'echo oh; exit 3'")
    with pytest.raises(CommandFailed, match=r"^`false` ended with exit code 1$"):
        run("false")


def test_exit_codes_that_mean_success() -> None:
    assert run("sh -c 'echo fine; exit 3'", ok=(0, 3)) == "fine\n"


@pytest.mark.parametrize(
    ("template", "value", "said"),
    [
        ("echo {x.stem}", "a.fits", "'{x.stem}' cannot be filled in: 'str' object has no attribute 'stem': parts of"),
        ("echo {x[key]}", {}, "'{x[key]}' cannot be filled in: 'key'"),
        ("echo {x:d}", "one", "'{x:d}' cannot be filled in: Unknown format code 'd'"),
        ("echo {x:>4}", ["a"], "'{x:>4}' cannot be filled in: unsupported format string passed to list"),
    ],
)
def test_a_value_that_does_not_go_into_its_place_is_told(template: str, value: object, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        run(template, value)
    assert str(caught.value).startswith(said)
    with pytest.raises(CommandFailed, match="cannot be filled in: 'str' object has no attribute 'stem'"):
        run("true {image}", "a.fits", outputs={"out": "{image.stem}.h5"})


def test_a_signal_is_told_as_one() -> None:
    with pytest.raises(CommandFailed, match=r"was killed by signal 9 \(Killed\)$"):
        run("sh -c 'kill -9 $$'")


def test_only_the_end_of_much_output_is_told() -> None:
    with pytest.raises(CommandFailed) as caught:
        run(f'{PYTHON} -c \'print("x" * 100_000 + "end"); raise SystemExit(1)\'')
    assert str(caught.value).endswith("xend")
    assert len(str(caught.value)) < 2300


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandFailed, match=r"^mProjct cannot be started: No such file or directory: is it installed"):
        run("mProjct {x}", 1)


def test_an_output_that_was_not_written() -> None:
    with pytest.raises(
        CommandFailed,
        match=r"^`true a.fits` ended well but did not write out = a.fits: is that where the program puts it\?",
    ):
        run("true {out}", outputs={"out": "a.fits"})


def test_what_an_earlier_attempt_left_does_not_pass_for_an_output(tmp_path: Path) -> None:
    (tmp_path / "a.fits").write_text("old")
    with pytest.raises(CommandFailed, match=r"did not write out = a.fits"):
        run("true {out}", outputs={"out": "a.fits"})


def test_an_output_that_would_overwrite_an_input(tmp_path: Path) -> None:
    (tmp_path / "a.fits").write_text("precious")
    with pytest.raises(CommandFailed, match=r"output out = a.fits is also an input, and would be lost"):
        run("cp {source} {out}", "a.fits", outputs={"out": "{source}"})
    assert (tmp_path / "a.fits").read_text() == "precious"
