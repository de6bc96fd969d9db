"""The failure of an attempt as a value: error class, message and location in the user's code."""

import asyncio
import os
import re
import socket
import traceback
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path, PurePath
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any, Protocol, cast

import msgspec

from onerow.core.errors import BadPayload, CorruptRow, OnerowError, StoreFull, StoreUnavailable, with_fix
from onerow.core.outcomes import CHOSEN, MiddlewareFailed, Permanent, RateLimited, WaitExpired

ERROR_CLASSES = ("network", "limit", "auth", "resource", "timeout", "crash", "permanent", "corrupt", "unknown")
MAX_MESSAGE = 2_000

_ONEROW = str(Path(__file__).parents[1]) + os.sep
_STANDARD_LIBRARY = str(Path(traceback.__file__).parent) + os.sep
_LIBRARY = re.compile(r"[/\\](?:lib(?:64)?[/\\]python\d|(?:site|dist)-packages[/\\])")  # of any Python
_ASYNCIO = re.compile(r"[/\\](?:asyncio|concurrent)[/\\]")

_BY_NAME = {
    "network": [
        "ConnectError",
        "ConnectTimeout",
        "ReadError",
        "ReadTimeout",
        "TimeoutException",
        "WriteError",
        "RemoteProtocolError",
        "NewConnectionError",
        "EndpointConnectionError",
        "ServerDisconnectedError",
        "ClientConnectorError",
        "ChunkedEncodingError",
        "NetworkError",
        "OperationalError",
        "InterfaceError",
        "AutoReconnect",
        "ServerSelectionTimeoutError",
    ],
    "limit": ["RateLimitError", "TooManyRequests", "ThrottlingException", "RateLimitExceeded"],
    "auth": ["AuthenticationError", "PermissionDeniedError", "Unauthorized", "Forbidden", "NoCredentialsError"],
}
_CLASS_OF_NAME = {name: error_class for error_class, names in _BY_NAME.items() for name in names}

EXIT_CLASSES = {
    64: "permanent",
    65: "permanent",
    66: "permanent",
    69: "network",
    75: "network",
    77: "auth",
    78: "permanent",
    124: "timeout",
    126: "permanent",
    127: "permanent",
    137: "resource",
    152: "resource",
}
"""Exit code of a command → error class (sysexits and shells; 128 + signal number); others are 'unknown'."""


class Classes(Protocol):
    """A classification of exceptions by the user."""

    def class_of(self, error: BaseException) -> str | None: ...


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt did not succeed."""

    message: str
    error_class: str = "unknown"
    exception: str = ""
    where: str = ""
    trace: str = ""
    after: timedelta | None = None
    hold_phase: bool = False


def classify(error: BaseException, own: Sequence[Classes] = ()) -> Failure:
    """Convert any exception, or the most important one of an exception group, to a Failure; never raises.

    own: the user's classifications, which are asked before onerow's.
    """
    try:
        return _classify(error, own)
    except BaseException as raised:
        # Methods of an exception are user code and may raise, and the calling thread must keep running.
        name = _name_of(error)
        return Failure(
            message=_cut(f"{name}: {text_of(error) or name}"),
            exception=name,
            trace=f"{name} could not be examined: {_name_of(raised)}: {text_of(raised)}",
        )


def _classify(error: BaseException, own: Sequence[Classes]) -> Failure:
    cause = _most_important(error, own)
    name = _name_of(cause)
    text = text_of(cause)
    limited = isinstance(cause, RateLimited)
    after = getattr(cause, "after", None) if limited else None
    message = f"{name}: {text}" if text and not limited and not isinstance(cause, Permanent) else text or name
    if type(error) is MiddlewareFailed:
        message = f"middleware {error.name}: {message}"
    return Failure(
        message=_cut(message),
        error_class=_class_of(cause, own),
        exception=name,
        where=_printable(where_in_user_code(cause))[:MAX_MESSAGE],
        trace=trace_of(error),
        after=after if isinstance(after, timedelta) else None,
        hold_phase=limited and getattr(cause, "scope", "task") == "phase",
    )


def text_of(error: BaseException) -> str:
    """Return the message of an exception as text that every store accepts; never raises, even if `__str__` does."""
    try:
        return _printable(str.__getitem__(with_fix(error), slice(0, MAX_MESSAGE + 1)))
    except BaseException as raised:
        return f"its text could not be read, because __str__ raised {_name_of(raised)}"


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception, which begins in the user's code; never raises."""
    try:
        summary = TracebackException.from_exception(error)
        _fold(summary)
        # A value that the handler returned was refused: no frame says more about it.
        refused = issubclass(type(error), OnerowError) and user_frame(error) is None
        return _printable("".join(summary.format_exception_only() if refused else summary.format())[-8_000:])
    except BaseException as raised:
        return f"its traceback could not be written, because {_name_of(raised)} was raised"


