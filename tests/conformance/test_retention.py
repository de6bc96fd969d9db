"""Moves that delete the row instead of writing it, and output that goes with the row."""

from onerow.core import rules
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED, ENDS
from onerow.engine.queue.purge import purge
from onerow.ports import Claim, LogLine, Move, Searchable, Stale, Store, Swapped
from tests.conformance.kit import claim, put, put_many, stored, want
from tests.samples import SECOND


def line(store: Store, task_id: str) -> LogLine:
    return LogLine(task_id, store.now(), "script", 1, "out", "출력")


def ending(store: Store, count: int, *, remove: bool = True) -> list[Move]:
    put_many(store, count)
    return [Move(held, rules.finish(held, '"done"', store.now()), remove=remove) for held in claim(store, count)]


def test_a_move_that_removes_deletes_the_row_and_its_output(store: Store) -> None:
    moves = ending(store, 3)
    store.append_log([line(store, task_id) for task_id in ("t0000", "t0001", "other")])
    answers = store.swap(moves)
    assert [(type(answer), answer.task.status) for answer in answers if isinstance(answer, Swapped)] == [
        (Swapped, COMPLETED)
    ] * 3
    assert store.fetch(["t0000", "t0001", "t0002"]) == []
    assert [len(store.read_log(task_id).lines) for task_id in ("t0000", "t0001", "other")] == [0, 0, 1]
    assert store.count(Filter()) == []


def test_a_removing_move_of_an_old_version_is_stale_and_deletes_nothing(store: Store) -> None:
    moves = ending(store, 4)
    changed = moves[1].before
    (answer,) = store.swap([Move(changed, rules.report(changed, store.now(), progress="1"))])
    assert isinstance(answer, Swapped)
    store.append_log([line(store, changed.task_id)])
    answers = store.swap(moves)
    assert [type(answer) for answer in answers] == [Swapped, Stale, Swapped, Swapped]
    assert stored(store, changed.task_id).version == answer.task.version
    assert len(store.read_log(changed.task_id).lines) == 1
    assert [type(answer) for answer in store.swap(moves)] == [Stale] * 4


def test_one_call_writes_removes_and_claims(store: Store) -> None:
    moves = ending(store, 120)
    mixed = [Move(move.before, move.after, remove=index % 2 == 0) for index, move in enumerate(moves)]
    for n in range(10):
        put(store, f"next{n}", phase="video")
    answers, claimed = store.settle_and_claim(mixed, Claim("w1", [want(10, "video")]))
    assert all(isinstance(answer, Swapped) for answer in answers)
    assert len(claimed) == 10
    assert {task.status for task in store.fetch([move.before.task_id for move in mixed])} == {COMPLETED}
    assert sum(each.count for each in store.count(Filter(statuses=ENDS))) == 60
    if isinstance(store, Searchable):
        assert sum(each.count for each in store.store_counts().counts if each.status is COMPLETED) == 60


def test_a_slot_and_a_unique_key_are_free_after_the_removal(store: Store) -> None:
    put(store, "t1", unique_key="k", held_key="k")
    put(store, "t2")
    (held,) = claim(store, slots=1, ids=["t1"])
    (answer,) = store.swap([Move(held, rules.finish(held, None, store.now()), remove=True)])
    assert isinstance(answer, Swapped)
    put(store, "t3", unique_key="k", held_key="k")
    assert [task.task_id for task in claim(store, slots=1)] == ["t2"]


def test_output_is_removed_by_task(store: Store) -> None:
    store.append_log([line(store, "a"), line(store, "a"), line(store, "b")])
    store.remove_log([])
    store.remove_log(["a", "missing"])
    assert [len(store.read_log(task_id).lines) for task_id in ("a", "b")] == [0, 1]


def test_a_purge_deletes_the_output_of_a_task_whose_key_is_remembered(store: Store) -> None:
    """The tombstone keeps the key, and nothing that a tenant has written."""
    put(store, "t1", unique_key="k", held_key="k", unique_for="forever")
    (held,) = claim(store)
    store.append_log([line(store, "t1")])
    store.swap([Move(held, rules.finish(held, '"secret"', store.now()))])
    assert purge(store, Filter(statuses=ENDS), 0 * SECOND, 10, None) == 1
    assert store.read_log("t1").lines == []
    kept = stored(store, "t1")
    assert (kept.held_key, kept.results_json, kept.purged_at is not None) == ("k", "{}", True)
