"""An empty store beside a given one, for each run of `onerow soak --shrink`: a schema, a database or a file of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote, urlsplit
from uuid import uuid4

from onerow.core.errors import StoreError
from onerow.core.urls import mask_password
from onerow.wiring import open_store


@runtime_checkable
class Droppable(Protocol):
    """A store on a server."""

    def drop(self) -> None:
        """Delete the tables with all tasks."""


@contextmanager
def fresh_store(url: str, show: Callable[[str], None]) -> Iterator[str]:
    """Give the URL of an empty store on the server, or in the folder, of `url`; at the end it is dropped."""
    fresh = url_beside(url, f"soak_{uuid4().hex[:8]}")
    try:
        yield fresh
    finally:
        try:
            _drop(fresh)
        except (OSError, StoreError) as error:  # the faults of a run may outlast it
            show(f"{mask_password(fresh)} could not be dropped: {error}")


def url_beside(url: str, name: str) -> str:
    """Return the URL of another schema (PostgreSQL), database (MongoDB) or file (SQLite) with this name."""
    parts = urlsplit(url)
    options = [each for each in parts.query.split("&") if each]
    if parts.scheme.startswith("postgres"):
        options = [each for each in options if not each.startswith("schema=")] + [f"schema={name}"]
        return parts._replace(query="&".join(options)).geturl()
    if parts.scheme.startswith("mongodb"):
        database = parts.path.strip("/")
        # Without authSource, the database of the URL is the one with the user.
        if "@" in parts.netloc and not any(each.lower().startswith("authsource=") for each in options):
            options.append(f"authSource={database}")
        return parts._replace(path=f"/{database}_{name}", query="&".join(options)).geturl()
    return f"sqlite:///{quote(str(_file(url).with_name(f'{name}.db')))}{f'?{parts.query}' if parts.query else ''}"


def _file(url: str) -> Path:
    return Path(getattr(open_store(url), "path"))  # noqa: B009  only the store on SQLite has one


def _drop(url: str) -> None:
    if url.startswith("sqlite:"):
        file = _file(url)
        for path in file.parent.glob(f"{file.name}*"):  # with the files of the write-ahead log
            path.unlink()
        return
    store = open_store(url)
    try:
        assert isinstance(store, Droppable)
        store.drop()
    finally:
        store.close()
