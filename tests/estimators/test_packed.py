import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.estimators.packed import pack, read_packed


@given(st.lists(st.floats(allow_nan=False), max_size=20))
def test_what_was_packed_is_read(values):
    state = json.loads(json.dumps({"values": pack(np.array(values), "<f8")}))
    assert read_packed(state, "values", "<f8", (len(values),)).tolist() == values


@pytest.mark.parametrize("text", ["AAA=", "!", 7, None])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidInput, match=r"state\['values'\] is no packed array of the shape \(2,\)"):
        read_packed({"values": text}, "values", "<f8", (2,))


def test_a_missing_array_is_named():
    with pytest.raises(InvalidInput, match="no 'values'"):
        read_packed({}, "values", "<f8", (2,))
