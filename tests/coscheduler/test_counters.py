"""What the kernel counts of real programs. CPU time stands for instructions: every machine counts it, the same way."""

import doctest
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from coscheduler import counters
from tests.waiting import until

SECOND = "import time\nwhile time.process_time() < {}: pass"


def counted(tmp_path, *argv, event="task-clock", **more):
    """A program that is counted, started in a session of its own; and the file of its count."""
    file = tmp_path / "count"
    line = (sys.executable, "-P", "-m", "coscheduler.counters", event, str(file), *argv)
    return subprocess.Popen(line, start_new_session=True, stderr=subprocess.PIPE, text=True, **more), file


def number(file):
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def test_examples():
    assert not doctest.testmod(counters).failed


def test_all_that_a_program_starts_counts_for_as_long_as_it_ran(tmp_path):
    """Two processes one after the other, two at a time, and a thread: as much as they say themselves."""
    part = f"{sys.executable} -S -c {SECOND.format(0.2)!r}".replace("\\n", "\n")
    threads = "import threading, time\ndef burn():\n while time.thread_time() < .2: pass\n"
    threads += "one = threading.Thread(target=burn)\none.start()\none.join()"
    script = f'{part}; {part}; {part} & {part} & wait; exec {sys.executable} -S -c "{threads}"'
    process, file = counted(tmp_path, "/bin/sh", "-c", script)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    assert process.returncode == 0
    assert number(file) / 1e9 >= 5 * 0.2
    assert number(file) / 1e9 <= used.ru_utime + used.ru_stime + 0.05, "the counting process itself, too"


def test_a_count_grows_while_the_program_runs(tmp_path):
    process, file = counted(tmp_path, sys.executable, "-S", "-c", SECOND.format(60))
    first = until(lambda: number(file))
    until(lambda: number(file) > first)
    assert len(file.read_text()) == 21
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_signals_are_the_program_s(tmp_path):
    """All processes of a job get them; the program decides what it does with them."""
    script = 'trap "touch saved" USR1; touch ready; while :; do sleep 0.05; done'
    process, file = counted(tmp_path, "/bin/sh", "-c", script, cwd=tmp_path)
    until((tmp_path / "ready").exists)
    os.killpg(process.pid, signal.SIGUSR1)
    until((tmp_path / "saved").exists)
    first = number(file)
    until(lambda: number(file) > first)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_it_ends_as_the_program_does(tmp_path, script, code):
    process, file = counted(tmp_path, "/bin/sh", "-c", script)
    assert process.communicate(timeout=30) == (None, "")
    assert process.returncode == code
    assert number(file) > 0


def test_a_program_that_cannot_be_started(tmp_path):
    process, _ = counted(tmp_path, "no-such-program")
    assert process.communicate(timeout=30)[1] == "asa: cannot start 'no-such-program': No such file or directory\n"
    assert process.returncode == 127


def test_where_nothing_is_counted_the_program_runs_all_the_same(tmp_path):
    """Once."""
    script = "import sys\nfrom coscheduler import counters\ncounters.EVENTS['none'] = (0, 99)\n"
    script += "sys.exit(counters.main(['none', 'count', '/bin/sh', '-c', 'echo ran; exit 3']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=30)
    assert done.returncode == 3 and done.stdout == "ran\n"
    assert done.stderr.startswith(
        "asa: none cannot be counted: this machine has no such counter; without progress reports "
    )
    assert not (tmp_path / "count").exists()
    process, _ = counted(tmp_path / "missing", "/bin/sh", "-c", "exit 3")
    assert "No such file or directory" in process.communicate(timeout=30)[1]
    assert process.returncode == 3
