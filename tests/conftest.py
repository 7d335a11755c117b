from __future__ import annotations

import pytest

pytest.register_assert_rewrite("asa.testing.backends", "asa.testing.estimators", "asa.testing.executors")
