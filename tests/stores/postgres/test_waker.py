"""Waking: at a commit, once for however many rows, and again after the connection was cut."""

import threading

import psycopg

from onerow.core import rules
from onerow.ports import Move, Note
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.waker import PostgresWaker
from tests.conformance.kit import claim, new, put, put_many
from tests.stores.postgres.proxy import Proxy


def listened(sql: psycopg.Connection) -> int:
    """How many notifications a listener was sent so far."""
    return sum(1 for _ in sql.notifies(timeout=0.3))


def hears(waker: PostgresWaker) -> bool:
    return waker.hears


def test_an_add_wakes_once_however_many_rows_it_has(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute('LISTEN "onerow.onerow"')
    put_many(store, 1_000)
    assert listened(sql) == 1
    put(store, "one more")
    assert listened(sql) == 1


def test_only_moves_that_give_others_something_to_do_wake(store: PostgresStore, sql: psycopg.Connection) -> None:
    sql.execute('LISTEN "onerow.onerow"')
    put_many(store, 4)
    done, again, limited, asked = *claim(store, 2), *claim(store, 1, slots=10), *claim(store, 1)
    assert listened(sql) == 1
    now = store.now()
    store.swap([Move(done, rules.complete(done, None, now))])
    assert listened(sql) == 0
    store.swap([Move(again, rules.hand_back(again, now))])
    store.swap([Move(limited, rules.complete(limited, None, now))])
    store.swap([Move(asked, rules.cancel(asked, now))])
    store.write_notes([Note("pause", "videos/*", {})])
    assert listened(sql) == 4


def test_a_waker_rests_until_someone_adds(store: PostgresStore) -> None:
    waker = store.waker()
    assert waker.hears
    assert not waker.wait(0.05)
    elsewhere = PostgresStore(store._door.address.conninfo)
    threading.Timer(0.1, lambda: put(elsewhere)).start()
    assert waker.wait(30)
    elsewhere.close()
    waker.close()


def test_a_poke_wakes_whether_it_comes_before_or_during_the_rest(store: PostgresStore) -> None:
    waker = store.waker()
    waker.poke()
    assert waker.wait(30)
    threading.Timer(0.05, waker.poke).start()
    assert waker.wait(30)
    assert not waker.wait(0)
    waker.close()


def test_after_a_cut_a_waker_listens_again_by_itself(store: PostgresStore, proxy: Proxy) -> None:
    heard = PostgresStore(proxy.url)
    waker = heard.waker()
    assert not waker.wait(0.05)
    proxy.refuse()
    assert waker.wait(30), "a cut is news, since something may have been missed"
    assert not hears(waker)
    assert not waker.wait(0.05), "while it hears nothing, it rests as long as it was told"
    proxy.heal()
    assert waker.wait(30), "so is the new connection"
    assert waker.hears
    while waker.wait(0):
        pass
    put(store)
    assert waker.wait(30)
    waker.close()
    heard.close()


def test_a_waker_may_be_made_while_the_server_is_away(store: PostgresStore, proxy: Proxy) -> None:
    heard = PostgresStore(f"{proxy.url}?prepare=yes")
    proxy.refuse()
    waker = heard.waker()
    assert not hears(waker)
    proxy.heal()
    assert waker.wait(30)
    assert waker.hears
    waker.close()
    heard.close()


def test_closing_a_waker_ends_its_connection(store: PostgresStore, proxy: Proxy) -> None:
    heard = PostgresStore(proxy.url)
    waker = heard.waker()
    heard.close()
    proxy.wait_for(connections=1)
    waker.close()
    proxy.wait_for(connections=0)


def test_each_schema_has_its_own_bell(store: PostgresStore) -> None:
    other = PostgresStore(store._door.address.conninfo, schema="other")
    other.prepare()
    waker = other.waker()
    put(store)
    assert not waker.wait(0.1)
    other.insert([new(other)])
    assert waker.wait(30)
    waker.close()
    other.close()
