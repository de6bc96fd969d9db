"""Task ids on the command line: whole, or the beginning of exactly one id."""

import pytest

from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.samples import a_task

ONE, TWO = "019a8b5c-1111-7aaa-8bbb-000000000001", "019a8b5c-2222-7aaa-8bbb-000000000002"


@pytest.fixture
def pair(town: str) -> str:
    """A store with two tasks whose ids begin alike."""
    store = SqliteStore(town.removeprefix("sqlite:///"))
    store.insert([a_task(ONE, title="First"), a_task(TWO, title="Second"), a_task("019a", title="Own id")])
    store.close()
    return town


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["why"],
        ["logs"],
        ["cancel"],
        ["fail", "--error", "not wanted"],
        ["annotate", "--metadata", '{"a": 1}'],
        ["finish"],
        ["reschedule", "--run-at", "+1h"],
        ["set-priority", "--priority", "5"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_takes_the_beginning_of_an_id(run: Run, pair: str, words: list[str]) -> None:
    run(words[0], "019a8b5c-2", *words[1:], "--store", pair)
    result = run(words[0], "019a8b5c", *words[1:], "--store", pair, code=64)
    first, second = result.stderr.splitlines()
    assert first.startswith("onerow: several tasks begin with '019a8b5c': ")
    assert f"{ONE} (waiting in script)" in first
    assert TWO in first
    assert second.strip() == "give more of the id"


def test_retry_and_replay_and_signal_take_the_beginning_of_an_id(run: Run, town: str) -> None:
    assert run("retry", "fail", "--store", town).stdout == "retry failed: waiting in script\n"
    assert run("replay", "done", "--store", town).stdout.startswith("replay done: ")
    run("signal", "park", "images.ready", "--store", town)


def test_a_whole_id_wins_over_longer_ids_that_begin_with_it(run: Run, pair: str) -> None:
    assert "Own id" in run("show", "019a", "--store", pair).stdout


def test_a_beginning_has_at_least_four_characters(run: Run, pair: str) -> None:
    first, second = run("show", "019", "--store", pair, code=64).stderr.splitlines()
    assert first == "onerow: no task '019'"
    assert second.strip() == "give the id, or at least 4 characters of its beginning"


def test_an_unknown_beginning_is_an_unknown_task(run: Run, pair: str) -> None:
    assert "no task '019b8b5c'" in run("show", "019b8b5c", "--store", pair, code=64).stderr
