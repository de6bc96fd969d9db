"""Sets the database up: tables, roles, row-level security, the view ai_tag_queue, attached tables. Safe to run again."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from ai_tagger.jobs import tagging
from ai_tagger.opening import open_queue
from ai_tagger.settings import Settings
from onerow import BadInput
from onerow.core.table_mapping import read_mapping
from onerow.mappings import example
from onerow.sql_ports import Attachment, PolicySettings

READABLE = {
    "workspaces": "public.is_workspace_member(id)",
    "workspace_members": "member = to_regrole(quote_ident(current_user))",
    "workspace_threads_accounts": "public.is_workspace_member(workspace_id)",
    "workspace_threads_posts": "workspace_threads_account_id = ANY (ARRAY("
    "SELECT a.id FROM public.workspace_threads_accounts AS a WHERE public.is_workspace_member(a.workspace_id)))",
    "llm_usage_logs": "public.is_workspace_member(workspace_id)",
}
"""Table → which rows a member of a workspace reads."""

_JOBS = (
    "user_id = ANY (ARRAY(SELECT a.id::text FROM public.workspace_threads_accounts AS a "
    "WHERE public.is_workspace_member(a.workspace_id)))"
)


def set_up(settings: Settings) -> None:
    """Create or update everything that the app needs, as the owner of the database."""
    queue = open_queue(settings)
    store: Any = queue.store
    if not hasattr(store, "apply_policies"):
        raise BadInput(
            "the tagger needs PostgreSQL", fix="postgresql://user@host/database", field="TAGGER_DATABASE_URL"
        )
    store.prepare()
    queue.publish(tagging)
    with psycopg.connect(settings.database_url) as connection:
        connection.execute(files("ai_tagger").joinpath("schema.sql").read_text(encoding="utf-8"))
        for statement in _roles_and_policies(connection, settings):
            connection.execute(statement)
    store.create_view(read_mapping(tomllib.loads(example("ai_tag_queue"))))
    store.apply_policies(PolicySettings(services=[settings.service_role], tenants=[settings.members_role], using=_JOBS))
    with psycopg.connect(settings.database_url) as connection:
        for role, rights in (
            (settings.service_role, "SELECT, INSERT, UPDATE, DELETE"),
            (settings.members_role, "SELECT"),
        ):
            connection.execute(_grant(rights, "ai_tag_queue", role))
    for table, match in (("posts", "payload.post_id"), ("accounts", "user_id")):
        store.attach(
            Attachment(table=f"public.workspace_threads_{table}", key="id", pipeline=tagging.name, match=match)
        )


def _roles_and_policies(connection: psycopg.Connection[Any], settings: Settings) -> Iterator[sql.Composed]:
    members, service = sql.Identifier(settings.members_role), sql.Identifier(settings.service_role)
    for role in (settings.members_role, settings.service_role):
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount == 0:
            yield sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role))
    yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}, {}").format(members, service)
    for table, condition in READABLE.items():
        name = sql.Identifier("public", table)
        yield sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(name)
        yield sql.SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(name)
        for policy in ("service_writes", "members_read"):
            yield sql.SQL("DROP POLICY IF EXISTS {} ON {}").format(sql.Identifier(policy), name)
        # The owner too, because FORCE applies the policies to it, and it runs the cascades.
        yield sql.SQL("CREATE POLICY service_writes ON {} TO {}, CURRENT_USER USING (true) WITH CHECK (true)").format(
            name, service
        )
        yield sql.SQL("CREATE POLICY members_read ON {} FOR SELECT TO {} USING ({})").format(
            name, members, sql.SQL(condition)
        )
        yield _grant("SELECT, INSERT, UPDATE, DELETE", table, settings.service_role)
        yield _grant("SELECT", table, settings.members_role)


def _grant(rights: str, table: str, role: str) -> sql.Composed:
    return sql.SQL("GRANT {} ON {} TO {}").format(
        sql.SQL(rights),
        sql.Identifier("public", table),
        sql.Identifier(role),
    )


def add_member(settings: Settings, role: str, workspace: str) -> None:
    """Let a role of the database read a workspace; raise BadInput if there is no such role."""
    with psycopg.connect(settings.database_url) as connection:
        _must_be_a_role(connection, role, workspace)
        connection.execute(
            sql.SQL("GRANT {} TO {}").format(sql.Identifier(settings.members_role), sql.Identifier(role))
        )
        connection.execute("INSERT INTO public.workspaces (name) VALUES (%s) ON CONFLICT DO NOTHING", (workspace,))
        connection.execute(
            "INSERT INTO public.workspace_members (workspace_id, member) "
            "SELECT id, to_regrole(quote_ident(%s)) FROM public.workspaces WHERE name = %s ON CONFLICT DO NOTHING",
            (role, workspace),
        )


def remove_member(settings: Settings, role: str, workspace: str) -> None:
    """Stop a role from reading a workspace; raise BadInput if it does not read it."""
    with psycopg.connect(settings.database_url) as connection:
        _must_be_a_role(connection, role, workspace)
        removed = connection.execute(
            "DELETE FROM public.workspace_members AS m USING public.workspaces AS w "
            "WHERE w.id = m.workspace_id AND w.name = %s AND m.member = to_regrole(quote_ident(%s))",
            (workspace, role),
        )
        if not removed.rowcount:
            raise BadInput(f"{role!r} is no member of the workspace {workspace!r}", field="member")


def _must_be_a_role(connection: psycopg.Connection[Any], role: str, workspace: str) -> None:
    if not role or not workspace:
        raise BadInput("a member is ROLE=WORKSPACE", fix="tagger setup --member ann=cafe", field="member")
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).rowcount == 0:
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD '…'").format(sql.Identifier(role)).as_string(connection)
        raise BadInput(f"there is no role {role!r}", fix=create, field="member")
