"""Output lines, notes, and reconnecting."""

import threading
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onerow.core.output_bound import OutputBound, byte_size
from onerow.core.plan import Plan
from onerow.core.times import FAR
from onerow.ports import LogLine, Note, Store
from tests.conformance.kit import put, stored
from tests.runner.seeded import new_name
from tests.samples import PLAN


def lines(store: Store, texts: list[str], task_id: str = "t1") -> None:
    store.append_log([LogLine(task_id, store.now(), "script", 1, "out", text) for text in texts])


def texts(store: Store, task_id: str = "t1", **more: int) -> list[str]:
    return [line.text for line in store.read_log(task_id, **more).lines]


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_is_stored_unchanged(store: Store, again: Callable[[], Store]) -> None:
    at = store.now()
    store.append_log([LogLine("t1", at, "script", 2, "err", "조수 🌊 'x' \\ \t")])
    (line,) = again().read_log("t1").lines
    assert msgspec.structs.replace(line, seq=0) == LogLine("t1", at, "script", 2, "err", "조수 🌊 'x' \\ \t")
    assert line.seq > 0


def test_lines_keep_their_order_within_and_between_writes(store: Store) -> None:
    lines(store, ["a", "b"])
    lines(store, ["c"])
    lines(store, ["x"], "other")
    lines(store, ["d", "a"])
    page = store.read_log("t1")
    assert [line.text for line in page.lines] == ["a", "b", "c", "d", "a"]
    assert [line.seq for line in page.lines] == sorted({line.seq for line in page.lines})
    assert page.dropped == 0
    assert texts(store, "other") == ["x"]


def test_lines_of_several_tasks_may_be_written_at_once(store: Store) -> None:
    store.append_log(
        [LogLine(f"t{n % 3}", store.now(), "script", 1, "out", str(n)) for n in range(9)],
    )
    assert texts(store, "t0") == ["0", "3", "6"]
    assert texts(store, "t2") == ["2", "5", "8"]


def test_a_reader_continues_at_its_last_position(store: Store) -> None:
    lines(store, [str(n) for n in range(10)])
    first = store.read_log("t1", limit=4)
    second = store.read_log("t1", after=first.next, limit=4)
    third = store.read_log("t1", after=second.next, limit=4)
    assert [line.text for page in (first, second, third) for line in page.lines] == [str(n) for n in range(10)]
    empty = store.read_log("t1", after=third.next)
    assert (empty.lines, empty.next) == ([], third.next)
    lines(store, ["new"])
    assert texts(store, after=empty.next) == ["new"]


def test_the_tail_is_the_last_lines_oldest_first(store: Store) -> None:
    lines(store, [str(n) for n in range(10)])
    page = store.read_log("t1", tail=3)
    assert [line.text for line in page.lines] == ["7", "8", "9"]
    assert store.read_log("t1", after=page.next).lines == []
    assert texts(store, tail=100) == [str(n) for n in range(10)]
    assert texts(store, tail=5, after=page.lines[1].seq) == ["9"]
    assert texts(store, tail=0) == []


def test_a_task_without_output_has_an_empty_log(store: Store) -> None:
    page = store.read_log("unknown")
    assert (page.lines, page.next, page.dropped) == ([], 0, 0)
    store.append_log([])


def all_lines(store: Store, task_id: str = "t1") -> list[LogLine]:
    found: list[LogLine] = []
    after = 0
    while page := store.read_log(task_id, after=after, limit=5_000).lines:
        found += page
        after = page[-1].seq
    return found


def test_lines_beyond_the_limit_delete_the_oldest_and_are_counted(store: Store) -> None:
    for start in range(0, 10_500, 1_500):
        lines(store, [str(n) for n in range(start, start + 1_500)])
    kept = all_lines(store)
    dropped = store.read_log("t1").dropped
    assert len(kept) <= 10_000
    assert len(kept) + dropped == 10_500
    assert [line.text for line in kept] == [str(n) for n in range(dropped, 10_500)]
    assert store.read_log("t1", tail=1).dropped == dropped


def test_bytes_beyond_the_limit_delete_the_oldest_lines_and_are_counted(store: Store) -> None:
    for n in range(150):
        lines(store, [f"{n} " + "x" * 9_998])
    kept = all_lines(store)
    assert sum(len(line.text) for line in kept) <= 1_000_000
    assert len(kept) >= 50
    assert len(kept) + store.read_log("t1").dropped == 150
    assert kept[-1].text.startswith("149 ")


