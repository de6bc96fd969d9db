"""Posts and their accounts: synced in one transaction with the jobs that tag them, and tagged again at will."""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from ai_tagger.jobs import Job, tagging
from ai_tagger.opening import open_queue
from ai_tagger.settings import Settings
from ai_tagger.transactions import Connection, in_transaction
from onerow import Addition, BadInput, Filter, Status, Task

_LONGEST = {"workspace": 200, "account": 200, "id": 200, "text": 10_000}
_FORM = 'each line is a post: {"workspace": "…", "account": "…", "id": "…", "text": "…"}'


class Post(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One post as it is synced."""

    workspace: str
    account: str
    id: str
    text: str


class Synced(msgspec.Struct, frozen=True):
    """What a sync did."""

    new: int
    changed: int
    unchanged: int


def read_posts(lines: Iterable[str | bytes], name: str = "input") -> list[Post]:
    """Read posts as JSON Lines in UTF-8; raise BadInput that names the first wrong line."""
    posts = []
    for number, line in enumerate(lines, 1):
        try:
            text = (line if isinstance(line, str) else line.decode()).removeprefix("\ufeff" if number == 1 else "")
            if not text.strip():
                continue
            post = msgspec.json.decode(text, type=Post)
        except UnicodeDecodeError:
            raise BadInput(f"{name}, line {number}: not UTF-8", fix="store the file as UTF-8", field="posts") from None
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            problem = "half of a surrogate pair, which is no character" if _has_half_a_pair(text) else str(error)
            raise BadInput(f"{name}, line {number}: {problem}", fix=_FORM, field="posts") from None
        if problem := _problem_of(post):
            raise BadInput(f"{name}, line {number}: {problem}", field="posts")
        posts.append(post)
    return posts


def _problem_of(post: Post) -> str:
    for name, longest in _LONGEST.items():
        value: str = getattr(post, name)
        if not value.strip():
            return f"{name} is empty"
        if len(value) > longest:
            return f"{name} is longer than {longest:,} characters"
        if "\0" in value:
            return f"{name} has a NUL character, which PostgreSQL does not store"
        if name != "text" and value != value.strip():
            return f"{name} begins or ends with white space"
    return ""


def _has_half_a_pair(text: str) -> bool:
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except ValueError:
        pass  # no JSON: msgspec says where
    return False


_UPSERT = """
WITH given AS (
  SELECT * FROM unnest(%(workspace)s::text[], %(account)s::text[], %(id)s::text[], %(text)s::text[])
         WITH ORDINALITY AS g (workspace, account, id, text, n)
), latest AS (  -- a post that is given twice counts as given last
  SELECT DISTINCT ON (workspace, account, id) * FROM given ORDER BY workspace, account, id, n DESC
), written AS (
  INSERT INTO public.workspace_threads_posts AS p (workspace_threads_account_id, threads_id, text)
  SELECT a.id, l.id, l.text
    FROM latest AS l
    JOIN public.workspaces AS w ON w.name = l.workspace
    JOIN public.workspace_threads_accounts AS a ON a.workspace_id = w.id AND a.name = l.account
   ORDER BY a.id, l.id
  ON CONFLICT (workspace_threads_account_id, threads_id) DO UPDATE
     SET text = EXCLUDED.text, revision = p.revision + 1, synced_at = now()
   WHERE p.text <> EXCLUDED.text
  RETURNING id::text, workspace_threads_account_id AS account, threads_id, revision
)
SELECT s.id, s.account::text AS account_id, s.revision
  FROM written AS s
  JOIN public.workspace_threads_accounts AS a ON a.id = s.account
  JOIN public.workspaces AS w ON w.id = a.workspace_id
  JOIN latest AS l ON (l.workspace, l.account, l.id) = (w.name, a.name, s.threads_id)
 ORDER BY l.n
"""


def sync_posts(settings: Settings, posts: Sequence[Post]) -> Synced:
    """Store posts, and add a job for each that is new or changed, in one transaction: all or nothing."""
    if not posts:
        return Synced(0, 0, 0)
    written = in_transaction(settings, partial(_sync, settings, posts))
    new = sum(row["revision"] == 1 for row in written)
    distinct = len({(post.workspace, post.account, post.id) for post in posts})
    return Synced(new, len(written) - new, distinct - len(written))


def _sync(settings: Settings, posts: Sequence[Post], connection: Connection) -> list[dict[str, Any]]:
    written = upsert(connection, posts)
    tasks = add_jobs(settings, connection, written, if_changed=True)
    # A job that runs may have read the old text, or have written its tags already: the new text gets a job of its own.
    running = [row for row, task in zip(written, tasks, strict=True) if task.status == Status.PROCESSING]
    add_jobs(settings, connection, running, if_changed=True, of_revision=True)
    return written


def add_jobs(
    settings: Settings,
    connection: Connection,
    rows: Sequence[dict[str, Any]],
    *,
    if_changed: bool = False,
    of_revision: bool = False,
) -> list[Task]:
    """Add a job for each post in the caller's transaction; a post whose job is open gets no second one.

    The new job replaces those of the post that failed. of_revision: an open job for an older text does not count.
    """
    connection.execute(
        "DELETE FROM ai_tag_queue WHERE status = 'failed' AND post_id = ANY (%s::uuid[])",
        ([row["id"] for row in rows],),
    )
    jobs = [
        Addition(
            Job(row["id"], if_changed),
            user_id=row["account_id"],
            unique=f"{row['id']}:{row['revision']}" if of_revision else row["id"],
        )
        for row in rows
    ]
    return open_queue(settings).add_many(tagging, jobs, tx=connection)


def upsert(connection: Connection, posts: Sequence[Post]) -> list[dict[str, Any]]:
    """Write posts with their workspaces and accounts; return the posts that are new or changed, in the order given."""
    workspaces = sorted({post.workspace for post in posts})
    accounts = sorted({(post.workspace, post.account) for post in posts})
    given = ([workspace for workspace, _ in accounts], [account for _, account in accounts])
    connection.execute(
        "INSERT INTO public.workspaces (name) SELECT * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING", (workspaces,)
    )
    connection.execute(
        "INSERT INTO public.workspace_threads_accounts (workspace_id, name) "
        "SELECT w.id, g.account FROM unnest(%s::text[], %s::text[]) AS g (workspace, account) "
        "JOIN public.workspaces AS w ON w.name = g.workspace ON CONFLICT DO NOTHING",
        given,
    )
    locked = connection.execute(
        "SELECT FROM unnest(%s::text[], %s::text[]) AS g (workspace, account) "
        "JOIN public.workspaces AS w ON w.name = g.workspace "
        "JOIN public.workspace_threads_accounts AS a ON a.workspace_id = w.id AND a.name = g.account "
        "ORDER BY w.id, a.id FOR KEY SHARE OF w FOR KEY SHARE OF a",
        given,
    )
    if locked.rowcount < len(accounts):
        raise psycopg.errors.SerializationFailure("an account was deleted during the sync")
    fields = {name: [getattr(post, name) for post in posts] for name in ("workspace", "account", "id", "text")}
    return connection.execute(_UPSERT, fields).fetchall()


def retag(
    settings: Settings,
    post_ids: Sequence[str] = (),
    *,
    account: str | None = None,
    workspace: str | None = None,
    everything: bool = False,
) -> int:
    """Have posts tagged again, by id, all of an account or all; return their number. An open job is not doubled.

    workspace: needed if several workspaces have an account of this name.
    """
    return in_transaction(settings, partial(_retag, settings, post_ids, account, workspace, everything))


def _retag(
    settings: Settings,
    post_ids: Sequence[str],
    account: str | None,
    workspace: str | None,
    everything: bool,
    connection: Connection,
) -> int:
    ids = _uuids(post_ids)
    account_id = None if account is None else find_account(connection, account, workspace)
    # The lock keeps a concurrent deletion from missing the new jobs.
    rows = connection.execute(
        "SELECT id::text, workspace_threads_account_id::text AS account_id FROM public.workspace_threads_posts "
        "WHERE %s OR id = ANY (%s) OR workspace_threads_account_id = %s ORDER BY synced_at, id FOR KEY SHARE",
        (everything, ids, account_id),
    ).fetchall()
    if missing := {str(post_id) for post_id in ids} - {row["id"] for row in rows}:
        raise BadInput(
            f"there are no posts {', '.join(sorted(missing))}",
            fix="tagger posts lists posts with their ids",
            field="post",
        )
    add_jobs(settings, connection, rows)
    return len(rows)


def find_account(connection: Connection, account: str, workspace: str | None) -> UUID:
    """Return the id of an account; raise BadInput if there is none, or one in each of several workspaces."""
    found = connection.execute(
        "SELECT a.id, w.name AS workspace FROM public.workspace_threads_accounts AS a "
        "JOIN public.workspaces AS w ON w.id = a.workspace_id "
        "WHERE a.name = %s AND (%s::text IS NULL OR w.name = %s) ORDER BY w.name",
        (account, workspace, workspace),
    ).fetchall()
    if not found:
        where = "" if workspace is None else f" in the workspace {workspace!r}"
        raise BadInput(f"there is no account {account!r}{where}", fix="tagger report lists accounts", field="account")
    if len(found) > 1:
        workspaces = ", ".join(row["workspace"] for row in found)
        raise BadInput(
            f"several workspaces have an account {account!r}: {workspaces}",
            fix=f"add --workspace '{found[0]['workspace']}'",
            field="workspace",
        )
    account_id: UUID = found[0]["id"]
    return account_id


def retry_failed(settings: Settings) -> int:
    """Make all failed jobs pending again; return how many."""
    return open_queue(settings).select(Filter(pipeline=tagging.name, statuses=frozenset({Status.FAILED}))).retry().done


def _uuids(texts: Sequence[str]) -> list[UUID]:
    try:
        return [UUID(text) for text in texts]
    except ValueError:
        raise BadInput(
            "the id of a post is a UUID", fix="tagger posts lists posts with their ids", field="post"
        ) from None
