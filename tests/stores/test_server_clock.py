"""The estimate of the server's clock: few questions, not ahead, independent of the local wall clock."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from onerow.core.errors import StoreUnavailable
from onerow.stores.shared.server_clock import REFRESH_AFTER, ServerClock


class Server:
    """A server clock with travel times; the local monotonic clock moves only by them and by the test."""

    def __init__(self) -> None:
        self.ours = 1_000.0
        self.ahead = 7e8
        self.there = self.back = 0.001
        self.asked = 0
        self.away, self.available = threading.Event(), threading.Event()

    def monotonic(self) -> float:
        return self.ours

    def ask(self) -> float:
        self.asked += 1
        if self.away.is_set():
            self.available.wait(900)
            raise StoreUnavailable("away")
        self.ours += self.there
        answer = self.time
        self.ours += self.back
        return answer

    @property
    def time(self) -> float:
        return self.ours + self.ahead


def lag(server: Server, clock: ServerClock) -> float:
    """Return by how many seconds the estimate lags."""
    return (datetime.fromtimestamp(server.time, UTC) - clock.now()) / timedelta(seconds=1)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock(server: Server) -> ServerClock:
    return ServerClock(server.ask, monotonic=server.monotonic)


def test_the_estimate_lags_by_the_travel_time_of_the_fastest_answer(server: Server, clock: ServerClock) -> None:
    server.back = 0.050
    clock.now()
    assert 0.050 <= lag(server, clock) <= 0.0511
    server.back = 0.001
    clock.measure()
    assert 0.001 <= lag(server, clock) <= 0.0021
    server.back = 0.500
    clock.measure()
    assert 0.001 <= lag(server, clock) <= 0.0021, "a slow answer does not make the estimate worse"


def test_the_server_is_asked_once_per_refresh_interval(server: Server, clock: ServerClock) -> None:
    for _ in range(100):
        clock.now()
    assert server.asked == 1
    server.ours += REFRESH_AFTER + 1
    clock.now()
    _join_refreshes()
    assert server.asked == 2


def test_an_answer_of_another_statement_saves_a_question(server: Server, clock: ServerClock) -> None:
    clock.now()
    server.ours += REFRESH_AFTER - 1
    clock.observe(server.time, server.ours)
    server.ours += REFRESH_AFTER - 1
    clock.now()
    assert server.asked == 1


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_the_estimate_follows_a_clock_that_was_set(server: Server, clock: ServerClock, step: float) -> None:
    clock.now()
    server.ahead += step
    clock.measure()
    assert 0 <= lag(server, clock) <= 0.0021


def test_the_estimate_is_monotonic() -> None:
    clock = ServerClock(time.time)
    answers = [clock.now() for _ in range(2_000)]
    assert answers == sorted(answers)


def test_an_unavailable_server_does_not_block_the_clock(server: Server, clock: ServerClock) -> None:
    before = clock.now()
    server.away.set()
    for _ in range(3):
        server.ours += REFRESH_AFTER + 1
        assert before < clock.now()
    server.available.set()
    _join_refreshes()
    assert server.asked > 1
    with pytest.raises(StoreUnavailable):
        ServerClock(server.ask).now()


def _join_refreshes() -> None:
    for thread in threading.enumerate():
        if thread.name == "onerow-clock":
            thread.join(900)
