"""Notes of operators and workers: no write is lost silently, on every store."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from onerow import Pipeline
from onerow.core.errors import LostRace, StoreUnavailable
from onerow.core.plan import PhasePlan
from onerow.core.rates import Window
from onerow.core.times import read
from onerow.engine.control import definitions, notes, relocation
from onerow.engine.control.rates import RATE, Rates
from onerow.engine.control.relocation import Relocation
from onerow.engine.control.stats import STATS, Outcomes, add_up
from onerow.engine.events.events import Events, TaskRescued
from onerow.engine.queue.queue import Queue
from onerow.engine.worker.roles.stats_recorder import StatsRecorder
from onerow.ports import Note, Store
from tests.samples import a_task, claimed

_TIMES = 25


@pytest.fixture
def queue(store: Store) -> Queue:
    return Queue(store)


def racing(*writers: Callable[[], Any]) -> list[Any]:
    """Start all writers at the same time; return their results."""
    barrier = Barrier(len(writers))

    def run(writer: Callable[[], Any]) -> Any:
        barrier.wait()
        return writer()

    with ThreadPoolExecutor(len(writers)) as pool:
        return list(pool.map(run, writers))


def test_each_update_of_two_racing_writers_is_stored(queue: Queue) -> None:
    store = queue.store

    def add_many() -> int:
        for _ in range(_TIMES):
            notes.update(store, "counter", "n", lambda note: 1 if note is None else note.body + 1)
        return _TIMES

    assert sum(racing(add_many, add_many)) == 2 * _TIMES
    note = notes.find(store, "counter", "n")
    assert note is not None
    assert (note.body, note.version) == (2 * _TIMES, 2 * _TIMES)


def test_two_racing_writers_of_one_note_both_succeed_and_one_body_stays(queue: Queue) -> None:
    store = queue.store
    bodies = [{"writer": writer} for writer in range(2)]
    writers = [lambda body=body: [notes.put(store, Note("x", "a", body)) for _ in range(_TIMES)] for body in bodies]
    versions = sorted(note.version for written in racing(*writers) for note in written)
    assert versions == list(range(1, 2 * _TIMES + 1))
    found = notes.find(store, "x", "a")
    assert found is not None
    assert found.body in bodies


def test_one_note_is_found_among_similar_names(queue: Queue) -> None:
    for name in ("a", "a/b", "a ", "aa", "A"):
        notes.put(queue.store, Note("x", name, name))
    for name in ("a", "a/b", "aa"):
        note = notes.find(queue.store, "x", name)
        assert note is not None
        assert note.body == name
    assert notes.find(queue.store, "x", "a/") is None


def test_two_racing_publishers_leave_one_definition_that_knows_the_other(queue: Queue) -> None:
    def pipeline(name: str) -> Pipeline:
        made = Pipeline("videos")
        made.wait_for(name, signal="go")
        return made

    plans = [pipeline(name).plan for name in ("first", "second")]
    store = queue.store
    assert racing(*[lambda plan=plan: definitions.publish(store, [plan]) for plan in plans]) == [["videos"]] * 2
    note = notes.find(store, definitions.PLAN, "videos")
    assert note is not None
    stored = {note.body[definitions.FINGERPRINT], *note.body[definitions.REPLACED]}
    assert stored == {definitions.fingerprint(plan) for plan in plans}


def test_racing_holds_keep_the_one_that_ends_last(queue: Queue) -> None:
    store = queue.store
    now = store.now()
    ends = [now + timedelta(minutes=minutes) for minutes in (5, 1, 9, 3)]
    racing(*[lambda until=until: definitions.set_hold(store, "videos", "script", until, "429") for until in ends])
    hold = definitions.load_controls(store).hold_of("videos", ["script"], now)
    assert hold is not None
    assert read(hold.until) == max(ends)


def test_two_limits_that_are_set_at_the_same_time_are_both_stored(queue: Queue) -> None:
    queue.serve(_videos())
    for number in range(1, 11):
        racing(
            partial(queue.set_limit, "videos", "image", concurrency=number),
            partial(queue.set_limit, "videos", "image", per_key=number),
        )
        stored = definitions.load_controls(queue.store).setting_of("videos", ["image"])
        assert stored is not None
        assert stored.limits == {"concurrency": number, "per_key": number}


@pytest.fixture
def always_lost(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """A queue whose writes of notes always lose against another writer."""
    queue.serve(_videos())
    monkeypatch.setattr(queue.store, "write_notes", lambda written: [False for _ in written])
    return queue


def _videos() -> Pipeline:
    videos = Pipeline("videos")
    videos.wait_for("image", signal="images.ready")
    return videos


@pytest.mark.parametrize(
    "write",
    [
        lambda queue: queue.pause("videos"),
        lambda queue: queue.publish(),
        lambda queue: queue.set_limit("videos", "image", concurrency=2),
        lambda queue: definitions.set_hold(queue.store, "videos", "image", queue.store.now(), "429"),
        lambda queue: relocation.refuse_adds(queue.store, Relocation("id", "sqlite:///new.db")),
    ],
    ids=["pause", "publish", "limit", "hold", "relocation"],
)
def test_a_write_that_loses_every_race_raises(always_lost: Queue, write: Callable[[Queue], Any]) -> None:
    with pytest.raises(LostRace, match=r"changed by others.*nothing was written\ntry again"):
        write(always_lost)


def test_tasks_go_back_if_the_rate_cannot_be_recorded(always_lost: Queue) -> None:
    tasks = [claimed(a_task("first")), claimed(a_task("second"))]
    admitted, back = Rates(always_lost.store).admit("videos", PhasePlan(name="script", rate="5/s"), tasks)
    assert (admitted, back) == ([], [(task, None) for task in tasks])


def test_two_workers_never_admit_more_than_the_rate(queue: Queue) -> None:
    store, phase = queue.store, PhasePlan(name="script", rate="7/h")
    tasks = [claimed(a_task(f"t{number}")) for number in range(5)]
    outcomes = racing(*[lambda: Rates(store).admit("videos", phase, tasks)] * 4)
    assert sum(len(admitted) for admitted, _ in outcomes) == 7
    assert all(len(admitted) + len(back) == 5 for admitted, back in outcomes)
    note = notes.find(store, RATE, "videos/script")
    assert note is not None
    assert sum(count for _, count in Window(**note.body).starts) == 7


def test_counts_whose_write_was_not_answered_are_counted_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    store, events = queue.store, Events()
    now = store.now()
    recorder = StatsRecorder(store, "w1", events)
    write = store.write_notes

    def unanswered(written: Any) -> Any:
        write(written)
        raise StoreUnavailable("the answer was lost")

    events.send(TaskRescued(a_task("first")))
    monkeypatch.setattr(store, "write_notes", unanswered)
    with pytest.raises(StoreUnavailable):
        recorder.flush(now)
    monkeypatch.setattr(store, "write_notes", write)
    events.send(TaskRescued(a_task("second")))
    recorder.flush(now)
    assert add_up(store.notes(STATS)) == {("videos", a_task("first").phase): Outcomes(rescued=2)}
