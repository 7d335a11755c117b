from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.lab.training.libraries import need


def test_what_is_not_installed_is_named() -> None:
    need("json")
    with pytest.raises(InvalidInput, match=r"no_such_library is not installed: pip install 'asa-hpc\[learn\]'"):
        need("json", "no_such_library")
