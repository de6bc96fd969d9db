"""Errors as the API and the pages show them: RFC 9457 problems with the same fix as the command line's."""

import re

import msgspec
from starlette.responses import Response

from onerow.core.errors import (
    BadInput,
    BadQuery,
    CorruptRow,
    IllegalMove,
    KeyTaken,
    LeaseLost,
    LostRace,
    OnerowError,
    RowRefused,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnknownName,
    WaitTimeout,
)

RETRY_AFTER = 5
CONTENT_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True):
    """One error. fix: what to do about it; field: the wrong field; column: of a mistake in a query."""

    status: int
    title: str
    detail: str
    fix: str = ""
    field: str = ""
    column: int | None = None
    retry_after: int | None = None
    type: str = "about:blank"
    allow: str = ""  # the methods that a 405 names


class Refused(Exception):
    """The request is answered with a problem before or instead of its handler."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


_STATUS: list[tuple[type[OnerowError], int]] = [
    (RowRefused, 422),
    (StoreFull, 507),
    (StoreError, 503),
    (UnknownName, 404),
    (BadInput, 422),
    (WaitTimeout, 408),
    (IllegalMove, 409),
    (KeyTaken, 409),
    (LeaseLost, 409),
    (LostRace, 409),
    (CorruptRow, 409),
]


INTERNAL_ERROR = Problem(500, "internal error", "this server made a mistake; its log has the traceback")


def not_answered(seconds: float) -> Problem:
    """Return the problem of a store that has not answered for some time."""
    detail = f"the store has not answered for {seconds:.0f} s"
    fix = "look for a lock or a long statement in the database"
    return Problem(503, "store unavailable", detail, fix, retry_after=RETRY_AFTER)


def problem_of(error: OnerowError) -> Problem:
    """Return the problem of an error that onerow raised."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__).lower()
    return Problem(
        status=status,
        title=words.replace("-", " "),
        detail=str(error),
        fix=error.fix,
        field=error.field if isinstance(error, BadInput) else "",
        column=error.column if isinstance(error, BadQuery) else None,
        retry_after=RETRY_AFTER if isinstance(error, StoreUnavailable | LostRace) else None,
        type=f"urn:onerow:problem:{words}",
    )


def problem_response(problem: Problem) -> Response:
    """Return a problem as application/problem+json."""
    body = {
        name: value for name, value in msgspec.structs.asdict(problem).items()
        if name not in ("retry_after", "allow") and value not in ("", None)
    }  # fmt: skip
    headers = {} if problem.retry_after is None else {"Retry-After": str(problem.retry_after)}
    if problem.allow:
        headers["Allow"] = problem.allow
    if problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="onerow"'
    return Response(msgspec.json.encode(body), problem.status, headers, CONTENT_TYPE)
