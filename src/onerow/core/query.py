"""Query language for tasks: `status:failed (phase:video OR phase:image) -user:u1 age:>1h sort:oldest some text`.

    query       = alternative { "or" alternative }
    alternative = condition { ["and"] condition }
    condition   = ("-" | "not") condition | "(" query ")" | key ":" value | word

A value or word with blanks or parentheses is quoted. Words without a key form one text, searched in title, error, id
and payload. `sort:` stands once, outside of groups.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import asdict

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, BadQuery
from onerow.core.failure import ERROR_CLASSES
from onerow.core.filters import Filter, Order
from onerow.core.status import WAITING, Status
from onerow.core.suggest import did_you_mean
from onerow.core.times import parse_time

KEYS = {
    "status": "waiting, processing, completed, failed, cancelled or parked; several with commas",
    "pipeline": "the pipeline's name",
    "phase": "the phase's name; several with commas",
    "user": "the owner",
    "id": "the task id or its beginning",
    "error": "a class of error (network, timeout …), or text in the error",
    "title": "text in the title",
    "key": "the limit key",
    "unique": "the unique key",
    "parent": "the parent's id",
    "worker": "the worker that holds it",
    "signal": "the signal that it waits for",
    "age": "how long ago it was added: age:>1h, age:<10m",
    "ended": "how long ago it ended: ended:<1h",
    "is": "due, or cancelling",
    "payload.…": "a value in the payload, by its path: payload.topic:tides",
    "metadata.…": "a value in the metadata, by its path: metadata.order.id:7",
    "sort": "newest, oldest, due (waiting tasks only), ended or latest",
}
"""Every key of the language, and its possible values."""

ORDERS: tuple[Order, ...] = get_args(Order)
_OPERATORS = ("or", "and", "not")
STATUSES = (*(status.value for status in Status), "parked")
CONDITIONS = {"due": "waiting tasks that may start", "cancelling": "running tasks that are to stop"}
"""The values of `is:`."""
_MOST_CONDITIONS, _DEEPEST = 100, 20

_TOKEN = re.compile(r'\s*(?P<token>[()]|-(?=[^\s)])|(?:"[^"]*"|[^\s"()])+|")')
_TERM = re.compile(r"([A-Za-z_][\w.\-]*):(.*)", re.DOTALL)
_EQUAL = {
    "pipeline": "pipeline",
    "user": "user_id",
    "id": "id_prefix",
    "title": "title_text",
    "key": "limit_key",
    "unique": "unique_key",
    "parent": "parent_id",
    "worker": "leased_by",
}
_REPEATABLE = ("title_text", "error_text")  # a text may contain several parts
_LISTS = ("payload", "metadata", "all_of", "none_of")
_PARKED = Filter(statuses=frozenset({WAITING}), parked=True)


class Query(msgspec.Struct, frozen=True):
    """What a query asks for: a filter, and the order that `sort:` names (None: the caller's)."""

    where: Filter
    order: Order | None = None


def parse_query(text: str, now: datetime) -> Query:
    """Parse a query; raise BadQuery with the column of the mistake. Ages count back from `now`."""
    return _Parser(text, now).whole()


class _Token(NamedTuple):
    text: str
    column: int  # from 1

    @property
    def operator(self) -> str:
        return folded if (folded := self.text.lower()) in _OPERATORS else ""


_END = _Token("", 0)


class _Parser:
    """A recursive descent over the tokens of one query."""

    def __init__(self, text: str, now: datetime) -> None:
        self._now = now
        self._end = len(text) + 1
        self._tokens = _tokens(text)
        self._next = 0
        self._order: Order | None = None
        self._sorted_at = 0
        self._conditions = 0

    def whole(self) -> Query:
        where = self._alternatives(0) if self._tokens else Filter()
        if self._peek() is not _END:
            raise BadQuery("nothing opened this parenthesis", self._peek().column, fix="remove it, or quote it")
        if self._order == "due":
            where = _both([(where, 1), (Filter(statuses=frozenset({WAITING})), self._sorted_at)])
        return Query(where, self._order)

    def _peek(self) -> _Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _alternatives(self, depth: int) -> Filter:
        found = [self._conjunction(depth)]
        while self._peek().operator == "or":
            self._take()
            found.append(self._conjunction(depth))
        return found[0] if len(found) == 1 else Filter(any_of=tuple(found))

    def _conjunction(self, depth: int) -> Filter:
        parts: list[tuple[Filter, int]] = []
        words: list[str] = []
        only_sort = False
        while (token := self._peek()) is not _END and token.text != ")" and token.operator != "or":
            if token.operator == "and":
                self._take()
                if not (parts or words or only_sort) or self._peek() is _END:
                    raise BadQuery("AND needs a condition on both sides", token.column)
            elif _is_word(token):
                words.append(self._take().text.replace('"', ""))
            elif token.text.startswith("sort:"):
                self._sort(self._take(), depth)
                only_sort = True
            else:
                parts.append((self._condition(depth), token.column))
        if words:
            parts.append((Filter(text=" ".join(words)), self._end))
        if not parts and not (only_sort and depth == 0):
            column = self._peek().column or self._end
            raise BadQuery("a condition is missing here, for example status:failed", column)
        return _both(parts)

    def _condition(self, depth: int) -> Filter:
        token = self._take()
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS or depth > _DEEPEST:
            raise BadQuery(f"a query has at most {_MOST_CONDITIONS} conditions, in at most {_DEEPEST} groups", token.column)  # fmt: skip
        if token.text == "-" or token.operator == "not":
            return _none(self._negated(token, depth + 1))
        if token.text == "(":
            found = self._alternatives(depth + 1)
            if self._take().text != ")":
                raise BadQuery("this parenthesis is never closed", token.column)
            return found
        return self._term(token)

    def _negated(self, operator: _Token, depth: int) -> Filter:
        token = self._peek()
        apart = operator.text == "-" and token.column != operator.column + 1
        if apart or token is _END or token.text == ")" or token.operator in ("or", "and"):
            raise BadQuery("a condition must follow what negates it: -status:failed, NOT (…)", operator.column)
        if token.text.startswith("sort:"):
            raise BadQuery("sort: is an order, not a condition", token.column)
        if _is_word(token):
            return Filter(text=self._take().text.replace('"', ""))
        return self._condition(depth)

    def _term(self, token: _Token) -> Filter:
        term = _TERM.fullmatch(token.text)
        assert term is not None
        key, value = term[1], term[2].replace('"', "")
        if not value and key != "user":
            raise BadQuery(f"{key}: needs a value right after the colon", token.column, fix="quote a value with blanks or parentheses")  # fmt: skip
        try:
            return self._filter(key, value, token.column)
        except BadQuery:
            raise
        except BadInput as error:  # a duration or a time
            raise BadQuery(str(error), token.column, fix=error.fix) from None

    def _filter(self, key: str, value: str, column: int) -> Filter:
        match key:
            case "status":
                return _statuses(value, column)
            case "phase":
                return Filter(phases=frozenset(value.split(",")))
            case "error":
                return Filter(error_class=value) if value in ERROR_CLASSES else Filter(error_text=value)
            case "signal":
                return Filter(awaiting=f"signal:{value}")
            case "age":
                return _ago(key, value, self._now, "created_before", "created_after")
            case "ended":
                return _ago(key, value, self._now, "ended_before", "ended_after")
            case "is":
                return self._is(value, column)
        if key in _EQUAL:
            return _only(_EQUAL[key], value)
        column_name, _, path = key.partition(".")
        if column_name in ("payload", "metadata") and path:
            return _only(column_name, ((path, value),))
        hint = did_you_mean("age:" if key == "added" else f"{key}:", [f"{known}:" for known in KEYS])
        raise BadQuery(f"no key {key}:", column, fix=f'{hint}; to search for the text, quote it: "{key}:{value}"')

    def _is(self, value: str, column: int) -> Filter:
        match value:
            case "due":
                return Filter(statuses=frozenset({WAITING}), parked=False, due_before=self._now)
            case "cancelling":
                return Filter(cancel_requested=True)
            case "parked":
                raise BadQuery("is:parked is written status:parked", column)
        raise BadQuery(f"no condition is:{value}", column, fix=did_you_mean(value, CONDITIONS))

    def _sort(self, token: _Token, depth: int) -> None:
        value = token.text.removeprefix("sort:")
        if depth:
            raise BadQuery("sort: orders the whole result", token.column, fix="write it outside of parentheses")
        if self._order is not None:
            raise BadQuery("sort: may stand only once", token.column)
        self._sorted_at = token.column
        self._order = next((order for order in ORDERS if order == value), None)
        if self._order is None:
            raise BadQuery(f"no order {value!r}", token.column, fix=did_you_mean(value, ORDERS))


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        assert match is not None
        token, start = match["token"], match.start("token")
        if token == '"' or token.count('"') % 2:
            raise BadQuery("this quotation mark is never closed", start + 1 + token.index('"'))
        # Parentheses group only where they stand apart: a text like f(x) must be quoted.
        if token == "(" and start and not (text[start - 1].isspace() or text[start - 1] in "(-"):
            raise BadQuery("quote a text with parentheses", start + 1)
        if found and found[-1].text == ")" and start == found[-1].column and token != ")":
            raise BadQuery("a blank must follow the parenthesis", start + 1, fix="quote a text with parentheses")
        found.append(_Token(token, start + 1))
        position = match.end()
    return found


def _is_word(token: _Token) -> bool:
    """Whether the token is a text to search for: no key, operator or parenthesis."""
    if token.text in ("(", ")", "-") or token.operator:
        return False
    return token.text.startswith('"') or _TERM.fullmatch(token.text) is None


def _both(parts: Iterable[tuple[Filter, int]]) -> Filter:
    """Return a filter for tasks that match every part, with as many conditions as possible in its own fields."""
    fields: dict[str, Any] = {}
    apart: list[Filter] = []
    for part, column in parts:
        for field, value in asdict(part).items():
            if value == getattr(_ALL, field):
                continue
            known = fields.get(field, value)
            if field in _LISTS:
                fields[field] = (*fields.get(field, ()), *value)
            elif known == value:
                fields[field] = value
            elif isinstance(value, frozenset) and known & value:
                fields[field] = known & value
            elif field in _REPEATABLE or field == "any_of":
                apart.append(_only(field, value))
            else:
                raise BadQuery("this contradicts an earlier condition: no task can meet both", column, fix="join them with OR")  # fmt: skip
    fields["all_of"] = (*fields.get("all_of", ()), *apart)
    return Filter(**fields)


_ALL = Filter()


def _only(field: str, value: Any) -> Filter:
    fields: dict[str, Any] = {field: value}
    return Filter(**fields)


def _none(excluded: Filter) -> Filter:
    """Return a filter for tasks that do not match."""
    if excluded == Filter(any_of=excluded.any_of):
        return Filter(none_of=excluded.any_of)
    return Filter(none_of=(excluded,))


def _statuses(value: str, column: int) -> Filter:
    names = value.split(",")
    for name in names:
        if name not in STATUSES:
            raise BadQuery(f"no status {name!r}", column, fix=did_you_mean(name, STATUSES))
    statuses = frozenset(Status(name) for name in names if name != "parked")
    if "parked" not in names or WAITING in statuses:  # a parked task has the status waiting
        return Filter(statuses=statuses)
    return Filter(any_of=(Filter(statuses=statuses), _PARKED)) if statuses else _PARKED


def _ago(key: str, value: str, now: datetime, before: str, since: str) -> Filter:
    """Parse an age: more than a duration (>) or within it (<, default); also a time, as in age:<2026-11-15T00:00Z."""
    sign, rest = (value[0], value[1:].removeprefix("=")) if value[0] in "<>" else ("<", value)
    if re.match(r"\d{4}-", rest):
        moment = parse_time(rest if "T" in rest else f"{rest}T00:00:00Z", key)
    else:
        moment = now - parse_duration(rest, key)
    return _only(before if sign == ">" else since, moment)
