"""The line of the user's code that called onerow, for warnings."""

import asyncio
import sys
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import ParamSpec, TypeVar

from onerow.core.failure import is_user_code

P = ParamSpec("P")
T = TypeVar("T")
_awaits: ContextVar[tuple[str, int] | None] = ContextVar("onerow_awaits", default=None)


def line_of_caller() -> tuple[str, int]:
    """Return file and line of the nearest frame in the user's code; in a thread of `to_thread`, of the code that awaits."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return _awaits.get() or ("onerow", 1)


async def to_thread(function: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
    """Do as asyncio.to_thread; in the thread, `line_of_caller` is the line that awaits."""
    context = copy_context()
    context.run(_awaits.set, line_of_caller())
    return await asyncio.get_running_loop().run_in_executor(None, lambda: context.run(function, *args, **keywords))
