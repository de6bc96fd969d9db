"""The store uses the server's clock, and reading it needs no round trip."""

from datetime import timedelta

import psycopg
import pytest

from onerow.core import rules
from onerow.core.times import to_millis
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.clock import REFRESH_AFTER, ServerClock
from onerow.stores.postgres.fast.binary import moment
from tests.conformance.kit import MINUTE, claim_one, put, stored, swap


class Server:
    """A fake server clock with travel times."""

    def __init__(self) -> None:
        self.ours = 1_000.0
        self.ahead = 7e8
        self.there = self.back = 0.001
        self.asked = 0

    def monotonic(self) -> float:
        return self.ours

    def ask(self) -> int:
        self.asked += 1
        self.ours += self.there
        said = self.micros
        self.ours += self.back
        return said

    @property
    def micros(self) -> int:
        return round((self.ours + self.ahead) * 1e6)


def lag(server: Server, clock: ServerClock) -> float:
    """Return by how many seconds the estimate lags."""
    return (moment(server.micros) - clock.now()) / timedelta(seconds=1)


def test_the_estimate_lags_by_the_travel_time_of_an_answer_and_is_never_ahead() -> None:
    server = Server()
    clock = ServerClock(server.ask, server.monotonic)
    server.back = 0.050
    clock.now()
    assert 0.050 <= lag(server, clock) <= 0.0511
    server.back = 0.001
    sent_at = server.ours
    clock.observe(server.ask(), sent_at)
    assert 0.001 <= lag(server, clock) <= 0.0021
    server.back = 0.500
    sent_at = server.ours
    clock.observe(server.ask(), sent_at)
    assert 0.001 <= lag(server, clock) <= 0.0021, "a slow answer does not make the estimate worse"


def test_the_server_is_asked_once_per_refresh_interval() -> None:
    server = Server()
    clock = ServerClock(server.ask, server.monotonic)
    for _ in range(100):
        clock.now()
    assert server.asked == 1
    server.ours += REFRESH_AFTER + 1
    clock.now()
    assert server.asked == 2


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_the_estimate_follows_a_clock_that_was_set(step: float) -> None:
    server = Server()
    clock = ServerClock(server.ask, server.monotonic)
    clock.now()
    server.ahead += step
    sent_at = server.ours
    clock.observe(server.ask(), sent_at)
    assert -0.0021 <= lag(server, clock) <= 0.0021


def test_now_is_the_server_s_time(store: PostgresStore, sql: psycopg.Connection) -> None:
    before = store.now()
    row = sql.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    assert before <= row[0]
    assert row[0] - before < MINUTE


def test_a_claim_starts_and_a_lease_ends_by_the_server_s_clock(store: PostgresStore, sql: psycopg.Connection) -> None:
    put(store)
    before = sql.execute("SELECT clock_timestamp()").fetchone()
    held = claim_one(store)
    after = sql.execute("SELECT clock_timestamp()").fetchone()
    assert before is not None
    assert after is not None
    assert held.started_at is not None
    assert to_millis(before[0]) <= held.started_at <= after[0]
    assert held.leased_until == held.started_at + MINUTE
    assert stored(store) == held
    done = swap(store, held, rules.finish(held, None, store.now()))
    assert stored(store) == done


def test_time_columns_default_to_the_server_s_time_in_milliseconds(
    store: PostgresStore, sql: psycopg.Connection
) -> None:
    sql.execute("INSERT INTO onerow.task_queue (task_id, type) VALUES ('raw', 'script')")
    task = stored(store, "raw")
    assert task.created_at.microsecond % 1000 == 0
    assert task.created_at <= store.now() + timedelta(milliseconds=1)
