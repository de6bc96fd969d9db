"""Classification of exceptions: error class, message and location."""

import asyncio
import errno
import json
import re
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onerow.core import values
from onerow.core.errors import BadInput, BadPayload, StoreFull, StoreUnavailable
from onerow.core.failure import ERROR_CLASSES, EXIT_CLASSES, MAX_MESSAGE, classify, failure, is_user_code
from onerow.core.outcomes import Cancelled, Permanent, RateLimited, Snooze
from onerow.core.suggest import did_you_mean


class WithCode(Exception):
    def __init__(self, code: int) -> None:
        self.status_code = code
        super().__init__(f"HTTP {code}")


class RateLimitError(Exception):
    """Has the name that some client libraries use."""


class Inner(RateLimitError): ...


class TimeoutException(Exception):
    """The base class of a client library's timeouts."""


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
def test_an_exception_has_an_error_class(error: BaseException, expected: str) -> None:
    assert classify(error).error_class == expected


def test_the_most_important_error_decides_the_class_of_a_group() -> None:
    group = ExceptionGroup("many", [ValueError("x"), ExceptionGroup("inner", [ConnectionError(), Permanent("stop")])])
    assert (classify(group).error_class, classify(group).message) == ("permanent", "stop")


def test_rate_limited_sets_the_wait_and_can_hold_the_phase() -> None:
    found = classify(RateLimited("2m", "quota", scope="phase"))
    assert (found.after, found.hold_phase, found.message) == (timedelta(minutes=2), True, "quota")
    with pytest.raises(BadInput, match="scope"):
        RateLimited("1m", scope="world")  # type: ignore[arg-type]
    assert Snooze("5s").for_ == timedelta(seconds=5)
    assert not issubclass(Cancelled, Exception)


def test_a_failure_names_the_error_and_its_location_in_the_user_s_code() -> None:
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


@pytest.mark.parametrize(
    "path",
    [
        "/home/lib/app.py",
        "/srv/lib/tides/app.py",
        "/home/ann/onerow/app.py",
        "/home/ann/onerow/src/app.py",
        "/home/ann/src/onerow/app.py",
        "/home/ann/python3.11/app.py",
        r"C:\Users\ann\src\onerow\app.py",
        "app.py",
    ],
)
def test_a_file_of_the_user_s_project_is_user_code_whatever_its_folders_are_named(path: str) -> None:
    assert is_user_code(path)


@pytest.mark.parametrize(
    "path",
    [
        "/venv/lib/python3.11/site-packages/httpx/_client.py",
        "/venv/lib64/python3.13/site-packages/httpx/_client.py",
        "/usr/lib/python3/dist-packages/httpx/_client.py",
        "/usr/lib/python3.12/asyncio/runners.py",
        r"C:\venv\Lib\site-packages\httpx\_client.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        asyncio.__file__,
        json.__file__,
        classify.__code__.co_filename,
    ],
)
def test_a_file_of_a_library_of_python_or_of_onerow_is_no_user_code(path: str) -> None:
    assert not is_user_code(path)


def names() -> Iterator[str]:
    yield "topic"
    raise ValueError("no such topic")


def through_onerow() -> None:
    did_you_mean("topik", names())  # a function of onerow that calls the user's


def caused() -> None:
    try:
        through_onerow()
    except ValueError as error:
        raise KeyError("outer") from error


def in_its_context() -> None:
    try:
        through_onerow()
    except ValueError:
        raise KeyError("outer")  # noqa: B904


def in_a_group() -> None:
    try:
        through_onerow()
    except ValueError as error:
        raise ExceptionGroup("many", [error, TypeError()])  # noqa: B904


def refused_by_onerow() -> None:
    values.encode({"topic": object()})


def stacks(error: BaseException) -> list[list[str]]:
    """Return the functions of each stack of the traceback, with … for the folded frames."""
    found: list[list[str]] = []
    for line in classify(error).trace.splitlines():
        text = line.lstrip(" |+-")
        if "Traceback" in text:
            found.append([])
        elif text.startswith("File"):
            found[-1].append(text.rpartition(" in ")[2])
        elif re.fullmatch(r"… (1 frame|[2-9] frames) of onerow", text):
            found[-1].append("…")
    return found


FOLDED = ["through_onerow", "…", "names"]


