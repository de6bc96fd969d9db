"""A server that is killed or unavailable, and races between many writers."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import StoreUnavailable
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED, OPEN, PROCESSING, WAITING, Status
from onerow.ports import Existing, Held, Inserted, Lease, LogLine, Move, Note, Swapped
from onerow.stores.mongo import MongoStore
from tests.conformance.kit import MINUTE, claim, claim_one, every_row, new, put, stored
from tests.engine.kit import until
from tests.servers.mongo import MongoServer
from tests.stores.mongo.commands import recorded

pytestmark = pytest.mark.faults


@pytest.fixture
def url(own_mongo: MongoServer) -> str:
    return f"{own_mongo.fresh_database()}&serverSelectionTimeoutMS=500"


@pytest.fixture
def killable(url: str) -> Iterator[MongoStore]:
    """A store on a server that the test may kill."""
    found = MongoStore(url)
    found.prepare()
    yield found
    found.close()


class Acknowledged:
    """A writer that records what the server acknowledged, until the server is gone."""

    def __init__(self, url: str, number: int) -> None:
        self._store = MongoStore(url)
        self._number = number
        self.versions: dict[str, int] = {}  # task id → last acknowledged version
        self.ended: set[str] = set()
        self.notes = 0
        self.lines = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        store, mine = self._store, f"w{self._number}"
        with contextlib.suppress(StoreUnavailable):
            for round_ in range(100_000):
                tasks = [new(store, f"{mine}-{round_}-{n}", pipeline=mine) for n in range(3)]
                for answer in store.insert(tasks):
                    self.versions[answer.task.task_id] = answer.task.version
                held = claim(store, 2, worker=mine, pipeline=mine)
                self.versions |= {task.task_id: task.version for task in held}
                for beat in store.extend([Lease(task.task_id, task.token) for task in held[:1]], MINUTE):
                    assert isinstance(beat, Held)
                    self.versions[beat.task_id] = beat.version
                    held[0] = replace(held[0], version=beat.version, leased_until=beat.leased_until)
                for swapped in store.swap([Move(t, rules.finish(t, '"done"', store.now())) for t in held]):
                    assert isinstance(swapped, Swapped)
                    self.versions[swapped.task.task_id] = swapped.task.version
                    self.ended.add(swapped.task.task_id)
                assert store.write_notes([Note("k", mine, round_, self.notes)]) == [True]
                self.notes += 1
                store.append_log([LogLine(mine, store.now(), "script", 1, "out", str(round_))])
                self.lines += 1

    def join(self) -> None:
        self._thread.join(900)
        self._store.close()


def test_p1_acknowledged_writes_survive_a_kill_of_the_server(
    own_mongo: MongoServer, killable: MongoStore, url: str
) -> None:
    writers = [Acknowledged(url, number) for number in range(4)]
    deadline = time.monotonic() + 60
    while min(len(writer.ended) for writer in writers) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    own_mongo.kill()
    for writer in writers:
        writer.join()
    own_mongo.start()
    notes = {note.name: note.version for note in killable.notes("k")}
    for number, writer in enumerate(writers):
        rows = every_row(killable, pipeline=f"w{number}")
        assert set(writer.versions) <= set(rows)
        assert all(rows[task_id].version >= version for task_id, version in writer.versions.items())
        assert all((rows[task_id].status, rows[task_id].result) == (COMPLETED, "done") for task_id in writer.ended)
        assert {row.status for row in rows.values()} <= {WAITING, PROCESSING, COMPLETED}
        assert notes[f"w{number}"] >= writer.notes
        assert len(killable.read_log(f"w{number}", limit=10_000).lines) >= writer.lines


@pytest.mark.promise("P1")
@pytest.mark.parametrize("bulk", [None, False], ids=["as detected", "as before 8.0"])
def test_p1_every_acknowledged_write_waits_for_the_journal(mongo_url: str, bulk: bool | None) -> None:
    with recorded(mongo_url, bulk=bulk) as (store, sent):
        put(store, "a")
        store.insert([new(store, f"t{n}") for n in range(8)])
        held = claim(store, 1) + claim(store, 3) + claim(store, 3, slots=10)
        store.extend([Lease(held[0].task_id, held[0].token)], MINUTE)
        store.extend([Lease(task.task_id, task.token) for task in held[1:3]], MINUTE)
        (last, *others) = store.fetch([task.task_id for task in held])
        store.swap([Move(last, rules.finish(last, None, store.now()))])
        store.swap([Move(task, rules.finish(task, None, store.now())) for task in others[:3]])
        store.swap([Move(task, rules.finish(task, None, store.now()), remove=True) for task in others[3:]])
        assert store.remove(store.fetch([last.task_id])) == 1
        store.write_notes([Note("k", "n", 1), Note("k", "m", 1)])
        store.append_log([LogLine("a", store.now(), "script", 1, "out", "x")])
        writes = {"insert", "update", "delete", "findAndModify"}
        if store._connections.collections().answers_each:
            writes.add("bulkWrite")
    concerns = [(name, each.get("writeConcern", {})) for each in sent if (name := next(iter(each))) in writes]
    # The counter that wakes other processes is not acknowledged: what is lost there only delays a worker.
    acknowledged = [(name, concern) for name, concern in concerns if concern != {"w": 0}]
    assert {name for name, _ in acknowledged} == writes
    assert [(name, concern) for name, concern in acknowledged if concern.get("j") is not True] == []


def answers(store: MongoStore) -> bool:
    """Whether the driver has found the server again; until then each call fails after half a second."""
    try:
        every_row(store)
    except StoreUnavailable:
        return False
    return True


def test_p4_moves_with_a_lost_answer_are_recorded_once(own_mongo: MongoServer, killable: MongoStore) -> None:
    """The server is killed during a large batch: some moves are written, some are not."""
    killable.insert([new(killable, f"t{n:04d}") for n in range(3_000)])
    held = claim(killable, 3_000)
    moves = [Move(task, rules.finish(task, '"done"', killable.now())) for task in held]
    killer = threading.Timer(0.15, own_mongo.kill)
    killer.start()
    with contextlib.suppress(StoreUnavailable):
        killable.swap(moves)
    killer.join()
    own_mongo.start()
    until(lambda: answers(killable), "the server")
    before = every_row(killable)
    again = killable.swap(moves)
    after = every_row(killable)
    for move, answer in zip(moves, again, strict=True):
        task_id = move.before.task_id
        assert isinstance(answer, Swapped) == (before[task_id].status is PROCESSING)
        assert (after[task_id].status, after[task_id].version) == (COMPLETED, move.after.version)
        assert len(after[task_id].history) == 1


def test_every_operation_raises_store_unavailable_until_the_server_is_back(
    own_mongo: MongoServer, killable: MongoStore
) -> None:
    task = put(killable)
    held = claim_one(killable)
    waker = killable.waker()
    before = killable.now()
    own_mongo.stop()
    operations: list[Callable[[], object]] = [
        lambda: killable.insert([new(killable, "t2")]),
        lambda: killable.insert([new(killable, "t2"), new(killable, "t3")]),
        lambda: claim(killable, 1),
        lambda: claim(killable, 5),
        lambda: claim(killable, 5, slots=2, key_slots=1),
        lambda: killable.swap([Move(held, rules.finish(held, None, killable.now()))]),
        lambda: killable.swap([Move(held, rules.finish(held, None, killable.now()))] * 2),
        lambda: killable.extend([Lease("t1", held.token)], MINUTE),
        lambda: killable.fetch(["t1"]),
        lambda: killable.find(Filter()),
        lambda: killable.count(Filter()),
        lambda: killable.remove([task]),
        lambda: killable.notes("k"),
        lambda: killable.write_notes([Note("k", "n", 1)]),
        lambda: killable.append_log([LogLine("t1", before, "script", 1, "out", "x")]),
        lambda: killable.read_log("t1"),
        killable.prepare,
    ]
    for operation in operations:
        with pytest.raises(StoreUnavailable):
            operation()
    assert waker.wait(0.01) is False
    waker.poke()
    assert waker.wait(900)
    assert before <= killable.now() < before + timedelta(minutes=10)
    own_mongo.start()
    assert stored(killable) == held
    put(killable, "t2")
    assert waker.wait(900)
    waker.close()
    assert [type(a).__name__ for a in killable.swap([Move(held, rules.finish(held, None, killable.now()))])] == [
        "Swapped"
    ]


def test_close_does_not_wait_for_an_unavailable_server(own_mongo: MongoServer, url: str) -> None:
    """Other operations wait as long as the URL says."""
    patient = MongoStore(url.replace("serverSelectionTimeoutMS=500", "serverSelectionTimeoutMS=60000"), bulk=False)
    patient.prepare()
    for number in range(10):
        put(patient, f"t{number}")  # increments of the poll counter are still pending
    own_mongo.stop()
    began = time.monotonic()
    patient.close()
    assert time.monotonic() - began < 30


def test_concurrent_duplicates_are_added_once(store: MongoStore, mongo_url: str) -> None:
    """Every thread adds the same ids and unique keys, in batches and singly; all get the same tasks."""
    stores = [MongoStore(mongo_url) for _ in range(6)]
    answers: list[list[Inserted | Existing]] = [[] for _ in stores]

    def add(number: int, mine: MongoStore) -> None:
        for round_ in range(10):
            batch = [new(mine, f"id-{round_}-{n}") for n in range(5)]
            batch += [new(mine, f"{number}-{round_}-{n}", unique=f"key-{round_}-{n}") for n in range(5)]
            answers[number] += mine.insert(batch)
            answers[number] += mine.insert([new(mine, f"{number}-{round_}", unique=f"single-{round_}")])

    _together([lambda n=n, mine=mine: add(n, mine) for n, mine in enumerate(stores)])  # type: ignore[misc]
    rows = every_row(store)
    assert len(rows) == 10 * 11
    for position in range(len(answers[0])):
        same = [each[position] for each in answers]
        assert len({answer.task.task_id for answer in same}) == 1
        assert sum(isinstance(answer, Inserted) for answer in same) == 1
    for each in stores:
        each.close()


def test_a_unique_key_under_concurrent_use_never_has_two_holders(store: MongoStore, mongo_url: str) -> None:
    stores = [MongoStore(mongo_url) for _ in range(4)]

    def churn(number: int, mine: MongoStore) -> None:
        for round_ in range(25):
            (answer,) = mine.insert([new(mine, f"{number}-{round_}", unique="k")])
            task = answer.task
            if not task.ended:
                mine.swap([Move(task, rules.cancel(task, mine.now()))])
            assert sum(t.count for t in mine.count(Filter(held_key="k", statuses=OPEN))) <= 1

    _together([lambda n=n, mine=mine: churn(n, mine) for n, mine in enumerate(stores)])  # type: ignore[misc]
    assert {row.status for row in every_row(store).values()} <= {Status.CANCELLED, WAITING}
    for each in stores:
        each.close()


def _together(operations: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []
    gate = threading.Barrier(len(operations))

    def run(operation: Callable[[], None]) -> None:
        try:
            gate.wait()
            operation()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(operation,)) for operation in operations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert errors == []
