"""The phase of the pipeline: ten posts per call of the model, each of them settled by itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from time import monotonic
from typing import Any
from uuid import UUID, uuid4

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from ai_tagger.jobs import Job, tagging
from ai_tagger.model import Answer, ChatTagger, NotTagged, Tagger, Unanswerable
from ai_tagger.offline.tagger import OfflineTagger
from ai_tagger.settings import Settings
from ai_tagger.transactions import UNAVAILABLE
from ai_tagger.usage import cost, divide
from onerow import Item, Retry, Snooze

__all__ = ["tagging"]

BATCH = 10
_PATIENCE = 300.0  # seconds for which an answer that can't be written is kept
_SETTINGS = Settings.of_environment()


class Stored(msgspec.Struct, frozen=True):
    """A post as it is in the table when its job starts."""

    id: str
    account_id: str
    workspace_id: str
    text: str
    revision: int
    tags: list[str] | None
    tagged_revision: int | None
    tagged_for: str | None

    def is_tagged_for(self, item: Item[Job]) -> bool:
        """Whether the tags are those that the job was added for: its worker died after writing them, or another job did."""
        if self.tagged_revision != self.revision:
            return False
        return self.tagged_for == _name_of(item) or (item.payload.if_changed and item.task.generation == 0)


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
    timeout="30m",
    lease=_SETTINGS.lease,
    concurrency=_SETTINGS.concurrency,
    rate=_SETTINGS.rate,
)
async def tag(items: list[Item[Job]], tagger: Tagger) -> None:
    """Tag posts; write tags, usage and cost in one transaction, and then complete the jobs.

    The posts of a workspace are asked for in one call: a text can't make the model repeat or judge those of another.
    """
    settings = Settings.of_environment()
    try:
        workspaces: dict[str, list[Work]] = {}
        for each in await _read(settings, items):
            workspaces.setdefault(each.post.workspace_id, []).append(each)
        calls = [_tag(settings, tagger, posts) for posts in workspaces.values()]
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            if ended is not None:
                raise ended
    except UNAVAILABLE as error:
        raise Snooze("30s", f"PostgreSQL can't be read or written: {type(error).__name__}") from None


async def _tag(settings: Settings, tagger: Tagger, work: Sequence[Work]) -> None:
    """Ask for all posts in one call; if they can't be answered together, ask for each half."""
    try:
        answer = await tagger.ask([each.post.text for each in work])
    except Unanswerable as error:
        if error.paid is not None:
            await _record(settings, work, error.paid)
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
    """Read the posts; settle jobs whose tags are written already, and jobs without a post."""
    async with await AsyncConnection.connect(settings.database_url, row_factory=class_row(Stored)) as connection:
        cursor = await connection.execute(_POSTS, ([_uuid(item.payload.post_id) for item in items],))
        posts = {post.id: post for post in await cursor.fetchall()}
    work: list[Work] = []
    for item in items:
        post = posts.get(str(_uuid(item.payload.post_id)))
        if post is None:
            item.cancel("there is no such post, or it was deleted")
        elif post.account_id != item.task.user_id:
            item.cancel(f"the post belongs to another account; to tag it: tagger retag {post.id}")
        elif any(post is each.post for each in work):
            item.snooze("1s", "another job of this post is in the same batch")
        elif post.is_tagged_for(item):
            item.done({"tags": post.tags})
        else:
            work.append(Work(item, post))
    return work


