"""Checks before a command changes anything, and what to do about an error of PostgreSQL."""

import re
from collections.abc import Sequence

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from ai_tagger.settings import Settings
from onerow import BadInput

SET_UP = "run as the owner of the database: tagger setup"
_WRITTEN = ["public.workspace_threads_posts", "public.llm_usage_logs", "public.ai_tag_queue"]


def check_writable(settings: Settings) -> None:
    """Raise BadInput if the database is not set up, or if this login may not write to it."""
    with psycopg.connect(settings.database_url) as connection:
        row = connection.execute(
            "SELECT bool_and(to_regclass(name) IS NOT NULL), bool_and(has_table_privilege(to_regclass(name), 'INSERT')), "
            "current_user::text FROM unnest(%s::text[]) AS name",
            (_WRITTEN,),
        ).fetchone()
    assert row is not None
    is_set_up, may_write, login = row
    if not is_set_up:
        raise BadInput("the database is not set up", fix=SET_UP, field="TAGGER_DATABASE_URL")
    if not may_write:
        raise BadInput(
            f"the login {login} may not write", fix=_grant(settings.service_role, login), field="TAGGER_DATABASE_URL"
        )


def check_members(settings: Settings, members: Sequence[str]) -> list[tuple[str, str]]:
    """Return roles and workspaces from ROLE=WORKSPACE; raise BadInput for the first that can't be a member."""
    pairs = []
    for member in members:
        role, _, workspace = member.partition("=")
        if not role or not workspace or workspace != workspace.strip() or len(workspace) > 200:
            raise BadInput(f"{member!r} is not ROLE=WORKSPACE", fix="tagger setup --member ann=cafe", field="member")
        pairs.append((role, workspace))
    if pairs:
        with psycopg.connect(settings.database_url) as connection:
            known = {role for (role,) in connection.execute("SELECT rolname FROM pg_roles")}
        for role, _ in pairs:
            if role not in known:
                raise BadInput(
                    f"there is no role {role!r}", fix=f"CREATE ROLE {quoted(role)} LOGIN PASSWORD '…'", field="member"
                )
    return pairs


def advice(settings: Settings, error: psycopg.Error, *, of_setup: bool = False) -> str:
    """Return what to do about an error of PostgreSQL; '' if the message says it all."""
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return SET_UP
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return ""
    if of_setup:
        return (
            "run tagger setup as a superuser, or as the owner of the database with the right CREATEROLE; "
            f"or let a superuser first CREATE ROLE {settings.members_role}; CREATE ROLE {settings.service_role}"
        )
    login = str(conninfo_to_dict(settings.database_url).get("user") or "LOGIN")
    return f"{_grant(settings.service_role, login)}; to read only: tagger setup --member {login}=WORKSPACE"


def quoted(role: str) -> str:
    """Return the name of a role as SQL."""
    return role if re.fullmatch("[a-z_][a-z0-9_]*", role) else sql.Identifier(role).as_string()


def _grant(role: str, login: str) -> str:
    return f"a login that writes needs, as the owner of the database: GRANT {quoted(role)} TO {quoted(login)}"
