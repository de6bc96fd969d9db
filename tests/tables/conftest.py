"""Fixtures: the same test on PostgreSQL and SQLite."""

from collections.abc import Iterator

import pytest

from tests.tables.kit import Database, database


@pytest.fixture(params=["postgres", "sqlite"])
def bare(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database without onerow's tables."""
    with database(request.param, request.getfixturevalue(f"{request.param}_url")) as found:
        yield found


@pytest.fixture
def db(bare: Database) -> Database:
    """A database with onerow's tables."""
    bare.store.prepare()
    return bare


@pytest.fixture
def pg(postgres_url: str) -> Iterator[Database]:
    with database("postgres", postgres_url) as found:
        found.store.prepare()
        yield found


@pytest.fixture
def lite(sqlite_url: str) -> Iterator[Database]:
    with database("sqlite", sqlite_url) as found:
        found.store.prepare()
        yield found
