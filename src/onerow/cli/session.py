"""The --store and --json options of a command: open the store, choose the output."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from onerow.cli.output import Output
from onerow.core.errors import BadInput, BadStoreUrl, SchemaMissing, UnknownName
from onerow.core.filters import Filter
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.ports import Administrable, Store
from onerow.settings import StoreSetting, find_store
from onerow.wiring import open_store

SHORTEST_PREFIX = 4
"""Commands accept the beginning of a task id from this length on."""
_CANDIDATES = 5
CONFIRM_ABOVE = 5
"""Commands that change more tasks than this ask for confirmation; a final operation on a query always asks."""


class Session:
    """What a command works with: a store, opened when first used, and an output."""

    def __init__(self, store: str | None, as_json: bool) -> None:
        self.url = store
        self.out = Output(as_json)

    @functools.cached_property
    def bare_store(self) -> Store:
        """The store, without a check of its schema."""
        found = find_shared_store(self.url)
        return open_store(found.url, base=found.folder)

    @functools.cached_property
    def queue(self) -> Queue:
        """The queue; raise SchemaMissing if the store has no tables. Reading must not create them."""
        store = self.bare_store
        if isinstance(store, Administrable):
            there = store.migration()
            if there.stored == 0:
                raise SchemaMissing(
                    f"there is no onerow database at {store.url}",
                    fix="start a worker there, run: onerow migrate, or name another with --store",
                )
            if there.stored < there.known:
                raise SchemaMissing(f"{store.url} has schema {there.stored}, this code needs {there.known}")
        return Queue(store)

    @functools.cached_property
    def views(self) -> Views:
        return Views(self.queue)

    def task_id(self, given: str) -> str:
        """Return the id that was given whole, or by its beginning."""
        return whole_id(self.queue, given)

    def confirm(self, command: str, count: int, yes: bool, *, above: int = CONFIRM_ABOVE) -> None:
        """Ask before a command changes more than `above` tasks; raise BadInput if there is no terminal to ask in."""
        if count <= above or yes:
            return
        if not sys.stdin.isatty() or self.out.as_json:
            raise BadInput(
                f"this would {command} {tasks_text(count)}", fix="confirm with --yes, or look first with --dry-run"
            )
        click.confirm(f"{command} {tasks_text(count)}?", abort=True, err=True)


def whole_id(queue: Queue, given: str) -> str:
    """Return the id that was given whole, or of which it is the beginning; raise UnknownName if several begin so.

    An unknown id is returned unchanged: the reader reports it.
    """
    if queue.store.fetch([given]):
        return given
    if len(given) < SHORTEST_PREFIX:
        raise UnknownName(
            f"no task {given!r}",
            fix=f"give the id, or at least {SHORTEST_PREFIX} characters of its beginning",
            field="task_id",
        )
    page = queue.find(Filter(id_prefix=given), limit=_CANDIDATES)
    if len(page.tasks) > 1:
        more = ", …" if page.next else ""
        names = ", ".join(f"{task.task_id} ({task.status} in {task.phase})" for task in page.tasks)
        raise UnknownName(
            f"several tasks begin with {given!r}: {names}{more}", fix="give more of the id", field="task_id"
        )
    return page.tasks[0].task_id if page.tasks else given


def tasks_text(count: int) -> str:
    return f"{count:,} task" + ("" if count == 1 else "s")


def find_shared_store(given: str | None) -> StoreSetting:
    """Return the store URL from --store, ONEROW_STORE or the settings file; refuse memory://."""
    found = find_store(given, Path.cwd())
    if found.url.startswith("memory:"):
        raise BadStoreUrl(
            "memory:// lives and dies with its process",
            fix="name a store that commands and workers can share",
            field="store",
        )
    return found


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --store and --json to a command, and pass it a Session as its first argument."""

    @click.option(
        "--store", envvar="ONEROW_STORE", metavar="URL", help="Store URL; default: ONEROW_STORE, then onerow.toml."
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(function)
    def run(store: str | None, as_json: bool, **options: Any) -> Any:
        session = Session(store, as_json)
        try:
            return function(session, **options)
        finally:
            if "bare_store" in session.__dict__:
                session.bare_store.close()

    return run
