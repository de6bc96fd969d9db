"""Features that need a replica set: the caller's transactions, snapshots, majority writes."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymongo
import pytest
from pymongo import WriteConcern

from onerow.core import rules
from onerow.core.errors import RetryTransaction, StoreError
from onerow.core.filters import Filter
from onerow.core.status import OPEN
from onerow.ports import Existing, Inserted
from onerow.stores.mongo import MongoStore, connections
from tests.conformance.kit import claim, claim_one, new, put, stored, swap

Document = dict[str, Any]


@pytest.fixture
def members(mongo_replica_set_url: str) -> Iterator[MongoStore]:
    found = MongoStore(mongo_replica_set_url)
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def client(members: MongoStore, mongo_replica_set_url: str) -> Iterator[pymongo.MongoClient[Document]]:
    with pymongo.MongoClient[Document](mongo_replica_set_url) as found:
        yield found


def test_a_task_appears_when_the_caller_s_transaction_commits(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    with client.start_session() as session:
        with session.start_transaction():
            client.get_default_database()["orders"].insert_one({"_id": 1}, session=session)
            task = new(members)
            assert members.insert([task], tx=session) == [Inserted(task)]
            assert members.fetch(["t1"]) == []
        assert stored(members) == task


def test_a_task_of_an_aborted_transaction_is_not_stored(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    with client.start_session() as session:
        session.start_transaction()
        members.insert([new(members)], tx=session)
        session.abort_transaction()
    assert members.fetch(["t1"]) == []


def test_existing_tasks_are_returned_within_the_transaction(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    known = put(members, "known", unique="k")
    with client.start_session() as session, session.start_transaction():
        answers = members.insert([new(members, "known"), new(members, "b", unique="k"), new(members, "c")], tx=session)
    assert [type(answer) for answer in answers] == [Existing, Existing, Inserted]
    assert answers[1].task == known
    assert stored(members, "c").version == 1


def test_a_unique_key_taken_by_another_transaction_raises_retry_transaction(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    with client.start_session() as session, session.start_transaction():
        client.get_default_database()["orders"].find_one(session=session)  # its snapshot begins here
        put(members, "first", unique="k")
        with pytest.raises(RetryTransaction):
            members.insert([new(members, "second", unique="k")], tx=session)
        session.abort_transaction()
    with client.start_session() as session, session.start_transaction():
        (answer,) = members.insert([new(members, "second", unique="k")], tx=session)
    assert (type(answer), answer.task.task_id) == (Existing, "first")


def test_writes_are_journaled_by_a_majority(members: MongoStore) -> None:
    with members._connections.open() as collections:
        assert collections.has_members
        assert collections.tasks.write_concern.document == {"w": "majority", "j": True, "wtimeout": 20_000}
    assert any("majority" in finding.what for finding in members.inspect())
    assert [finding for finding in members.inspect() if finding.level == "bad"] == []


@pytest.mark.parametrize(
    "limits", [{"limit": 1}, {"limit": 2}, {"limit": 2, "slots": 2}, {"limit": 2, "key_slots": 2}], ids=str
)
def test_a_claim_that_too_few_members_have_journaled_is_an_error(
    members: MongoStore, mongo_replica_set_url: str, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]
) -> None:
    """Such a write may be rolled back, and another worker may then claim the tasks."""
    put(members, "a", limit_key="ann")
    put(members, "b", limit_key="ann")
    # More members than the set has: the server writes, and then answers with error 100 (UnsatisfiableWriteConcern).
    monkeypatch.setattr(connections, "JOURNALED_BY_MOST", WriteConcern(w=50, j=True))
    with closing(MongoStore(mongo_replica_set_url)) as unconfirmed, pytest.raises(StoreError) as raised:
        claim(unconfirmed, **limits)
    assert isinstance(raised.value.__cause__, pymongo.errors.PyMongoError)
    assert 100 in connections._codes(raised.value.__cause__)
    assert stored(members, "a").leased_by == "w1", "it was written, on too few members"


def test_a_count_reads_one_snapshot(members: MongoStore, mongo_replica_set_url: str) -> None:
    """A task that is always open is always counted once, although each status has its own query."""
    put(members)
    elsewhere = MongoStore(mongo_replica_set_url)
    done = threading.Event()

    def move() -> None:
        while not done.is_set():
            task = claim_one(elsewhere)
            swap(elsewhere, task, rules.hand_back(task, elsewhere.now()))

    mover = threading.Thread(target=move)
    mover.start()
    counts = [sum(tally.count for tally in members.count(Filter(statuses=OPEN))) for _ in range(100)]
    done.set()
    mover.join()
    elsewhere.close()
    assert set(counts) == {1}


def test_phases_with_due_tasks_are_found_on_the_oldest_supported_server(members: MongoStore) -> None:
    put(members, "due")
    phases = {("videos", "script"), ("other", "script")}
    assert members.ready(phases, members.now()) == [("videos", "script")]


def test_full_keys_are_skipped_on_the_oldest_supported_server(members: MongoStore) -> None:
    members.insert([new(members, f"a{n:03d}", limit_key="ann", priority=-5) for n in range(200)])
    put(members, "b", limit_key="bob")
    assert len(claim(members, 1, key_slots=1)) == 1
    assert [task.task_id for task in claim(members, 5, key_slots=1)] == ["b"]
