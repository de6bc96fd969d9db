"""What only a replica set can do. The test server stands alone; give one in ONEROW_TEST_MONGO_URL to run these."""

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from onerow.core.errors import RetryTransaction
from onerow.ports import Existing, Inserted
from onerow.stores.mongo import MongoStore
from tests.conformance.kit import new, put, stored

Document = dict[str, Any]


@pytest.fixture
def members(store: MongoStore) -> MongoStore:
    if not store._door.rooms().has_members:
        pytest.skip("this MongoDB stands alone; a replica set's URL in ONEROW_TEST_MONGO_URL runs it")
    return store


@pytest.fixture
def client(members: MongoStore, mongo_url: str) -> Iterator[pymongo.MongoClient[Document]]:
    with pymongo.MongoClient[Document](mongo_url) as found:
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


def test_a_task_of_an_aborted_transaction_never_was(members: MongoStore, client: pymongo.MongoClient[Document]) -> None:
    with client.start_session() as session:
        session.start_transaction()
        members.insert([new(members)], tx=session)
        session.abort_transaction()
    assert members.fetch(["t1"]) == []


def test_what_is_there_already_is_told_within_the_transaction(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    known = put(members, "known", unique="k")
    with client.start_session() as session, session.start_transaction():
        answers = members.insert([new(members, "known"), new(members, "b", unique="k"), new(members, "c")], tx=session)
    assert [type(answer) for answer in answers] == [Existing, Existing, Inserted]
    assert answers[1].task == known
    assert stored(members, "c").version == 1


def test_a_key_that_another_transaction_takes_first_means_run_it_again(
    members: MongoStore, client: pymongo.MongoClient[Document]
) -> None:
    with client.start_session() as session, session.start_transaction():
        client.get_default_database()["orders"].find_one(session=session)  # its snapshot begins here
        put(members, "first", unique="k")
        with pytest.raises(RetryTransaction):
            members.insert([new(members, "second", unique="k")], tx=session)


def test_a_change_stream_wakes(members: MongoStore, mongo_url: str) -> None:
    other = MongoStore(mongo_url)
    waker = members.waker()
    while waker.wait(1):
        pass
    for n in range(5):
        put(other, f"t{n}")
        assert waker.wait(10)
        while waker.wait(0.2):
            pass
    waker.close()
    other.close()
