"""Row-level security with real login roles: tenants read their own tasks by every way, and nothing else by any."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from onerow.core.addition import Addition
from onerow.core.errors import BadInput, StoreReadOnly, UnknownName
from onerow.core.filters import Filter
from onerow.core.status import COMPLETED
from onerow.core.table_mapping import read_mapping
from onerow.engine.queue.adding import add_children
from onerow.engine.queue.adopt import Adoption
from onerow.engine.queue.scope import plan_of
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import LogLine, Note
from onerow.sql_ports import PolicySettings
from onerow.stores.postgres import PostgresStore
from onerow.wiring import Queue
from tests.cli.conftest import Run, run
from tests.engine.kit import PATIENCE, working
from tests.servers.pgbouncer import PgBouncer
from tests.stores.postgres.tenants import ANNS, BOBS, MEMBERS_READ, Roles, login_roles, tagging
from tests.stores.postgres.test_plans import explained, fill, must_use_indexes, run_all_operations
from tests.tui.conftest import opened

__all__ = ["run"]  # a fixture


@pytest.fixture
def roles(postgres_url: str) -> Iterator[Roles]:
    with login_roles(postgres_url) as roles:
        yield roles


@pytest.fixture
def secured(roles: Roles, run: Run) -> Roles:
    """Policies are applied; Ann and Bob have a task each, with the same unique key, a child and a line of output."""
    run("pg", "policies", *roles.policy_options(), "--apply", "--store", roles.url_of("owner"))
    with roles.queue("service") as queue:
        for name, account in (("ann", ANNS), ("bob", BOBS)):
            queue.add(tagging, {"post": f"{name}의 글"}, task_id=f"{name}-1", user_id=account, unique="post-1")
            child = Addition({"post": "x"}, task_id=f"{name}-2", user_id=account)
            add_children(queue, tagging, [child], f"{name}-1", None)
            queue.store.append_log([LogLine(f"{name}-1", queue.store.now(), "tag", 1, "out", f"output of {name}")])
        queue.add(tagging, {"post": "of no tenant"}, task_id="unowned")
    return roles


def ids(connection: psycopg.Connection, table: str) -> set[str]:
    return {task_id for (task_id,) in connection.execute(f"SELECT task_id FROM {table}").fetchall()}


# ── a member reads its own ──


def test_a_member_reads_its_own_tasks_through_tables_and_views(secured: Roles) -> None:
    with secured.sql("owner") as sql:
        sql.execute("CREATE VIEW onerow.tags WITH (security_invoker = true) AS SELECT * FROM onerow.task_queue")
        sql.execute(f"GRANT SELECT ON onerow.tags TO {secured.name('members')}")
    with secured.sql("ann") as sql:
        assert ids(sql, "onerow.task_queue") == ids(sql, "onerow.tags") == {"ann-1", "ann-2"}
        assert sql.execute("SELECT task_id, text FROM onerow.onerow_log").fetchall() == [("ann-1", "output of ann")]
        assert ids(sql, "onerow.onerow_log_size") == {"ann-1"}


def test_a_member_reads_its_own_tasks_through_a_queue(secured: Roles) -> None:
    with secured.queue("ann") as queue:
        mine = queue.for_user(ANNS)
        assert mine.get("ann-1").payload == {"post": "ann의 글"}
        assert {task.task_id for task in mine.find("pipeline:tagging").tasks} == {"ann-1", "ann-2"}
        assert [line.text for line in mine.logs("ann-1").lines] == ["output of ann"]
        assert sum(line.count for line in mine.count()) == 2
        assert plan_of(mine, "tagging").name == "tagging"
        assert {task.task_id for task in queue.find().tasks} == {"ann-1", "ann-2"}


def test_a_member_reads_its_own_tasks_through_commands(secured: Roles, run: Run) -> None:
    url = secured.url_of("ann")
    listed = run("list", "--store", url).stdout
    assert "ann-1" in listed
    assert "bob" not in listed
    assert "ann의 글" in run("show", "ann-1", "--store", url).stdout
    assert "output of ann" in run("logs", "ann-1", "--store", url).stdout
    with secured.queue("service") as queue:
        queue.cancel("ann-2")
        queue.cancel("bob-2")
        queue.cancel("bob-1")
    (counted,) = json.loads(run("counts", "--json", "--store", url).stdout)["pipelines"]
    (lane,) = counted["lanes"]
    assert (lane["waiting"], lane["cancelled"]) == (1, 1)


def test_a_member_is_not_misinformed_about_workers_and_pauses(secured: Roles, run: Run) -> None:
    url, service = secured.url_of("ann"), secured.url_of("service")
    with secured.queue("service") as queue:
        queue.pause("tagging", by="eve", reason="금지")
    for task_id in ("ann-1", "ann-2"):
        said = run("why", task_id, "--store", url).stdout
        assert "can't see workers, pauses and limits" in said
        assert "paused by eve" in run("why", task_id, "--store", service).stdout
    refused = run("workers", "--store", url, code=64).output
    assert "connect as a service role" in refused
    assert "no worker" not in run("counts", "--store", url).output
    assert "no worker is running" in run("counts", "--store", service).output

    async def look(queue: Queue) -> None:
        async with opened(queue) as session:
            for key in ("4", "6"):
                await session.press(key)
                await session.sees("no workers, pauses and limits", "connect as a service role")
                assert "No worker. Run" not in session.text
                await session.press("1")
                await session.sees("tagging")

    with secured.queue("ann") as queue:
        asyncio.run(look(queue))


# ── across tenants ──


def test_other_tenants_tasks_can_not_be_read_by_id_key_parent_or_query(secured: Roles, run: Run) -> None:
    with secured.queue("ann") as queue:
        for asking in (queue, queue.for_user(BOBS), queue.for_user(ANNS)):
            for task_id in ("bob-1", "unowned"):
                with pytest.raises(UnknownName):
                    asking.get(task_id)
                with pytest.raises(UnknownName):
                    asking.logs(task_id)
        assert queue.store.read_log("bob-1").lines == []
        assert queue.for_user(BOBS).find().tasks == []
        for where in (Filter(parent_id="bob-1"), Filter(user_id=BOBS), Filter(id_prefix="bob")):
            assert queue.find(where).tasks == []
            assert queue.count(where) == []
        assert {task.user_id for task in queue.find("unique:post-1").tasks} == {ANNS}
        assert queue.find("bob의").tasks == []
    with secured.sql("ann") as sql:
        for condition in (
            f"user_id = '{BOBS}'",
            "unique_key = 'post-1'",
            "held_key = 'post-1'",
            "payload::text ~ 'bob'",
        ):
            assert {row[0] for row in sql.execute(f"SELECT user_id FROM onerow.task_queue WHERE {condition}")} <= {ANNS}
    said = run("show", "bob-1", "--store", secured.url_of("ann"), code=64)
    assert "bob의" not in said.output


def test_a_condition_with_side_effects_is_not_evaluated_for_hidden_rows(secured: Roles) -> None:
    """Row-level security filters before a function that could print what it is given."""
    seen: list[str] = []
    with secured.sql("ann") as sql:
        sql.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
        sql.execute(
            "CREATE FUNCTION pg_temp.tell(given text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS "
            "$$BEGIN RAISE NOTICE '%', given; RETURN true; END$$"
        )
        sql.execute("SELECT FROM onerow.task_queue WHERE pg_temp.tell(task_id)")
    assert set(seen) == {"ann-1", "ann-2"}


def test_tenants_read_definitions_and_no_other_notes_or_counters(secured: Roles) -> None:
    with secured.queue("service") as queue:
        queue.store.write_notes([Note("rate", "tagging/tag", {"keys": {BOBS: []}}), Note("bulk", "b", {"where": BOBS})])
    with secured.sql("ann") as sql:
        assert sql.execute("SELECT DISTINCT kind FROM onerow.onerow_note").fetchall() == [("pipeline",)]
        with pytest.raises(errors.InsufficientPrivilege):
            sql.execute("SELECT * FROM onerow.onerow_tally")


WRITES: dict[str, Callable[[Queue], object]] = {
    "add": lambda queue: queue.add(tagging, {"post": "x"}, user_id=ANNS),
    "add for another": lambda queue: queue.add(tagging, {"post": "x"}, user_id=BOBS),
    "add with a taken key": lambda queue: queue.add(tagging, {"post": "x"}, user_id=BOBS, unique="post-1"),
    "add with a taken id": lambda queue: queue.add(tagging, {"post": "x"}, user_id=ANNS, task_id="bob-1"),
    "add many": lambda queue: queue.add_many(tagging, [{"post": "x"}] * 50, user_id=ANNS),
    "cancel its own": lambda queue: queue.cancel("ann-1"),
    "signal its own": lambda queue: queue.signal("ann-1", "go"),
    "cancel": lambda queue: queue.cancel("bob-1"),
    "signal": lambda queue: queue.signal("bob-1", "go"),
    "retry": lambda queue: queue.retry("bob-1"),
    "annotate": lambda queue: queue.annotate("bob-1", {"mine": True}),
    "pause": lambda queue: queue.pause("tagging"),
    "append output": lambda queue: queue.store.append_log([LogLine("bob-1", queue.store.now(), "tag", 1, "out", "x")]),
}


def test_a_tenant_can_not_write(secured: Roles) -> None:
    with secured.queue("service") as service, secured.queue("ann") as queue:
        before = service.find().tasks
        for name, write in WRITES.items():
            with pytest.raises((StoreReadOnly, UnknownName)) as refused:
                write(queue)
            assert "bob의" not in str(refused.value), name
        assert service.find().tasks == before
        assert [line.text for line in service.logs("bob-1").lines] == ["output of bob"]
        assert service.store.notes("pause") == []


STATEMENTS = [
    "UPDATE onerow.task_queue SET priority = 1",
    "DELETE FROM onerow.task_queue",
    "TRUNCATE onerow.task_queue",
    "TRUNCATE onerow.onerow_log",
    "INSERT INTO onerow.task_queue (task_id, type) VALUES ('x', 'tag')",
    f"SELECT onerow.add('tagging', '{{}}', user_id => '{ANNS}')",
    f"SELECT onerow.add('tagging', '{{}}', user_id => '{BOBS}', unique_key => 'post-1')",
    "UPDATE onerow.onerow_note SET body = 'null'",
    "DELETE FROM onerow.onerow_log",
    "CREATE TABLE onerow.mine (task_id text REFERENCES onerow.task_queue)",
    "SELECT FROM onerow.task_queue FOR UPDATE",
    "SELECT FROM onerow.task_queue FOR SHARE",
    "ALTER TABLE onerow.task_queue DISABLE ROW LEVEL SECURITY",
    "COPY onerow.task_queue FROM STDIN",
]


def test_a_tenant_can_not_write_with_sql(secured: Roles) -> None:
    with secured.sql("ann") as sql:
        for statement in STATEMENTS:
            with pytest.raises(errors.InsufficientPrivilege):
                sql.execute(statement)


def test_unique_keys_of_two_tenants_neither_collide_nor_leak(secured: Roles) -> None:
    with secured.queue("service") as queue:
        assert queue.get("ann-1").held_key == queue.get("bob-1").held_key == "post-1"
        again = queue.add(tagging, {"post": "again"}, user_id=ANNS, unique="post-1")
        assert again.task_id == "ann-1"
    with secured.sql("service") as sql:
        for account, expected in ((ANNS, "ann-1"), (BOBS, "bob-1")):
            given = ("tagging", '{"post": "y"}', account, "post-1")
            found = sql.execute("SELECT onerow.add(%s, %s, user_id => %s, unique_key => %s)", given).fetchone()
            assert found == (expected,)
        with pytest.raises(psycopg.Error, match="is taken") as refused:
            sql.execute(f"SELECT onerow.add('tagging', '{{}}', 'bob-1', '{ANNS}')")
        assert BOBS not in str(refused.value)


def test_notifications_carry_no_data(secured: Roles) -> None:
    with secured.sql("ann") as sql, secured.queue("service") as queue:
        sql.execute('LISTEN "onerow.onerow"')
        queue.add(tagging, {"post": "secret"}, user_id=BOBS)
        (heard,) = sql.notifies(timeout=30, stop_after=1)
        assert heard.payload == ""


# ── the service role ──


@pytest.mark.parametrize("bypass", [False, True], ids=["policy", "bypassrls"])
def test_a_worker_runs_as_the_service_role(secured: Roles, postgres_url: str, bypass: bool) -> None:
    if bypass:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {secured.name('service')} BYPASSRLS")
    with secured.queue("service") as queue:
        queue.serve(tagging)
        many = queue.add_many(tagging, [{"post": f"글 {n}"} for n in range(60)], user_id=ANNS)  # COPY, if allowed
        with working(queue):
            done = [queue.wait(task, timeout=PATIENCE) for task in many]
        assert {task.status for task in done} == {COMPLETED}
        assert queue.purge(older_than="0s") == 65


def test_doctor_and_migrate_work_for_owner_and_service(secured: Roles, run: Run) -> None:
    for role in ("owner", "service"):
        said = run("doctor", "--store", secured.url_of(role)).stdout
        assert "row-level security is on and forced on every table" in said
        run("migrate", "--store", secured.url_of(role))


def test_every_operation_of_the_service_role_uses_an_index(secured: Roles, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        fill(admin, "early", 20_000, priority=-5, later=3600)
        fill(admin, "ended", 20_000, status="completed")
        for phase in ("script", "limited", "keyed"):
            fill(admin, phase, 5_000, phase=phase)
        fill(admin, "named", 10)
        admin.execute("UPDATE onerow.task_queue SET limit_key = 'k' || right(task_id, 2) WHERE type = 'keyed'")
        admin.execute("ANALYZE onerow.task_queue")
        # auto_explain is loaded by superusers; the role of the statement decides which policies apply.
        admin.execute(f"ALTER ROLE {secured.name('service')} SET session_preload_libraries = 'auto_explain'")
        for name, value in {"log_min_duration": 0, "log_analyze": "on"}.items():
            admin.execute(f"ALTER ROLE {secured.name('service')} SET auto_explain.{name} = {value}")
    store = PostgresStore(secured.url_of("service"))
    with explained(store, loaded=True) as plans:
        run_all_operations(store, 3)
    must_use_indexes(plans, at_most=3_000)


def test_without_policy_even_the_owner_reads_nothing(secured: Roles) -> None:
    with secured.sql("owner") as sql:
        sql.execute("DROP POLICY onerow_service ON onerow.task_queue")
        assert ids(sql, "onerow.task_queue") == set()


# ── a session setting ──


@pytest.fixture
def by_setting(secured: Roles, run: Run) -> Roles:
    options = ["--tenant", secured.name("members"), "--service", secured.name("service"), "--setting", "app.user_id"]
    run("pg", "policies", *options, "--apply", "--store", secured.url_of("owner"))
    return secured


def test_a_session_setting_names_the_tenant(by_setting: Roles, run: Run) -> None:
    with by_setting.sql("ann") as sql:
        assert ids(sql, "onerow.task_queue") == set()
        with sql.transaction():
            sql.execute("SELECT set_config('app.user_id', %s, true)", (BOBS,))
            assert ids(sql, "onerow.task_queue") == {"bob-1", "bob-2"}
        # Now the setting is '', and tasks without an owner have the user_id ''.
        assert ids(sql, "onerow.task_queue") == set()
    url = by_setting.url_of("ann", options=f"-c%20app.user_id%3D{ANNS}")
    assert "ann-1" in run("list", "--store", url).stdout


def test_a_local_setting_does_not_outlive_its_transaction_behind_a_pooler(
    by_setting: Roles, pgbouncer: PgBouncer
) -> None:
    with psycopg.connect(pgbouncer.in_front_of(by_setting.url), autocommit=True) as sql:
        for account, own in ((ANNS, "ann-1"), (BOBS, "bob-1")):
            with sql.transaction():
                sql.execute(f"SET LOCAL ROLE {by_setting.name('members')}")
                sql.execute(f"SET LOCAL app.user_id = '{account}'")
                assert own in ids(sql, "onerow.task_queue")
            with sql.transaction():
                sql.execute(f"SET LOCAL ROLE {by_setting.name('members')}")
                assert ids(sql, "onerow.task_queue") == set()


# ── check ──

OPENED = {
    "ALTER TABLE onerow.onerow_log DISABLE ROW LEVEL SECURITY": "onerow.onerow_log has no row-level security",
    "ALTER TABLE onerow.task_queue NO FORCE ROW LEVEL SECURITY": "of onerow.task_queue does not apply to its owner",
    "CREATE POLICY all_of_it ON onerow.task_queue FOR SELECT USING (true)": "all_of_it on onerow.task_queue lets every role read",
    "CREATE POLICY edit ON onerow.onerow_note TO {ann} USING (true)": "edit on onerow.onerow_note lets {ann} read and write",
    "GRANT TRUNCATE, UPDATE ON onerow.task_queue TO {ann}": "{ann} has TRUNCATE, UPDATE on onerow.task_queue",
    "GRANT INSERT ON onerow.onerow_log TO PUBLIC": "every role has INSERT on onerow.onerow_log",
    "CREATE VIEW onerow.plain AS SELECT * FROM onerow.task_queue; GRANT SELECT ON onerow.plain TO {ann}": (
        "view onerow.plain reads onerow.task_queue with the rights of its owner"
    ),
    "CREATE MATERIALIZED VIEW onerow.kept AS SELECT * FROM onerow.task_queue; GRANT SELECT ON onerow.kept TO {ann}": (
        "materialized view onerow.kept is a copy"
    ),
    "CREATE FUNCTION onerow.every() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM onerow.task_queue'": (
        "function onerow.every() runs with the rights of its owner"
    ),
    "CREATE TABLE onerow.later (task_id text)": "onerow.later has no row-level security",
}


@pytest.mark.parametrize("opened", OPENED)
def test_check_reports_what_is_open_and_how_to_close_it(secured: Roles, run: Run, opened: str) -> None:
    ann = secured.name("ann")
    run("pg", "policies", "--check", "--store", secured.url_of("owner"))
    with secured.sql("owner") as sql:
        sql.execute(opened.replace("{ann}", ann))
    said = run("pg", "policies", "--check", "--store", secured.url_of("owner"), code=1).stdout
    assert OPENED[opened].replace("{ann}", ann) in said


CLOSABLE = {
    "CREATE FUNCTION public.f() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS "
    '\'BEGIN RETURN (SELECT count(*) FROM "onerow" . "task_queue"); END\'': "function public.f() runs with the rights",
    "CREATE PROCEDURE public.f() LANGUAGE sql SECURITY DEFINER SET search_path = onerow AS "
    "'DELETE FROM Task_Queue'": "procedure public.f() runs with the rights",
    "CREATE FUNCTION public.f() RETURNS bigint LANGUAGE sql SECURITY DEFINER BEGIN ATOMIC SELECT count(*) FROM onerow.onerow_log; END; "
    "REVOKE EXECUTE ON FUNCTION public.f() FROM PUBLIC; GRANT EXECUTE ON FUNCTION public.f() TO {ann}": (
        "function public.f() runs with the rights of its owner, postgres, for {ann}"
    ),
    'CREATE VIEW public."뷰 1" WITH (security_invoker = true) AS SELECT * FROM onerow.task_queue; '
    "CREATE FUNCTION public.f() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM public.\"뷰 1\"'": (
        "function public.f() runs with the rights"
    ),
    "CREATE VIEW public.w1 AS SELECT * FROM onerow.task_queue; CREATE VIEW public.w2 AS SELECT * FROM public.w1; "
    "GRANT SELECT ON public.w2 TO {ann}": "view public.w2 reads onerow.task_queue with the rights of its owner",
    "CREATE VIEW public.w1 AS SELECT * FROM onerow.task_queue; GRANT SELECT (task_id) ON public.w1 TO {ann}": (
        "view public.w1 reads onerow.task_queue"
    ),
    "GRANT REFERENCES (task_id), SELECT (task_id) ON onerow.task_queue TO {ann}": "{ann} has REFERENCES (task_id) on onerow.task_queue",
    "ALTER POLICY onerow_service ON onerow.onerow_log TO {owner}, {service}, {ann}": (
        "policy onerow_service on onerow.onerow_log lets {ann} read and write"
    ),
    "ALTER POLICY onerow_service ON onerow.task_queue TO PUBLIC": "policy onerow_service on onerow.task_queue lets every role read",
    "ALTER POLICY onerow_tenant ON onerow.onerow_log USING (true)": "policy onerow_tenant on onerow.onerow_log lets tenants read it if true",
    "CREATE POLICY onerow_tenant ON onerow.onerow_tally FOR SELECT TO {members} USING (true)": "on onerow.onerow_tally lets tenants read",
    "ALTER TABLE onerow.onerow_log OWNER TO {ann}": "onerow.onerow_log belongs to {ann}",
    "GRANT CREATE ON SCHEMA onerow TO {ann}": "{ann} may create objects in schema onerow",
    "GRANT CREATE ON SCHEMA onerow TO PUBLIC": "every role may create objects in schema onerow",
    "ALTER SCHEMA onerow OWNER TO {ann}; GRANT USAGE ON SCHEMA onerow TO {owner}": "{ann} may create objects in schema onerow",
    "GRANT {service} TO {ann}": "role {ann} reads as a tenant and is a member of {service}",
    "ALTER ROLE {ann} SUPERUSER": "role {ann} reads as a tenant, and policies do not apply to it",
    "ALTER ROLE {ann} BYPASSRLS": "role {ann} reads as a tenant, and policies do not apply to it",
}


@pytest.mark.promise("P13")
@pytest.mark.parametrize("opened", CLOSABLE)
def test_check_reports_what_an_administrator_opened_and_its_fix_closes_it(
    secured: Roles, run: Run, opened: str
) -> None:
    names = {role: secured.name(role) for role in ("owner", "service", "members", "ann")}
    with psycopg.connect(secured.url, autocommit=True) as admin:
        ((administrator,),) = admin.execute("SELECT current_user").fetchall()
        admin.execute(opened.format(**names))
        problem = CLOSABLE[opened].format(**names).replace("postgres,", f"{administrator},")
        with secured.queue("owner") as queue:
            assert isinstance(queue.store, PostgresStore)
            found = [finding for finding in queue.store.check_policies() if finding.level == "bad"]
        assert problem in "\n".join(finding.what for finding in found)
        for fix in dict.fromkeys(finding.fix for finding in found):
            if not fix.startswith("onerow "):
                admin.execute(fix)
        if any(finding.fix.startswith("onerow ") for finding in found):
            run("pg", "policies", *secured.policy_options(), "--apply", "--store", secured.url_of("owner"))
    run("pg", "policies", "--check", "--store", secured.url_of("owner"))


def test_roles_of_an_earlier_run_lose_what_it_gave_them(secured: Roles, run: Run) -> None:
    options = ["--service", secured.name("bob"), "--tenant", secured.name("ann"), "--using", "true"]
    with psycopg.connect(secured.url, autocommit=True) as admin:
        admin.execute(f"REVOKE {secured.name('members')} FROM {secured.name('bob')}, {secured.name('ann')}")
    run("pg", "policies", *options, "--apply", "--store", secured.url_of("owner"))
    run("pg", "policies", "--check", "--store", secured.url_of("owner"))
    for role in ("service", "members"):
        with secured.sql(role) as sql, pytest.raises(errors.InsufficientPrivilege):
            sql.execute("SELECT FROM onerow.task_queue")
    run("pg", "policies", *secured.policy_options(), "--apply", "--store", secured.url_of("owner"))
    run("pg", "policies", "--check", "--store", secured.url_of("owner"))


def test_check_finds_nothing_where_nothing_is_open(secured: Roles, postgres_url: str, run: Run) -> None:
    names = {role: secured.name(role) for role in ("owner", "service", "members", "ann")}
    harmless = [
        "CREATE FUNCTION public.a() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM onerow.task_queue'",
        "CREATE FUNCTION public.b() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM public.my_task_queue'",
        "CREATE FUNCTION public.c() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM second.task_queue'",
        "CREATE FUNCTION public.d() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM onerow.task_queue'; "
        "REVOKE EXECUTE ON FUNCTION public.d() FROM PUBLIC; GRANT EXECUTE ON FUNCTION public.d() TO {service}",
        "CREATE FUNCTION public.e() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM onerow.task_queue'; "
        "ALTER FUNCTION public.e() OWNER TO {ann}",
        "CREATE VIEW public.w1 AS SELECT * FROM onerow.task_queue",
        "CREATE VIEW public.w2 WITH (security_invoker = true) AS SELECT * FROM public.w1; GRANT SELECT ON public.w2 TO {ann}",
        "GRANT {members} TO {service}",
    ]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SET check_function_bodies = off")
        for each in harmless:
            admin.execute(each.format(**names))
    run("pg", "policies", "--check", "--store", secured.url_of("owner"))


def test_check_reports_a_tenant_who_can_become_the_service(secured: Roles, postgres_url: str, run: Run) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"GRANT {secured.name('service')} TO {secured.name('members')}")
    said = run("pg", "policies", "--check", "--store", secured.url_of("owner"), code=1).stdout
    assert f"is a member of {secured.name('service')}" in said


def test_an_adoption_opens_nothing(secured: Roles, run: Run) -> None:
    """Its capture, which belongs to no superuser here, and the old table under its new name."""
    owner = secured.url_of("owner")
    with secured.sql("owner") as sql:
        sql.execute("CREATE SCHEMA app")
        sql.execute("CREATE TABLE app.jobs (id text PRIMARY KEY, owner text NOT NULL, status text NOT NULL)")
        sql.execute("INSERT INTO app.jobs VALUES ('a', %s, 'queued'), ('b', %s, 'queued')", (ANNS, BOBS))
        members = secured.name("members")
        sql.execute(f"GRANT USAGE ON SCHEMA app TO {members}; GRANT SELECT, INSERT ON app.jobs TO {members}")
    jobs = Pipeline("jobs")
    jobs.phase(name="run")(lambda job: None)
    mapping = read_mapping({
        "table": "app.jobs", "pipeline": "jobs", "phase": "run",
        "columns": {"id": "task_id", "owner": "user_id", "status": "status"},
        "statuses": {"queued": "waiting", "busy": "processing", "done": "completed", "bad": "failed", "off": "cancelled"},
    })  # fmt: skip
    with secured.queue("owner") as queue:
        queue.publish(jobs)
        store: Any = queue.store

        table = store.old_table(mapping)
        table.start()
        run("pg", "policies", "--check", "--store", owner)
        with secured.sql("ann") as sql:
            sql.execute("INSERT INTO app.jobs VALUES ('c', %s, 'queued')", (ANNS,))
        Adoption(store, table, wait=lambda seconds: None).run()
        run("pg", "policies", "--check", "--store", owner)
    with secured.sql("ann") as sql:
        assert {key for (key,) in sql.execute("SELECT id FROM app.jobs")} == {"a", "c"}
        with pytest.raises(errors.InsufficientPrivilege):
            sql.execute("SELECT FROM app.jobs_before_onerow")


# ── bad input ──


MISTAKES: list[tuple[list[str], str]] = [
    (["--tenant", "{ann}", "--using", "is_member(user_id)"], "function is_member(text) does not exist"),
    (["--tenant", "{ann}", "--using", "EXISTS (SELECT FROM posts)"], 'relation "posts" does not exist'),
    (["--tenant", "{ann}", "--using", "owner = 'x'"], 'column "owner" does not exist'),
    (["--tenant", "{ann}", "--using", "user_id"], "must be type boolean"),
    (["--tenant", "{ann}", "--using", "true); DROP TABLE accounts; SELECT (true"], "closes a parenthesis that"),
    (["--tenant", "{ann}", "--using", "true; DROP TABLE accounts"], "syntax error"),
    (["--tenant", "{ann}", "--using", "true) OR (true"], "closes a parenthesis that it did not open"),
    (["--tenant", "{ann}", "--using", "SELECT true"], "syntax error"),
    (["--tenant", "{ann}", "--using", "user_id = $1"], "it has a parameter"),
    (["--tenant", "{ann}", "--using", 'EXISTS (SELECT FROM "onerow".task_queue AS t)'], "infinite recursion"),
    (["--tenant", "{ann}", "--using", "EXISTS (SELECT FROM onerow.onerow_log AS l)"], "infinite recursion"),
    (["--tenant", "{ann}", "--setting", "user"], "can't name a session setting"),
    (["--tenant", "{ann}"], "which tasks may a tenant read?"),
    (["--tenant", "{ann}", "--using", "true", "--setting", "app.x"], "which tasks may a tenant read?"),
    (["--using", "true"], "is for the roles of tenants"),
    (["--tenant", "no one", "--using", "true"], "there is no role 'no one'"),
    (["--tenant", "{owner}", "--using", "true"], "could switch the policies off"),
    (["--tenant", "{ann}", "--service", "{ann}", "--using", "true"], "both a tenant and a service"),
    (["--tenant", "{ann}", "--service", "{members}", "--using", "true"], "is a member of"),
    (
        ["--tenant", "{ann}", "--using", "EXISTS (SELECT FROM public.workspace_members)"],
        "may not read what --using reads",
    ),
    (["--check", "--apply"], "--check reads the database"),
]


def test_bad_input_changes_nothing(roles: Roles, run: Run) -> None:
    names = {role: roles.name(role) for role in ("ann", "owner", "members")}
    for options, problem in MISTAKES:
        filled = [option.format(**names) for option in options]
        more = [] if "--check" in filled else ["--apply"]
        # A superuser: it may become the tenant, so that the condition is tried.
        said = run("pg", "policies", *filled, *more, "--store", roles.url, code=64)
        assert problem in said.stderr
        assert len(said.stderr.splitlines()) <= 2
    with roles.sql("owner") as sql:
        assert sql.execute("SELECT count(*) FROM pg_policies WHERE schemaname = 'onerow'").fetchone() == (0,)


WRONG = ["true) OR (true", "user_id = $1", "SELECT true", "task_id IN (SELECT parent_id FROM onerow.task_queue)"]


@pytest.mark.parametrize("using", WRONG)
def test_a_wrong_condition_is_not_printed(roles: Roles, run: Run, using: str) -> None:
    said = run(
        "pg", "policies", "--tenant", roles.name("ann"), "--using", using, "--store", roles.url_of("owner"), code=64
    )
    assert said.stdout == ""
    assert "--using" in said.stderr


def test_a_condition_that_reads_the_tasks_indirectly_is_refused_to_the_owner(roles: Roles, run: Run) -> None:
    """An owner who is no superuser can't become the tenant to try it."""
    options = ["--tenant", roles.name("members"), "--apply", "--store", roles.url_of("owner")]
    using = "EXISTS (SELECT FROM onerow.onerow_log AS l WHERE l.task_id = task_queue.task_id)"
    assert "infinite recursion" in run("pg", "policies", *options, "--using", using, code=64).stderr


