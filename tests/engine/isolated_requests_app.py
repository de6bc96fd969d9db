"""Handlers for isolated processes: importable by name, communicating only through the context and the store."""

import os
import signal
from typing import Any

from onerow import AsyncContext, Context, Finish, Item, Jump, Pipeline, WaitExpired

parts = Pipeline("parts")
far = Pipeline("far")
nowhere = Pipeline("nowhere")


@parts.phase
def part(job: Any) -> Any:
    return job


@far.phase(isolate="process")
def first(job: Any, ctx: Context) -> Any:
    pid = ctx.step("pid", os.getpid)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ctx.spawn(parts, ["a", "b"])
    tally = ctx.join()
    found = sorted(child.result for child in ctx.children())
    answer = ctx.wait("go", timeout="1d")
    return Jump("third", [pid != os.getpid(), tally.completed, found, answer])


@far.phase
def second(job: Any) -> Any:
    raise AssertionError("left out")


@far.phase(isolate="process")
async def third(job: Any, ctx: AsyncContext) -> Any:
    value = await ctx.step("value", lambda: 1)
    try:
        await ctx.wait("never", timeout="50ms")
    except WaitExpired:
        return Finish(value)


@far.phase
def fourth(job: Any) -> Any:
    raise AssertionError("left out")


@nowhere.phase(isolate="process", retry=0)
def lost(job: Any, ctx: Context) -> None:
    ctx.spawn("no such pipeline", [1])


clumsy = Pipeline("clumsy")


@clumsy.batch("embed", size=2, within="100ms")
def embed(items: list[Item[str]]) -> None:
    for item in items:
        if item.payload == "bad":
            os.kill(os.getpid(), signal.SIGKILL)
        item.done("vector")
