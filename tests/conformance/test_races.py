"""Races of real processes: whichever process wins, the stored record must be consistent."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest

from onerow.core.filters import Filter
from onerow.core.status import CANCELLED, COMPLETED, PROCESSING, WAITING
from onerow.ports import Note, PhaseClaim
from tests.conformance import racers
from tests.conformance.conftest import params
from tests.conformance.kit import claim, every_row, new, put, put_many
from tests.conformance.racers import Track
from tests.conformance.stores import ENTRIES, Entry, OpenedStore, open_fresh
from tests.samples import PLAN

MINUTE = timedelta(minutes=1)


@pytest.fixture(scope="module")
def track() -> Iterator[Track]:
    found = Track(16)
    yield found
    found.close()


@pytest.fixture(params=params(entry for entry in ENTRIES.values() if entry.processes))
def entry(request: pytest.FixtureRequest) -> Entry:
    """Stores that several processes can open."""
    found: Entry = request.param
    return found


@pytest.fixture
def opened(entry: Entry, request: pytest.FixtureRequest) -> OpenedStore:
    """A store with its own clock, which all processes share."""
    return open_fresh(entry, request, own_clock=False)


def test_p2_p4_eight_claimers_get_each_of_500_tasks_once(opened: OpenedStore, track: Track) -> None:
    tasks = put_many(opened.store, 500)
    operations = [(racers.claim_all, (f"w{n}", 3 + n)) for n in range(8)]
    taken = [task_id for ours in track.race(opened.entry.name, opened.address, *operations) for task_id in ours]
    assert Counter(taken) == Counter(task.task_id for task in tasks)
    assert {(row.token, row.attempt, row.version) for row in every_row(opened.store).values()} == {(1, 1, 2)}


def one_at_a_time(held: list[tuple[str, str, float, float]]) -> bool:
    """Whether none of the tasks was claimed while another was held."""
    return all(end <= start for (_, end), (start, _) in pairwise(sorted((since, until) for *_, since, until in held)))


def test_p7_a_limit_of_one_holds_under_eight_claimers(opened: OpenedStore, track: Track) -> None:
    tasks = put_many(opened.store, 40)
    want = PhaseClaim(pipeline="videos", phase="script", limit=3, lease_for=MINUTE, slots=1)
    seen = track.race(opened.entry.name, opened.address, *[(racers.work_within, (f"w{n}", want)) for n in range(8)])
    held = [each for ours in seen for each in ours]
    assert Counter(task_id for task_id, *_ in held) == Counter(task.task_id for task in tasks)
    assert one_at_a_time(held)
    rows = every_row(opened.store).values()
    assert {(row.status, row.attempt, row.slot) for row in rows} == {(COMPLETED, 1, None)}
    if opened.entry.name.startswith("mongo"):
        return  # its processes estimate the server's clock, so that their times can't be compared to the millisecond
    # No attempt started before the previous one had ended.
    runs = sorted((row.started_at, row.completed_at) for row in rows if row.started_at and row.completed_at)
    assert all(end <= start for (_, end), (start, _) in pairwise(runs))


def test_p7_a_limit_per_key_holds_under_eight_claimers(opened: OpenedStore, track: Track) -> None:
    store = opened.store
    tasks = [new(store, f"t{n:03d}", limit_key=("ann", "bob", "")[n % 3]) for n in range(45)]
    store.insert(tasks)
    want = PhaseClaim(pipeline="videos", phase="script", limit=4, lease_for=MINUTE, key_slots=1)
    seen = track.race(opened.entry.name, opened.address, *[(racers.work_within, (f"w{n}", want)) for n in range(8)])
    held = [each for ours in seen for each in ours]
    assert Counter(task_id for task_id, *_ in held) == Counter(task.task_id for task in tasks)
    for key in ("ann", "bob"):
        assert one_at_a_time([each for each in held if each[1] == key])


def test_an_accepted_cancel_is_final_even_if_the_handler_finishes_concurrently(
    opened: OpenedStore, track: Track
) -> None:
    put_many(opened.store, 80)
    held = claim(opened.store, 80)
    ids = [task.task_id for task in held]
    ends, granted = track.race(
        opened.entry.name, opened.address, (racers.finish_each, (held,)), (racers.cancel_each, (ids,))
    )
    rows = every_row(opened.store)
    for task_id, end, was_granted in zip(ids, ends, granted, strict=True):
        row = rows[task_id]
        assert row.status is (CANCELLED if was_granted else COMPLETED)
        assert end == row.status
        assert Counter(entry.what for entry in row.history) == Counter(["completed"] + ["cancel"] * was_granted)
        assert row.leased_by is None


def test_two_cancels_and_a_finish_leave_one_outcome(opened: OpenedStore, track: Track) -> None:
    put_many(opened.store, 30)
    held = claim(opened.store, 30)
    ids = [task.task_id for task in held]
    cancel = (racers.cancel_each, (ids,))
    track.race(opened.entry.name, opened.address, (racers.finish_each, (held,)), cancel, cancel)
    for row in every_row(opened.store).values():
        whats = Counter(entry.what for entry in row.history)
        assert (row.status is CANCELLED) == (whats["cancel"] == 1)
        assert (whats["completed"], whats["cancel"] <= 1) == (1, True)


def test_p3_a_heartbeat_and_a_rescue_never_both_win(opened: OpenedStore, track: Track) -> None:
    put_many(opened.store, 80)
    held = claim(opened.store, 80, lease_for=timedelta(milliseconds=1))
    ids = [task.task_id for task in held]
    beats, rescues = track.race(
        opened.entry.name, opened.address, (racers.beat_each, (held,)), (racers.rescue_each, (ids,))
    )
    rows = every_row(opened.store)
    for task, beat, rescued in zip(held, beats, rescues, strict=True):
        assert beat != rescued
        row = rows[task.task_id]
        assert row.status is (PROCESSING if beat else WAITING)
        assert row.token == (task.token if beat else task.token + 1)
        assert (row.rescue_count, row.crash_count) == (int(rescued), 0)


def test_two_rescuers_count_one_rescue(opened: OpenedStore, track: Track) -> None:
    put_many(opened.store, 60)
    held = claim(opened.store, 60, lease_for=timedelta(milliseconds=1))
    ids = [task.task_id for task in held]
    one, other = track.race(opened.entry.name, opened.address, *[(racers.rescue_each, (ids,))] * 2)
    assert [mine + theirs for mine, theirs in zip(one, other, strict=True)] == [1] * 60
    for row in every_row(opened.store).values():
        assert (row.rescue_count, row.crash_count, row.status) == (1, 0, WAITING)
        assert [entry.what for entry in row.history] == ["rescued"]


def test_p4_a_swap_whose_answer_is_lost_advances_once(opened: OpenedStore, track: Track) -> None:
    put_many(opened.store, 60, phase="video")
    held = claim(opened.store, 60, phase="video")
    want = PhaseClaim(pipeline="videos", phase="youtube", limit=2, lease_for=MINUTE)
    ends, claimed = track.race(
        opened.entry.name, opened.address, (racers.advance_each_twice, (held, PLAN)), (racers.work_within, ("w2", want))
    )
    assert set(ends) <= {"landed", "another's"}
    assert Counter(task_id for task_id, *_ in claimed) == Counter(task.task_id for task in held)
    for row in every_row(opened.store).values():
        assert row.status is COMPLETED
        assert [(entry.what, entry.phase) for entry in row.history] == [("advanced", "video"), ("completed", "youtube")]


def test_sixteen_adders_of_one_unique_key_add_one_task(opened: OpenedStore, track: Track) -> None:
    store, keys = opened.store, 15
    operations = [
        (racers.add_each, ([new(store, f"{adder}-{key}", unique=f"k{key}") for key in range(keys)],))
        for adder in range(16)
    ]
    answers = track.race(opened.entry.name, opened.address, *operations)
    for key in range(keys):
        of_key = [answer[key] for answer in answers]
        winners = {task_id for inserted, task_id in of_key if inserted}
        assert sum(inserted for inserted, _ in of_key) == 1
        assert {task_id for _, task_id in of_key} == winners
    assert len(every_row(store)) == keys


def test_eight_adders_of_one_id_add_one_task(opened: OpenedStore, track: Track) -> None:
    tasks = [new(opened.store, f"t{n}") for n in range(15)]
    answers = track.race(opened.entry.name, opened.address, *[(racers.add_each, (tasks,))] * 8)
    assert [sum(answer[n][0] for answer in answers) for n in range(15)] == [1] * 15


def test_eight_concurrent_migrations_of_an_empty_database_all_succeed(
    entry: Entry, request: pytest.FixtureRequest, track: Track
) -> None:
    opened = open_fresh(entry, request, own_clock=False, prepare=False)
    operations = [(racers.prepare_and_add, (new(opened.store, f"t{n}"),)) for n in range(8)]
    assert track.race(entry.name, opened.address, *operations) == [True] * 8
    assert len(every_row(opened.store)) == 8


def test_concurrent_increments_of_a_note_are_all_counted(opened: OpenedStore, track: Track) -> None:
    opened.store.write_notes([Note("counter", "n", 0)])
    track.race(opened.entry.name, opened.address, *[(racers.count_up, (20,))] * 6)
    (note,) = opened.store.notes("counter")
    assert (note.body, note.version) == (120, 121)


def test_p1_acknowledged_writes_survive_kill_9(opened: OpenedStore) -> None:
    """The process is killed between any two instructions, three times, each time later."""
    store, spawn = opened.store, multiprocessing.get_context("spawn")
    added, ended = set(), set()
    for round_, after in enumerate((5, 40, 90)):
        ours, theirs = spawn.Pipe(duplex=False)
        tasks = [new(store, f"{round_}-{n:04d}", phase="video") for n in range(2_000)]
        given = (theirs, opened.entry.name, opened.address, tasks, PLAN)
        doomed = spawn.Process(target=racers.live_until_killed, args=given, daemon=True)
        doomed.start()
        theirs.close()
        heard = 0
        try:
            while True:
                assert ours.poll(60)
                word, task_id = ours.recv()
                added.add(task_id)
                ended |= {task_id} if word == "completed" else set()
                heard += 1
                if heard == after:
                    doomed.kill()
        except EOFError:
            pass
        doomed.join()
        doomed.close()
        ours.close()
    rows = every_row(store)
    assert added <= set(rows)
    assert all(rows[task_id].status is COMPLETED for task_id in ended)
    for row in rows.values():
        assert (row.leased_by is not None) == (row.status is PROCESSING)
        assert row.ended == (row.completed_at is not None)
    put(store, "life goes on")
    assert sum(tally.count for tally in store.count(Filter())) == len(rows) + 1
