"""Fixtures: a database that is set up, with real roles, and a model server, for each test.

What several tests look at is run once, in a fixture of their module; such a module is one group of pytest-xdist.
"""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

# The phase reads these when it is imported.
os.environ.update(TAGGER_RETRY_WAIT="200ms", TAGGER_GATHER="100ms", TAGGER_LEASE="10s")

import psycopg
import pytest

from ai_tagger.database import set_up
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.opening import open_queue
from ai_tagger.settings import Settings
from apps.ai_tagger.tests.kit import MEMBERS, SERVICE, WORKER, Desk, a_desk, a_model
from tests.servers.postgres import Databases


@pytest.fixture(scope="session")
def prepared(postgres_server: Databases) -> Iterator[str]:
    """The name of a database that is set up; tests get copies of it."""
    url = postgres_server.fresh_database()
    settings = Settings(database_url=url, members_role=MEMBERS, service_role=SERVICE)
    set_up(settings)
    open_queue(settings).close()
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {WORKER} LOGIN PASSWORD 'pass' IN ROLE {SERVICE}")
    yield urlsplit(url).path.removeprefix("/")
    postgres_server.drop_database(url)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        for role in (WORKER, SERVICE, MEMBERS):
            connection.execute(f"DROP ROLE {role}")


@pytest.fixture
def desk(postgres_server: Databases, prepared: str) -> Iterator[Desk]:
    """A tagger on a fresh database; its commands and workers have the service role."""
    with a_desk(postgres_server, prepared) as desk:
        yield desk


@pytest.fixture
def model(desk: Desk) -> Iterator[ModelServer]:
    """A model server that the tagger of `desk` asks."""
    with a_model() as server:
        yield server
