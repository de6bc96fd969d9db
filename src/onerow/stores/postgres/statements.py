"""The SQL files, each read once and told which schema it works in."""

from functools import cache
from importlib.resources import files


@cache
def statement(name: str, schema: str) -> str:
    """The text of sql/<name>.sql, with {schema} as a quoted identifier."""
    text = files("onerow.stores.postgres").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("{schema}", quoted(schema))


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
