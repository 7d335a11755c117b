"""The solver's thread: whoever waits for it can be interrupted."""

import threading
from types import SimpleNamespace

import pytest

from asa.lab.dispatchers.cp.solver import _interruptible


class Endless:
    """A solver that goes on until it is told to stop."""

    def __init__(self):
        self.parameters, self.stopped = SimpleNamespace(catch_sigint_signal=True), threading.Event()

    def solve(self, model):
        assert self.stopped.wait(60.0), "nobody stopped it"

    def stop_search(self):
        self.stopped.set()


def test_an_interrupt_stops_the_search(monkeypatch):
    def interrupted(future):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    solver = Endless()
    with pytest.raises(KeyboardInterrupt):
        _interruptible(solver, None)
    assert solver.stopped.is_set() and not solver.parameters.catch_sigint_signal
