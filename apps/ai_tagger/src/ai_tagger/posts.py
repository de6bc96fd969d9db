"""Posts and their accounts: synced in one transaction with the jobs that tag them, and tagged again at will."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.rows import dict_row

from ai_tagger.jobs import Job, tagging
from ai_tagger.opening import open_queue
from ai_tagger.settings import Settings
from onerow import Addition, BadInput, Filter, Status

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One post as it is synced."""

    workspace: Name
    account: Name
    id: Name
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]


class Synced(msgspec.Struct, frozen=True):
    """What a sync did."""

    new: int
    changed: int
    unchanged: int


def read_posts(lines: Iterable[str], name: str = "input") -> list[Post]:
    """Read posts as JSON Lines; raise BadInput that names the first wrong line."""
    posts = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            post = msgspec.json.decode(line, type=Post)
        except msgspec.MsgspecError as error:
            raise BadInput(
                f"{name}, line {number}: {error}",
                fix='each line is a post: {"workspace": "…", "account": "…", "id": "…", "text": "…"}',
                field="posts",
            ) from None
        if "\0" in line or "\\u0000" in line:
            raise BadInput(f"{name}, line {number}: PostgreSQL stores no NUL characters", field="posts")
        posts.append(post)
    return posts


_UPSERT = """
WITH given AS (
  SELECT * FROM unnest(%(workspace)s::text[], %(account)s::text[], %(id)s::text[], %(text)s::text[])
         WITH ORDINALITY AS g (workspace, account, id, text, n)
), latest AS (  -- a post that is given twice counts as given last
  SELECT DISTINCT ON (workspace, account, id) * FROM given ORDER BY workspace, account, id, n DESC
)
INSERT INTO public.workspace_threads_posts AS p (workspace_threads_account_id, threads_id, text)
SELECT a.id, l.id, l.text
  FROM latest AS l
  JOIN public.workspaces AS w ON w.name = l.workspace
  JOIN public.workspace_threads_accounts AS a ON a.workspace_id = w.id AND a.name = l.account
 ORDER BY l.n
ON CONFLICT (workspace_threads_account_id, threads_id) DO UPDATE
   SET text = EXCLUDED.text, revision = p.revision + 1, synced_at = now()
 WHERE p.text <> EXCLUDED.text
RETURNING id::text, workspace_threads_account_id::text AS account_id, revision
"""


def sync_posts(settings: Settings, posts: Sequence[Post]) -> Synced:
    """Store posts, and add a job for each that is new or changed, in one transaction: all or nothing."""
    if not posts:
        return Synced(0, 0, 0)
    with psycopg.connect(settings.database_url, row_factory=dict_row) as connection:
        written = upsert(connection, posts)
        add_jobs(settings, connection, written)
    new = sum(row["revision"] == 1 for row in written)
    distinct = len({(post.workspace, post.account, post.id) for post in posts})
    return Synced(new, len(written) - new, distinct - len(written))


def add_jobs(settings: Settings, connection: psycopg.Connection[Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add a job for each post in the caller's transaction; a post whose job is open gets no second one."""
    jobs = [Addition(Job(row["id"]), user_id=row["account_id"], unique=row["id"]) for row in rows]
    open_queue(settings).add_many(tagging, jobs, tx=connection)


def upsert(connection: psycopg.Connection[dict[str, Any]], posts: Sequence[Post]) -> list[dict[str, Any]]:
    """Write posts with their workspaces and accounts; return the posts that are new or changed."""
    workspaces = sorted({post.workspace for post in posts})
    accounts = sorted({(post.workspace, post.account) for post in posts})
    connection.execute(
        "INSERT INTO public.workspaces (name) SELECT * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING", (workspaces,)
    )
    connection.execute(
        "INSERT INTO public.workspace_threads_accounts (workspace_id, name) "
        "SELECT w.id, g.account FROM unnest(%s::text[], %s::text[]) AS g (workspace, account) "
        "JOIN public.workspaces AS w ON w.name = g.workspace ON CONFLICT DO NOTHING",
        ([workspace for workspace, _ in accounts], [account for _, account in accounts]),
    )
    fields = {name: [getattr(post, name) for post in posts] for name in ("workspace", "account", "id", "text")}
    return connection.execute(_UPSERT, fields).fetchall()


def retag(settings: Settings, post_ids: Sequence[str] = (), *, account: str | None = None) -> int:
    """Have posts tagged again, by id or all of an account; return their number. An open job is not doubled."""
    with psycopg.connect(settings.database_url, row_factory=dict_row) as connection:
        # The lock keeps a concurrent deletion from missing the new jobs.
        rows = connection.execute(
            "SELECT p.id::text, p.workspace_threads_account_id::text AS account_id FROM public.workspace_threads_posts AS p "
            "JOIN public.workspace_threads_accounts AS a ON a.id = p.workspace_threads_account_id "
            "WHERE p.id = ANY (%s) OR a.name = %s FOR KEY SHARE OF p",
            (_uuids(post_ids), account),
        ).fetchall()
        missing = set(post_ids) - {row["id"] for row in rows}
        if missing or not rows:
            what = f"posts {', '.join(sorted(missing))}" if missing else f"posts of an account {account!r}"
            raise BadInput(f"there are no {what}", fix="tagger posts lists posts with their ids", field="post")
        add_jobs(settings, connection, rows)
    return len(rows)


def retry_failed(settings: Settings) -> int:
    """Make all failed jobs pending again; return how many."""
    return open_queue(settings).select(Filter(pipeline=tagging.name, statuses=frozenset({Status.FAILED}))).retry().done


def _uuids(texts: Iterable[str]) -> list[UUID]:
    try:
        return [UUID(text) for text in texts]
    except ValueError:
        raise BadInput(
            "the id of a post is a UUID", fix="tagger posts lists posts with their ids", field="post"
        ) from None
