"""What went wrong, as a class that decides and a message that helps."""

import asyncio
import errno
import socket
from datetime import timedelta
from typing import Any

import pytest

from onerow.core.errors import BadInput, BadPayload, StoreFull, StoreUnavailable
from onerow.core.failure import ERROR_CLASSES, EXIT_CLASSES, MAX_MESSAGE, classify, failure
from onerow.core.outcomes import Cancelled, Permanent, RateLimited, Snooze


class WithCode(Exception):
    def __init__(self, code: int) -> None:
        self.status_code = code
        super().__init__(f"HTTP {code}")


class RateLimitError(Exception):
    """Named as some client library names it."""


class Inner(RateLimitError): ...


class TimeoutException(Exception):
    """The root of a client library's timeouts."""


class WriteTimeout(TimeoutException): ...


@pytest.mark.parametrize(
    "error, expected",
    [
        (Permanent("no"), "permanent"),
        (BadPayload("no"), "permanent"),
        (RateLimited("1m"), "limit"),
        (MemoryError(), "resource"),
        (StoreFull(), "resource"),
        (OSError(errno.ENOSPC, "full"), "resource"),
        (OSError(errno.EHOSTUNREACH, "far"), "network"),
        (PermissionError(), "auth"),
        (TimeoutError(), "network"),
        (ConnectionResetError(), "network"),
        (socket.gaierror(), "network"),
        (StoreUnavailable(), "network"),
        (asyncio.CancelledError(), "unknown"),
        (WithCode(429), "limit"),
        (WithCode(401), "auth"),
        (WithCode(503), "network"),
        (WithCode(404), "permanent"),
        (Inner(), "limit"),
        (WriteTimeout(), "network"),
        (ValueError("x"), "unknown"),
        (OSError(errno.ENOENT, "gone"), "unknown"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_exception_has_a_class(error: BaseException, expected: str) -> None:
    assert classify(error).error_class == expected


def test_a_group_counts_as_its_weightiest_error() -> None:
    group = ExceptionGroup("many", [ValueError("x"), ExceptionGroup("inner", [ConnectionError(), Permanent("stop")])])
    assert (classify(group).error_class, classify(group).message) == ("permanent", "stop")


def test_a_limit_brings_its_own_time_and_may_hold_the_phase() -> None:
    found = classify(RateLimited("2m", "quota", scope="phase"))
    assert (found.after, found.hold_phase, found.message) == (timedelta(minutes=2), True, "quota")
    with pytest.raises(BadInput, match="scope"):
        RateLimited("1m", scope="world")  # type: ignore[arg-type]
    assert Snooze("5s").for_ == timedelta(seconds=5)
    assert not issubclass(Cancelled, Exception)


def test_the_message_says_what_and_where_in_the_user_s_code() -> None:
    def broken() -> None:
        raise ValueError("no such topic")

    try:
        broken()
    except ValueError as error:
        found = classify(error)
    assert (found.message, found.exception) == ("ValueError: no such topic", "ValueError")
    assert found.where.startswith("test_failure.py:")
    assert found.where.endswith("in broken")
    assert "no such topic" in found.trace


@pytest.mark.parametrize("text", ["x" * 10_000, "a\x00b", "\ud800", "한" * 5_000])
def test_a_message_can_always_be_stored(text: str) -> None:
    for found in (classify(ValueError(text)), failure(text, "crash")):
        assert len(found.message) <= MAX_MESSAGE
        assert "\x00" not in found.message
        found.message.encode()
        found.trace.encode()


@pytest.mark.parametrize("error", [ValueError(), KeyError("k"), AssertionError()])
def test_an_error_without_words_is_still_named(error: Any) -> None:
    assert type(error).__name__ in classify(error).message


def test_exit_codes_have_classes_too() -> None:
    assert set(EXIT_CLASSES.values()) <= set(ERROR_CLASSES)
