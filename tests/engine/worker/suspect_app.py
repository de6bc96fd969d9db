"""Handlers for suspects: module-level functions, so that another process can import them."""

import os
import signal
import time
from typing import Any

from onerow import Context, Pipeline, Retry

quick = Pipeline("quick")
waiting = Pipeline("waiting")
isolated = Pipeline("isolated")


@quick.phase
async def run(job: int) -> int:
    return os.getpid()


@waiting.phase(retry=Retry(0), timeout="5m", lease="10m")
def wait(job: Any, ctx: Context) -> str:
    return _wait(ctx)


@isolated.phase(isolate="process", retry=Retry(0), timeout="5m", lease="10m", name="wait")
def wait_isolated(job: Any, ctx: Context) -> str:
    return _wait(ctx)


def _wait(ctx: Context) -> str:
    """Report the pids, then wait to be killed; from the third attempt on, return."""
    if ctx.attempt > 2:
        return "done"
    ctx.progress(os.getpid(), os.getppid())
    time.sleep(300)
    raise AssertionError(signal.SIGKILL)