@pytest.mark.parametrize("text", ["조수", "🌊", "é", "a조🌊"])
def test_the_bound_counts_bytes_not_characters(store: Store, text: str) -> None:
    """Each line has 9,999 bytes or a few less, so that the bound keeps 100 of them whatever they are written in."""
    line = text * (9_999 // len(text.encode()))
    for _ in range(3):
        lines(store, [line] * 50)
    kept = all_lines(store)
    assert sum(len(each.text.encode()) for each in kept) <= OutputBound().size
    assert len(kept) == OutputBound().size // len(line.encode())
    assert store.read_log("t1").dropped == 150 - len(kept)


@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("a조🌊"), st.sampled_from([0, 1, 40_000, 120_000])), max_size=8), max_size=6
    )
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_kept_output_is_the_longest_end_within_the_bound(
    store: Store, batches: list[list[tuple[str, int]]]
) -> None:
    task_id = new_name("task")
    written = [[letter * (size // len(letter.encode())) for letter, size in batch] for batch in batches]
    for batch in written:
        lines(store, batch, task_id)
    every = [text for batch in written for text in batch]
    sizes = [byte_size(text) for text in every]
    count, _ = OutputBound().drop(len(every), sum(sizes), sizes)
    assert [line.text for line in all_lines(store, task_id)] == every[count:]
    assert store.read_log(task_id).dropped == count


def test_a_batch_larger_than_the_limit_keeps_its_last_lines(store: Store) -> None:
    lines(store, [str(n) for n in range(12_000)])
    kept = all_lines(store)
    assert len(kept) + store.read_log("t1").dropped == 12_000
    assert len(kept) <= 10_000
    assert kept[-1].text == "11999"
    lines(store, ["after"])
    assert texts(store, tail=1) == ["after"]


@pytest.mark.parametrize("size", [1, 7, 300, 1_000])
def test_a_reader_continues_with_the_next_line_from_any_position(store: Store, size: int) -> None:
    for first in range(0, 900, 300):
        lines(store, [f"{n}" if n % 5 else "" for n in range(first, first + 300)])
    whole = store.read_log("t1").lines
    assert [line.text for line in whole] == [f"{n}" if n % 5 else "" for n in range(900)]
    assert [line.seq for line in whole] == list(range(whole[0].seq, whole[0].seq + 900))
    seen, after = [], 0
    while (page := store.read_log("t1", after=after, limit=size)).lines:
        seen += page.lines
        after = page.next
    assert seen == whole
    assert store.read_log("t1", tail=size).lines == whole[-size:]
    assert store.read_log("t1", after=whole[-3].seq, tail=size).lines == whole[-2:][-size:]


def test_only_the_oldest_lines_of_a_batch_are_deleted(store: Store) -> None:
    for _ in range(3):
        lines(store, [f"{n}" for n in range(4_001)])
    page = store.read_log("t1", limit=20_000)
    assert len(page.lines) <= 10_000
    assert [line.text for line in page.lines] == ([f"{n}" for n in range(4_001)] * 3)[-len(page.lines) :]
    assert page.dropped == 3 * 4_001 - len(page.lines)
    lines(store, ["one more"])
    after = store.read_log("t1", limit=20_000)
    assert [*page.lines, after.lines[-1]][-len(after.lines) :] == after.lines
    assert len(after.lines) + after.dropped == 3 * 4_001 + 1


def test_the_output_of_one_task_deletes_no_lines_of_another(store: Store) -> None:
    lines(store, ["quiet"], "t2")
    lines(store, ["x"] * 11_000)
    assert texts(store, "t2") == ["quiet"]
    assert store.read_log("t2").dropped == 0


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_note_is_written_once_and_then_from_the_version_that_was_read(store: Store) -> None:
    assert store.notes("limit") == []
    assert store.write_notes([Note("limit", "videos/script", {"slots": 2})]) == [True]
    (note,) = store.notes("limit")
    assert (note.kind, note.name, note.body, note.version) == ("limit", "videos/script", {"slots": 2}, 1)
    assert note.updated_at is not None
    assert abs(store.now() - note.updated_at) < timedelta(minutes=1)
    assert store.write_notes([Note("limit", "videos/script", {"slots": 9})]) == [False]
    assert store.write_notes([msgspec.structs.replace(note, body={"slots": 3})]) == [True]
    assert store.write_notes([msgspec.structs.replace(note, body={"slots": 4})]) == [False]
    assert [(note.body, note.version) for note in store.notes("limit")] == [({"slots": 3}, 2)]


def test_a_missing_note_can_be_written_only_with_version_0(store: Store) -> None:
    assert store.write_notes([Note("limit", "x", 1, version=3)]) == [False]
    assert store.notes("limit") == []


def test_notes_can_be_read_by_a_range_of_names(store: Store) -> None:
    store.write_notes([Note("stats", name, 1) for name in ("10:01/a", "10:02/a", "10:02/b", "10:03/a")])
    store.write_notes([Note("other", "10:02/a", 1)])
    assert [note.name for note in store.notes("stats", since="10:02")] == ["10:02/a", "10:02/b", "10:03/a"]
    assert [note.name for note in store.notes("stats", before="10:02/b")] == ["10:01/a", "10:02/a"]
    assert [note.name for note in store.notes("stats", since="10:02", before="10:03")] == ["10:02/a", "10:02/b"]


def test_a_batch_of_notes_gets_an_answer_for_each(store: Store) -> None:
    store.write_notes([Note("a", "x", 1)])
    answers = store.write_notes([Note("a", "x", 2), Note("a", "y", 3), Note("b", "x", 4), Note("a", "x", 5, version=1)])
    assert answers == [False, True, True, True]
    assert [(note.name, note.body) for note in store.notes("a")] == [("x", 5), ("y", 3)]
    assert [(note.name, note.body) for note in store.notes("b")] == [("x", 4)]
    assert store.write_notes([]) == []


def test_notes_are_ordered_by_name(store: Store, again: Callable[[], Store]) -> None:
    store.write_notes([Note("k", name, name) for name in ("b", "조수", "a", "B", "é")])
    assert [note.name for note in again().notes("k")] == sorted(["b", "조수", "a", "B", "é"])


@pytest.mark.parametrize("body", [None, 0, "조수 🌊", [1, [2.5, None]], {"a": {"b": True}}, {}, ""], ids=repr)
def test_the_body_of_a_note_is_stored_unchanged(store: Store, body: object) -> None:
    store.write_notes([Note("k", "n", body)])
    (note,) = store.notes("k")
    assert note.body == body
    assert type(note.body) is type(body)


def test_a_plan_can_be_stored_as_a_note(store: Store) -> None:
    store.write_notes([Note("definition", PLAN.name, PLAN)])
    (note,) = store.notes("definition")
    assert msgspec.convert(note.body, Plan) == PLAN


def test_changing_a_note_that_was_read_does_not_change_the_stored_note(store: Store) -> None:
    body = {"list": [1]}
    store.write_notes([Note("k", "n", body)])
    body["list"].append(2)
    store.notes("k")[0].body["list"].append(3)
    assert store.notes("k")[0].body == {"list": [1]}


def test_dropped_notes_are_deleted_and_start_at_version_0_again(store: Store) -> None:
    store.write_notes([Note("k", "a", 1), Note("k", "b", 2), Note("other", "a", 3)])
    assert store.drop_notes("k", ["a", "unknown", "a"]) == 1
    assert [note.name for note in store.notes("k")] == ["b"]
    assert [note.name for note in store.notes("other")] == ["a"]
    assert store.drop_notes("k", []) == 0
    assert store.write_notes([Note("k", "a", 9)]) == [True]
    assert store.notes("k")[0].version == 1


# ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_store_reconnects_when_used(store: Store) -> None:
    task = put(store, run_at=FAR)
    store.close()
    store.close()
    assert stored(store) == task


def test_many_threads_may_prepare_and_use_one_database_at_once(again: Callable[[], Store], store: Store) -> None:
    errors: list[BaseException] = []
    handles = [again() for _ in range(6)]

    def work(handle: Store, number: int) -> None:
        try:
            handle.prepare()
            for n in range(10):
                put(handle, f"{number}-{n}")
                put(store, f"shared {number}-{n}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(handle, n)) for n, handle in enumerate(handles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert errors == []
    assert len(store.fetch([f"{n}-{m}" for n in range(6) for m in range(10)])) == 60
