"""The report: tags by account, cost, backlog. It shows what the role of the database URL may read."""

from decimal import Decimal
from typing import Any

import msgspec
import psycopg
from psycopg.rows import class_row, dict_row

from ai_tagger.settings import Settings

_MOST_TAGS = 4


class AccountReport(msgspec.Struct, frozen=True):
    """One account: its posts, its jobs by status, what its calls cost, its tags with their numbers."""

    workspace: str
    account: str
    posts: int
    tagged: int
    pending: int
    processing: int
    failed: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    tags: dict[str, int]
    oldest_pending_seconds: float | None = None
    error: str | None = None


# Completed jobs are not counted: posts say what is tagged, and jobs are purged. So the index over status is enough.
_ACCOUNTS = """
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
  SELECT workspace_threads_account_id AS account_id, count(*) AS calls, sum(input_tokens)::bigint AS input_tokens,
         sum(output_tokens)::bigint AS output_tokens, sum(cost) AS cost
    FROM public.llm_usage_logs GROUP BY 1
)
SELECT w.name AS workspace, a.name AS account, coalesce(p.posts, 0) AS posts, coalesce(p.tagged, 0) AS tagged,
       coalesce(j.pending, 0) AS pending, coalesce(j.processing, 0) AS processing, coalesce(j.failed, 0) AS failed,
       coalesce(u.calls, 0) AS calls, coalesce(u.input_tokens, 0) AS input_tokens,
       coalesce(u.output_tokens, 0) AS output_tokens, coalesce(u.cost, 0) AS cost, coalesce(t.tags, '{}') AS tags,
       j.oldest AS oldest_pending_seconds, j.error
  FROM public.workspace_threads_accounts AS a
  JOIN public.workspaces AS w ON w.id = a.workspace_id
  LEFT JOIN posts AS p ON p.account_id = a.id
  LEFT JOIN tags AS t ON t.account_id = a.id
  LEFT JOIN jobs AS j ON j.account_id = a.id
  LEFT JOIN usage AS u ON u.account_id = a.id
 ORDER BY w.name, a.name
"""


def report(settings: Settings) -> list[AccountReport]:
    """Return the accounts that this role may read."""
    with psycopg.connect(settings.database_url, row_factory=class_row(AccountReport)) as connection:
        return connection.execute(_ACCOUNTS).fetchall()


def list_posts(settings: Settings, account: str | None, limit: int) -> list[dict[str, Any]]:
    """Return posts with their ids and tags, the newest first."""
    with psycopg.connect(settings.database_url, row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT p.id::text, a.name AS account, p.text, p.tags, p.tagged_by, "
            "p.tagged_revision = p.revision AS current FROM public.workspace_threads_posts AS p "
            "JOIN public.workspace_threads_accounts AS a ON a.id = p.workspace_threads_account_id "
            "WHERE %(account)s::text IS NULL OR a.name = %(account)s ORDER BY p.synced_at DESC, p.id LIMIT %(limit)s",
            {"account": account, "limit": limit},
        ).fetchall()


def most_frequent(tags: dict[str, int]) -> str:
    """Return the most frequent tags with their numbers, as text."""
    best = sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
    more = [f"+{len(best) - _MOST_TAGS} more"] if len(best) > _MOST_TAGS else []
    return ", ".join([f"{tag} {count}" for tag, count in best[:_MOST_TAGS]] + more)
