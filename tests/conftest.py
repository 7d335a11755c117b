from __future__ import annotations

import signal

import hypothesis
import pytest

pytest.register_assert_rewrite(
    "asa.testing.backend_places", "asa.testing.backends", "asa.testing.estimators", "asa.testing.executors"
)

# How long an example takes depends on the machine and on what has been compiled: it is measured in benchmarks/. And
# chance must not fail a test that had to look long for its examples.
_CHANCE = [hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("asa", deadline=None, suppress_health_check=_CHANCE)
hypothesis.settings.load_profile("asa")

# A shell that starts the tests in the background has them ignore these, and so would the programs that they interrupt.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