class _Folded(StackSummary):
    """A stack in which a frame without a file stands for as many frames of onerow as its line number says."""

    def format_frame_summary(self, frame_summary: FrameSummary, **options: Any) -> str:
        if frame_summary.filename:
            return super().format_frame_summary(frame_summary, **options)
        count = frame_summary.lineno
        return f"  … {count} {'frame' if count == 1 else 'frames'} of onerow\n"


def _fold(summary: TracebackException) -> None:
    """Let each stack begin with the first frame of the user's code and fold onerow's; without such a frame, all stay."""
    found = [summary]
    for each in found:  # grows
        found += [more for more in (each.__cause__, each.__context__, *(each.exceptions or ())) if more is not None]
    begins = [next((at for at, it in enumerate(each.stack) if is_user_code(it.filename)), None) for each in found]
    if any(begin is not None for begin in begins):
        for each, begin in zip(found, begins, strict=True):
            each.stack = _folded(each.stack[begin or 0 :])


def _folded(stack: Sequence[FrameSummary]) -> StackSummary:
    folded = _Folded()
    for frame in stack:
        inside = bool(folded) and not folded[-1].filename
        # asyncio only passes the call from onerow on to the user's function.
        ours = frame.filename.startswith(_ONEROW) or (inside and _ASYNCIO.search(frame.filename) is not None)
        if inside and ours:
            folded[-1] = FrameSummary("", (folded[-1].lineno or 0) + 1, "")
        else:
            folded.append(FrameSummary("", 1, "") if ours else frame)
    return folded


def _name_of(error: BaseException) -> str:
    """Return the name of the exception's class, without calling a metaclass's code."""
    return _printable(type.__dict__["__name__"].__get__(type(error)))[:200]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, or those of an exception group, in their order."""
    found = [error]
    while found:
        each = found.pop()
        if issubclass(type(each), BaseExceptionGroup):  # `isinstance` would call user code
            found += reversed(cast("BaseExceptionGroup[BaseException]", each).exceptions)
        elif type(each) is MiddlewareFailed:
            found.append(each.error)
        else:
            yield each


def _most_important(error: BaseException, own: Sequence[Classes]) -> BaseException:
    """Return the exception of a group whose class decides, by the precedence below."""
    order = ("corrupt", "permanent", "auth", "limit", "timeout", "resource", "network", "crash", "unknown")
    failures = [leaf for leaf in leaves(error) if not issubclass(type(leaf), CHOSEN)]
    return min(failures or leaves(error), key=lambda leaf: order.index(_class_of(leaf, own)))


def _class_of(error: BaseException, own: Sequence[Classes]) -> str:
    match error:  # what the handler says itself
        case CorruptRow():
            return "corrupt"
        case Permanent() | BadPayload():
            return "permanent"
        case RateLimited():
            return "limit"
        case WaitExpired():
            return "timeout"
    for classes in own:
        if (found := classes.class_of(error)) is not None:
            return found
    match error:
        case MemoryError() | StoreFull():
            return "resource"
        case RuntimeError(args=("can't start new thread",)):
            return "resource"
        case PermissionError():
            return "auth"
        case TimeoutError() | ConnectionError() | socket.gaierror() | socket.herror() | StoreUnavailable() | EOFError():
            return "network"
        case OSError(errno=code) if code in (28, 122, 12, 24, 23):  # ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE
            return "resource"
        case OSError(errno=code) if code in (100, 101, 110, 111, 112, 113):  # network down or unreachable
            return "network"
        case asyncio.CancelledError():
            return "unknown"
    response = getattr(error, "response", None)
    code = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    if isinstance(code, int):
        if code == 429:
            return "limit"
        if code in (401, 403):
            return "auth"
        if code in (408, 425) or code >= 500:
            return "network"
        if 400 <= code < 500:
            return "permanent"
    for kind in type(error).__mro__:
        if kind.__name__ in _CLASS_OF_NAME:
            return _CLASS_OF_NAME[kind.__name__]
    return "unknown"


def where_in_user_code(error: BaseException) -> str:
    """Return `file.py:12 in function` of the innermost frame of the user's code, '' if there is none."""
    frame = user_frame(error)
    return "" if frame is None else f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"


def user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame that is neither in onerow nor in a library."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_code(frame.filename):
            return frame
    return None


def is_user_code(filename: str) -> bool:
    """Whether a file of a frame is neither in onerow nor in a library."""
    return not filename.startswith((_ONEROW, _STANDARD_LIBRARY, "<")) and _LIBRARY.search(filename) is None


def _printable(text: str) -> str:
    # Calls str.encode directly, because a subclass may have methods that raise.
    return str.encode(text, "utf-8", "replace").decode().replace("\x00", "�")


def storable(text: str) -> str:
    """Return a text, cut to MAX_MESSAGE characters, that every store accepts."""
    return _cut(_printable(text))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def failure(message: str, error_class: str, *, exception: str = "", where: str = "", trace: str = "") -> Failure:
    """Build a Failure that has no exception: a timeout, a crash, an exit code."""
    return Failure(storable(message), error_class, exception, where, trace)
