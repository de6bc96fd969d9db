"""`onerow completion`: print the completion script of a shell."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a completion script: eval "$(onerow completion bash)"."""
    from onerow.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "onerow", "_ONEROW_COMPLETE").source())
