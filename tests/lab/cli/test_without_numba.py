"""The laboratory's commands where the extra `lab` is not installed, and how little ``--help`` loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = ("simulate", "figure", "train", "place", "dispatch", "compare", "calibrate", "replay-waits")
CODE = """
import sys
from asa.cli.main import main
{before}
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(sorted({{"numba", "torch", "matplotlib"}} & {{name for name, module in sys.modules.items() if module}}))
sys.exit(code)
"""


def asa(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = CODE.format(before=before)
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_neither_a_compiler_nor_networks(command: str) -> None:
    done = asa(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "log.swf"),
        ("figure", "asa-makespan"),
        ("figure", "cp-times"),
        ("figure", "dras-6"),
        ("figure", "tjap-5"),
        ("compare", "montage"),
        ("calibrate", "log.swf"),
        ("dispatch", "queue.json"),
        ("place", "windows.json"),
        ("replay-waits", "sim:hpc2n"),
        ("train", "nsa"),
        ("train", "compact", "--trace", "log.swf", "--validate", "1-2"),
    ],
    ids=" ".join,
)
def test_without_numba_a_command_says_what_to_install(words: tuple[str, ...]) -> None:
    done = asa(*words, before='sys.modules["numba"] = None')
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "asa: error: simulated queues and the laboratory need numba: pip install 'asa-hpc[lab]'"
    ]
