"""How every async method runs: the sync method, in a thread."""

import asyncio
from typing import Any


async def in_thread(target: object, method: str, *args: Any, **keywords: Any) -> Any:
    """Call a method in a thread, so that the event loop is not blocked."""
    return await asyncio.to_thread(getattr(target, method), *args, **keywords)
