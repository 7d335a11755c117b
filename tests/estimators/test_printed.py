from __future__ import annotations

import pytest

from asa.core.registry import ESTIMATORS


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_every_estimator_says_what_it_was_made_with(name: str) -> None:
    kind = type(ESTIMATORS.create(name)).__name__
    assert repr(ESTIMATORS.create(name)) == f"{kind}()"
    assert repr(ESTIMATORS.create(name, seed=3)) == f"{kind}(seed=3)"


def test_options_of_a_spec_are_told() -> None:
    made = ESTIMATORS.create("algorithm1:sampling=tuned,replay=5")
    assert repr(made) == "Algorithm1(sampling='tuned', replay=5)"
