"""What `onerow worker` runs beside its worker processes: their number, probes and scale-in protection."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from onerow.core.durations import parse_duration
from onerow.core.scaling import ScaleSettings
from onerow.engine.worker.health import make_server
from onerow.engine.worker.http_server import parse_address
from onerow.engine.worker.supervisor import Supervisor

MOST_PROCESSES = 256
_COOL_DOWN = 10.0  # seconds; a process needs about that long to start and to show in the need


class ProcessRange(click.ParamType):  # type: ignore[type-arg]
    """A number of processes, or MIN..MAX."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        least, dots, most = str(value).partition("..")
        try:
            found = (int(least), int(most if dots else least))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor MIN..MAX, like 4 or 1..8.", param, ctx)
        if not 1 <= found[0] <= found[1] <= MOST_PROCESSES:
            self.fail(f"{value!r}: the numbers must be from 1 to {MOST_PROCESSES}, the smaller one first.", param, ctx)
        return found


def pool_settings(
    processes: tuple[int, int], concurrency: int, target_wait: str, scale_in_after: str
) -> ScaleSettings | None:
    """Return the settings of a pool whose size follows the work; None for a fixed number of processes."""
    least, most = processes
    wait = parse_duration(target_wait, "--target-wait").total_seconds()
    after = parse_duration(scale_in_after, "--scale-in-after").total_seconds()
    if least == most:
        return None
    return ScaleSettings(
        slots=concurrency,
        minimum=least,
        maximum=most,
        target_wait=wait or None,
        scale_out_cooldown=_COOL_DOWN,
        scale_in_cooldown=_COOL_DOWN,
        scale_in_after=after,
    )


@contextmanager
def beside(
    supervisor: Supervisor, health: str | None, protect: str | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Answer probes and protect this machine from scale-in while the supervisor runs."""
    with ExitStack() as stack:
        if health is not None:
            server = make_server(*parse_address(health, "--health"), supervisor.health)
            stack.callback(server.close)
            server.start()
            say(f"probes at {server.url}/livez and /readyz")
        if protect is not None:
            from onerow.scaling.protection import Protector, open_protection

            protector = Protector(open_protection(protect), lambda: supervisor.running, say)
            stack.callback(protector.close)
            protector.start()
        yield
