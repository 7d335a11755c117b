from __future__ import annotations

import hypothesis
import pytest

pytest.register_assert_rewrite("asa.testing.backends", "asa.testing.estimators", "asa.testing.executors")

# How long an example takes depends on the machine and on what has been compiled: it is measured in benchmarks/.
hypothesis.settings.register_profile("asa", deadline=None)
hypothesis.settings.load_profile("asa")
