"""The phase of the pipeline: ten posts per call of the model, each of them settled by itself."""

from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import httpx
import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row

from ai_tagger.jobs import Job, tagging
from ai_tagger.model import Answer, ChatTagger, NotTagged, Tagger, Unanswerable
from ai_tagger.offline.tagger import OfflineTagger
from ai_tagger.settings import Settings
from ai_tagger.usage import cost, divide
from onerow import Item, Retry, Snooze

__all__ = ["tagging"]

BATCH = 10
_SETTINGS = Settings.of_environment()


class Stored(msgspec.Struct, frozen=True):
    """A post as it is in the table when its job starts."""

    id: str
    account_id: str
    text: str
    revision: int
    tagged_for: str | None


class Work(msgspec.Struct, frozen=True):
    """A job and its post."""

    item: Item[Job]
    post: Stored


@tagging.resource
async def tagger() -> AsyncIterator[Tagger]:
    """The model of this worker process."""
    settings = Settings.of_environment()
    if settings.endpoint is None:
        yield OfflineTagger(settings.tags)
        return
    chat = ChatTagger(settings.endpoint, settings.tags)
    yield chat
    await chat.close()


@tagging.batch(
    "tag",
    size=BATCH,
    within=_SETTINGS.gather,
    retry=Retry(2, wait=_SETTINGS.retry_wait),
    timeout="10m",
    lease=_SETTINGS.lease,
    concurrency=_SETTINGS.concurrency,
    rate=_SETTINGS.rate,
    # A slow or broken answer is tried again, as far as the attempts allow.
    errors={httpx.TransportError: "network"},
)
async def tag(items: list[Item[Job]], tagger: Tagger) -> None:
    """Tag posts; write tags, usage and cost in one transaction, and then complete the jobs."""
    settings = Settings.of_environment()
    try:
        work = await _read(settings, items)
        await _tag(settings, tagger, work)
    except psycopg.OperationalError as error:
        raise Snooze("5s", f"PostgreSQL is unavailable: {type(error).__name__}") from None


async def _tag(settings: Settings, tagger: Tagger, work: Sequence[Work]) -> None:
    """Ask for all posts in one call; if they can't be answered together, ask for each half."""
    if not work:
        return
    try:
        answer = await tagger.ask([each.post.text for each in work])
    except Unanswerable as error:
        if len(work) == 1:
            work[0].item.fail(str(error))
            return
        middle = len(work) // 2
        await _tag(settings, tagger, work[:middle])
        await _tag(settings, tagger, work[middle:])
        return
    written = await _record(settings, work, answer)
    for each, result in zip(work, answer.items, strict=True):
        if isinstance(result, NotTagged):
            each.item.fail(result.reason)
        elif each.post.id in written:
            each.item.done({"tags": list(result)})
        else:
            each.item.snooze("100ms", "the post was changed after it was read")


async def _read(settings: Settings, items: Sequence[Item[Job]]) -> list[Work]:
    """Read the posts; settle jobs that were recorded before their worker died, and jobs without a post."""
    async with await AsyncConnection.connect(settings.database_url, row_factory=class_row(Stored)) as connection:
        cursor = await connection.execute(
            "SELECT id::text, workspace_threads_account_id::text AS account_id, text, revision, tagged_for "
            "FROM public.workspace_threads_posts WHERE id::text = ANY (%s)",
            ([item.payload.post_id for item in items],),
        )
        posts = {post.id: post for post in await cursor.fetchall()}
    work = []
    for item in items:
        post = posts.get(item.payload.post_id)
        if post is None:
            item.cancel("the post was deleted")
        elif post.tagged_for == _name_of(item):
            item.done({"tags": "recorded before the worker died"})
        else:
            work.append(Work(item, post))
    return work


async def _record(settings: Settings, work: Sequence[Work], answer: Answer) -> set[str]:
    """Write tags and usage in one transaction; return the posts whose tags were written."""
    written: set[str] = set()
    async with await AsyncConnection.connect(settings.database_url) as connection:
        for each, tags in zip(work, answer.items, strict=True):
            if isinstance(tags, NotTagged) or each.item.cancelled:
                continue
            cursor = await connection.execute(
                "UPDATE public.workspace_threads_posts SET tags = %s, tagged_at = now(), tagged_by = %s, "
                "tagged_revision = revision, tagged_for = %s WHERE id = %s AND revision = %s",
                (list(tags), answer.model, _name_of(each.item), each.post.id, each.post.revision),
            )
            if cursor.rowcount:
                written.add(each.post.id)
        await _log_usage(settings, connection, work, answer)
    return written


async def _log_usage(
    settings: Settings, connection: AsyncConnection[tuple[object, ...]], work: Sequence[Work], answer: Answer
) -> None:
    call_id = uuid4()
    accounts: dict[str, list[int]] = {}
    for each in work:
        accounts.setdefault(each.post.account_id, []).append(len(each.post.text))
    weights = [sum(lengths) for lengths in accounts.values()]
    shares = [
        [None] * len(weights) if tokens is None else divide(tokens, weights)
        for tokens in (answer.input_tokens, answer.output_tokens)
    ]
    for (account, lengths), read, written in zip(accounts.items(), *shares, strict=True):
        # An account that was deleted during the call leaves a row without account: the call was paid.
        await connection.execute(
            "WITH account AS (SELECT id, workspace_id FROM public.workspace_threads_accounts WHERE id = %s FOR KEY SHARE) "
            "INSERT INTO public.llm_usage_logs (call_id, workspace_id, workspace_threads_account_id, model, posts, "
            "input_tokens, output_tokens, cost) "
            "SELECT %s, a.workspace_id, a.id, %s, %s, %s, %s, %s FROM (SELECT) AS one LEFT JOIN account AS a ON true",
            (
                account, call_id, answer.model, len(lengths), read, written,
                cost(settings.endpoint, read, written),
            ),
        )  # fmt: skip


def _name_of(item: Item[Job]) -> str:
    """The same for every attempt of a job; different after a replay, and for another job of the post."""
    return f"{item.task_id}:{item.task.generation}"
