"""What tasks took: rows, and the store that all runs of a user share."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, StateError
from asa.core.history import Frozen, StageUsage, Usage, about, quantile, spread
from asa.log import history
from asa.log.database import LearnedStore
from asa.log.history import Counted, UsageHistory

GIB = 1 << 30


def took(memory: int | None = GIB, run_time_s: float = 10.0, outcome: str = "ok", **other: object) -> Usage:
    row = Usage(
        "align", "c1", "site", 1000, 2, 16, run_time_s, 2 * run_time_s, memory, 4 * GIB, 3600.0, outcome, 1.0, "rusage"
    )
    return replace(row, **other)  # type: ignore[arg-type]


def whole(run: str = "r1", **other: object) -> StageUsage:
    row = StageUsage("align", "c1", "site", "flow", run, 9, 9, 2, 16, 9000, 30.0, 5.0, 6.0, 0.25, 0, 1.0)
    return replace(row, **other)  # type: ignore[arg-type]


rows = st.lists(
    st.builds(
        took,
        memory=st.integers(0, 1 << 40),
        run_time_s=st.floats(0, 1e6),
        outcome=st.sampled_from(("ok", "ok", "memory", "failed")),
    ),
    min_size=1,
    max_size=80,
)


class TestRows:
    @given(rows, st.integers(8, 40))
    @example([took(1, outcome=outcome) for outcome in ("ok", "memory", "failed") for _ in range(3)], 8)
    def test_few_rows_stand_for_all_of_them(self, given_rows: list[Usage], most: int) -> None:
        kept = spread(given_rows, most)
        assert len(kept) <= max(most, 0)
        for outcome in ("ok", "memory", "failed"):
            some = [row for row in given_rows if row.outcome == outcome]
            left = [row for row in kept if row.outcome == outcome]
            assert sum(row.tasks for row in left) == len(some)
            if some:
                assert max(row.memory or 0 for row in left) == max(row.memory or 0 for row in some)
                assert max(row.run_time_s for row in left) == max(row.run_time_s for row in some)

    def test_quantiles_of_few_rows_are_about_those_of_all(self) -> None:
        random.seed(7)
        many = [took(int(random.lognormvariate(20, 1))) for _ in range(5000)]
        few = spread(many, 100)
        for share in (0.1, 0.5, 0.9, 0.99):
            exact = quantile([row.memory or 0 for row in many], share)
            found = quantile([row.memory or 0 for row in few], share, [row.tasks for row in few])
            assert exact <= found <= 1.2 * exact

    def test_rows_are_checked(self) -> None:
        for wrong in ({"run_time_s": -1.0}, {"memory": -1}, {"outcome": "well"}, {"source": "guess"}, {"tasks": 0}):
            with pytest.raises(InvalidInput):
                took(**wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize("since", [-1.0, 1.7e14, float("nan")])
    def test_since_when_a_stage_is_frozen_is_a_date(self, since: float) -> None:
        with pytest.raises(InvalidInput, match=r"since of Frozen is .*: a number of seconds since 1970 expected"):
            Frozen(2 * GIB, None, since)

    @pytest.mark.parametrize("ended", [-1.0, 1.7e14, float("nan")])
    def test_when_they_ended_is_a_date(self, ended: float) -> None:
        with pytest.raises(InvalidInput, match=r"ended of Usage is .*: a number of seconds since 1970 expected"):
            took(ended=ended)

    def test_threads_are_processor_time_over_run_time(self) -> None:
        assert took().threads == 2.0
        assert took(cpu_s=None).threads is None

    def test_rows_with_about_as_much_input(self) -> None:
        some = [took(input=size) for size in (100, 500, 1000, 2000, 2001)] + [took(input=None)]
        assert [row.input for row in about(some, 1000)] == [500, 1000, 2000]


@pytest.fixture
def store(tmp_path: Path) -> UsageHistory:
    return UsageHistory(tmp_path / "history.db")


class TestStore:
    def test_what_is_added_is_found_by_stage_code_and_machine(self, store: UsageHistory, tmp_path: Path) -> None:
        first, second = took(), took(code="c2", ended=2.0)
        elsewhere, other = took(machine="other", ended=3.0), took(stage="al")
        store.add([first, second, elsewhere, other])
        store.close()
        store = UsageHistory(tmp_path / "history.db")
        assert store.of("align") == [first, second, elsewhere]
        assert store.of("align", "c1") == [first, elsewhere]
        assert store.of("align", machine="other") == [elsewhere]
        assert store.of("al") == [other]
        store.add([imported := took(code="", source="sacct")])
        assert store.of("align", "") == [imported], "of no code, not of every one"
        assert len(store.of("align")) == 4 and store.forget("align", "") == 1
        assert store.of("align") == [first, second, elsewhere]
        assert {kept.stage for kept in store.stages()} == {"al", "align"}

    def test_a_history_from_another_host_says_nothing_of_this_one(self, tmp_path: Path) -> None:
        mine, site = took(machine="local"), took(machine="site", ended=2.0)
        with UsageHistory(tmp_path / "history.db", host="desk") as history:
            history.add([mine, site])
            history.freeze("align", "local", Frozen(GIB, None, 1.0))
            assert history.of("align", machine="local") == [mine] and history.frozen("align", "local")
        with UsageHistory(tmp_path / "history.db", host="laptop") as history:
            assert not history.of("align", machine="local") and history.frozen("align", "local") is None
            assert history.of("align", machine="site") == [site], "a cluster has a name of its own"
            assert history.of("align", machine="local@desk") == [replace(mine, machine="local@desk")]
            history.add([here := replace(mine, ended=3.0)])
            assert history.of("align", machine="local") == [here]
        with UsageHistory(tmp_path / "history.db", host="desk") as history:
            assert history.of("align", machine="local") == [mine], "both go on, each by itself"

    def test_a_run_counts_once_and_goes_on(self, store: UsageHistory) -> None:
        some = [took(memory=place, ended=float(place)) for place in range(5)]
        store.record([Counted("align", whole(done=3), 3, lambda first: some[first:3])])
        store.record([Counted("align", whole(done=5), 5, lambda first: some[first:5])])
        store.record([Counted("align", whole(done=5), 5, lambda first: some[first:5])])
        assert store.of("align") == some
        assert store.runs("align") == [whole(done=5)]

    def test_a_run_that_dies_at_any_write_is_kept_whole_by_the_next_one(
        self, store: UsageHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def rows(name: str, first: int) -> list[Usage]:
            return [took(stage=name, ended=float(place)) for place in range(first, 3)]

        def keep(history: UsageHistory) -> None:
            stages = [f"s{number}" for number in range(4)]
            history.record([Counted(name, whole(stage=name), 3, partial(rows, name)) for name in stages])
            history.mark("r1", 9)

        keep(store)
        wanted = {kept: (store.of(*kept), store.runs(*kept)) for kept in store.stages()}
        assert all(len(rows) == 3 and len(runs) == 1 for rows, runs in wanted.values())
        update = LearnedStore.update
        for dies_at in range(5):
            fresh = UsageHistory(tmp_path / f"{dies_at}.db")
            writes = iter(range(100))

            def dying(self: LearnedStore, key: str, change: Any, writes: Any = writes, last: int = dies_at) -> Any:
                before = next(writes) >= last
                if before and last % 2:
                    raise KeyboardInterrupt
                done = update(self, key, change)
                if before:  # it is written, but nothing after it
                    raise KeyboardInterrupt
                return done

            with monkeypatch.context() as patch:
                patch.setattr(LearnedStore, "update", dying)
                with pytest.raises(KeyboardInterrupt):
                    keep(fresh)
            assert fresh.marked("r1") in (0, 9)
            keep(fresh)
            assert {kept: (fresh.of(*kept), fresh.runs(*kept)) for kept in fresh.stages()} == wanted

    def test_it_is_bounded(self, store: UsageHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(history, "KEYS_MOST", 20)
        for number in range(30):
            many = [took(ended=100.0 * number + place) for place in range(200)]
            one = Counted("align", whole(f"r{number}", ended=float(number)), 200, lambda first, many=many: many[first:])  # type: ignore[misc]
            store.record([one] * 3)
        assert len(store.of("align")) == history.ROWS_MOST
        for number in range(20):
            store.record([Counted("align", whole(code=f"c{number}", ended=100.0 + number), 0, lambda _: [])])
        assert len({kept.code for kept in store.stages()}) == history.CODES_MOST
        for number in range(50):
            store.add([took(stage=f"s{number}", ended=1e6 + number)])
        assert len(store.stages()) <= 20
        assert store.of("s49")

    def test_what_is_frozen_stays_so_until_it_is_not(self, store: UsageHistory) -> None:
        asked = Frozen(2 * GIB, None, 5.0)
        store.freeze("align", "site", asked)
        assert store.frozen("align", "site") == asked
        assert store.frozen("align", "other") is None
        store.freeze("align", "site", None)
        assert store.frozen("align", "site") is None

    def test_a_damaged_record_counts_as_none_and_is_named(self, store: UsageHistory, tmp_path: Path) -> None:
        store.add([took(), took(stage="sort")])
        store.close()
        with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
            connection.execute("UPDATE records SET value = replace(value, 'rusage', 'rusagf') WHERE key LIKE '%sort%'")
        store = UsageHistory(tmp_path / "history.db")
        assert store.of("align") == [took()]
        assert store.of("sort") == []
        assert any("sort" in line for line in store.problems())
        store.add([took(stage="sort")])
        assert store.of("sort") == [took(stage="sort")]
        assert not store.problems()

    def test_what_is_no_history_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "history.db"
        path.write_bytes(b"no database, but long enough to look like one" * 100)
        path.chmod(0o600)
        with pytest.raises(StateError, match=r"history\.db"):
            UsageHistory(path)
