"""Settings of a project: which store to use, from an option, the environment, the code or a settings file.

The settings file is the nearest onerow.toml, or pyproject.toml with a table [tool.onerow], at or above a folder.
"""

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from onerow import environment
from onerow.core.errors import BadInput, BadStoreUrl
from onerow.core.retention import parse_keep
from onerow.core.suggest import did_you_mean
from onerow.core.urls import mask_password
from onerow.environment import VARIABLE

KEYS = {
    "store": "the URL of the store",
    "keep": "how long ended tasks are stored: '30d', or by status { completed = '7d', failed = '90d' }",
}
"""Every key of the settings file, and its meaning."""


class StoreSetting(NamedTuple):
    """A store URL, its source, and the folder at which a relative SQLite path starts."""

    url: str
    source: str
    folder: Path


def find_store(given: str | None, start: Path) -> StoreSetting:
    """Return the store URL: the given one, else ONEROW_STORE, else that of the settings file; raise if there is none."""
    if given:
        return StoreSetting(given, "--store", project_folder(start))
    if url := os.environ.get(VARIABLE):
        return StoreSetting(url, VARIABLE, project_folder(start))
    path = settings_file(start)
    values = {} if path is None else read_settings(path)
    if path is None or "store" not in values:
        raise BadStoreUrl(
            "no store is named",
            fix=(
                f"pass --store sqlite:///tasks.db or Queue('sqlite:///tasks.db'), set {VARIABLE}, "
                'or write store = "…" in onerow.toml or under [tool.onerow] in pyproject.toml'
            ),
            field="store",
        )
    return StoreSetting(values["store"], str(path), path.parent)


def store_of_code(url: str, folder: Path) -> StoreSetting:
    """Return the store for a URL in the code: ONEROW_STORE replaces it, but not memory://, which one process keeps."""
    if url.startswith("memory:") or not environment.replaces_urls or not os.environ.get(VARIABLE):
        return StoreSetting(url, "the code", folder)
    named = find_store(None, Path.cwd())
    return (
        named
        if named.url == url
        else named._replace(source=f"{VARIABLE}, in place of {mask_password(url)} in the code")
    )


def project_folder(start: Path) -> Path:
    """Return the nearest folder at or above `start` with onerow.toml or pyproject.toml, or `start` if there is none."""
    for folder in (start, *start.parents):
        if (folder / "onerow.toml").is_file() or (folder / "pyproject.toml").is_file():
            return folder
    return start


def settings_file(start: Path) -> Path | None:
    """Return the settings file for a folder; a pyproject.toml without [tool.onerow] is not one."""
    for folder in (start, *start.parents):
        if (path := folder / "onerow.toml").is_file():
            return path
        if (path := folder / "pyproject.toml").is_file() and _table(path) is not None:
            return path
    return None


def read_settings(path: Path) -> dict[str, Any]:
    """Return the values of a settings file; raise BadStoreUrl for an unknown key or an invalid value."""
    values = _table(path)
    if not isinstance(values, dict):
        raise BadStoreUrl(
            f"{path}: tool.onerow is not a table", fix="write [tool.onerow] above its keys", field="store"
        )
    for key, value in values.items():
        if key not in KEYS:
            raise BadStoreUrl(f"{path}: unknown key {key!r}", fix=did_you_mean(key, KEYS), field=key)
        if key == "keep":
            _check_keep(path, value)
        elif not isinstance(value, str) or not value:
            raise BadStoreUrl(f"{path}: {key} must be text", fix=f'write {key} = "sqlite:///tasks.db"', field=key)
    return values


def _check_keep(path: Path, value: Any) -> None:
    try:
        parse_keep(value)
    except BadInput as error:
        fix = error.fix or "write keep = { completed = '7d', failed = '90d' }"
        raise BadStoreUrl(f"{path}: {error}", fix=fix, field="keep") from None


def _table(path: Path) -> Any:
    """Return the onerow table of a file; None if a pyproject.toml has none."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadStoreUrl(f"{path} can't be read: {error}", field="store") from None
    if path.name == "onerow.toml":
        return found
    tool = found.get("tool", {})
    return tool.get("onerow") if isinstance(tool, dict) else None
