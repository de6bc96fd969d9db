"""Handlers that choose their outcome; module-level, because some run in their own processes."""

from typing import Any

from onerow import AsyncContext, CancelTask, Context, Pipeline, SkipPhase


def make(kind: str) -> Pipeline:
    """Two phases; the first does what the payload says."""
    pipeline = Pipeline("chosen")
    isolate: Any = {"isolate": "process"} if kind.startswith("isolated") else {}
    pipeline.phase(name="first", **isolate)(act_async if kind.endswith("async") else act)
    pipeline.phase(name="second")(note)
    return pipeline


def act(job: str, ctx: Context) -> Any:
    choose(job)
    ctx.step("before", str)
    ctx.sleep("1h")
    ctx.sleep("2h", name="long")
    return ctx.attempt


async def act_async(job: str, ctx: AsyncContext) -> Any:
    choose(job)
    await ctx.step("before", str)
    await ctx.sleep("1h")
    await ctx.sleep("2h", name="long")
    return ctx.attempt


def choose(job: str) -> None:
    if job == "cancel":
        raise CancelTask("the video was deleted")
    if job == "skip":
        raise SkipPhase("no audio track")
    if job == "group":
        raise ExceptionGroup("tasks", [SkipPhase("no audio track"), CancelTask("the video was deleted")])


def note(job: Any, first: Any) -> Any:
    return ["first was", first]
