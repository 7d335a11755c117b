from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from asa.backends.command import CommandError, run


def test_it_returns_what_the_program_printed() -> None:
    done = run(["sh", "-c", "cat; echo warning >&2"], timeout_s=10, stdin="text")
    assert (done.stdout, done.stderr) == ("text", "warning\n")


def test_the_callers_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SETTING", "a b")
    assert run(["printenv", "SOME_SETTING"], timeout_s=10).stdout == "a b\n"


def test_another_environment_replaces_it() -> None:
    assert run(["env"], timeout_s=10, environment={"PATH": os.environ["PATH"]}).stdout.count("\n") == 1


def test_no_shell_reads_the_arguments() -> None:
    assert run(["echo", "$HOME", "*", ";"], timeout_s=10).stdout == "$HOME * ;\n"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match="no program 'no-such-program' in PATH") as caught:
        run(["no-such-program"], timeout_s=10)
    assert not caught.value.transient
    assert caught.value.returncode is None


def test_a_file_that_is_no_program_is_named(tmp_path: object) -> None:
    with pytest.raises(CommandError, match="cannot be run"):
        run([str(tmp_path)], timeout_s=10)


def test_a_failure_has_the_programs_last_words() -> None:
    with pytest.raises(CommandError, match=r"ended with status 3:\nbad luck") as caught:
        run(["sh", "-c", "echo bad luck >&2; exit 3"], timeout_s=10)
    assert (caught.value.returncode, caught.value.transient) == (3, False)
    assert caught.value.stderr == "bad luck\n"


def test_a_signal_is_named() -> None:
    with pytest.raises(CommandError, match="ended with signal 9"):
        run(["sh", "-c", "kill -9 $$"], timeout_s=10)


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: object) -> None:
    mark = f"{tmp_path}/mark"
    started = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 1.5 s:\nstill here") as caught:
        run(["sh", "-c", f"echo still here >&2; (sleep 3; touch {mark}) & wait"], timeout_s=1.5)
    assert caught.value.transient
    assert caught.value.returncode is None
    time.sleep(max(0.0, started + 3.5 - time.monotonic()))
    assert not os.path.exists(mark)


def test_output_that_is_not_utf8_does_not_hurt() -> None:
    assert run([sys.executable, "-c", "import os; os.write(1, b'a\\xff')"], timeout_s=10).stdout == "a\ufffd"


def test_it_runs_in_a_session_of_its_own() -> None:
    script = "import os; print(os.getsid(0))"
    assert int(run([sys.executable, "-c", script], timeout_s=10).stdout) != os.getsid(0)


def test_output_that_somebody_else_holds_open_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descendant in a session of its own is not killed, and keeps what the program printed to."""
    monkeypatch.setattr("asa.backends.command._REAP_S", 0.05)
    started = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 0.3 s") as caught:
        run(["sh", "-c", "setsid sleep 20 & echo $! >&2; wait"], timeout_s=0.3)
    assert caught.value.transient
    assert time.monotonic() - started < 15


def test_whoever_is_interrupted_leaves_no_program_behind(tmp_path: Path) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            run(
                ["sh", "-c", f"echo $$ >{tmp_path}/pid; read go; kill -USR1 $PPID; exec sleep 60"],
                timeout_s=60, stdin="go\n",
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
