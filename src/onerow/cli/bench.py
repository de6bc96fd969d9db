import click


@click.command("bench")
def command() -> None: ...
