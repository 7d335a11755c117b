"""Deadlines, against a dictionary that is searched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.timers import Timers

STEPS = st.tuples(st.sampled_from(["at", "cancel", "expired"]), st.sampled_from("abc"), st.integers(0, 20))


@given(st.lists(STEPS, max_size=300))
def test_what_is_due_is_what_was_asked_for_last(steps: list[tuple[str, str, int]]) -> None:
    timers, model = Timers(), {}
    for what, name, when in steps:
        if what == "at":
            timers.at((name,), float(when))
            model[name,] = float(when)
        elif what == "cancel":
            timers.cancel(name)
            model.pop((name,), None)
        else:
            due = sorted((at, key) for key, at in model.items() if at <= when)
            assert [model.pop(key) for key in timers.expired(when)] == [at for at, _ in due]
        assert timers.due() == min(model.values(), default=float("inf"))
    assert len(timers._heap) <= 64 + 4 * (len(model) + 3)  # what was taken back does not pile up
