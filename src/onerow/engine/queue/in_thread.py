"""How every async method runs: the sync method, in a thread."""

from typing import Any

from onerow.core.caller import to_thread


async def in_thread(target: object, method: str, *args: Any, **keywords: Any) -> Any:
    """Call a method in a thread, so that the event loop is not blocked."""
    return await to_thread(getattr(target, method), *args, **keywords)
