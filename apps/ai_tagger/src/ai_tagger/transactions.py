"""Transactions on the app's tables, repeated when another transaction got in the way."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.rows import dict_row

from ai_tagger.settings import Settings

Connection = psycopg.Connection[dict[str, Any]]
Returned = TypeVar("Returned")

REPEATABLE = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
"""Nothing was written, and the same statements may succeed."""
UNAVAILABLE = (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError, psycopg.ProgrammingError)
"""Away, full, read-only, or without the rights: not caused by the data that are written."""
_ATTEMPTS = 5


def in_transaction(settings: Settings, work: Callable[[Connection], Returned]) -> Returned:
    """Call `work` with a connection, and commit."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with psycopg.connect(settings.database_url, row_factory=dict_row) as connection:
                return work(connection)
        except REPEATABLE:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")
