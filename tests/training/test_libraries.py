from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput
from asa.training.libraries import check_libraries


def test_what_is_not_installed_is_named() -> None:
    check_libraries(("json",))
    with pytest.raises(InvalidInput, match=r"no_such_library is not installed: pip install 'asa-hpc\[learn\]'"):
        check_libraries(("json", "no_such_library"))
