"""Resources, middleware and error tables for handlers in processes of their own: module-level functions."""

import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from onerow import Context, Item, Pipeline, Retry

tenant: ContextVar[str] = ContextVar("tenant", default="")


class SoldOut(Exception):
    pass


class Gone(SoldOut):
    pass


def notes() -> Path:
    """The file that tells, line by line, what happened in which order, in all processes."""
    return Path(os.environ["EXTENDED_NOTES"])


def note(text: str) -> None:
    with notes().open("a") as file:
        file.write(f"{text} {os.getpid()}\n")


def model() -> Iterator[dict[str, Any]]:
    note("make model")
    yield {"pid": os.getpid()}
    note("close model")


async def pool() -> AsyncIterator[list[int]]:
    note("make pool")
    yield [os.getpid()]
    note("close pool")


def broken() -> object:
    if Path(os.environ["EXTENDED_NOTES"]).with_suffix(".mended").exists():
        return "mended"
    raise FileNotFoundError("no model.bin")


def as_tenant(ctx: Context) -> Iterator[None]:
    token = tenant.set(ctx.user_id)
    note(f"enter {ctx.phase}")
    yield
    note(f"leave {ctx.phase}")
    tenant.reset(token)


def refusing(ctx: Context) -> Iterator[None]:
    if ctx.task.payload == "refuse":
        raise PermissionError("no such tenant")
    yield


def classes(error: BaseException) -> str | None:
    return "permanent" if isinstance(error, KeyError) else None


def make(kind: str) -> Pipeline:
    pipeline = Pipeline("extended", errors={SoldOut: "permanent"})
    pipeline.resource(model)
    pipeline.resource(pool)
    pipeline.middleware(as_tenant)
    pipeline.middleware(refusing)
    isolate: Any = {"isolate": "process"} if kind.startswith("isolated") else {}
    retry = Retry(1, wait="1ms")
    pipeline.phase(name="act", errors=classes, retry=retry, **isolate)(act_async if kind.endswith("async") else act)
    return pipeline


def make_batch() -> Pipeline:
    pipeline = Pipeline("batches")
    pipeline.resource(model)

    @pipeline.batch("embed", size=2, within="10s")
    def embed(items: list[Item[int]], model: dict[str, Any]) -> None:
        for item in items:
            item.done(model["pid"])

    return pipeline


def make_broken() -> Pipeline:
    pipeline = Pipeline("broken")
    pipeline.resource(broken)
    pipeline.phase(isolate="process", name="act")(use_broken)
    return pipeline


def use_broken(job: object, broken: object) -> object:
    return broken


def act(job: Any, model: dict[str, Any]) -> Any:
    fail(job)
    return [model["pid"] == os.getpid(), tenant.get()]


async def act_async(job: Any, model: dict[str, Any], pool: list[int]) -> Any:
    fail(job)
    return [model["pid"] == pool[0] == os.getpid(), tenant.get()]


def fail(job: Any) -> None:
    if job == "gone":
        raise Gone("no more tickets")
    if job == "key":
        raise KeyError("name")
    if job == "other":
        raise LookupError("elsewhere")
