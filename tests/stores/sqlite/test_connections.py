"""Connections of a SQLite store that several threads share."""

import sqlite3
import threading
from pathlib import Path

from onerow.core.filters import Filter
from onerow.stores.sqlite import SqliteStore
from onerow.stores.sqlite.connections import Connections


def test_a_connection_that_is_lent_while_all_are_closed_still_works_and_is_not_used_again(tmp_path: Path) -> None:
    connections = Connections(tmp_path / "onerow.db", "durable")
    with connections.read() as lent:
        connections.close()  # by another thread, which has migrated the file
        assert lent.execute("SELECT 1").fetchone() == (1,)
    with connections.read() as other:
        assert other is not lent
    connections.close()


def test_a_connection_that_another_thread_takes_while_all_are_closed_stays_open(tmp_path: Path) -> None:
    connections = Connections(tmp_path / "onerow.db", "durable")
    with connections.read(), connections.read():
        pass  # two in the pool
    taken: list[sqlite3.Connection] = []

    class Interleaved(list):  # type: ignore[type-arg]
        """A pool from which another thread takes a connection at the moment of the first close."""

        def pop(self) -> object:  # type: ignore[override]
            if not taken:
                taken.append(super().pop())
            return super().pop()

        def __iter__(self):  # type: ignore[no-untyped-def]
            found = list.copy(self)
            if not taken:
                taken.append(super().pop())
            return iter(found)

    connections._readers = Interleaved(connections._readers)
    connections.close()
    assert taken[0].execute("SELECT 1").fetchone() == (1,)
    taken[0].close()


def test_threads_that_use_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    failed: list[BaseException] = []
    for number in range(10):
        store = SqliteStore(tmp_path / f"{number}.db")
        together = threading.Barrier(8)

        def use(store: SqliteStore = store, together: threading.Barrier = together) -> None:
            together.wait()
            try:
                store.prepare()
                assert store.find(Filter(), limit=1).tasks == []
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
    assert failed == []
