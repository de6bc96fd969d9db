"""`onerow inbox webhook NAME`: serve signed requests with uvicorn."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onerow.asgi import Embedded, webhook
from onerow.cli.start.listening import listen, shown_address
from onerow.core.errors import BadInput
from onerow.engine.queue.queue import Queue
from onerow.engine.worker import Worker
from onerow.inboxes.signatures import GitHub, Scheme, StandardWebhooks, Stripe
from onerow.inboxes.webhook import WebhookInbox

SCHEMES: dict[str, Callable[..., Scheme]] = {"stripe": Stripe, "github": GitHub, "standard": StandardWebhooks}
_GRACE = 10  # seconds for requests that are being answered when the server is stopped


def make_inbox(name: str | None, scheme: str | None, variables: tuple[str, ...], pipeline: str | None) -> WebhookInbox:
    """Return the inbox that the command line describes; the secrets come from environment variables."""
    if name is None:
        raise BadInput("name the inbox: onerow inbox webhook NAME --scheme … --secret-env VARIABLE", field="name")
    if scheme is None or not variables:
        raise BadInput(
            f"a webhook needs --scheme ({', '.join(SCHEMES)}) and --secret-env VARIABLE: who can't sign can't add tasks",
            field="scheme",
        )
    secrets = []
    for variable in variables:
        if not (secret := os.environ.get(variable, "")):
            raise BadInput(
                f"the environment variable {variable} is empty",
                fix="give --secret-env the name of a variable that has the secret",
                field="secret",
            )
        secrets.append(secret)
    return WebhookInbox(name, SCHEMES[scheme](*secrets), pipeline=pipeline)


def serve(queue: Queue, inbox: WebhookInbox, host: str, port: int, say: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then answer those that have begun, and return."""
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise BadInput("onerow inbox webhook needs uvicorn", fix="pip install 'onerow[web]'", field="inbox") from None

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # stopped by the handlers below, so that the process ends with 0 and not by the signal

    listening = listen(host, port)
    queue.inboxes.append(inbox)
    config = uvicorn.Config(
        webhook(queue, inbox), lifespan="on", access_log=False, log_config=None, server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip

    async def run() -> None:
        server = Server(config)

        def stop() -> None:
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        async with Embedded(lambda: Worker(queue)).working():  # registers the inbox for `workers` and `doctor`
            say(f"receiving {inbox.name} on http://{shown_address(listening)} into {queue.url}; Ctrl-C stops")
            await server.serve([listening])

    asyncio.run(run())
