"""Helpers of the tagger's tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from click.testing import CliRunner, Result

from ai_tagger.cli import main
from ai_tagger.database import add_member
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.opening import open_queue
from ai_tagger.posts import Post, sync_posts
from ai_tagger.settings import Settings
from onerow import Queue, Worker
from tests.engine.kit import PATIENCE, until, work, working
from tests.runner.seeded import new_name
from tests.servers.postgres import Databases

__all__ = ["PATIENCE", "ROOT", "Desk", "a_desk", "a_model", "a_post", "until", "with_user"]

ROOT = Path(__file__).resolve().parents[3]
MEMBERS, SERVICE, WORKER = (new_name(f"tagger_{name}_") for name in ("members", "service", "worker"))


def with_user(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}:pass@{parts.netloc.rpartition('@')[2]}").geturl()


def a_post(number: int = 1, **changes: str) -> Post:
    fields = {
        "workspace": "cafe",
        "account": "카페 ☕",
        "id": f"t{number}",
        "text": f"The soup of day {number} is delicious.",
    }
    return Post(**(fields | changes))


class Desk:
    """A database with its tagger, and programs that use it with other roles."""

    def __init__(self, owner_url: str) -> None:
        self.owner_url = owner_url
        self._roles: list[str] = []
        self._queue = open_queue(Settings.of_environment())  # the test may spoil the environment

    @property
    def settings(self) -> Settings:
        return Settings.of_environment()

    @property
    def queue(self) -> Queue:
        return open_queue(self.settings)

    def close(self) -> None:
        self._queue.close()

    # ── SQL, with any role ──

    def sql(self, statement: str, *given: Any, url: str | None = None) -> list[tuple[Any, ...]]:
        """Execute one statement, as the service unless a URL says otherwise."""
        with psycopg.connect(url or self.settings.database_url) as connection:
            cursor = connection.execute(statement, given or None)
            return cursor.fetchall() if cursor.description else []

    def refused(self, statement: str, *given: Any, url: str | None = None) -> str:
        """Execute a statement that the server must refuse; return its message and hint."""
        with pytest.raises(psycopg.Error) as caught:
            self.sql(statement, *given, url=url)
        return f"{caught.value} {caught.value.diag.message_hint or ''}"

    def member(self, workspace: str) -> str:
        """Create a role that is a member of a workspace; return the URL of its login."""
        role = new_name("member_")
        self._roles.append(role)
        self.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'pass'", url=self.owner_url)
        owner = Settings(database_url=self.owner_url, members_role=self.settings.members_role)
        add_member(owner, role, workspace)
        return with_user(self.owner_url, role)

    def drop_roles(self, server_url: str) -> None:
        with psycopg.connect(server_url, autocommit=True) as connection:
            for role in self._roles:
                connection.execute(f"DROP ROLE {role}")

    # ── posts and jobs ──

    def sync(self, *posts: Post) -> list[str]:
        """Sync posts; return the ids of all posts with these ids of the network, in their order."""
        sync_posts(self.settings, posts)
        ids = dict(self.sql("SELECT threads_id, id::text FROM workspace_threads_posts"))
        return [ids[post.id] for post in posts]

    def jobs(self) -> list[tuple[str, int, str | None]]:
        """Return status, attempts and error of all jobs, in the words of the view, oldest first."""
        found = self.sql("SELECT status, attempts, error_message FROM ai_tag_queue ORDER BY created_at, id")
        return [(status, attempts, error) for status, attempts, error in found]

    def tags(self) -> dict[str, list[str] | None]:
        """Return the tags of each post, by its id in the network."""
        return dict(self.sql("SELECT threads_id, tags FROM workspace_threads_posts ORDER BY threads_id"))

    def work(self, **options: Any) -> Worker:
        """Run a worker in this thread until no job is due."""
        return work(self.queue, **options)

    def work_until(self, look: Callable[[], Any], what: str, **options: Any) -> None:
        """Run a worker in a thread until `look` returns something true."""
        with working(self.queue, **options):
            until(look, what)

    def all_ended(self) -> bool:
        return not self.sql("SELECT 1 FROM ai_tag_queue WHERE status IN ('pending', 'processing')")

    def run(self, *words: str, url: str | None = None, stdin: str = "") -> Result:
        """Run the command `tagger` in this process."""
        return CliRunner().invoke(main, words, input=stdin, env={"TAGGER_DATABASE_URL": url} if url else None)

    def run_worker(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run `tagger worker` in a process of its own until it ends."""
        command = [sys.executable, "-m", "ai_tagger", "worker", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)


@contextmanager
def a_desk(server: Databases, prepared: str) -> Iterator[Desk]:
    """Open a tagger on a fresh database; its commands and workers have the service role."""
    name = new_name("tagger_")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {prepared}")
    owner_url = urlsplit(server.url)._replace(path=f"/{name}").geturl()
    with pytest.MonkeyPatch.context() as patch:
        for variable in [variable for variable in os.environ if variable.startswith("TAGGER_")]:
            if variable not in ("TAGGER_RETRY_WAIT", "TAGGER_GATHER", "TAGGER_LEASE"):
                patch.delenv(variable)
        patch.setenv("TAGGER_DATABASE_URL", with_user(owner_url, WORKER))
        patch.setenv("TAGGER_MEMBERS_ROLE", MEMBERS)
        patch.setenv("TAGGER_SERVICE_ROLE", SERVICE)
        desk = Desk(owner_url)
        try:
            yield desk
        finally:
            desk.close()
            # A test may have run `tagger setup` as the owner.
            open_queue(Settings(database_url=owner_url)).close()
            server.drop_database(owner_url)
            desk.drop_roles(server.url)


@contextmanager
def a_model() -> Iterator[ModelServer]:
    """Start a model server that the tagger asks."""
    with ModelServer() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server
