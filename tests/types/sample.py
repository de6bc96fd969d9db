"""A typed application: what type checkers must accept, and what they must reject.

`make lint` checks it with mypy --strict and pyright. A line with an ignore must be an error in that checker: both report
an ignore that is not needed.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, assert_type

from onerow import (
    Addition,
    AsyncContext,
    Child,
    ChildCounts,
    Context,
    Filter,
    Finish,
    Item,
    Jump,
    Leased,
    Leases,
    Page,
    Pipeline,
    Progress,
    Puller,
    Queue,
    Selection,
    Signal,
    Task,
    TaskCount,
)
from onerow.asgi import lifespan


@dataclass
class Video:
    url: str
    length: int = 60


class Post(TypedDict):
    title: str


queue = Queue("memory://")

# ── pipelines ──

videos = Pipeline("videos", payload=Video)
posts = Pipeline("posts", payload=Post)
numbers = Pipeline[int]("numbers")
plain = Pipeline("plain")
unions = Pipeline("unions", payload=int | str)
assert_type(videos, Pipeline[Video])
assert_type(posts, Pipeline[Post])
assert_type(numbers, Pipeline[int])
assert_type(plain, Pipeline[Any])
assert_type(unions, Pipeline[Any])


@videos.phase
def download(video: Video) -> str:
    return video.url


@videos.phase(concurrency=4, timeout="2m", rate="60/min", isolate="process")
def cut(video: Video, download: str, *, ctx: Context) -> int:
    return len(ctx.step("cut", download.upper))


@videos.phase
async def upload(video: Video, cut: int, ctx: AsyncContext) -> str:
    return await ctx.step("upload", fetch, video.url, tries=cut)


@videos.phase(name="notify")
def notify_owner(ctx: Context) -> None:
    ctx.log(ctx.user_id)


@videos.phase
def tidy() -> None: ...


@plain.phase
def anything(job: dict[str, int], *, ctx: Context) -> int:
    return job["n"]


@plain.phase(retry=5)
def more(job: int, anything: str) -> str:
    return anything


@videos.batch("index", size=50, within="1s")
def index(items: list[Item[Video]]) -> None:
    for item in items:
        item.done(item.payload.url)


async def fetch(url: str, *, tries: int) -> str:
    return url * tries


def handlers_keep_their_types() -> None:
    assert_type(cut(Video("u"), "d", ctx=context()), int)
    assert_type(anything({"n": 1}, ctx=context()), int)
    assert_type(more(job=1, anything="a"), str)
    anything(job="n", ctx=context())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def context() -> Context:
    raise NotImplementedError


def wrong_handlers() -> None:
    @videos.phase  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
    def other_payload(post: int) -> None: ...

    @videos.phase(concurrency=2)  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
    async def other_payload_too(post: Post, cut: int) -> None: ...

    videos.phase(concurrency="4")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    videos.phase(concurency=4)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    videos.command("x", ["ls"], timeout=[])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    videos.command("x", ["ls"], concurency=4)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


# ── adding ──


def adds() -> None:
    assert_type(queue.add(videos, Video("u"), title="a", delay="10m", metadata={"a": 1}), Task)
    assert_type(queue.add(posts, Post(title="a")), Task)
    assert_type(queue.add(numbers, 5), Task)
    assert_type(queue.add(plain), Task)
    assert_type(queue.add(plain, {"n": 1}), Task)
    assert_type(queue.add("videos", {"url": "u"}), Task)
    assert_type(queue.add_new(videos, Video("u"), unique="u"), Task | None)
    assert_type(queue.add_many(videos, [Video("u"), Video("v")], user_id="ann"), list[Task])
    assert_type(queue.add_many(videos, [Addition(Video("v"), priority=3)]), list[Task])
    queue.add(videos, {"url": "u"})  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.add(videos, 5)  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.add(videos)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    queue.add(numbers, "5")  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.add(5)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    queue.add(videos, Video("u"), titel="a")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    queue.add(videos, Video("u"), user_id=7)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.add_new(videos, 5)  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(queue.add_many(plain, ({"n": n} for n in range(3))), list[Task])
    assert_type(queue.add_many("videos", [{"url": "u"}]), list[Task])
    queue.add_many(videos, Video("u"))  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.add_many(videos, [5])  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]


def any_pipeline(pipeline: Pipeline) -> Task:
    return queue.add(pipeline, 5)


# ── signals and results ──


@dataclass
class Image:
    url: str


image = videos.wait_for("image", signal="image", payload=Image, timeout="1h")
approval = videos.wait_for("approval", signal="approved")
assert_type(image, Signal[Image])
assert_type(approval, Signal[Any])


@videos.phase
def join(video: Video, image: Image) -> list[str] | Jump:
    return Jump("tidy") if not video.url else [video.url, image.url]


@videos.phase
async def publish(video: Video) -> Image | Finish:
    return Image(video.url)


def signals(task_id: str) -> None:
    assert_type(queue.signal(task_id, image, Image("u")), Task)
    assert_type(queue.signal(task_id, approval, {"by": "ann"}), Task)
    assert_type(queue.signal(task_id, "image", {"url": "u"}), Task)
    assert_type(queue.select().signal(image, Image("u")), Progress)
    queue.signal(task_id, image, "u")  # type: ignore[misc] # pyright: ignore[reportArgumentType]
    queue.select().signal(image, 5)  # type: ignore[misc] # pyright: ignore[reportArgumentType]


async def signals_async(task_id: str) -> None:
    assert_type(await queue.signal_async(task_id, image, Image("u")), Task)
    assert_type(await queue.select().signal_async(image, Image("u")), Progress)
    await queue.signal_async(task_id, image, "u")  # type: ignore[misc] # pyright: ignore[reportArgumentType]


def results(task: Task) -> None:
    assert_type(videos.result_of(task, download), str)
    assert_type(videos.result_of(task, cut), int)
    assert_type(videos.result_of(task, upload), str)
    assert_type(videos.result_of(task, join), list[str])
    assert_type(videos.result_of(task, publish), Image)
    videos.result_of(task, "download")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]


# ── reading, operating, pulling ──


def reads(task: Task) -> None:
    assert_type(queue.get(task.task_id), Task)
    assert_type(queue.find_one(task.task_id), Task | None)
    assert_type(queue.find(Filter(pipeline="videos")), Page)
    assert_type(queue.count(), list[TaskCount])
    assert_type(queue.select(), Selection)
    assert_type(queue.select().cancel(pace="20/min", by="ann"), Progress)
    assert_type(queue.claim(videos), Leases)
    assert_type(queue.puller(videos), Puller)
    queue.get(7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    queue.select().cancel(pase="20/min")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    queue.retry_failed(polcy=None)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    queue.alert("https://x", failurs=False)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    lifespan(queue, videos, plain, concurrency=4)
    lifespan(queue, videos, concurency=4)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


async def reads_async(task: Task) -> None:
    assert_type(await queue.get_async(task.task_id), Task)
    assert_type(await queue.find_one_async(task.task_id), Task | None)
    assert_type(await queue.add_async(videos, Video("u"), title="a"), Task)
    assert_type(await queue.add_async("videos"), Task)
    assert_type(await queue.add_new_async(videos, Video("u")), Task | None)
    assert_type(await queue.add_many_async(videos, [Video("u")]), list[Task])
    assert_type(await queue.find_async(Filter(pipeline="videos")), Page)
    assert_type(await queue.reschedule_async(task.task_id, datetime.now()), Task)
    assert_type(await queue.select().cancel_async(pace="20/min"), Progress)
    assert_type(await queue.select().count_async(), int)
    assert_type([each async for each in queue.select()], list[Task])
    async with await queue.claim_async(videos, limit=5) as leases:
        for lease in leases:
            assert_type(lease, Leased)
            assert_type(await lease.complete_async({"n": 1}), Task)
    async with await queue.puller_async(videos) as puller:
        assert_type(await puller.claim_async(5), list[Leased])
    await queue.add_async(videos, 5)  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    await queue.get_async(7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await queue.cancel_async(task.task_id, notte="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    await queue.get(task.task_id)  # type: ignore[misc] # pyright: ignore[reportGeneralTypeIssues]


# ── inside handlers ──


@plain.phase
def parent(job: int, ctx: Context) -> int:
    assert_type(ctx.step("length", len, "abc"), int)
    assert_type(ctx.spawn(videos, [Video("u")], title="child"), int)
    assert_type(ctx.spawn(videos, [Video("u")], key=lambda video: video.url), int)
    assert_type(ctx.spawn(videos, [Addition(Video("u"), priority=3)]), int)
    assert_type(ctx.spawn(plain, [{"n": 1}], key=lambda job: job["n"]), int)
    assert_type(ctx.spawn("videos", [{"url": "u"}]), int)
    assert_type(ctx.join(timeout="1h"), ChildCounts)
    assert_type(list(ctx.children()), list[Child])
    ctx.step("length", len, 5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ctx.spawn(videos, [Video("u")], key=lambda video: video.title)  # type: ignore[attr-defined] # pyright: ignore
    ctx.spawn(videos, [5])  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    ctx.spawn(videos, [Video("u")], task_id="x")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    return ctx.join().total


@plain.phase
async def parent_async(job: int, ctx: AsyncContext) -> int:
    assert_type(await ctx.step("length", len, "abc"), int)
    assert_type(await ctx.step("fetch", fetch, "u", tries=2), str)
    assert_type(await ctx.spawn(videos, [Video("u")]), int)
    assert_type(await ctx.join(), ChildCounts)
    assert_type([child async for child in ctx.children()], list[Child])
    await ctx.step("fetch", fetch, "u", tries="2")  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.spawn(videos, [5])  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType]
    counts: ChildCounts = ctx.join()  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]
    return counts.total


# ── schedules ──

anywhen = Pipeline("anywhen")
anywhen.cron("0 9 * * *")
anywhen.cron("0 9 * * *", payload={"any": 1}, name="with a payload")
videos.cron("0 9 * * *", payload=Video("https://a"), tz="Asia/Seoul", catch_up="all")
numbers.cron("0 9 * * *", payload=3)


def wrong_schedules() -> None:
    videos.cron("0 9 * * *", payload=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    videos.cron("0 9 * * *")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    numbers.cron("0 9 * * *", payload=3, catch_up="some")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
