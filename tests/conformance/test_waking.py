"""Wakers: a rest ends because something happened, and not because its time was over."""

import threading
import time
from collections.abc import Callable

from onerow.ports import Store, Waker
from tests.conformance.kit import put

LONG = 60.0
QUICK = 4.0
TRIES = 10


def wakes(waker: Waker, act: Callable[[], object]) -> tuple[bool, float]:
    """Whether a long rest that began before the act was ended by it, and how long after the act."""
    while waker.wait(0.05):
        pass  # what happened before is over
    answers: list[tuple[bool, float]] = []
    resting = threading.Thread(target=lambda: answers.append((waker.wait(LONG), time.monotonic())))
    resting.start()
    time.sleep(0.1)
    acted_at = time.monotonic()
    act()
    resting.join(2 * LONG)
    ((woken, at),) = answers
    return woken, at - acted_at


def one_is_quick(waker: Waker, act: Callable[[int], object]) -> bool:
    """Every rest is ended by the act, and at least one of several soon: a busy machine may delay some, not all."""
    for number in range(TRIES):
        woken, took = wakes(waker, lambda number=number: act(number))  # type: ignore[misc]
        assert woken
        if took < QUICK:
            return True
    return False


def test_an_add_elsewhere_ends_a_rest(store: Store, again: Callable[[], Store]) -> None:
    other = again()
    put(other, "first")
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: put(other, f"t{number}"))
    finally:
        waker.close()


def test_an_add_by_the_same_store_ends_a_rest(store: Store) -> None:
    put(store, "first")
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: put(store, f"t{number}"))
    finally:
        waker.close()


def test_a_poke_ends_a_rest(store: Store) -> None:
    waker = store.waker()
    try:
        assert one_is_quick(waker, lambda number: waker.poke())
    finally:
        waker.close()
