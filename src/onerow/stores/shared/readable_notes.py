"""Reading notes: a damaged one must not stop the programs that read the others."""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeVar

from onerow.ports import Note

Row = TypeVar("Row")

_log = logging.getLogger("onerow")


def readable_notes(
    kind: str, rows: Iterable[Row], decode: Callable[[Row], Note], name_of: Callable[[Row], Any]
) -> list[Note]:
    """Return the notes of the rows that can be decoded; warn of each other one, once per process."""
    found = []
    for row in rows:
        try:
            found.append(decode(row))
        except Exception as error:
            _warn(kind, str(name_of(row)), str(error))
    return found


@lru_cache(maxsize=1_000)
def _warn(kind: str, name: str, why: str) -> None:
    _log.warning("the note %r of kind %r can't be read and is ignored: %s", name, kind, why)