@pytest.mark.parametrize(
    "handler, expected",
    [
        (through_onerow, [FOLDED]),
        (caused, [["caused", *FOLDED], ["caused"]]),
        (in_its_context, [["in_its_context", *FOLDED], ["in_its_context"]]),
        (in_a_group, [["in_a_group", *FOLDED], ["in_a_group"], ["in_a_group", *FOLDED]]),
        (refused_by_onerow, [["refused_by_onerow", "…"]]),
    ],
)
def test_a_traceback_begins_in_the_user_s_code_and_folds_the_frames_of_onerow(
    handler: Callable[[], None], expected: list[list[str]]
) -> None:
    with pytest.raises(Exception, match=r"topic|outer|many") as raised:
        handler()
    test = "test_a_traceback_begins_in_the_user_s_code_and_folds_the_frames_of_onerow"
    assert [[name for name in stack if name != test] for stack in stacks(raised.value)] == expected


def test_an_exception_of_onerow_without_a_frame_of_the_user_is_only_its_message() -> None:
    error = BadPayload("result is an object", fix="use text")
    assert classify(error).trace == "onerow.core.errors.BadPayload: result is an object\nuse text\n"


@pytest.mark.parametrize("text", ["x" * 10_000, "a\x00b", "\ud800", "한" * 5_000])
def test_a_message_can_always_be_stored(text: str) -> None:
    for found in (classify(ValueError(text)), failure(text, "crash")):
        assert len(found.message) <= MAX_MESSAGE
        assert "\x00" not in found.message
        found.message.encode()
        found.trace.encode()


@pytest.mark.parametrize("error", [ValueError(), KeyError("k"), AssertionError()])
def test_an_error_without_a_message_is_named_by_its_class(error: Any) -> None:
    assert type(error).__name__ in classify(error).message


def test_exit_codes_have_error_classes() -> None:
    assert set(EXIT_CLASSES.values()) <= set(ERROR_CLASSES)


class Text(str):
    """A text whose methods raise."""

    def encode(self, *given: Any) -> bytes:
        raise RuntimeError("no encoding")

    def replace(self, *given: Any) -> str:
        raise RuntimeError("no replacing")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Named(type):
    """A class whose name raises."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


def _raising(**members: Any) -> BaseException:
    """An instance of an exception class with these members."""
    error: BaseException = type("Odd", (Exception,), members)("x")
    return error


def _raise(*given: object, **named: object) -> Any:
    raise RuntimeError("raised by the exception itself")


def _exit(*given: object) -> Any:
    raise SystemExit(3)


def _unset(kind: type[BaseException]) -> BaseException:
    """An instance of a subclass that does not call the constructor of its parent class."""
    error: BaseException = type("Unset", (kind,), {"__init__": lambda self: None})()
    return error


def _deep_group() -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("outer", [error])
    return error


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "str raises": lambda: _raising(__str__=_raise),
    "str exits": lambda: _raising(__str__=_exit),
    "str returns a number": lambda: _raising(__str__=lambda self: 1),
    "str returns a text whose methods raise": lambda: _raising(__str__=lambda self: Text("words")),
    "str and repr raise": lambda: _raising(__str__=_raise, __repr__=_raise),
    "class raises": lambda: _raising(__class__=property(_raise)),
    "class name raises": lambda: Named("Odd", (Exception,), {})("words"),
    "class name is huge": lambda: type("N" * 100_000, (Exception,), {})("words"),
    "status code raises": lambda: _raising(status_code=property(_raise)),
    "response raises": lambda: _raising(response=property(_raise)),
    "traceback raises": lambda: _raising(__traceback__=property(_raise)),
    "limit without its time": lambda: _unset(RateLimited),
    "group of groups": _deep_group,
    "text is huge": lambda: ValueError("x" * 5_000_000),
    "text has lone surrogates and NUL": lambda: ValueError("a\x00\ud800b"),
    "argument cannot be shown": lambda: ValueError(_raising(__repr__=_raise)),
    "note has lone surrogates": lambda: _noted("\ud800\x00"),
}


def _noted(note: str) -> BaseException:
    error = ValueError("words")
    error.add_note(note)
    return error


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_exception_becomes_a_failure_that_can_be_stored(make: Callable[[], BaseException]) -> None:
    try:
        raise make()
    except BaseException as error:
        found = classify(error)
    assert found.message
    assert found.error_class in ERROR_CLASSES
    for text in (found.message, found.exception, found.where, found.trace):
        assert type(text) is str
        assert "\x00" not in text
        assert len(text.encode()) <= 40_000
    assert len(found.message) <= MAX_MESSAGE
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
