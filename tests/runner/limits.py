"""Pytest plugin: a test that takes longer than its limit fails, and the run continues.

pytest-timeout reads the limit (`timeout` in pyproject.toml, `--timeout`, the `timeout` mark). Its own timers do not fit:
its signal may arrive between the parts of a test, where an exception ends the whole run, and hypothesis takes its
exception for a failed example and tries to shrink it. Here a timer runs only during set-up, call and teardown, where
pytest turns every exception into a failure of that test.

A test that does not return to Python never sees the signal. A timer in C then prints the stacks and ends the process;
pytest-xdist reports the test as failed and starts another worker.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pytest_timeout import is_debugging

_LIMIT = pytest.StashKey[float]()
_STDERR = pytest.StashKey[int]()
_TIMER = pytest.StashKey[tuple[float, float]]()  # when the timer in C was started, and for how many seconds


class OverLimit(BaseException):
    """A test took longer than its limit. Not an Exception: neither hypothesis nor the tested code may handle it."""


def pytest_configure(config: pytest.Config) -> None:
    # Output is not captured yet, so this is the stderr of the run.
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Keep the limit that pytest-timeout has found, and start none of its timers."""
    item.stash[_LIMIT] = settings.timeout
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item):
        return (yield)


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    limit = item.stash.get(_LIMIT, 0.0)
    if not limit or threading.current_thread() is not threading.main_thread():
        yield
        return
    running = True

    def end_test(signum: int, frame: FrameType | None) -> None:
        if running and not is_debugging():
            raise OverLimit(f"took longer than {limit:g} s\n{_stacks()}")

    # The signal repeats, for code that dropped the exception; but not while the test ends what it has started.
    again_after = min(limit, 60)
    previous = signal.signal(signal.SIGALRM, end_test)
    signal.setitimer(signal.ITIMER_REAL, limit, again_after)
    _end_process_after(limit + 2.5 * again_after, item.config)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _end_process_after(seconds: float, config: pytest.Config) -> None:
    """Start the timer in C anew, unless it was started a moment ago: each start costs a thread."""
    started_at, length = config.stash.get(_TIMER, (0.0, 0.0))
    now = time.monotonic()
    if length != seconds or now - started_at > seconds / 50:
        faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_STDERR])
        config.stash[_TIMER] = now, seconds


def pytest_enter_pdb(config: pytest.Config) -> None:
    _stop_timer(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _stop_timer(session.config)


def _stop_timer(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    config.stash[_TIMER] = 0.0, 0.0


def _stacks() -> str:
    """The stacks of all threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts += [f"\nThread {names.get(ident, ident)}:\n", *traceback.format_stack(frame)]
    return "".join(parts)
