"""Attached tables: a deleted row of the user's table takes its tasks along."""

import asyncio
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest

from onerow import Context
from onerow.core.addition import Addition
from onerow.core.errors import RowRefused
from onerow.core.filters import Filter
from onerow.core.status import CANCELLED, COMPLETED, PROCESSING
from onerow.core.task import Task
from onerow.engine.queue.adding import add_children
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Lease, LogLine
from onerow.sql_ports import Attachment
from onerow.stores.postgres import PostgresStore
from onerow.stores.postgres.attach import _digest
from onerow.wiring import Queue
from tests.cli.conftest import Run, run
from tests.conformance.kit import MINUTE, claim
from tests.engine.kit import reached, until, working
from tests.stores.postgres.tenants import Roles, login_roles

__all__ = ["run"]  # a fixture

tagging = Pipeline("tagging")
started = threading.Event()
stopped = threading.Event()


@tagging.phase()
async def tag(job: object) -> None:
    started.set()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        stopped.set()
        raise


other = Pipeline("other")
other.phase(name="run")(lambda job: None)

parents = Pipeline("parents")


@parents.phase()
def spawn(job: object, ctx: Context) -> None:
    ctx.spawn(tagging, [Addition(None, unique="1")])


parents.wait_children("gather")

TABLES = """
CREATE TABLE accounts (id uuid PRIMARY KEY);
CREATE TABLE posts (id integer PRIMARY KEY, account uuid REFERENCES accounts ON DELETE CASCADE, slug text UNIQUE, kind text);
INSERT INTO accounts VALUES ('0190a000-0000-7000-8000-00000000000a');
INSERT INTO posts SELECT n, '0190a000-0000-7000-8000-00000000000a', 'slug ' || n FROM generate_series(1, 20) AS n;
"""


@pytest.fixture
def queue(store: PostgresStore, sql: psycopg.Connection) -> Iterator[Queue]:
    sql.execute(TABLES)
    queue = Queue(store)
    queue.publish(tagging, other, parents)
    yield queue
    queue.close()


def attached(queue: Queue, match: str, key: str = "id", table: str = "posts") -> None:
    store = queue.store
    assert isinstance(store, PostgresStore)
    store.attach(Attachment(table=table, key=key, pipeline="tagging", match=match))


def ids(queue: Queue) -> set[str]:
    return {task.task_id for task in queue.find(limit=1000).tasks}


def add(queue: Queue, task_id: str, pipeline: Pipeline = tagging, **options: Any) -> Task:
    return queue.add(pipeline, options.pop("payload", None), task_id=task_id, **options)


@pytest.mark.parametrize("match", ["task_id", "unique_key", "user_id", "payload.post", "payload.글.id"])
def test_a_deleted_row_takes_its_tasks_along(queue: Queue, sql: psycopg.Connection, match: str) -> None:
    attached(queue, match)
    for n in (1, 2):
        payload: Any = {"post": n, "글": {"id": str(n)}}
        task_id = str(n) if match == "task_id" else f"t{n}"
        add(queue, task_id, unique=str(n), user_id=str(n), payload=payload)
        queue.store.append_log([LogLine(task_id, queue.store.now(), "tag", 1, "out", "output")])
        # The same values in another pipeline, and values of another kind.
        add(queue, f"other{n}", other, unique=str(n), user_id=str(n), payload=payload)
    for nth, payload in enumerate((None, [1], "1", 1)):
        add(queue, f"odd{nth}", payload=payload)
    kept = ids(queue) - {"1", "t1"}
    sql.execute("DELETE FROM posts WHERE id = 1")
    assert ids(queue) == kept
    assert sql.execute("SELECT count(*) FROM onerow.onerow_log").fetchone() == (1,)
    assert sql.execute("SELECT count(*) FROM onerow.onerow_log_size").fetchone() == (1,)
    sql.execute("DELETE FROM posts")
    assert ids(queue) == kept - {"2", "t2"}
    assert sql.execute("SELECT count(*) FROM onerow.onerow_deleted").fetchone() == (0,)


