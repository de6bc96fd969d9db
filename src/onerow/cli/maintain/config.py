"""`onerow config`: the settings in force, and the source of each."""

from pathlib import Path

import click
from click.core import ParameterSource

from onerow.cli.session import Session, with_session
from onerow.environment import VARIABLE
from onerow.settings import find_store, read_settings, settings_file
from onerow.wiring import open_store


@click.command("config")
@with_session
def command(session: Session) -> None:
    """Show the settings in force and where each comes from. Connects to no store; passwords are masked."""
    here = Path.cwd()
    path = settings_file(here)
    if path is not None:
        read_settings(path)  # reports a mistake in the file even if --store or ONEROW_STORE replaces its value
    store = find_store(session.url, here)
    from_environment = click.get_current_context().get_parameter_source("store") is ParameterSource.ENVIRONMENT
    source = VARIABLE if from_environment else store.source
    url = open_store(store.url, base=store.folder).url
    if session.out.as_json:
        session.out.json({"store": {"value": url, "source": source}, "file": None if path is None else str(path)})
        return
    session.out.table(["setting", "value", "source"], [("store", url, source)])
    session.out.aside(f"settings file: {path or 'none'}")
