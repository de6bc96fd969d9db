"""A task's history: one entry per attempt and per operation, bounded."""

from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from onerow.core import history, rules
from onerow.core.history import MAX_HISTORY, Entry
from onerow.core.times import spell
from tests.samples import BROKEN, NOW, PLAN, a_task, claimed, texts


def test_an_attempt_is_recorded_with_its_outcome() -> None:
    task = rules.fail(claimed(a_task()), BROKEN, PLAN, NOW + timedelta(seconds=2), by="w1")
    (entry,) = task.history
    assert (entry.what, entry.phase, entry.attempt, entry.ms, entry.by) == ("failed", "script", 1, 2000, "w1")
    assert (entry.error, entry.error_class, entry.where) == (BROKEN.message, "network", BROKEN.where)
    assert entry.when == NOW + timedelta(seconds=2)


@settings(max_examples=30)
@given(st.lists(texts, max_size=20))
def test_entries_are_decoded_in_order(notes: list[str]) -> None:
    text = "[]"
    for note in notes:
        text = history.append(text, Entry(at=spell(NOW), what="x", note=note))
    assert [entry.note for entry in history.entries(text)] == notes
    assert isinstance(msgspec.json.decode(text), list)


def test_history_is_bounded_keeps_the_newest_and_counts_dropped_entries() -> None:
    text, written = "[]", 2_000
    for n in range(written):
        text = history.append(text, Entry(at=spell(NOW), what="failed", note=f"{n} " + "x" * 100))
        assert len(text) <= MAX_HISTORY
    entries = history.entries(text)
    assert entries[0].what == "dropped"
    assert int(entries[0].note) + len(entries) - 1 == written
    assert entries[-1].note.startswith(f"{written - 1} ")


def test_one_huge_entry_does_not_break_the_history() -> None:
    text = history.append("[]", Entry(at=spell(NOW), what="a", note="x" * MAX_HISTORY))
    text = history.append(text, Entry(at=spell(NOW), what="b"))
    text = history.append(text, Entry(at=spell(NOW), what="c"))
    assert history.entries(text)[-1].what == "c"
