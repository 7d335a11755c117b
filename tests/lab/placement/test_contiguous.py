from __future__ import annotations

from itertools import combinations

from hypothesis import assume, given

from asa.lab.placement.contiguous import Contiguous
from asa.lab.placement.firstfit import FirstFit
from asa.lab.placement.runs import amounts
from tests.lab.placement.brute import UNTIMED, Ints, holds, machines, stretches


def given_units(machine: tuple[Ints, Ints, int, int]) -> list[int]:
    return amounts(Contiguous().choose(*machine), len(machine[0])).tolist()


@UNTIMED
@given(machines())
def test_it_is_a_preference_and_no_constraint(machine: tuple[Ints, Ints, int, int]) -> None:
    assert bool(Contiguous().choose(*machine)) == bool(FirstFit().choose(*machine))


@UNTIMED
@given(machines())
def test_a_job_stays_together_in_the_tightest_stretch(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    most = holds(free, need, per_node)
    fitting = [nodes for nodes in stretches(most) if sum(most[node] for node in nodes) >= units]
    assume(fitting)
    tightest = min(fitting, key=lambda nodes: sum(most[node] for node in nodes))
    expected, left = [0] * len(free), units
    for node in tightest:
        expected[node] = min(left, most[node])
        left -= expected[node]
    assert given_units(machine) == expected


@UNTIMED
@given(machines())
def test_a_job_that_must_be_split_uses_as_few_stretches_as_possible(machine: tuple[Ints, Ints, int, int]) -> None:
    free, need, units, per_node = machine
    assume(len(free) < 20)
    most = holds(free, need, per_node)
    sizes = [sum(most[node] for node in nodes) for nodes in stretches(most)]
    assume(sum(sizes) >= units)
    fewest = next(
        count for count in range(1, len(sizes) + 1) if any(sum(some) >= units for some in combinations(sizes, count))
    )
    assert len(stretches(given_units(machine))) == fewest
