from __future__ import annotations

import os
import signal

import pytest

from executors.processes import wakeup


def test_a_signal_is_read_and_afterwards_all_is_as_before() -> None:
    before, heard = signal.getsignal(signal.SIGUSR1), list[int]()
    with wakeup([signal.SIGUSR1], lambda number, frame: heard.append(number)) as signals:
        with pytest.raises(BlockingIOError):
            signals.recv(10)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.recv(10) == bytes([signal.SIGUSR1]) and heard == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert signals.fileno() == -1


def test_it_ends_with_what_was_raised_in_it() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyError), wakeup([signal.SIGUSR1], lambda number, frame: None):
        raise KeyError
    assert signal.getsignal(signal.SIGUSR1) is before and signal.set_wakeup_fd(-1) == -1
