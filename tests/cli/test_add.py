"""`onerow add`: many tasks from lines, and delays."""

import json

import pytest

from onerow import Filter
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import MINUTE, Run
from tests.samples import NOW


def total(town: str) -> int:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    counted = sum(line.count for line in store.store_counts().counts)
    store.close()
    return counted


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onerow.cli.start.add._BATCH", 2)


def test_lines_add_one_task_each(run: Run, town: str) -> None:
    before = total(town)
    assert run("add", "videos", "--lines", "-", "--store", town, stdin='{"n": 1}\n\n{"n": 2}\n').stdout == "2 added\n"
    assert total(town) == before + 2


@pytest.mark.parametrize("line", ["nonsense", '{"scheduled_time": "soon"}'])
def test_a_bad_line_before_anything_was_added_adds_nothing(run: Run, town: str, line: str) -> None:
    before = total(town)
    result = run("add", "videos", "--lines", "-", "--store", town, stdin=f"1\n{line}\n", code=64)
    assert "line 2" in result.stderr
    assert "nothing was added" in result.stderr
    assert total(town) == before


@pytest.mark.parametrize("line", ["nonsense", '{"scheduled_time": "soon"}'])
def test_a_bad_line_after_others_were_added_exits_1_and_says_where_to_go_on(
    run: Run, town: str, small_batches: None, line: str
) -> None:
    before = total(town)
    lines = f"1\n\n2\n3\n{line}\n"
    result = run("add", "videos", "--lines", "-", "--store", town, stdin=lines, code=1)
    assert result.stdout == "2 added\n"
    assert "line 5" in result.stderr
    assert "add the rest, from line 4 on" in result.stderr
    assert total(town) == before + 2
    answer = json.loads(run("add", "videos", "--lines", "-", "--json", "--store", town, stdin=lines, code=1).stdout)
    assert (answer["added"], answer["last_line"]) == (2, 3)
    assert "line 5" in answer["problem"]


def test_a_delay_is_the_earliest_start_from_now(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    run("add", "videos", "--id", "one", "--delay", "10m", "--store", town)
    run("add", "videos", "--lines", "-", "--delay", "10m", "--unique", "u", "--store", town, stdin="1\n")
    (one,) = store.fetch(["one"])
    assert one.run_at == NOW + 10 * MINUTE
    (many,) = store.find(Filter(unique_key="u")).tasks
    assert many.run_at == NOW + 10 * MINUTE
    assert (
        "give one of them" in run("add", "videos", "--delay", "1m", "--run-at", "now", "--store", town, code=64).stderr
    )
    store.close()
