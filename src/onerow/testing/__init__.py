"""Test support for users: the real rules and worker roles over a memory store with a virtual clock.

The pytest plugin provides the fixture `rehearsal`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onerow.testing.rehearsals import Rehearsal

__all__ = ["Rehearsal", "rehearsal"]


@pytest.fixture
def rehearsal() -> Iterator["Rehearsal"]:
    """A queue in memory with a virtual clock; see onerow.testing.Rehearsal."""
    from onerow.testing.rehearsals import Rehearsal

    with Rehearsal() as made:
        yield made


def __getattr__(name: str) -> object:
    # Imported on use, so that other pytest runs do not pay for it.
    if name == "Rehearsal":
        from onerow.testing.rehearsals import Rehearsal

        return Rehearsal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