def test_parentheses_in_strings_comments_and_names_are_not_counted(roles: Roles, run: Run) -> None:
    using = """(user_id <> ')' AND user_id <> E'\\')' /* ) */ AND user_id <> $글$)$글$ -- )
    )"""
    options = ["--tenant", roles.name("members"), "--using", using, "--store", roles.url_of("owner")]
    run("pg", "policies", *options, "--apply")
    run("pg", "policies", "--check", "--store", roles.url_of("owner"))


def test_only_the_owner_applies_policies(roles: Roles) -> None:
    settings = PolicySettings(services=[], tenants=[roles.name("members")], using=MEMBERS_READ)
    with roles.sql("owner") as sql:
        sql.execute(f"GRANT USAGE ON SCHEMA onerow TO {roles.name('service')}")
        sql.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA onerow TO {roles.name('service')}, {roles.name('members')}")
    store = PostgresStore(roles.url_of("service"))
    try:
        with pytest.raises(BadInput, match="may not apply policies"):
            store.apply_policies(settings)
    finally:
        store.close()


def test_the_printed_sql_does_the_same(roles: Roles, run: Run) -> None:
    printed = run("pg", "policies", *roles.policy_options(), "--store", roles.url_of("owner")).stdout
    with roles.sql("owner") as sql:
        assert sql.execute("SELECT count(*) FROM pg_policies WHERE schemaname = 'onerow'").fetchone() == (0,)
        sql.execute(printed)
    run("pg", "policies", "--check", "--store", roles.url_of("owner"))


def test_another_store_has_no_policies(run: Run) -> None:
    run("migrate", "--store", "sqlite:///a.db")
    assert "is not in PostgreSQL" in run("pg", "policies", "--check", "--store", "sqlite:///a.db", code=64).stderr
