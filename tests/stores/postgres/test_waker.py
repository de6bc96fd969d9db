"""Wakers: notified once per commit, and reconnected after the connection was cut."""

import threading

import psycopg

from onerow.core import rules
from onerow.ports import Move, Note
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.waker import PostgresWaker
from tests.conformance.kit import claim, new, put, put_many
from tests.stores.postgres.proxy import Proxy


def notifications(sql: psycopg.Connection) -> int:
    """Return how many notifications the listener has received since the last call."""
    return sum(1 for _ in sql.notifies(timeout=0.3))


def hears(waker: PostgresWaker) -> bool:
    return waker.hears


def test_an_insert_sends_one_notification_for_any_number_of_rows(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute('LISTEN "onerow.onerow"')
    put_many(store, 1_000)
    assert notifications(sql) == 1
    put(store, "one more")
    assert notifications(sql) == 1


def test_only_moves_that_create_work_send_a_notification(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute('LISTEN "onerow.onerow"')
    put_many(store, 4)
    done, again, limited, asked = *claim(store, 2), *claim(store, 1, slots=10), *claim(store, 1)
    assert notifications(sql) == 1
    now = store.now()
    store.swap([Move(done, rules.finish(done, None, now))])
    assert notifications(sql) == 0
    store.swap([Move(again, rules.hand_back(again, now))])
    store.swap([Move(limited, rules.finish(limited, None, now))])
    store.swap([Move(asked, rules.cancel(asked, now))])
    assert notifications(sql) == 3
    store.write_notes([Note("pause", "videos/*", {})])
    assert notifications(sql) == 0


def test_a_waker_waits_until_a_task_is_added(store: PostgresStore) -> None:
    waker = store.waker()
    assert waker.hears
    assert not waker.wait(0.05)
    elsewhere = PostgresStore(store._connections.address.conninfo)
    threading.Timer(0.1, lambda: put(elsewhere)).start()
    assert waker.wait(900)
    elsewhere.close()
    waker.close()


def test_a_poke_wakes_before_and_during_a_wait(store: PostgresStore) -> None:
    waker = store.waker()
    waker.poke()
    assert waker.wait(900)
    threading.Timer(0.05, waker.poke).start()
    assert waker.wait(900)
    assert not waker.wait(0)
    waker.close()


def test_a_waker_reconnects_after_its_connection_was_cut(store: PostgresStore, proxy: Proxy) -> None:
    proxied = PostgresStore(proxy.url)
    waker = proxied.waker()
    assert not waker.wait(0.05)
    proxy.refuse()
    assert waker.wait(900), "a cut wakes, because a notification may have been lost"
    assert not hears(waker)
    assert not waker.wait(0.05), "without a connection it waits for its timeout"
    proxy.heal()
    assert waker.wait(900), "the new connection wakes too"
    assert waker.hears
    while waker.wait(0):
        pass
    put(store)
    assert waker.wait(900)
    waker.close()
    proxied.close()


def test_a_waker_may_be_created_while_the_server_is_down(store: PostgresStore, proxy: Proxy) -> None:
    proxied = PostgresStore(f"{proxy.url}?prepare=yes")
    proxy.refuse()
    waker = proxied.waker()
    assert not hears(waker)
    proxy.heal()
    assert waker.wait(900)
    assert waker.hears
    waker.close()
    proxied.close()


def test_closing_a_waker_closes_its_connection(store: PostgresStore, proxy: Proxy) -> None:
    proxied = PostgresStore(proxy.url)
    waker = proxied.waker()
    proxied.close()
    proxy.wait_for(connections=1)
    waker.close()
    proxy.wait_for(connections=0)


def test_each_schema_has_its_own_channel(store: PostgresStore) -> None:
    other = PostgresStore(store._connections.address.conninfo, schema="other")
    other.prepare()
    waker = other.waker()
    put(store)
    assert not waker.wait(0.1)
    other.insert([new(other)])
    assert waker.wait(900)
    waker.close()
    other.close()
