"""`onerow access`: make the lines of an access file."""

import json
import sys
from types import ModuleType

import click

from onerow.core.errors import BadInput


@click.command("access")
@click.argument("kind", type=click.Choice(["user", "token"]))
@click.argument("name")
@click.option(
    "--role", type=click.Choice(["viewer", "operator", "admin"]), default="viewer", show_default=True,
    help="What the holder may do.",
)  # fmt: skip
@click.option("--user", "user_id", metavar="ID", help="Show and change only the tasks of this user_id.")
@click.option("--password-stdin", is_flag=True, help="user: read the password from standard input, without asking.")
def command(kind: str, name: str, role: str, user_id: str | None, password_stdin: bool) -> None:
    """Print the lines of a user or token for `onerow web --access FILE`; append them to the file.

    They hold only a hash. A new token is written to standard error, once.
    """
    credentials = _credentials()
    if kind == "token":
        made = credentials.new_token()
        credentials.Access().with_token(name, made, role, user_id)  # raises for a wrong name
        _print("tokens", name, {"role": role, "user": user_id, "sha256": credentials.hash_token(made)})
        click.echo(f"token of {name}, shown only now: {made}", err=True)
        return
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    hashed = credentials.hash_password(password)
    credentials.Access().with_user(name, hashed, role, user_id)
    _print("users", name, {"role": role, "user": user_id, "password": hashed})


def _print(kind: str, name: str, values: dict[str, str | None]) -> None:
    lines = [f"{key} = {_quoted(value)}" for key, value in values.items() if value is not None]
    click.echo("\n".join([f"[{kind}.{_quoted(name)}]", *lines, ""]))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _credentials() -> ModuleType:
    try:
        from onerow.web.security import credentials
    except ModuleNotFoundError as error:
        raise BadInput(f"onerow access needs {error.name}", fix="pip install 'onerow[web]'", field="web") from None
    return credentials
