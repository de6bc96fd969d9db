"""Async methods, rendered by tools/render_async.py from puller.py; do not edit."""

# mypy: warn-return-any=False
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from onerow.engine.queue.in_thread import in_thread
from onerow.engine.queue.lease import Leased


class PullerAsync:
    """Async methods of Puller."""

    async def claim_async(self, limit: int = 1, *, ids: Sequence[str] | None = None) -> list[Leased]:
        """Async `claim`."""
        return await in_thread(self, "claim", limit, ids=ids)

    async def close_async(self) -> None:
        """Async `close`."""
        return await in_thread(self, "close")

    async def __aenter__(self) -> Self:
        await in_thread(self, "__enter__")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return await in_thread(self, "__exit__", kind, error, trace)
