"""Row-level security: tenants read their own tasks, service roles read and write everything.

Every table of the schema has a policy for service roles. The tables that tenants read have one for them too: tasks by
the user's condition, output by the task that it belongs to, which the server checks with the same policy again.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

import psycopg
from psycopg import errors

from onerow.core.errors import BadInput
from onerow.sql_ports import PolicySettings
from onerow.stores.postgres.change import change, first_line
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.schema import split
from onerow.stores.postgres.statements import quoted, script, statement

_OF_VISIBLE_TASK = "EXISTS (SELECT FROM {schema}.task_queue AS t WHERE t.task_id = {table}.task_id)"
TENANTS_READ = {
    "onerow_log": _OF_VISIBLE_TASK,
    "onerow_log_size": _OF_VISIBLE_TASK,
    "onerow_note": "kind = 'pipeline'",  # definitions; other notes have limit keys, messages and counts of all tenants
    "onerow_meta": "true",  # two numbers: the versions that every client compares with its own
}
"""What tenants read besides tasks: a condition for each table. Other tables are closed to them."""

# Strings and comments of SQL, and quoted names with a parenthesis.
_NO_CODE = re.compile(
    r"""\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"[^"]*[()][^"]*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


def sql(connections: Connections, schema: str, settings: PolicySettings) -> str:
    """See sql_ports.RowSecured.policies_sql."""
    with connections.connection() as connection:
        statements = _checked(connection, schema, settings)
    return "".join(f"{each};\n" for each in ("BEGIN", *statements, "COMMIT"))


def apply(connections: Connections, schema: str, settings: PolicySettings) -> None:
    """See sql_ports.RowSecured.apply_policies."""

    def run(connection: Connection) -> None:
        for each in _checked(connection, schema, settings):
            connection.execute(each)
        if settings.tenants:
            _try_rewriting(connection, schema)
        for tenant in settings.tenants:
            _try_reading(connection, schema, tenant)

    change(connections, run, "apply policies")


def _checked(connection: Connection, schema: str, settings: PolicySettings) -> list[str]:
    """Return the statements; raise BadInput if the roles or the condition are wrong."""
    using = _condition(connection, schema, settings)
    owner, tables = _owner_and_tables(connection, schema)
    services = list(dict.fromkeys((owner, *settings.services)))
    _check_roles(connection, owner, services, settings.tenants)
    rows = connection.execute(
        statement("policies_former", schema), {"schema": schema, "roles": [*services, *settings.tenants]}
    ).fetchall()
    former = [name for (name,) in rows]
    return [*_revoked(schema, tables, former), *_statements(schema, tables, services, settings.tenants, using)]


def _revoked(schema: str, tables: Sequence[str], former: Sequence[str]) -> Iterator[str]:
    if former:
        for name in tables:
            yield f"REVOKE ALL ON TABLE {quoted(schema)}.{quoted(name)} FROM {_list(former)}"
        yield f"REVOKE ALL ON SCHEMA {quoted(schema)} FROM {_list(former)}"


def _statements(
    schema: str, tables: Sequence[str], services: Sequence[str], tenants: Sequence[str], using: str
) -> Iterator[str]:
    names = {"services": _list(services), "tenants": _list(tenants), "everyone": _list((*services, *tenants))}
    yield from _filled("policies_schema", schema, names)
    for name in tables:
        table = f"{quoted(schema)}.{quoted(name)}"
        readable = using if name == "task_queue" else condition(schema, name)
        here = {"table": table, "using": readable, **names}
        yield from _filled("policies_table", schema, here)
        if tenants:
            yield from _filled("policies_tenant" if readable else "policies_closed", schema, here)


def condition(schema: str, name: str) -> str:
    """Return which rows of a table other than the tasks tenants read; '': none."""
    return TENANTS_READ.get(name, "").replace("{schema}", quoted(schema)).replace("{table}", quoted(name))


def _filled(name: str, schema: str, values: dict[str, str]) -> Iterator[str]:
    """Yield the statements of a script; values are put in after it was split, because they may contain anything."""
    for each in split(script(name, schema)):
        without_comments = "\n".join(line for line in each.splitlines() if not line.startswith("--"))
        yield re.sub(r"\{(\w+)\}", lambda found: values[found[1]], without_comments)


def _list(roles: Sequence[str]) -> str:
    return ", ".join(map(quoted, roles))


def _condition(connection: Connection, schema: str, settings: PolicySettings) -> str:
    """Return the condition for tenants; raise BadInput unless it is one boolean expression over a task."""
    if not settings.tenants:
        if settings.using or settings.setting:
            raise BadInput("a condition is for the roles of tenants", fix="name them: --tenant ROLE", field="tenant")
        return ""
    if bool(settings.using) == bool(settings.setting):
        raise BadInput(
            "which tasks may a tenant read?",
            fix="give either --using with a condition over task_queue, or --setting app.user_id",
            field="using",
        )
    if settings.setting:
        if not _SETTING.fullmatch(settings.setting):
            raise BadInput(
                f"{settings.setting!r} can't name a session setting", fix="write it like app.user_id", field="setting"
            )
        # '' is the value of a setting after a transaction that had set it; tasks without an owner have user_id ''.
        return f"user_id = nullif(current_setting('{settings.setting}', true), '')"
    bare = _NO_CODE.sub(" ", settings.using)
    if not _is_balanced(bare):
        raise BadInput(
            "--using is not a condition over task_queue: it closes a parenthesis that it did not open",
            fix="give one boolean expression",
            field="using",
        )
    if re.search(rf'\b(FROM|JOIN)\s+(ONLY\s+)?("?{schema}"?\s*\.\s*)?"?task_queue\b(?!"?\s*\.)', bare, re.IGNORECASE):
        raise _reads_tasks()
    # Analysed and not executed: this role may lack what tenants may read. In the extended protocol, for which `binary`
    # stands, a statement can't be several. In parentheses that it does not close an expression is whole; in CASE it is no SELECT.
    asked = (
        f"PREPARE onerow_condition AS SELECT FROM {quoted(schema)}.task_queue "
        f"WHERE ({settings.using}\n) IS TRUE AND CASE WHEN {settings.using}\n THEN true END"
    )
    try:
        with connection.transaction():
            connection.execute(asked, binary=True)
            ((parameters,),) = connection.execute(
                "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'onerow_condition'"
            ).fetchall()
            connection.execute("DEALLOCATE onerow_condition")
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] not in ("42", "22", "3F", "0A"):
            raise
        raise BadInput(
            f"--using is not a condition over task_queue: {first_line(error)}", fix=_fix(error), field="using"
        ) from None
    if parameters:
        raise BadInput(
            "--using is not a condition over task_queue: it has a parameter like $1",
            fix="use a session setting: --setting app.user_id",
            field="using",
        )
    return f"{settings.using}\n" if "--" in settings.using else settings.using


