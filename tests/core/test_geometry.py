import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.geometry import WALLTIME_CLASSES, Geometry, geometry_of


@pytest.mark.parametrize(
    ("walltime_s", "expected"),
    [
        (1, "15m"), (900, "15m"), (900.5, "1h"), (3600, "1h"), (3601, "4h"), (14400, "4h"), (43200, "12h"),
        (86400, "1d"), (86401, "3d"), (259200, "3d"), (259201, "longer"), (1e9, "longer"),
    ],
)  # fmt: skip
def test_classes_reach_up_to_and_including_their_bound(walltime_s, expected):
    assert geometry_of("s", "p", 1, walltime_s).walltime_class == expected


@pytest.mark.parametrize("walltime_s", [0, -1.0, math.nan])
def test_wall_times_that_are_none(walltime_s):
    with pytest.raises(InvalidInput, match="wall time"):
        geometry_of("s", "p", 1, walltime_s)


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(alphabet="/% :ab"),
    st.integers(1, 10**9),
    st.sampled_from(list(WALLTIME_CLASSES)),
)
def test_text_and_back(site, partition, cores, walltime_class):
    geometry = Geometry(site, partition, cores, walltime_class)
    assert Geometry.parse(str(geometry)) == geometry


def test_text_is_plain_where_names_are():
    assert str(Geometry("hpc2n", "", 112, "1h")) == "hpc2n//112/1h"


@pytest.mark.parametrize(
    "text", ["", "a/b/1", "a/b/c/1h", "a/b/1/2h", "a/b/0/1h", "a/b/-1/1h", "a/b/1/1h/x", "a/b/²/1h"]
)
def test_texts_that_are_no_geometry(text):
    with pytest.raises(InvalidInput):
        Geometry.parse(text)
