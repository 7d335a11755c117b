from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from asa.cli.completion import ANYTHING, FILES, RUNS, SHELLS, CommandNode, Option, places
from asa.cli.main import main, whole_parser
from asa.core.registry import BACKENDS, COMMANDS, DISPATCHERS

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_asa
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script for each shell."""
    folder, found = tmp_path_factory.mktemp("completion"), list(places(whole_parser()))
    for name, script in SHELLS.items():
        (folder / name).write_text(script(found))
    return {name: folder / name for name in SHELLS}


def offered(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    argv = ["bash", "-c", BASH, "bash", str(script), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["asa", ""], sorted(COMMANDS)),
        (["asa", "run", "--back"], ["--backend"]),
        (["asa", "run", "--backend", ""], sorted(BACKENDS)),
        (["asa", "run", "--backend", "=", "lo"], ["local"]),  # as bash takes --backend=lo apart
        (["asa", "run", "--backend", "="], sorted(BACKENDS)),
        (["asa", "run", "flow.py", "--strategy", "asa-"], ["asa-naive"]),
        (["asa", "simulate", "log", "--dispatcher", "fcfs,cons"], ["fcfs,conservative"]),
        (["asa", "compare", "run", "--pl"], ["--plot"]),  # an argument that is called like a command
        (["asa", "cosched", "r"], ["run", "rank"]),
        (["asa", "cosched", "run", "--shar"], ["--sharing"]),
        (["asa", "completion", ""], ["bash", "zsh", "fish"]),
        (["asa", "run", "--report", "x"], []),  # files are the shell's matter
        (["asa", "run", "--orphan-grace", ""], []),
    ],
)
def test_bash_completes(scripts: dict[str, Path], words: list[str], expected: list[str]) -> None:
    assert offered(scripts["bash"], *words) == expected


def test_bash_completes_names_of_runs(
    scripts: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mosaic-1", "mosaic-2", "blast-1"):
        (tmp_path / "my runs" / "runs" / name).mkdir(parents=True)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "my runs"))
    assert offered(scripts["bash"], "asa", "resume", "mos") == ["mosaic-1", "mosaic-2"]
    assert offered(scripts["bash"], "asa", "pool", "nodes", "--run", "b") == ["blast-1"]


def test_zsh_takes_the_script(scripts: dict[str, Path]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    setup = "autoload -Uz compinit; compinit -u -D; source $1; whence -w _asa; print $_comps[asa]"
    words = ["zsh", "-f", "-c", setup, "zsh", str(scripts["zsh"])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["_asa:", "function", "_asa"] and done.stderr == ""


def test_fish_completes(scripts: dict[str, Path]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish")
    for line, expected in (
        ("asa run --back", {"--backend"}),
        ("asa run --backend ", set(BACKENDS)),
        ("asa cosched r", {"run", "rank"}),
        ("asa completion ", {"bash", "zsh", "fish"}),
    ):
        words = ["fish", "--no-config", "-c", f"source {scripts['fish']}; complete -C '{line}'"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        assert {each.split("\t")[0] for each in done.stdout.splitlines()} == expected and done.stderr == ""


def test_the_command_prints_the_script(scripts: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"].read_text()
    assert main(["completion", "fish", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == "fish"


def test_parsers_are_read() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("-n", "--times", type=int, help="how often,\n 100%% sure")
    parser.add_argument("--out", metavar="OUT")
    parser.add_argument("--dispatcher", metavar="NAMES")
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    (found,) = places(parser)
    assert found == CommandNode(
        (),
        (
            Option(("-n", "--times"), "how often, 100% sure", ANYTHING),
            Option(("--out",), "", FILES),
            Option(("--dispatcher",), "", tuple(DISPATCHERS)),
            Option(("--quiet",), "", None),
        ),
        (),
        RUNS,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_help_texts_are_never_run(shell: str, tmp_path: Path) -> None:
    sly = "it's $(touch RUN) `touch RUN`; touch RUN"
    script = tmp_path / "script"
    asa = CommandNode((), (Option(("--a",), sly, ("'$(touch RUN)'",)),), (("b", sly),), ())
    script.write_text(SHELLS[shell]([asa, CommandNode(("b",), (), (), ANYTHING)]))
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    flags = ["--no-config"] if shell == "fish" else []
    subprocess.run([program, *flags, str(script)], cwd=tmp_path, timeout=60, check=False, capture_output=True)
    if shell == "bash":
        (tmp_path / "asks").write_text(BASH.replace("_asa\n", "_asa; COMP_WORDS=(asa --a ''); COMP_CWORD=2; _asa\n", 1))
        words = [program, "asks", str(script), "asa", "-"]
        done = subprocess.run(words, cwd=tmp_path, timeout=60, check=True, capture_output=True, text=True)
        assert "touch" in done.stdout
    assert not (tmp_path / "RUN").exists()
