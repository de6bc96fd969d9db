"""Fixtures: a PostgreSQL store on the server's clock, a raw connection, a proxy."""

from collections.abc import Iterator

import psycopg
import pytest

from onerow.stores.postgres import PostgresStore
from tests.stores.postgres.proxy import Proxy


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """A prepared, empty store."""
    store = PostgresStore(postgres_url)
    store.prepare()
    yield store
    store.close()


@pytest.fixture
def sql(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A separate connection to the same database, in autocommit mode."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """A proxy in front of the database of `postgres_url`."""
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()
