"""Create stores from URLs; the only module that imports concrete stores."""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from onerow.core.durations import Duration
from onerow.core.errors import BadStoreUrl
from onerow.core.urls import mask_password
from onerow.engine.queue import queue as engine
from onerow.ports import Store

FORMS = "sqlite:///file.db, postgresql://user@host/database, mongodb://host/database or memory://"


def open_store(url: str, *, base: Path | None = None) -> Store:
    """Return the store at a URL without connecting; a relative SQLite path starts at the project's folder."""
    if "://" not in str(url):
        raise BadStoreUrl(f"{mask_password(url)!r} is not a store URL; write it like {FORMS}", field="store")
    scheme, _, rest = url.partition("://")
    match scheme:
        case "memory":
            from onerow.stores.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            return _sqlite(url, rest, base)
        case "postgresql" | "postgres":
            return _needs("postgres", "onerow.stores.postgres", "PostgresStore")(url)  # type: ignore[no-any-return]
        case "mongodb" | "mongodb+srv":
            return _needs("mongo", "onerow.stores.mongo", "MongoStore")(url)  # type: ignore[no-any-return]
    raise BadStoreUrl(
        f"{mask_password(url)!r}: there is no store named {scheme!r}; write it like {FORMS}", field="store"
    )


def _sqlite(url: str, rest: str, base: Path | None) -> Store:
    from onerow.stores.sqlite import SqliteStore

    location, _, query = rest.partition("?")
    if not location.startswith("/") or location == "/":
        raise BadStoreUrl(
            f"{url!r}: write sqlite:///name.db (from the project's folder) or sqlite:////absolute/name.db",
            field="store",
        )
    options: dict[str, Any] = dict(parse_qsl(query))
    profile = options.pop("profile", "durable")
    if options or profile not in ("durable", "fast"):
        raise BadStoreUrl(f"{url!r}: the only option is ?profile=durable or ?profile=fast", field="store")
    path = Path(unquote(location[1:])).expanduser()
    if not path.is_absolute():
        path = (base or project_folder(Path.cwd())) / path
    return SqliteStore(path, profile=profile)


def _needs(extra: str, module: str, name: str) -> Any:
    import importlib

    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("onerow"):
            raise BadStoreUrl(f"this onerow has no {extra} store", field="store") from None
        raise BadStoreUrl(
            f"the {extra} store needs {error.name}; install it with: pip install 'onerow[{extra}]'", field="store"
        ) from None


def project_folder(start: Path) -> Path:
    """Return the nearest folder at or above `start` with onerow.toml or pyproject.toml, or `start` if there is none."""
    for folder in (start, *start.parents):
        if (folder / "onerow.toml").is_file() or (folder / "pyproject.toml").is_file():
            return folder
    return start


def configured_store(start: Path) -> str | None:
    """Return the store URL in onerow.toml or in [tool.onerow] of pyproject.toml."""
    folder = project_folder(start)
    for name, table in (("onerow.toml", ()), ("pyproject.toml", ("tool", "onerow"))):
        path = folder / name
        if path.is_file():
            try:
                found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise BadStoreUrl(f"{path} can't be read: {error}", field="store") from None
            for key in table:
                found = found.get(key, {})
            if isinstance(found, dict) and found.get("store"):
                return str(found["store"])
    return None


class Queue(engine.Queue):
    """A queue in the store at a URL. It connects at the first use.

    The path of `Queue("sqlite:///studio.db")` starts at the nearest folder with pyproject.toml or onerow.toml at or above
    the file that contains the call, independent of the working directory. keep: how long ended tasks are stored ('30d');
    None: for ever. secrets: environment variables whose values are masked in output, in addition to variables whose
    names mark them as secret. mask: more patterns to mask. log_files: a folder with one output file for each attempt.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        keep: Duration | None = None,
        secrets: Iterable[str] = (),
        mask: Iterable[str | re.Pattern[str]] = (),
        log_files: str | Path | None = None,
    ) -> None:
        base = _callers_project(sys._getframe(1).f_globals.get("__file__"))
        if isinstance(store, str):
            store = open_store(store, base=base)
        files = None if log_files is None else base / Path(log_files).expanduser()
        super().__init__(store, keep=keep, secrets=secrets, mask=mask, log_files=files)


def _callers_project(file: str | None) -> Path:
    if file is None:
        return project_folder(Path.cwd())
    folder = Path(file).absolute().parent
    found = project_folder(folder)
    # For code outside a project (a script, a shell), use the project of the working directory.
    return (
        found
        if found != folder or (folder / "pyproject.toml").is_file() or (folder / "onerow.toml").is_file()
        else (project_folder(Path.cwd()))
    )
