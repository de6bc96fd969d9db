"""Exceptions whose own methods raise, and handlers that raise them; importable, so that they can run isolated."""

from collections.abc import Callable, Sequence
from typing import Any

from onerow import Item, RateLimited, Snooze


def _raise(*given: object) -> Any:
    raise RuntimeError("raised by the exception itself")


class StrRaises(Exception):
    __str__ = _raise


class ReprRaises(Exception):
    __str__ = __repr__ = _raise


class ClassRaises(Exception):
    __class__ = property(_raise)


class ExitsWhenRead(BaseException):
    def __str__(self) -> str:
        raise SystemExit(3)


class SnoozeWithoutTime(Snooze):
    def __init__(self) -> None: ...


class LimitWithoutTime(RateLimited):
    def __init__(self) -> None: ...


class OddTime(Snooze):
    def __init__(self) -> None:
        self.for_ = "soon"  # type: ignore[assignment]


def _huge() -> BaseException:
    return ValueError("\ud800\x00" + "x" * 3_000_000)


def _group() -> BaseException:
    error: Exception = StrRaises()
    for _ in range(3_000):
        error = ExceptionGroup("outer", [error])
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "StrRaises": StrRaises,
    "ReprRaises": ReprRaises,
    "ClassRaises": ClassRaises,
    "ExitsWhenRead": ExitsWhenRead,
    "SnoozeWithoutTime": SnoozeWithoutTime,
    "LimitWithoutTime": LimitWithoutTime,
    "OddTime": OddTime,
    "huge": _huge,
    "group": _group,
}


def act(job: str) -> str:
    if job in ERRORS:
        raise ERRORS[job]()
    return job


async def act_async(job: str) -> str:
    return act(job)


def act_on_all(items: Sequence[Item[str]]) -> None:
    for item in items:
        item.done(act(item.payload))


async def act_on_all_async(items: Sequence[Item[str]]) -> None:
    act_on_all(items)


class Payload:
    """A payload whose validation raises."""

    @classmethod
    def model_validate_json(cls, text: bytes) -> "Payload":
        raise StrRaises

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {}


def read(items: Sequence[Item[Payload]]) -> None:
    raise AssertionError("no item of this batch can be read")
