"""The SQL files, each read once."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """The text of sql/<name>.sql."""
    return files("onerow.stores.sqlite").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
