"""`onerow web`: serve the dashboard and the HTTP API with uvicorn."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onerow.cli.session import Session, with_session
from onerow.cli.start.listening import listen, shown_address
from onerow.core.errors import BadInput, StoreUnavailable
from onerow.engine.queue.queue import Queue

if TYPE_CHECKING:
    from onerow.web import Access, Dashboard

_GRACE = 5  # seconds for requests that are being answered when the server is stopped


@click.command("web")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8003, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any free one.")
@click.option(
    "--access", "access_file", metavar="FILE", type=click.Path(path_type=Path),
    help="TOML file with users and tokens; onerow access makes its lines.",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE", type=click.Path(path_type=Path),
    help="File with one bearer token, which has the role admin.",
)  # fmt: skip
@click.option(
    "--session-key-file", metavar="FILE", type=click.Path(path_type=Path),
    help="File with the key that signs sessions; default: a new key at each start, which logs all users out.",
)  # fmt: skip
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="A Host name to answer for; repeatable.")
@with_session
def command(
    session: Session,
    host: str,
    port: int,
    access_file: Path | None,
    token_file: Path | None,
    session_key_file: Path | None,
    names: tuple[str, ...],
) -> None:
    """Serve the dashboard and the HTTP API until stopped.

    By default it listens on the loopback address only and needs no credential. Any other address needs --access or
    --token-file.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    app, listening = open_dashboard(_queue(session), host, port, access_file, token_file, session_key_file, names)
    serve(app, listening, lambda: session.out.aside(f"http://{shown_address(listening)}/ shows {app.site.queue.url}; Ctrl-C stops"), _end_soon)  # fmt: skip


def _end_soon() -> None:
    """End the process even if threads wait for a store that does not answer; Python would wait for them."""
    timer = threading.Timer(2 * _GRACE, os._exit, (0,))
    timer.daemon = True
    timer.start()


def open_dashboard(
    queue: Queue,
    host: str,
    port: int,
    access_file: Path | None = None,
    token_file: Path | None = None,
    session_key_file: Path | None = None,
    names: tuple[str, ...] = (),
) -> tuple["Dashboard", socket.socket]:
    """Return the dashboard and its listening socket; refuse an address beyond this machine without a credential."""
    try:
        import uvicorn  # noqa: F401

        from onerow.web import dashboard
        from onerow.web.security.requests import LOOPBACK, is_loopback
    except ModuleNotFoundError as error:
        raise BadInput(f"onerow web needs {error.name}", fix="pip install 'onerow[web]'", field="web") from None
    access = _access(access_file, token_file)
    local = is_loopback(host)
    if not access and not local:
        raise BadInput(
            f"{host} can be reached from other machines, and no credential is set up",
            fix="make one: onerow access token admin --role admin >> access.toml, then add --access access.toml",
            field="host",
        )
    if not access and names:
        raise BadInput(
            "--allow-host lets other names reach this server, and no credential is set up",
            fix="add --access FILE or --token-file FILE",
            field="allow-host",
        )
    hosts = (*names, *LOOPBACK, *([] if host in ("0.0.0.0", "::", "") else [f"[{host}]" if ":" in host else host]))
    # Bound to all addresses, the machine's names are unknown; the credential is then what protects it.
    checked = hosts if names or local else None
    key = None if session_key_file is None else _read(session_key_file)
    return dashboard(queue, access=access, hosts=checked, session_key=key), listen(host, port)


def serve(
    app: "Dashboard", listening: socket.socket, ready: Callable[[], None], stopping: Callable[[], None] = lambda: None
) -> None:
    """Answer requests until SIGTERM or Ctrl-C."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # stopped by the handlers below, so that the process ends with 0 and not by the signal

    config = uvicorn.Config(
        app, lifespan="on", access_log=False, log_config=None, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=_GRACE, limit_concurrency=1_000,
    )  # fmt: skip

    async def run() -> None:
        server = Server(config)

        def stop() -> None:
            stopping()
            app.end_streams()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        ready()
        await server.serve([listening])

    asyncio.run(run())


def _queue(session: Session) -> Queue:
    """Return the queue; a store that can't be reached now does not prevent the start: the pages say so and heal."""
    try:
        return session.queue
    except StoreUnavailable as error:
        session.out.aside(f"onerow: {error}; the dashboard starts anyway")
        return Queue(session.bare_store)


def _access(access_file: Path | None, token_file: Path | None) -> "Access":
    from onerow.web.security.credentials import Access, read_access, read_token

    access = Access() if access_file is None else read_access(access_file)
    if access_file is not None and not access:
        raise BadInput(
            f"{access_file} has no user and no token", fix="make one: onerow access user NAME", field="access"
        )
    return access if token_file is None else access.with_token("token-file", read_token(token_file), "admin")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}", field="session-key-file") from None
