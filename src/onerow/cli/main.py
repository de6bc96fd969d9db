"""The command `onerow` and its subcommands; each is imported when it is used, so that help comes at once."""

import importlib
import os
import sys

import click

from onerow.core.errors import OnerowError

COMMANDS = {
    "worker": ("onerow.cli.worker", "Run the phases of an app's pipelines."),
    "bench": ("onerow.cli.bench", "Measure this machine and store against a thin loop."),
}


class _Commands(click.Group):
    """Subcommands by name, imported late; errors of ours are one line of what and one of what to do."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[cmd_name][0]).command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except OnerowError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"onerow: {error}", err=True)
            ctx.exit(64 if isinstance(error, ValueError) else 69)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.version_option(package_name="onerow")
def main(debug: bool) -> None:
    """Durable multi-phase work in the database you already have: one task, one row."""
    # Commands that load the user's code find it in the folder they were started in, as `python -m` does.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
