"""A table of a plan file: takes known keys and names the path of every wrong one."""

from collections.abc import Callable
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean

T = TypeVar("T")
_REQUIRED: Any = object()


class PlanError(BadInput):
    """A mistake in a plan file; the message begins with the path of the key."""

    def __init__(self, path: str, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{path}: {problem}", fix=fix, field=path)


class Section:
    """One table. `take` removes a key; `close` reports the keys that are left."""

    def __init__(self, path: str, given: object) -> None:
        self.path = path
        if not isinstance(given, dict):
            raise PlanError(path, f"must be a table, not {_kind(given)}", fix=f"write [{path}] and keys below it")
        self._given: dict[str, Any] = dict(given)
        self._known: set[str] = set()

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        self._known.add(key)
        return key in self._given

    def only_one(self, *keys: str) -> None:
        """Raise PlanError if more than one of these keys is given."""
        given = [key for key in keys if self.has(key)]
        if len(given) > 1:
            raise PlanError(self.path, f"{given[0]!r} and {given[1]!r} exclude each other", fix="remove one of them")

    def take(self, key: str, read: Callable[[Any, str], T], default: T = _REQUIRED) -> T:
        """Return a value as `read(value, path)` makes it, or the default if the key is missing."""
        self._known.add(key)
        path = self.path_of(key)
        if key not in self._given:
            if default is _REQUIRED:
                # A misspelt key is the likely cause: name it.
                near = get_close_matches(key, [each for each in self._given if each not in self._known], 1)
                raise PlanError(path, "is missing", fix=f"rename {near[0]!r} to {key!r}" if near else "add it")
            return default
        value = self._given.pop(key)
        try:
            return read(value, path)
        except PlanError:
            raise
        except BadInput as error:
            problem = str(error).removeprefix(f"{path}: ").removeprefix(f"{path} ")
            raise PlanError(path, problem, fix=error.fix) from None

    def close(self) -> None:
        """Raise PlanError for the first key that is not known here."""
        for key in self._given:
            raise PlanError(self.path_of(key), "is not a key here", fix=did_you_mean(key, self._known))


def _kind(value: object) -> str:
    return {dict: "a table", list: "a list", str: "text", bool: "true or false"}.get(type(value), "a number")


def text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PlanError(path, f"must be text, not {_kind(value) if not isinstance(value, str) else 'empty'}")
    return value


def whole(least: int, most: int = 10_000_000) -> Callable[[Any, str], int]:
    """Return a reader of whole numbers in a range."""

    def read(value: Any, path: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise PlanError(path, f"must be a whole number from {least:,} to {most:,}, not {value!r}")
        return value

    return read


def number(least: float, most: float) -> Callable[[Any, str], float]:
    """Return a reader of numbers in a range."""

    def read(value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise PlanError(path, f"must be a number from {least:g} to {most:,g}, not {value!r}")
        return float(value)

    return read


def span(value: Any, path: str) -> timedelta:
    """Read a duration such as '30s'."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise PlanError(path, f"must be a duration like '30s' or '2h', not {_kind(value)}")
    return parse_duration(value, path)


def positive_span(value: Any, path: str) -> timedelta:
    found = span(value, path)
    if found < timedelta(milliseconds=1):
        raise PlanError(path, "must be at least 1ms")
    return found