# The lock shows before the call is paid that tags can be written.
_POSTS = """
SELECT p.id::text, p.workspace_threads_account_id::text AS account_id, a.workspace_id::text, p.text, p.revision, p.tags,
       p.tagged_revision, p.tagged_for
  FROM public.workspace_threads_posts AS p
  JOIN public.workspace_threads_accounts AS a ON a.id = p.workspace_threads_account_id
 WHERE p.id = ANY (%s)
 ORDER BY p.workspace_threads_account_id, p.threads_id
   FOR KEY SHARE OF p
"""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _record(settings: Settings, work: Sequence[Work], answer: Answer) -> set[str]:
    """Write tags and usage in one transaction; return the posts whose tags were written."""
    tags = [
        {"post_id": each.post.id, "revision": each.post.revision, "tags": given, "tagged_for": _name_of(each.item)}
        for each, given in zip(work, answer.items, strict=True)
        if not isinstance(given, NotTagged) and not each.item.cancelled
    ]
    usage, call_id = _usage(settings, work, answer), uuid4()
    until = monotonic() + _PATIENCE
    for attempt in count():
        try:
            async with await AsyncConnection.connect(settings.database_url) as connection, connection.pipeline():
                await connection.execute(_LOCK_ACCOUNTS, ([row["account_id"] for row in usage],))
                await connection.execute(_LOG_USAGE, (call_id, answer.model, Jsonb(usage)))
                cursor = await connection.execute(_WRITE_TAGS, (answer.model, Jsonb(tags)))
                return {post_id for (post_id,) in await cursor.fetchall()}
        except UNAVAILABLE:
            # The answer is paid: it is kept for a while.
            if monotonic() > until:
                raise
            await asyncio.sleep(min(2**attempt / 10, 10))
    raise AssertionError("unreachable")


# The same order as in a sync and in the deletion of a workspace: workspaces, accounts, posts.
_LOCK_ACCOUNTS = (
    "SELECT FROM public.workspaces AS w JOIN public.workspace_threads_accounts AS a ON a.workspace_id = w.id "
    "WHERE a.id = ANY (%s::uuid[]) ORDER BY w.id, a.id FOR KEY SHARE OF w FOR KEY SHARE OF a"
)

# An account that was deleted during the call leaves a row without account: the call was paid.
_LOG_USAGE = """
INSERT INTO public.llm_usage_logs
  (call_id, workspace_id, workspace_threads_account_id, model, posts, input_tokens, output_tokens, cost)
SELECT %s, a.workspace_id, a.id, %s, u.posts, u.input_tokens, u.output_tokens, u.cost
  FROM jsonb_to_recordset(%s)
       AS u (account_id uuid, posts integer, input_tokens bigint, output_tokens bigint, cost numeric)
  LEFT JOIN public.workspace_threads_accounts AS a ON a.id = u.account_id
ON CONFLICT DO NOTHING
"""

_WRITE_TAGS = """
UPDATE public.workspace_threads_posts AS p
   SET tags = g.tags, tagged_at = now(), tagged_by = %s, tagged_revision = g.revision, tagged_for = g.tagged_for
  FROM (SELECT q.id, given.*
          FROM jsonb_to_recordset(%s) AS given (post_id uuid, revision integer, tags text[], tagged_for text)
          JOIN public.workspace_threads_posts AS q ON q.id = given.post_id
         ORDER BY q.workspace_threads_account_id, q.threads_id
           FOR NO KEY UPDATE OF q) AS g
 WHERE p.id = g.id AND p.revision = g.revision
RETURNING p.id::text
"""


def _usage(settings: Settings, work: Sequence[Work], answer: Answer) -> list[dict[str, Any]]:
    """Divide the tokens of a call among the accounts of its posts, by the length of their texts."""
    accounts: dict[str, list[int]] = {}
    for each in work:
        accounts.setdefault(each.post.account_id, []).append(len(each.post.text) + 1)
    weights = [sum(lengths) for lengths in accounts.values()]
    shares = [
        [None] * len(weights) if tokens is None else divide(tokens, weights)
        for tokens in (answer.input_tokens, answer.output_tokens)
    ]
    return [
        {
            "account_id": account,
            "posts": len(lengths),
            "input_tokens": read,
            "output_tokens": written,
            "cost": price if (price := cost(settings.endpoint, read, written)) is None else str(price),
        }
        for (account, lengths), read, written in zip(accounts.items(), *shares, strict=True)
    ]


def _name_of(item: Item[Job]) -> str:
    """The same for every attempt of a job; different after a replay, and for another job of the post."""
    return f"{item.task_id}:{item.task.generation}"
