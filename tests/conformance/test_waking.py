"""Wakers: a wait ends because of an event, not because of its timeout."""

import threading
import time
from collections.abc import Callable

from onerow.ports import Store, Waker
from tests.conformance.kit import put

LONG = 60.0
QUICK = 4.0
TRIES = 10


def wakes(waker: Waker, operation: Callable[[], object]) -> tuple[bool, float]:
    """Return whether an operation ended a long wait that had started earlier, and after how many seconds."""
    while waker.wait(0.05):
        pass  # consume earlier notifications
    answers: list[tuple[bool, float]] = []
    waiting = threading.Thread(target=lambda: answers.append((waker.wait(LONG), time.monotonic())))
    waiting.start()
    time.sleep(0.1)
    done_at = time.monotonic()
    operation()
    waiting.join(2 * LONG)
    ((woken, at),) = answers
    return woken, at - done_at


def one_is_quick(waker: Waker, operation: Callable[[int], object]) -> bool:
    """Whether the operation ends every wait, and at least one of several quickly: a busy machine delays only some."""
    for number in range(TRIES):
        woken, took = wakes(waker, lambda number=number: operation(number))  # type: ignore[misc]
        assert woken
        if took < QUICK:
            return True
    return False


def test_an_insert_by_another_process_wakes_a_waker(store: Store, again: Callable[[], Store]) -> None:
    other = again()
    put(other, "first")
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: put(other, f"t{number}"))
    finally:
        waker.close()


def test_an_insert_by_the_same_store_wakes_a_waker(store: Store) -> None:
    put(store, "first")
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: put(store, f"t{number}"))
    finally:
        waker.close()


def test_a_poke_wakes_a_waker(store: Store) -> None:
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: waker.poke())
    finally:
        waker.close()
