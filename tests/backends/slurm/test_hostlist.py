from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.slurm.hostlist import expand
from asa.core.errors import BackendError


def compress(names: list[str]) -> str:
    """Slurm's way back: names of equal prefix and width, one after the other, become one bracket."""

    def shape(name: str) -> tuple[str, int]:
        match = re.fullmatch(r"(.*?)(\d*)", name)
        assert match
        return match[1], len(match[2])

    parts = []
    for (prefix, width), group in itertools.groupby(names, key=shape):
        if width == 0:
            parts += [prefix for _ in group]
            continue
        numbers = [int(name[len(prefix) :]) for name in group]
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][-1] + 1 == number:
                runs[-1].append(number)
            else:
                runs.append([number])
        ranges = [f"{run[0]:0{width}}" + (f"-{run[-1]:0{width}}" if len(run) > 1 else "") for run in runs]
        parts.append(f"{prefix}[{','.join(ranges)}]")
    return ",".join(parts)


NAMES = st.builds(
    lambda prefix, width, number: f"{prefix}{number % 10**width:0{width}}" if width else prefix,
    st.sampled_from(["n", "node-", "rack1-n", "login", "gpu"]),
    st.integers(0, 4),
    st.integers(0, 9999),
)


@given(st.lists(NAMES, unique=True))
def test_expanding_undoes_compressing(names: list[str]) -> None:
    assert list(expand(compress(names))) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("n1", ("n1",)),
        ("c21554n[1-4]", ("c21554n1", "c21554n2", "c21554n3", "c21554n4")),  # recorded
        ("n[1-2,7],m2,k[08-10]", ("n1", "n2", "n7", "m2", "k08", "k09", "k10")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
    ],
)
def test_forms(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[a-b]", "n[]", "n[1-2", ",n1"])
def test_what_is_no_host_list_is_named(text: str) -> None:
    with pytest.raises(BackendError, match="host list"):
        expand(text)