def _is_balanced(text: str) -> bool:
    """Whether each parenthesis that is closed was opened before."""
    return min(accumulate((1 if each == "(" else -1 for each in re.findall("[()]", text)), initial=0)) == 0


def _reads_tasks() -> BadInput:
    return BadInput(
        "--using reads task_queue, whose rows it is to choose: every read of a tenant would fail with infinite recursion",
        fix="name the columns of the row (task_queue.user_id), or read other tasks in a SECURITY DEFINER function",
        field="using",
    )


def _fix(error: psycopg.Error) -> str:
    if isinstance(error, errors.UndefinedFunction):
        return "create the function first, or cast its arguments: user_id and task_id are text"
    if isinstance(error, errors.UndefinedTable):
        return "name the table with its schema"
    return (
        "for example: EXISTS (SELECT FROM accounts AS a WHERE a.id::text = task_queue.user_id "
        "AND is_workspace_member(a.workspace_id))"
    )


def _owner_and_tables(connection: Connection, schema: str) -> tuple[str, list[str]]:
    rows = connection.execute(statement("policies_tables", schema), (schema,)).fetchall()
    owners = {owner for _, owner in rows}
    if len(owners) > 1:
        raise BadInput(
            f"the tables of schema {schema} have several owners: {', '.join(sorted(owners))}",
            fix="give all of them to one: ALTER TABLE … OWNER TO …",
            field="store",
        )
    return owners.pop(), [name for name, _ in rows]


def _check_roles(connection: Connection, owner: str, services: Sequence[str], tenants: Sequence[str]) -> None:
    asked = [*services, *tenants]
    rows = connection.execute(
        "SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = ANY (%s)", (asked,)
    ).fetchall()
    found: dict[str, bool] = dict(rows)
    for name in asked:
        if name not in found:
            raise BadInput(
                f"there is no role {name!r}", fix=f"create it: CREATE ROLE {quoted(name)} LOGIN", field="role"
            )
    for name in tenants:
        if name == owner:
            raise BadInput(
                f"{name!r} owns the tables and could switch the policies off",
                fix="give tenants another role",
                field="tenant",
            )
        if found[name]:
            raise BadInput(
                f"policies do not apply to {name!r}, which is a superuser or has BYPASSRLS",
                fix=f"ALTER ROLE {quoted(name)} NOSUPERUSER NOBYPASSRLS, or give tenants another role",
                field="tenant",
            )
        for service in services:
            ((member,),) = connection.execute("SELECT pg_has_role(%s, %s, 'MEMBER')", (name, service)).fetchall()
            if member:
                raise BadInput(
                    f"tenant role {name!r} is a member of {service!r}, which reads all tasks"
                    if name != service
                    else f"{name!r} can't be both a tenant and a service role",
                    fix="give tenants another role",
                    field="tenant",
                )


def _try_rewriting(connection: Connection, schema: str) -> None:
    """Have the server put the condition into a query, without running it: it may read the tasks through something else."""
    try:
        with connection.transaction() as savepoint:
            # To a superuser no policy applies; it becomes the tenant, see _try_reading.
            for name in ("task_queue", *TENANTS_READ):
                connection.execute(f"ALTER POLICY onerow_tenant ON {quoted(schema)}.{name} TO CURRENT_USER")
            connection.execute(f"PREPARE onerow_condition AS SELECT FROM {quoted(schema)}.task_queue")
            connection.execute("DEALLOCATE onerow_condition")
            raise psycopg.Rollback(savepoint)
    except errors.InvalidObjectDefinition:
        raise _reads_tasks() from None


def _try_reading(connection: Connection, schema: str, tenant: str) -> None:
    """Read as the tenant, if this role may become it: the condition may read tables that the tenant may not."""
    became = False
    try:
        with connection.transaction() as savepoint:
            connection.execute(f"SET LOCAL ROLE {quoted(tenant)}")
            became = True
            connection.execute(f"SELECT FROM {quoted(schema)}.task_queue LIMIT 1")
            raise psycopg.Rollback(savepoint)
    except errors.InvalidObjectDefinition:
        raise _reads_tasks() from None
    except errors.InsufficientPrivilege as error:
        if became:
            raise BadInput(
                f"role {tenant!r} may not read what --using reads: {first_line(error)}",
                fix=f"grant it to {quoted(tenant)}, or read it in a SECURITY DEFINER function",
                field="using",
            ) from None
