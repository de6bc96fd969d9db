"""Translates exceptions of psycopg and of other drivers into StoreError."""

import struct

import psycopg
from psycopg import errors

from onerow.core.errors import (
    RetryTransaction,
    RowRefused,
    SchemaMissing,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

CONNECTION_ENDED = frozenset({"57P01", "57P02", "08003", "08006"})
"""SQLSTATEs with which the server ends one connection; a new one may work."""
_RETRYABLE = {"40001", "40P01"}
_SLOT_INDEXES = {"task_slot", "task_key_slot"}
_READ_ONLY = {"25006", "42501"}
_MISSING = {"42P01", "3F000", "42883", "42703"}
_REFUSED = {"23502", "23514"}  # NOT NULL, CHECK
_FULL = {"53100", "53400"}
_TOO_LONG = "54000"


def store_error(error: BaseException, where: str) -> StoreError:
    """Return the StoreError for a driver's exception."""
    state = sqlstate(error)
    text = str(error).strip().partition("\n")[0]
    if state in _RETRYABLE or _is_slot_collision(error):
        return RetryTransaction(f"{where}: {text}")
    if state in _MISSING:
        return SchemaMissing(f"{where}: {text}; the tables are missing or older than this code")
    if state in _READ_ONLY or (state == "0A000" and "recovery" in text):  # a standby refuses READ WRITE as unsupported
        reads = (
            "this role may only read"
            if state == "42501"
            else "this server is a standby or read-only: connect to the primary"
        )
        return StoreReadOnly(f"{where}: {text}", fix=reads)
    if state in _FULL:
        return StoreFull(f"{where}: {text}")
    if state == _TOO_LONG:
        return StoreError(f"{where}: {text}", fix="shorten the key: unique keys, user ids and limit keys are indexed")
    if state == "57014":
        return StoreUnavailable(
            f"{where}: {text}; the statement exceeded its timeout", fix="set a longer statement_timeout"
        )
    if isinstance(error, struct.error) or state[:2] == "22" or state in _REFUSED:
        return RowRefused(f"{where}: {text}")
    if state[:2] in ("08", "53", "57", "58") or (not state and isinstance(error, psycopg.OperationalError)):
        return StoreUnavailable(f"{where}: {text}")
    return StoreError(f"{where}: {text}")


def sqlstate(error: BaseException | None) -> str:
    """Return the SQLSTATE of an exception from any supported driver or library; '' for a client-side error."""
    while error is not None:
        for name in ("sqlstate", "pgcode"):
            if isinstance(state := getattr(error, name, None), str):
                return state
        error = getattr(error, "orig", None) or error.__cause__
    return ""


def _is_slot_collision(error: BaseException) -> bool:
    """Whether another claim took the slot: claims hold an advisory lock, but other writers may not."""
    return isinstance(error, errors.UniqueViolation) and error.diag.constraint_name in _SLOT_INDEXES
