"""For users' own tests: the real rules and roles over a memory store, a clock of the test's own, and no sleeping.

As a pytest plugin it gives the fixture `rehearsal`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onerow.testing.rehearsal import Rehearsal

__all__ = ["Rehearsal", "rehearsal"]


@pytest.fixture
def rehearsal() -> Iterator["Rehearsal"]:
    """A queue in memory, with a virtual clock; see onerow.testing.Rehearsal."""
    from onerow.testing.rehearsal import Rehearsal

    with Rehearsal() as made:
        yield made


def __getattr__(name: str) -> object:
    # Late, so that pytest runs which don't use it don't pay for it.
    if name == "Rehearsal":
        from onerow.testing.rehearsal import Rehearsal

        return Rehearsal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
