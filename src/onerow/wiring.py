"""Create stores from URLs; the only module that imports concrete stores."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from onerow.core.errors import BadInput, BadStoreUrl
from onerow.core.retention import Keep, KeepOption, parse_keep
from onerow.core.urls import mask_password
from onerow.engine.queue import queue as engine
from onerow.pipelines.pipeline import Pipeline
from onerow.ports import Inbox, Store
from onerow.settings import StoreSetting, find_store, project_folder, read_settings, settings_file, store_of_code

INBOX_FORMS = (
    "folder:///absolute/path, folder://path/from/the/project or "
    "sqs:https://sqs.eu-central-1.amazonaws.com/123456789012/videos"
)
FORMS = "sqlite:///file.db, postgresql://user@host/database or mongodb://host/database"


def open_store(url: str, *, base: Path | None = None) -> Store:
    """Return the store at a URL without connecting; a relative SQLite path starts at the project's folder."""
    if "://" not in str(url):
        raise BadStoreUrl(f"{mask_password(url)!r} is not a store URL", fix=f"write it like {FORMS}", field="store")
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
        f"{mask_password(url)!r}: there is no store named {scheme!r}", fix=f"write it like {FORMS}", field="store"
    )


def _sqlite(url: str, rest: str, base: Path | None) -> Store:
    from onerow.stores.sqlite import SqliteStore

    location, _, query = rest.partition("?")
    if not location.startswith("/") or location == "/":
        raise BadStoreUrl(
            f"{url!r} names no file",
            fix="write sqlite:///name.db (from the project's folder) or sqlite:////absolute/name.db",
            field="store",
        )
    options: dict[str, Any] = dict(parse_qsl(query))
    profile = options.pop("profile", "durable")
    if options or profile not in ("durable", "fast"):
        raise BadStoreUrl(f"{url!r} has an unknown option", fix="use ?profile=durable or ?profile=fast", field="store")
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
            f"the {extra} store needs {error.name}",
            fix=f"install it with: pip install 'onerow[{extra}]'",
            field="store",
        ) from None


def open_inbox(url: str, *, pipeline: str | None = None, base: Path | None = None) -> Inbox:
    """Return the inbox at a URL: folder:///absolute/path, folder://path/from/the/project or sqs: and a queue's URL."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "folder" if rest.strip("/"):
            from onerow.inboxes.folder import FolderInbox

            path = Path(unquote(rest)).expanduser()
            return FolderInbox((base or project_folder(Path.cwd())) / path, pipeline=pipeline)
        case "sqs:https" | "sqs:http" if rest:
            return _sqs(url, pipeline)
    raise BadInput(f"{url!r} is not an inbox", fix=f"write it like {INBOX_FORMS}", field="inbox")


def _sqs(url: str, pipeline: str | None) -> Inbox:
    from onerow.inboxes.sqs import SqsInbox

    queue_url, _, query = url.removeprefix("sqs:").partition("?")
    options: dict[str, Any] = dict(parse_qsl(query))
    if unknown := sorted(set(options) - {"mode", "dead_letter", "receivers", "visibility", "endpoint_url", "region"}):
        raise BadInput(
            f"{url!r}: unknown option {unknown[0]!r}",
            fix="the class SqsInbox has more options: queue.receive(SqsInbox(…))",
            field="inbox",
        )
    if options.get("receivers", "").isdecimal():
        options["receivers"] = int(options["receivers"])
    return SqsInbox(queue_url, pipeline=pipeline, **options)


_FROM_SETTINGS: Any = object()


class Queue(engine.Queue):
    """A queue in the store at a URL. It connects at the first use.

    `Queue()` takes the URL from ONEROW_STORE, else from the nearest onerow.toml or [tool.onerow] in pyproject.toml at
    or above the current folder, like every command. The URL of `Queue("sqlite:///studio.db")` is a default:
    ONEROW_STORE replaces it (not in a pytest run), so that workers and programs with the same environment use the same
    store. It does not replace `memory://` or a store object. The path of a default starts at the nearest folder with
    pyproject.toml or onerow.toml at or above the file that contains the call, independent of the working directory.

    store: a URL: `sqlite:///file.db`, `postgresql://user@host/database`, `mongodb://host/database` or `memory://`; or a
    store object. keep: how long ended tasks are stored: '30d', or by status {'completed': '7d', 'failed': '90d'};
    default: that of the settings file, else for ever. secrets: environment variables whose values are masked in output,
    in addition to variables whose names mark them as secret. mask: more patterns to mask. log_files: a folder with one
    output file for each attempt.
    """

    def __init__(
        self,
        store: str | Store = _FROM_SETTINGS,
        *,
        keep: KeepOption | None = None,
        secrets: Iterable[str] = (),
        mask: Iterable[str | re.Pattern[str]] = (),
        log_files: str | Path | None = None,
    ) -> None:
        base = _callers_project(sys._getframe(1).f_globals.get("__file__"))
        self.named_by: str = "the code"  # Who named the store: the code, ONEROW_STORE or a settings file.
        if store is _FROM_SETTINGS:
            store = self._open(find_store(None, Path.cwd()))
        elif isinstance(store, str):
            store = self._open(store_of_code(store, base))
        elif not hasattr(store, "settle_and_claim"):
            raise BadStoreUrl(
                f"Queue({store!r}): the store must be a URL or a store",
                fix="leave it out to use ONEROW_STORE or onerow.toml",
                field="store",
            )
        self._base = base
        files = None if log_files is None else base / Path(log_files).expanduser()
        super().__init__(store, keep=keep, secrets=secrets, mask=mask, log_files=files)

    def _open(self, named: StoreSetting) -> Store:
        self.named_by = named.source
        return open_store(named.url, base=named.folder)

    def _configured_keep(self) -> Keep:
        path = settings_file(self._base)
        return {} if path is None else parse_keep(read_settings(path).get("keep"))

    def receive(self, inbox: str | Inbox, *, pipeline: Pipeline | str | None = None) -> None:
        """Have workers of this queue receive from an inbox; its messages become tasks.

        inbox: a URL, for example folder:///srv/queue, or an inbox. pipeline: for messages that name none.
        """
        self._require_all_users()
        if isinstance(pipeline, Pipeline):
            self.serve(pipeline)
            pipeline = pipeline.name
        if isinstance(inbox, str):
            inbox = open_inbox(inbox, pipeline=pipeline, base=self._base)
        elif pipeline is not None:
            raise BadInput("give the pipeline to the inbox itself", field="pipeline")
        elif not isinstance(inbox, Inbox):
            raise BadInput(f"{inbox!r} is not an inbox", fix=f"write it like {INBOX_FORMS}", field="inbox")
        if any(known.name == inbox.name for known in self.inboxes):
            raise BadInput(f"this queue already receives from {inbox.name}", field="inbox")
        if isinstance(own := getattr(inbox, "pipeline", None), Pipeline):
            self.serve(own)
        self.inboxes.append(inbox)


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
