from __future__ import annotations

from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.core.job import Resources


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Resources(1), "1 core"),
        (Resources(8, 2), "8 cores on 2 nodes"),
        (Resources(4, 1, 3 * 2**29, 1), "4 cores on 1 node with 1.5 GiB and 1 GPU"),
        (Resources(4, gpus=2), "4 cores and 2 GPUs"),
    ],
)
def test_resources_in_words(resources: Resources, words: str) -> None:
    assert str(resources) == words


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cores": 0}, "cores must be a whole number of at least 1, not 0"),
        ({"cores": 1.0}, "cores must be a whole number of at least 1, not 1.0"),
        ({"nodes": 0}, "nodes must be a whole number of at least 1, not 0"),
        ({"memory": 0}, "memory must be a whole number of at least 1, not 0"),
        ({"gpus": -1}, "gpus must be a whole number of at least 0, not -1"),
        ({"cores": 5, "nodes": 2}, "5 cores do not divide over 2 nodes: ask for a multiple of 2 cores"),
    ],
)
def test_resources_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Resources(**wrong)
