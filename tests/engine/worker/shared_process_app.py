"""Handlers that harm the process they share with others; module-level functions, so that they can run isolated too."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from onerow import AsyncContext, Context, Item, Permanent, Pipeline, Retry

SOON = Retry(1, wait="1ms")

threads, loop, batches, loop_batches, held = (
    Pipeline(name) for name in ("threads", "loop", "batches", "loop_batches", "held")
)

begun: list[str] = []
"""The jobs that wait in this process."""

enough = 3
"""Jobs of which a harmful one waits for the others."""


def raise_for(job: str) -> None:
    """Raise what the job names."""
    match job:
        case "EMFILE":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        case "ENFILE":
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        case "ENOMEM":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        case "thread":
            raise RuntimeError("can't start new thread")
        case "hidden":
            try:
                raise_for("EMFILE")
            except OSError as error:
                raise ValueError("the service could not be reached") from error
        case "grouped":
            raise ExceptionGroup("two", [ValueError("x"), OSError(errno.EMFILE, "full")])
        case "memory":
            raise MemoryError
        case "permanent":
            try:
                raise_for("EMFILE")
            except OSError as error:
                raise Permanent("this film has too many files") from error


@threads.phase(retry=SOON)
def run(job: str, ctx: Context) -> int:
    name, _, times = job.partition(" ")
    if times != "once" or ctx.attempt == 1:
        raise_for(name)
    return os.getpid()


@loop.phase(name="run", retry=SOON)
async def arun(job: str, ctx: AsyncContext) -> int:
    await act(job, ctx.attempt)
    return os.getpid()


@held.resource
async def beacon() -> AsyncIterator[list[str]]:
    """A resource that is closed when its asyncio task is cancelled."""
    state = ["open"]
    try:
        yield state
    finally:
        state[0] = "closed"


@held.phase(name="run", retry=SOON)
async def use(job: str, ctx: AsyncContext, beacon: list[str]) -> int:
    if job == "use" and ctx.attempt == 1:
        begun.append(job)
        while beacon[0] == "open":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        raise RuntimeError("the beacon is closed")
    await act(job, ctx.attempt)
    return os.getpid()


@batches.batch("run", size=2, within="10ms", retry=SOON)
def act_on_all(items: Sequence[Item[str]]) -> None:
    for item in items:
        name, _, how = item.payload.partition(" ")
        if item.task.attempt > 1:
            item.done(os.getpid())
        elif how == "settled":
            try:
                raise_for(name)
            except OSError as error:
                item.fail(error)
        else:
            raise_for(name)
            item.done(os.getpid())


@loop_batches.batch("run", size=2, within="10ms", retry=SOON)
async def act_on_all_async(items: Sequence[Item[str]]) -> None:
    await act(items[0].payload, items[0].task.attempt)
    for item in items:
        item.done(os.getpid())


async def act(job: str, attempt: int) -> None:
    """Wait for ever in the first attempt, or harm the others when enough of them wait."""
    running = asyncio.get_running_loop()
    if job == "wait":
        if attempt == 1:
            begun.append(job)
            await asyncio.Event().wait()
        return
    if job == "in a thread":
        if attempt == 1:
            begun.append(job)
            while not getattr(running, "_executor_shutdown_called", False):
                await asyncio.sleep(0.01)
        await asyncio.to_thread(os.getpid)
        return
    while attempt == 1 and len(begun) < enough:
        await asyncio.sleep(0.01)
    match job:
        case "cancel all":
            cancel_all()
            await asyncio.sleep(10)
        case "cancel all and return":
            if attempt == 1:
                cancel_all()
        case "shut the executor down":
            await running.shutdown_default_executor()
        case "close the loop":
            if attempt == 1:
                running.call_soon(_leave, running)
                await asyncio.sleep(600)
        case _:
            raise_for(job)


def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


class _Leave(SystemExit):
    """Ends `run_forever`, and closes the loop when it is printed."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop

    def __str__(self) -> str:
        self.loop.close()
        return "closed"


def _leave(loop: Any) -> None:
    raise _Leave(loop)
