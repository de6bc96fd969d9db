"""A PostgreSQL store by itself, on the server's own clock."""

from collections.abc import Iterator

import psycopg
import pytest

from onerow.stores.postgres import PostgresStore
from tests.stores.postgres.proxy import Proxy


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """Prepared, with nothing in it."""
    store = PostgresStore(postgres_url)
    store.prepare()
    yield store
    store.close()


@pytest.fixture
def sql(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Someone else's connection to the same database, each statement a transaction."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """In front of the database of `postgres_url`."""
    proxy = Proxy(postgres_url)
    yield proxy
    proxy.close()
