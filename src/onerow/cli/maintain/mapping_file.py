"""The mapping of a view or an adoption from a TOML file or from options."""

import tomllib
from pathlib import Path
from typing import Any

import click

from onerow.core.errors import BadInput
from onerow.core.suggest import did_you_mean
from onerow.core.table_mapping import TableMapping, read_mapping
from onerow.mappings import example, examples


def load(path: Path, **given: str | None) -> TableMapping:
    """Return the mapping in a file; options that are given replace its values."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} can't be read: {error}",
            fix=f"an example: onerow pg adopt --example {examples()[0]}",
            field="mapping",
        ) from None
    return read_mapping(found | {key: value for key, value in given.items() if value})


def print_example(name: str) -> None:
    """Print a shipped mapping."""
    known = examples()
    if name not in known:
        raise BadInput(
            f"no example {name!r}", fix=did_you_mean(name, known, f"one of {', '.join(known)}"), field="example"
        )
    click.echo(example(name), nl=False)
