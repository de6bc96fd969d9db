"""Servers and databases that every test may ask for by name."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.servers import Missing
from tests.servers.mongo import MongoDatabases, MongoServer
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Databases, PostgresServer
from tests.servers.replica_set import MongoReplicaSet
from tests.servers.shared import begin_run, end_run, shared

if TYPE_CHECKING:
    from tests.servers.sqs import SqsServer

pytest_plugins = [f"tests.runner.{name}" for name in ("limits", "record", "schedule", "seed")]

UNDER_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        begin_run()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        end_run()


def start(server: Callable[[], T], *, optional: bool = False) -> T:
    """The server; where it can't be had, a skip that says how to get it, or a failure under CI unless it is optional."""
    try:
        return server()
    except Missing as missing:
        reason = str(missing)
    if UNDER_CI and not optional:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # the collected tests are some hundred MB, which each collection of garbage would search


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A database file that doesn't exist yet."""
    return f"sqlite:///{tmp_path / 'onerow.db'}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """Shared by all tests of the run: don't stop it. `own_postgres` is for that. The URL is of this process's database."""
    with _own_database("postgres") as server:
        yield server


@contextmanager
def _own_database(kind: str, *, optional: bool = False) -> Iterator[Databases]:
    # Notifications and advisory locks reach as far as a database.
    server = Databases(start(lambda: shared(kind), optional=optional))
    own = Databases(server.fresh_database())
    yield own
    server.drop_database(own.url)


@pytest.fixture
def postgres_url(postgres_server: Databases) -> Iterator[str]:
    """A fresh database."""
    url = postgres_server.fresh_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, to stop, kill and start again."""
    server = start(PostgresServer, optional="ONEROW_TEST_POSTGRES_URL" in os.environ)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_15_server() -> Iterator[Databases]:
    """The oldest PostgreSQL that is supported, where Debian's package of it is installed."""
    with _own_database("postgres-15", optional=True) as server:
        yield server


@pytest.fixture
def postgres_15_url(postgres_15_server: Databases) -> Iterator[str]:
    """A fresh database on the oldest PostgreSQL that is supported."""
    url = postgres_15_server.fresh_database()
    yield url
    postgres_15_server.drop_database(url)


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: Databases) -> Iterator[PgBouncer]:
    bouncer = start(lambda: PgBouncer(postgres_server.url), optional=True)
    yield bouncer
    bouncer.close()


@pytest.fixture
def pgbouncer_url(pgbouncer: PgBouncer, postgres_url: str) -> str:
    """The database of `postgres_url`, seen through PgBouncer in transaction mode."""
    return pgbouncer.in_front_of(postgres_url)


@pytest.fixture(scope="session")
def mongo_server() -> Iterator[MongoDatabases]:
    """Shared by all tests of the run: don't stop it. `own_mongo` is for that."""
    server = MongoDatabases(start(lambda: shared("mongo")))
    yield server
    server.close()


@pytest.fixture
def mongo_url(mongo_server: MongoDatabases) -> Iterator[str]:
    """A fresh database."""
    url = mongo_server.fresh_database()
    yield url
    mongo_server.drop_database(url)


@pytest.fixture
def own_mongo() -> Iterator[MongoServer]:
    """A server of the test's own, to stop, kill and start again."""
    server = start(MongoServer, optional="ONEROW_TEST_MONGO_URL" in os.environ)
    yield server
    server.close()


@pytest.fixture(scope="session")
def mongo_replica_set() -> Iterator[MongoDatabases]:
    """Shared by all tests of the run: don't stop it. `own_replica_set` is for that."""
    server = MongoDatabases(start(lambda: shared("mongo-replica-set")))
    yield server
    server.close()


@pytest.fixture
def mongo_replica_set_url(mongo_replica_set: MongoDatabases) -> Iterator[str]:
    """A fresh database on a replica set of MongoDB 7.0."""
    url = mongo_replica_set.fresh_database()
    yield url
    mongo_replica_set.drop_database(url)


@pytest.fixture(scope="module")
def own_replica_set() -> Iterator[MongoReplicaSet]:
    """Three members for one file of tests, to kill, to start again and to step down."""
    replica_set = start(
        lambda: MongoReplicaSet(3, election_timeout_ms=4_000),
        optional="ONEROW_TEST_MONGO_REPLICA_SET_URL" in os.environ,
    )
    yield replica_set
    replica_set.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "sqs_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("moto"))  # one process has the server, and may empty it


@pytest.fixture(scope="session")
def sqs_server() -> Iterator["SqsServer"]:
    from botocore.loaders import JSONFileLoader

    from tests.servers.sqs import SqsServer  # takes a second to import, and most runs don't need it

    read = cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda self, path: read(path))  # else each session parses a megabyte
        server = SqsServer()
        yield server
        server.close()


@pytest.fixture
def sqs_endpoint(sqs_server: "SqsServer", monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint_url for boto3, without a queue or bucket on it yet; region and keys are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    yield sqs_server.url
    sqs_server.reset()
