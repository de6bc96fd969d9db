"""Substring search in titles: indexed or not yet, and after rows were removed."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.stores.sqlite import SqliteStore, title_index
from tests.samples import NOW, SECOND, a_task

LONG = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "titles.db")
    store.prepare()
    return store


def maintain(store: SqliteStore) -> None:
    while store.maintain():
        pass


def found(store: SqliteStore, part: str) -> list[str]:
    return [task.task_id for task in store.search(Filter(title_text=part), within=LONG).tasks]


def indexed(store: SqliteStore, part: str) -> bool:
    with store._connections.read() as connection:
        return title_index.candidates(connection, part.casefold()) is not None


def test_titles_are_found_by_substring_ignoring_case(store: SqliteStore) -> None:
    names = ["Tides of the Moon", "조수와 달", "STRASSE", 'a "quoted" title', "100% *sure*", ""]
    store.insert([a_task(f"t{n}", title=name, created_at=NOW + n * SECOND) for n, name in enumerate(names)])
    for _ in range(2):  # not yet indexed, then indexed
        assert found(store, "ides OF") == ["t0"]
        assert found(store, "수와 ") == ["t1"]
        assert found(store, "straße") == ["t2"]
        assert found(store, '"quoted"') == ["t3"]
        assert found(store, "% *su") == ["t4"]
        assert found(store, "t") == ["t3", "t2", "t0"]
        assert found(store, "nothing") == []
        maintain(store)
    assert indexed(store, "ides")
    assert not indexed(store, "id"), "two characters have no trigram"


def test_titles_added_after_indexing_are_found_in_order_and_across_pages(store: SqliteStore) -> None:
    for start in range(0, 1_200, 400):
        store.insert(
            [a_task(f"t{n:04d}", title=f"part {n % 100} of it", created_at=NOW + n * SECOND) for n in range(start, start + 400)]
        )  # fmt: skip
        maintain(store) if start < 800 else None
    expected = [f"t{n:04d}" for n in reversed(range(1_200)) if n % 100 == 77]
    assert found(store, "part 77 ") == expected
    seen: list[str] = []
    after = None
    while True:
        page = store.search(Filter(title_text="part 77 "), limit=5, after=after, within=LONG)
        seen += [task.task_id for task in page.tasks]
        after = page.next
        if after is None:
            break
    assert seen == expected


def test_other_conditions_of_the_filter_apply(store: SqliteStore) -> None:
    store.insert([a_task("mine", title="tides", user_id="u1"), a_task("theirs", title="tides", user_id="u2")])
    maintain(store)
    page = store.search(Filter(title_text="tides", user_id="u1"), within=LONG)
    assert [task.task_id for task in page.tasks] == ["mine"]


def test_reused_rowids_are_indexed_again(store: SqliteStore) -> None:
    store.insert([rules.cancel(a_task(f"old{n}", title="old tides"), NOW) for n in range(10)])
    maintain(store)
    assert store.remove(store.find(Filter()).tasks) == 10
    store.insert([a_task(f"new{n}", title="new clouds") for n in range(10)])
    assert len(found(store, "clouds")) == 10
    maintain(store)
    assert found(store, "tides") == []
    assert len(found(store, "clouds")) == 10


def test_titles_are_found_after_a_vacuum(store: SqliteStore) -> None:
    tasks = [rules.cancel(a_task(f"t{n}", title=f"tides {n}"), NOW) for n in range(50)]
    store.insert(tasks)
    maintain(store)
    store.remove(tasks[::2])
    store.close()
    store._connections.writer().execute("VACUUM")
    store.insert([a_task("late", title="tides late")])
    maintain(store)
    assert len(found(store, "tides")) == 26


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.lists(st.text(st.sampled_from("abÄß조 \"'%*"), max_size=8), max_size=8), st.text(st.sampled_from('abÄß조 "'), min_size=1, max_size=5))  # fmt: skip
def test_the_index_and_a_scan_find_the_same_titles(store: SqliteStore, names: list[str], part: str) -> None:
    store.remove(store.find(Filter(), limit=1_000).tasks)
    store.insert([a_task(f"t{n}", title=name) for n, name in enumerate(names)])
    walked = {task.task_id for task in store.find(Filter(title_text=part)).tasks}
    assert set(found(store, part)) == walked
    maintain(store)
    assert set(found(store, part)) == walked


def test_titles_are_found_after_a_vacuum_that_changes_rowids(store: SqliteStore) -> None:
    tasks = [a_task(f"t{n}", title=f"film {n}", created_at=NOW + n * SECOND) for n in range(8)]
    store.insert([*tasks, a_task("last", title="the last film", created_at=NOW + LONG)])
    maintain(store)
    store.remove(tasks[:5])
    assert indexed(store, "last film")
    store._connections.writer().execute("VACUUM")
    for _ in range(2):  # with the index of the old rowids, then with a new index
        assert found(store, "last film") == ["last"]
        assert found(store, "film 6") == ["t6"]
        maintain(store)
    assert indexed(store, "last film")
