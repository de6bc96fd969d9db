"""Async methods, rendered by tools/render_async.py from schedules.py; do not edit."""

# mypy: warn-return-any=False
from onerow.engine.control.schedules import Scheduled
from onerow.engine.queue.in_thread import in_thread


class CronsAsync:
    """Async methods of Crons."""

    async def all_async(self) -> list[Scheduled]:
        """Async `all`."""
        return await in_thread(self, "all")

    async def pause_async(self, pipeline: str, name: str, *, by: str = "", reason: str = "") -> None:
        """Async `pause`."""
        return await in_thread(self, "pause", pipeline, name, by=by, reason=reason)

    async def resume_async(self, pipeline: str, name: str) -> bool:
        """Async `resume`."""
        return await in_thread(self, "resume", pipeline, name)
