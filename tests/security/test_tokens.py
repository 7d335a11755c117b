import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.security.tokens import new_token


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,63}", fullmatch=True))
def test_tokens_keep_their_prefix_and_need_no_quoting(prefix):
    token = new_token(prefix)
    assert re.fullmatch(re.escape(prefix) + r"-[0-9a-f]{32}", token)


def test_tokens_differ():
    assert len({new_token("t") for _ in range(1000)}) == 1000


@pytest.mark.parametrize("prefix", ["", "9a", "a b", "a,b", "a/b", "-a", "é", "a" * 65, "a\n"])
def test_bad_prefixes_are_refused(prefix):
    with pytest.raises(InvalidInput, match="token prefix"):
        new_token(prefix)
