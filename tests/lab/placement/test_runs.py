from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.placement.bestfit import BestFit
from asa.lab.placement.contiguous import Contiguous
from asa.lab.placement.firstfit import FirstFit
from asa.lab.placement.native import BEST_FIT, CONTIGUOUS, FIRST_FIT
from asa.lab.placement.runs import choose


def test_no_room_is_an_empty_choice() -> None:
    assert choose(FIRST_FIT, [[1], [1]], [1], 3, 0) == ()


def test_many_single_nodes_need_no_more_rows_than_there_are() -> None:
    free = np.tile([[1], [0]], (5_000, 1))
    assert len(choose(FIRST_FIT, free, [1], 5_000, 0)) == 5_000


def test_shapes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"shape \(2, 1\) and needs of shape \(2,\)"):
        choose(FIRST_FIT, [[1], [1]], [1, 1], 1, 0)


@pytest.mark.parametrize(("units", "per_node"), [(0, 0), (1, -1)])
def test_jobs_that_cannot_be_are_refused(units: int, per_node: int) -> None:
    with pytest.raises(InvalidInput, match="no such job"):
        choose(FIRST_FIT, [[1]], [1], units, per_node)


def test_methods_have_the_numbers_the_compiled_machine_knows() -> None:
    assert (FirstFit.native, BestFit.native, Contiguous.native) == (FIRST_FIT, BEST_FIT, CONTIGUOUS) == (0, 1, 2)
