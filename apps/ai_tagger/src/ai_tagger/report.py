"""The report: tags by account, cost, backlog. It shows what the role of the database URL may read."""

import json
from contextlib import closing
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
from psycopg.rows import class_row, dict_row

from ai_tagger.jobs import tagging
from ai_tagger.posts import find_account
from ai_tagger.settings import Settings
from onerow import BadInput, Queue
from onerow.engine.control.definitions import load_controls


class AccountReport(msgspec.Struct, frozen=True, kw_only=True):
    """One account: its posts, its jobs by status, what its calls cost, its tags with their numbers."""

    workspace: str | None  # None: it was deleted
    account: str | None  # None: all accounts of the workspace that were deleted
    posts: int = 0
    tagged: int = 0
    pending: int = 0
    processing: int = 0
    failed: int = 0
    took_part_in_calls: int  # other accounts may have taken part in the same ones
    input_tokens: int
    output_tokens: int
    cost: Decimal | None  # None: the endpoint did not say the tokens of each call
    known_cost: Decimal
    tags: dict[str, int] = {}
    oldest_pending_seconds: float | None = None
    error: str | None = None


class Report(msgspec.Struct, frozen=True):
    """All accounts that a role may read."""

    accounts: list[AccountReport]
    calls: int
    held: str | None = None
    """Why no call starts at present, and until when; only the service reads it."""


_USAGE = """count(DISTINCT call_id) AS took_part_in_calls, coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
         coalesce(sum(output_tokens), 0)::bigint AS output_tokens, coalesce(sum(cost), 0) AS known_cost,
         CASE WHEN count(cost) = count(*) THEN sum(cost) END AS cost"""

# Completed jobs are not counted: posts say what is tagged, and jobs are purged. So the index over status is enough.
_ACCOUNTS = f"""
WITH posts AS (
  SELECT workspace_threads_account_id AS account_id, count(*) AS posts, count(tags) AS tagged
    FROM public.workspace_threads_posts GROUP BY 1
), tags AS (
  SELECT account_id, jsonb_object_agg(tag, n) AS tags
    FROM (SELECT workspace_threads_account_id AS account_id, tag, count(*) AS n
            FROM public.workspace_threads_posts, unnest(tags) AS tag GROUP BY 1, 2) AS each
   GROUP BY 1
), jobs AS (
  SELECT workspace_threads_account_id AS account_id,
         count(*) FILTER (WHERE status = 'pending') AS pending,
         count(*) FILTER (WHERE status = 'processing') AS processing,
         count(*) FILTER (WHERE status = 'failed') AS failed,
         extract(epoch FROM now() - min(created_at) FILTER (WHERE status = 'pending'))::float AS oldest,
         max(error_message) FILTER (WHERE status = 'failed') AS error
    FROM ai_tag_queue WHERE status IN ('pending', 'processing', 'failed') GROUP BY 1
), usage AS (
  SELECT workspace_threads_account_id AS account_id, {_USAGE} FROM public.llm_usage_logs GROUP BY 1
)
SELECT w.name AS workspace, a.name AS account, coalesce(p.posts, 0) AS posts, coalesce(p.tagged, 0) AS tagged,
       coalesce(j.pending, 0) AS pending, coalesce(j.processing, 0) AS processing, coalesce(j.failed, 0) AS failed,
       coalesce(u.took_part_in_calls, 0) AS took_part_in_calls, coalesce(u.input_tokens, 0) AS input_tokens,
       coalesce(u.output_tokens, 0) AS output_tokens, coalesce(u.known_cost, 0) AS known_cost,
       CASE WHEN u.account_id IS NULL THEN 0 ELSE u.cost END AS cost, coalesce(t.tags, '{{}}') AS tags,
       j.oldest AS oldest_pending_seconds, j.error
  FROM public.workspace_threads_accounts AS a
  JOIN public.workspaces AS w ON w.id = a.workspace_id
  LEFT JOIN posts AS p ON p.account_id = a.id
  LEFT JOIN tags AS t ON t.account_id = a.id
  LEFT JOIN jobs AS j ON j.account_id = a.id
  LEFT JOIN usage AS u ON u.account_id = a.id
 WHERE %(workspace)s::text IS NULL OR w.name = %(workspace)s
 ORDER BY w.name, a.name
"""

_OF_THE_WORKSPACE = """public.llm_usage_logs AS u LEFT JOIN public.workspaces AS w ON w.id = u.workspace_id
 WHERE (%(workspace)s::text IS NULL OR w.name = %(workspace)s)"""

_DELETED = f"""
SELECT w.name AS workspace, NULL AS account, {_USAGE}
  FROM {_OF_THE_WORKSPACE} AND u.workspace_threads_account_id IS NULL GROUP BY 1 ORDER BY 1
"""

_CALLS = f"SELECT count(DISTINCT call_id) FROM {_OF_THE_WORKSPACE}"


def report(settings: Settings, workspace: str | None = None) -> Report:
    """Return the accounts that this role may read, all or those of a workspace."""
    given = {"workspace": workspace}
    with psycopg.connect(settings.database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # the sums are of one moment
        _check_workspace(connection, workspace)
        with connection.cursor(row_factory=class_row(AccountReport)) as cursor:
            accounts = [each for query in (_ACCOUNTS, _DELETED) for each in cursor.execute(query, given).fetchall()]
        ((calls,),) = connection.execute(_CALLS, given).fetchall()
    return Report(accounts, calls, _held(settings))


def _held(settings: Settings) -> str | None:
    with closing(Queue(settings.database_url)) as queue:
        hold = load_controls(queue.store).hold_of(tagging.name, ["tag"], queue.store.now())
    return None if hold is None else f"{hold.why}, until {hold.until}"


def _check_workspace(connection: psycopg.Connection[Any], name: str | None) -> None:
    if name is not None and not connection.execute("SELECT FROM public.workspaces WHERE name = %s", (name,)).rowcount:
        raise BadInput(f"there is no workspace {name!r}", fix="tagger report lists workspaces", field="workspace")


def as_json_text(found: Report) -> str:
    """Return the report as JSON; costs are text, as plain decimals."""
    return json.dumps(
        msgspec.to_builtins(found, builtin_types=(Decimal,)),
        default=lambda cost: f"{cost.normalize():f}",
        ensure_ascii=False,
    )


def list_posts(
    settings: Settings, limit: int, *, account: str | None = None, workspace: str | None = None
) -> list[dict[str, Any]]:
    """Return posts with their ids and tags, the newest first; those of one sync by their ids in the network."""
    with psycopg.connect(settings.database_url, row_factory=dict_row) as connection:
        _check_workspace(connection, workspace)
        account_id = None if account is None else find_account(connection, account, workspace)
        return connection.execute(
            "SELECT p.id::text, w.name AS workspace, a.name AS account, p.text, p.tags, p.tagged_by, "
            "p.tagged_revision = p.revision AS current FROM public.workspace_threads_posts AS p "
            "JOIN public.workspace_threads_accounts AS a ON a.id = p.workspace_threads_account_id "
            "JOIN public.workspaces AS w ON w.id = a.workspace_id "
            "WHERE (%(account)s::uuid IS NULL OR a.id = %(account)s) "
            "AND (%(workspace)s::text IS NULL OR w.name = %(workspace)s) "
            "ORDER BY p.synced_at DESC, w.name, a.name, p.threads_id LIMIT %(limit)s",
            {"account": account_id, "workspace": workspace, "limit": limit},
        ).fetchall()