def test_ended_tasks_go_too_and_the_counters_stay_right(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    add(queue, "done", unique="1", unique_for="7d")
    queue.finish("done")
    add(queue, "failed", unique="2")
    queue.fail("failed", "no")
    sql.execute("DELETE FROM posts WHERE id IN (1, 2)")
    assert ids(queue) == set()
    assert isinstance(queue.store, PostgresStore)
    assert queue.store._counter_updater.is_correct()
    assert queue.store.store_counts().counts == []


def test_a_running_task_is_stopped(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    started.clear()
    stopped.clear()
    task = add(queue, "runs", unique="1")
    with working(queue, tagging):
        assert started.wait(900)
        sql.execute("DELETE FROM posts WHERE id = 1")
        ended = reached(queue, task, CANCELLED)
        assert stopped.is_set()
    (entry,) = [each for each in ended.history if each.what == "cancel"]
    assert (entry.by, entry.note) == ("table public.posts", "the row that it belongs to was deleted")


def test_workers_are_woken(queue: Queue, sql: psycopg.Connection, postgres_url: str) -> None:
    attached(queue, "unique_key")
    add(queue, "runs", unique="1")
    claim(queue.store, pipeline="tagging", phase="tag")
    with psycopg.connect(postgres_url, autocommit=True) as listening:
        listening.execute('LISTEN "onerow.onerow"')
        sql.execute("DELETE FROM posts WHERE id = 1")
        assert [heard.payload for heard in listening.notifies(timeout=30, stop_after=1)] == [""]


def test_children_are_included(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    add(queue, "parent", unique="1")
    add_children(queue, other, [Addition(task_id="child")], "parent", None)
    add_children(queue, other, [Addition(task_id="grandchild"), Addition(task_id="running")], "child", None)
    claim(queue.store, pipeline="other", phase="run", ids=["running"])
    sql.execute("DELETE FROM posts WHERE id = 1")
    (left,) = queue.find().tasks
    assert (left.task_id, left.status, left.cancel_requested) == ("running", PROCESSING, True)


def test_a_parent_that_remains_is_resumed(queue: Queue, sql: psycopg.Connection) -> None:
    """A deleted child would never end, and its parent would wait for ever."""
    attached(queue, "unique_key")
    parent = add(queue, "parent", parents)
    with working(queue, parents):
        until(lambda: queue.get("parent").awaiting == "children", "the parent waits")
        (child,) = queue.find(Filter(parent_id="parent")).tasks
        sql.execute("DELETE FROM posts WHERE id = 1")
        reached(queue, parent, COMPLETED)
    child = queue.get(child.task_id)
    assert (child.status, child.held_key) == (CANCELLED, None)
    assert isinstance(queue.store, PostgresStore)
    assert queue.store._counter_updater.is_correct()


def test_a_foreign_key_that_cascades_and_a_truncated_table(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    for n in (1, 2):
        add(queue, f"t{n}", unique=str(n))
    add(queue, "without a key")
    with sql.transaction(force_rollback=True):
        sql.execute("DELETE FROM accounts")
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        assert sql.execute("SELECT task_id FROM onerow.task_queue").fetchall() == [("without a key",)]
    assert len(ids(queue)) == 3
    sql.execute("TRUNCATE posts")
    assert ids(queue) == {"without a key"}


def test_a_transaction_that_deletes_and_stays_open_blocks_no_heartbeat(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    add(queue, "runs", unique="1")
    (held,) = claim(queue.store, pipeline="tagging", phase="tag")
    with sql.transaction():
        sql.execute("DELETE FROM posts WHERE id = 1")
        (answer,) = queue.store.extend([Lease(held.task_id, held.token)], MINUTE)
        assert not getattr(answer, "cancel_requested", True)
    assert queue.get("runs").cancel_requested


def test_any_role_that_may_delete_the_row(postgres_url: str, run: Run) -> None:
    with login_roles(postgres_url) as roles:
        owner = roles.url_of("owner")
        run("pg", "policies", *roles.policy_options(), "--apply", "--store", owner)
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("CREATE TABLE public.posts (id integer PRIMARY KEY); INSERT INTO posts VALUES (1)")
            admin.execute(f"GRANT SELECT, DELETE ON posts TO {roles.name('ann')}")
        # A superuser attaches: the functions belong to the owner of the tables all the same.
        said = run(
            "pg", "attach", "--table", "posts", "--pipeline", "tagging", "--match", "unique_key", "--store", roles.url
        )
        assert (
            said.stdout
            == "posts is attached: a deleted row takes the tasks of tagging whose unique_key is its id along\n"
        )
        run("pg", "policies", "--check", "--store", owner)
        _delete_as_ann(roles)


ATTACKS = [
    "CREATE TRIGGER t AFTER DELETE ON pg_temp.gone_of_hers REFERENCING OLD TABLE AS gone "
    "FOR EACH STATEMENT EXECUTE FUNCTION onerow.onerow_row_deleted('id', 'tagging', 'user_id')",
    "CREATE TRIGGER t AFTER INSERT ON pg_temp.gone_of_hers FOR EACH ROW EXECUTE FUNCTION onerow.onerow_delete_tasks()",
]


@pytest.mark.promise("P13")
def test_a_tenant_can_not_use_the_functions_for_tables_of_its_own(postgres_url: str, run: Run) -> None:
    with login_roles(postgres_url) as roles:
        owner = roles.url_of("owner")
        run("pg", "policies", *roles.policy_options(), "--apply", "--store", owner)
        options = ["--table", "accounts", "--pipeline", "tagging", "--match", "user_id", "--store", roles.url]
        run("pg", "attach", *options)
        with roles.sql("owner") as sql, roles.sql("ann") as ann:
            ann.execute(
                "CREATE TEMP TABLE gone_of_hers (id bigint, table_name text, pipeline text, match text, keys text[])"
            )
            for attack in ATTACKS:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    ann.execute(attack)
            # As an earlier version left it: --check says so, and `attach` repairs it.
            sql.execute("GRANT EXECUTE ON FUNCTION onerow.onerow_row_deleted() TO PUBLIC")
            said = run("pg", "policies", "--check", "--store", owner, code=1).stdout
            assert "function onerow.onerow_row_deleted() runs with the rights of its owner" in said
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute(f"CREATE SCHEMA hers AUTHORIZATION {roles.name('ann')}")
            ann.execute("CREATE TABLE hers.posts (id text)")
            ann.execute(ATTACKS[0].replace("pg_temp.gone_of_hers", "hers.posts"))
            run("pg", "attach", *options)
            said = run("pg", "policies", "--check", "--store", owner, code=1).stdout
            assert "trigger t on hers.posts, which belongs to tenant" in said
            assert "DROP TRIGGER t ON hers.posts" in said
            ann.execute("DROP TRIGGER t ON hers.posts")
            run("pg", "policies", "--check", "--store", owner)


def test_a_type_of_the_user_runs_no_code_as_the_owner(queue: Queue, sql: psycopg.Connection) -> None:
    sql.execute(
        "CREATE TYPE own AS (n integer); CREATE FUNCTION cast_own(own) RETURNS text LANGUAGE plpgsql AS "
        "$$BEGIN RAISE 'ran as %', current_user; END$$; CREATE CAST (own AS text) WITH FUNCTION cast_own"
    )
    sql.execute("CREATE TABLE odd (id own PRIMARY KEY, code char(5) UNIQUE); INSERT INTO odd VALUES (ROW(1), 'a')")
    attached(queue, "unique_key", table="odd")
    attached(queue, "user_id", key="code", table="odd")
    add(queue, "t1", unique="(1)")
    add(queue, "t2", user_id="a")
    sql.execute("DELETE FROM odd")
    assert ids(queue) == set()


def test_a_role_that_does_not_own_the_store_can_not_attach_its_table(postgres_url: str, run: Run) -> None:
    with login_roles(postgres_url) as roles:
        options = ["--pipeline", "tagging", "--match", "user_id"]
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("CREATE TABLE public.hers (id integer PRIMARY KEY)")
            admin.execute(f"ALTER TABLE public.hers OWNER TO {roles.name('ann')}")
            admin.execute(f"GRANT USAGE ON SCHEMA onerow TO {roles.name('ann')}")
            admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA onerow TO {roles.name('ann')}")
        run("pg", "attach", "--table", "accounts", *options, "--store", roles.url)
        said = run("pg", "attach", "--table", "hers", *options, "--store", roles.url_of("ann"), code=64).stderr
        assert "this role may not attach hers" in said
        assert "connect as the owner of onerow's tables, after GRANT TRIGGER ON hers TO" in said
        with roles.sql("ann") as sql:
            sql.execute(f"GRANT TRIGGER ON hers TO {roles.name('owner')}")
        run("pg", "attach", "--table", "hers", *options, "--store", roles.url_of("owner"))


def _delete_as_ann(roles: Roles) -> None:
    with roles.queue("service") as queue, roles.sql("ann") as sql:
        queue.add("tagging", {"post": "1"}, task_id="t1", unique="1")
        assert sql.execute("SELECT count(*) FROM onerow.task_queue").fetchone() == (0,)  # not Ann's task
        sql.execute("DELETE FROM posts WHERE id = 1")
        assert queue.find().tasks == []


def test_ten_thousand_rows_cost_one_statement_that_uses_indexes(queue: Queue, sql: psycopg.Connection) -> None:
    for match in ("unique_key", "user_id", "payload.post"):
        attached(queue, match)
    sql.execute("INSERT INTO posts SELECT n FROM generate_series(1001, 11000) AS n")
    sql.execute(
        "INSERT INTO onerow.task_queue (task_id, pipeline, type, unique_key, held_key, user_id, payload) "
        "SELECT 't' || n, 'tagging', 'tag', n::text, n::text, n::text, json_build_object('post', n) FROM generate_series(1001, 31000) AS n"
    )
    sql.execute("ANALYZE onerow.task_queue")
    plans: list[str] = []
    sql.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    sql.execute("LOAD 'auto_explain'")
    for name, value in {"log_min_duration": "0", "log_nested_statements": "on", "log_analyze": "on"}.items():
        sql.execute(f"SET auto_explain.{name} = {value}")
    sql.execute("SET client_min_messages = log")
    sql.execute("DELETE FROM posts WHERE id > 1000")
    sql.execute("RESET client_min_messages")
    assert sql.execute("SELECT count(*) FROM onerow.task_queue").fetchone() == (20_000,)
    assert sum("INSERT INTO" in plan and "onerow_deleted" in plan for plan in plans) == 3  # one for each attachment
    assert not [plan for plan in plans if "Seq Scan on task_queue" in plan]


def test_one_row_reads_few_rows_of_a_large_table(queue: Queue, sql: psycopg.Connection) -> None:
    for match in ("unique_key", "user_id", "payload.post"):
        attached(queue, match)
    sql.execute(
        "INSERT INTO onerow.task_queue (task_id, pipeline, type, unique_key, user_id, payload) "
        "SELECT 't' || n, 'tagging', 'tag', n::text, n::text, json_build_object('post', n) FROM generate_series(1, 30000) AS n"
    )
    sql.execute("ANALYZE onerow.task_queue")
    before = _rows_read(sql)
    sql.execute("DELETE FROM posts WHERE id = 1")
    assert until(lambda: _rows_read(sql) - before, "statistics") < 100


def _rows_read(sql: psycopg.Connection) -> int:
    sql.execute("SELECT pg_stat_force_next_flush()")
    row = sql.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'task_queue' AND schemaname = 'onerow'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_list_and_detach(queue: Queue, sql: psycopg.Connection, postgres_url: str, run: Run) -> None:
    sql.execute('CREATE SCHEMA "앱"; CREATE TABLE "앱"."Posts" ("글 번호" integer PRIMARY KEY)')
    before = _objects(sql)
    assert run("pg", "attach", "--list", "--store", postgres_url).stdout == ""
    options = ["--pipeline", "tagging", "--store", postgres_url]
    run("pg", "attach", "--table", '"앱"."Posts"', "--match", 'payload.it\'s \\ "odd"', *options)
    for match in ("unique_key", "payload.post"):
        run("pg", "attach", "--table", "posts", "--key", "slug", "--match", match, *options)
        run("pg", "attach", "--table", "public.posts", "--key", "id", "--match", match, *options)  # replaces it
    said = run("pg", "attach", "--list", "--store", postgres_url).stdout
    assert [line.split() for line in said.splitlines()[2:]] == [
        ["posts", "id", "tagging", "payload.post"],
        ["posts", "id", "tagging", "unique_key"],
    ]
    assert '"앱"."Posts"' in said.splitlines()[1]
    add(queue, "odd", payload={'it\'s \\ "odd"': 7})
    sql.execute('INSERT INTO "앱"."Posts" VALUES (7)')
    sql.execute('DELETE FROM "앱"."Posts"')
    assert ids(queue) == set()
    run("pg", "detach", "--table", '"앱"."Posts"', *options)
    run("pg", "detach", "--table", "posts", "--match", "unique_key", *options)
    add(queue, "stays", unique="1")
    sql.execute("DELETE FROM posts WHERE id = 1")
    assert ids(queue) == {"stays"}
    run("pg", "detach", "--table", "posts", *options)
    assert _objects(sql) == before


def test_stores_in_two_schemas_share_a_table(
    queue: Queue, sql: psycopg.Connection, postgres_url: str, run: Run
) -> None:
    second = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=second"
    other_queue = Queue(PostgresStore(second))
    try:
        other_queue.publish(tagging)
        options = ["--table", "posts", "--pipeline", "tagging"]
        for url in (postgres_url, second):
            run("pg", "attach", *options, "--match", "unique_key", "--store", url)
        for each in (queue, other_queue):
            add(each, "t1", unique="1")
            add(each, "t2", unique="2")
        sql.execute("DELETE FROM posts WHERE id = 1")
        assert (ids(queue), ids(other_queue)) == ({"t2"}, {"t2"})
        run("pg", "detach", *options, "--store", second)
        sql.execute("DELETE FROM posts WHERE id = 2")
        assert (ids(queue), ids(other_queue)) == (set(), {"t2"})
    finally:
        other_queue.close()


def test_triggers_with_names_of_an_earlier_version(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "unique_key")
    by_statement = "SELECT tgname FROM pg_trigger WHERE tgname LIKE 'onerow_attached%' ORDER BY 1"
    before = sql.execute(by_statement).fetchall()
    for old, new in zip(before, ("onerow_attached_1", "onerow_attached_1_all"), strict=True):
        sql.execute(f"ALTER TRIGGER {old[0]} ON posts RENAME TO {new}")
    attached(queue, "unique_key")
    assert sql.execute(by_statement).fetchall() == before
    sql.execute(f"ALTER TRIGGER {before[0][0]} ON posts RENAME TO onerow_attached_1")
    assert isinstance(queue.store, PostgresStore)
    queue.store.detach("posts", "tagging", None)
    assert sql.execute(by_statement).fetchall() == []


def _objects(sql: psycopg.Connection) -> list[tuple[str, ...]]:
    return sql.execute(
        "SELECT c.relname FROM pg_class AS c WHERE relnamespace = 'onerow'::regnamespace UNION ALL "
        "SELECT proname FROM pg_proc WHERE pronamespace = 'onerow'::regnamespace UNION ALL "
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"
    ).fetchall()


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--table", "pots", "--match", "unique_key"], "there is no table pots"),
        (["--table", "a.b.c.d", "--match", "unique_key"], "a.b.c.d"),
        (["--table", "shown", "--match", "unique_key"], "shown is a view"),
        (["--table", "plain", "--match", "unique_key"], "plain has no primary key of one column"),
        (["--table", "posts", "--key", "idd", "--match", "unique_key"], "posts has no column 'idd'"),
        (["--table", "posts", "--key", "kind", "--match", "unique_key"], "posts.kind is not unique"),
        (["--table", "posts", "--match", "title"], "tasks can't be matched by 'title'"),
        (["--table", "posts", "--match", "payload."], "tasks can't be matched by 'payload.'"),
        (["--table", "posts"], "what is to be attached?"),
        (["--list", "--table", "posts"], "--list takes no other option"),
    ],
)
def test_bad_input_changes_nothing(
    queue: Queue, sql: psycopg.Connection, postgres_url: str, run: Run, options: list[str], problem: str
) -> None:
    sql.execute("CREATE VIEW shown AS SELECT * FROM posts; CREATE TABLE plain (id integer)")
    before = _objects(sql)
    pipeline = [] if "--list" in options else ["--pipeline", "tagging"]
    said = run("pg", "attach", *options, *pipeline, "--store", postgres_url, code=64).stderr
    assert problem in said
    assert "Traceback" not in said
    assert _objects(sql) == before


def test_unknown_names(queue: Queue, postgres_url: str, run: Run) -> None:
    options = ["--table", "posts", "--match", "unique_key", "--store", postgres_url]
    said = run("pg", "attach", "--pipeline", "taging", *options, code=64).stderr
    assert "did you mean 'tagging'" in said
    said = run("pg", "detach", "--pipeline", "tagging", *options, code=64).stderr
    assert "posts is not attached to tagging" in said


def test_a_role_without_rights_changes_nothing(postgres_url: str, run: Run) -> None:
    with login_roles(postgres_url) as roles:
        options = ["--table", "accounts", "--pipeline", "tagging", "--match", "user_id"]
        said = run("pg", "attach", *options, "--store", roles.url_of("owner"), code=64).stderr
        assert "this role may not attach accounts" in said
        with roles.sql("owner") as sql:
            assert sql.execute("SELECT to_regclass('onerow.onerow_deleted')").fetchone() == (None,)


def test_an_interrupted_index_is_made_again(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "payload.post")
    ((index,),) = sql.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE 'task_attached%'").fetchall()
    sql.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", (f"onerow.{index}",))
    attached(queue, "payload.post")
    assert sql.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass", (f"onerow.{index}",)
    ).fetchone() == (True,)


INDEXES = "SELECT indexname FROM pg_indexes WHERE schemaname = 'onerow' AND indexname LIKE 'task_attached%'"


def test_a_long_value_in_the_matched_field_is_added_and_found(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "payload.post")
    sql.execute("CREATE TABLE notes (body text PRIMARY KEY)")
    attached(queue, "payload.post", table="notes", key="body")
    # Random letters: the server compresses an index row before it measures it.
    letters = Random(1)
    long = "".join(chr(letters.randrange(0xAC00, 0xD7A3)) for _ in range(2000))
    key = long[:500]  # as long as a key can be
    add(queue, "found", payload={"post": key})
    add(queue, "same beginning", payload={"post": long})
    add(queue, "object", payload={"post": {"body": long}})
    sql.execute("INSERT INTO notes VALUES (%s)", (key,))
    sql.execute("DELETE FROM notes")
    assert ids(queue) == {"same beginning", "object"}


def test_an_index_that_can_not_be_built_leaves_nothing(queue: Queue, sql: psycopg.Connection) -> None:
    sql.execute(
        "INSERT INTO onerow.task_queue (task_id, pipeline, type, payload) "
        """VALUES ('odd', 'tagging', 'tag', '{"post": "\\u0000"}')"""
    )
    with pytest.raises(RowRefused, match="unsupported Unicode"):
        attached(queue, "payload.post")
    assert sql.execute(INDEXES).fetchall() == []


def test_an_attachment_of_an_earlier_version_gets_its_index(queue: Queue, sql: psycopg.Connection) -> None:
    attached(queue, "payload.post")
    ((new,),) = sql.execute(INDEXES).fetchall()
    earlier = f"task_attached_{_digest('tagging', 'payload.post')}"
    sql.execute(f"DROP INDEX onerow.{new}")
    sql.execute(f"CREATE INDEX {earlier} ON onerow.task_queue ((payload #>> '{{post}}')) WHERE pipeline = 'tagging'")
    attached(queue, "user_id")
    assert sql.execute(INDEXES).fetchall() == [(new,)]
    sql.execute(f"ALTER INDEX onerow.{new} RENAME TO {earlier}")
    assert isinstance(queue.store, PostgresStore)
    queue.store.detach("posts", "tagging", None)
    assert sql.execute(INDEXES).fetchall() == []
