"""SQL files, cached after the first read."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the text of sql/<name>.sql."""
    return files("onerow.stores.sqlite").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
