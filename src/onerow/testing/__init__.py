"""Test support for users: the real rules and worker roles over a memory store with a virtual clock.

The pytest plugin provides the fixture `rehearsal`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from onerow import environment

if TYPE_CHECKING:
    from onerow.testing.rehearsals import Rehearsal

__all__ = ["Rehearsal", "rehearsal"]


def pytest_load_initial_conftests() -> None:
    """Let no ONEROW_STORE of a shell replace the URL that a test, or the app it imports, names."""
    environment.replaces_urls = False


def rehearsal() -> Iterator["Rehearsal"]:
    """A queue in memory with a virtual clock; see onerow.testing.Rehearsal."""
    from onerow.testing.rehearsals import Rehearsal

    with Rehearsal() as made:
        yield made


with suppress(ImportError):  # Rehearsal needs no pytest
    import pytest

    rehearsal = pytest.fixture(rehearsal)


def __getattr__(name: str) -> object:
    # Imported on use, so that other pytest runs do not pay for it.
    if name == "Rehearsal":
        from onerow.testing.rehearsals import Rehearsal

        return Rehearsal
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
