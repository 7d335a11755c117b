from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from asa.dashboard.document import Document, difference, patched

rows = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2))
documents = st.dictionaries(st.sampled_from(["jobs", "stages", "nodes"]), rows)


def filled(document: Document) -> dict[str, dict[str, object]]:
    return {table: dict(found) for table, found in document.items() if found}


@settings(max_examples=40)
@given(documents, documents)
def test_what_has_changed_makes_the_one_of_the_other(before: Document, after: Document) -> None:
    assert filled(patched(before, difference(before, after))) == filled(after)


@settings(max_examples=40)
@given(documents)
def test_nothing_changes_between_equals(document: Document) -> None:
    assert difference(document, {table: dict(found) for table, found in document.items()}) == {}


@settings(max_examples=40)
@given(documents, documents)
def test_only_rows_that_differ_are_told(before: Document, after: Document) -> None:
    for table, change in difference(before, after).items():
        assert change
        for key, row in change.get("put", {}).items():
            assert after[table][key] == row
            assert before.get(table, {}).get(key) != row
        assert all(key not in after.get(table, {}) for key in change.get("drop", ()))
