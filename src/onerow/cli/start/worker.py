"""`onerow worker APP`: a supervisor and its worker processes."""

import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from onerow.cli.app import app_argument, load_app, shown_store
from onerow.cli.exit_codes import exit_code
from onerow.cli.start.log_format import FORMATS, formatter
from onerow.cli.start.reload import watch_sources
from onerow.cli.start.worker_pool import ProcessRange, beside, pool_settings
from onerow.cli.stop_signals import on_stop_signal
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput, OnerowError
from onerow.core.scaling import ScaleSettings
from onerow.core.sizes import parse_size
from onerow.engine.output.masking import NO_SECRETS
from onerow.engine.worker.pool_scaler import PoolScaler
from onerow.engine.worker.supervised import Supervised
from onerow.engine.worker.supervisor import DISMISSED, Supervisor, ease_collector, is_supervised
from onerow.engine.worker.worker import Worker, is_dismissed, leave_when_idle, must_end
from onerow.identity import check_platform
from onerow.settings import project_folder
from onerow.wiring import Queue

log = logging.getLogger("onerow")


@click.command("worker")
@app_argument
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="Concurrent tasks per process.",
)
@click.option(
    "--processes",
    "-p",
    type=ProcessRange(),
    default="1",
    show_default=True,
    metavar="N|MIN..MAX",
    help="Number of worker processes; with MIN..MAX as many as the work needs.",
)
@click.option("--target-wait", default="5s", show_default=True, help="With MIN..MAX: how long a ready task may wait.")
@click.option("--scale-in-after", default="1m", show_default=True, help="With MIN..MAX: how long a surplus must last.")
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help="Answer probes at /livez and /readyz, and /metrics; on loopback unless a host is given.",
)
@click.option(
    "--protect",
    type=click.Choice(["asg", "ecs"]),
    help="While tasks run, protect this EC2 instance or ECS task from scale-in.",
)
@click.option("--interval", default="1s", show_default=True, help="Poll interval when the store sends no wake-up.")
@click.option("--grace", default="30s", show_default=True, help="Time for running work to end after a stop.")
@click.option("--phases", multiple=True, help="Serve only this phase (or pipeline.phase); repeatable.")
@click.option(
    "--prestart",
    type=click.IntRange(0, 256),
    help="Most processes to keep ready for isolated handlers in use; 0 for none. Default: one per core.",
)
@click.option(
    "--max-tasks",
    type=click.IntRange(1),
    help="Replace a worker process after this many tasks; its replacement starts first.",
)
@click.option("--max-memory", metavar="SIZE", help="Replace a worker process that uses more memory, for example 1GB.")
@click.option("--until-idle", is_flag=True, help="Run all due tasks and those that wait in inboxes, then exit.")
@click.option("--reload", is_flag=True, help="Restart when a Python file of the project changes; needs onerow[reload].")
@click.option("--verbose", "-v", is_flag=True, help="Write a log line for each task.")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    envvar="ONEROW_LOG_FORMAT",
    help="Format of the log on standard error.",
)
@click.option(
    "--output/--no-output",
    "show_output",
    default=None,
    help="Show in the log what handlers print, at most 100 lines a second. Default: if standard error is a terminal.",
)
def command(
    app: str,
    store: str | None,
    concurrency: int,
    processes: tuple[int, int],
    target_wait: str,
    scale_in_after: str,
    health: str | None,
    protect: str | None,
    interval: str,
    grace: str,
    phases: Sequence[str],
    prestart: int | None,
    max_tasks: int | None,
    max_memory: str | None,
    until_idle: bool,
    reload: bool,
    verbose: bool,
    log_format: str,
    show_output: bool | None,
) -> None:
    """Run the pipelines of APP (module[:queue]) until stopped.

    The first SIGTERM or Ctrl-C drains: the worker claims nothing more, and running work may end within the grace period.
    The second ends the grace period, the third kills the worker processes.
    """
    check_platform()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    own_handlers = list(logging.getLogger().handlers)  # handlers that the app adds later keep their formatter
    for handler in own_handlers:
        handler.setFormatter(formatter(log_format, NO_SECRETS))
    logging.getLogger("onerow").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("botocore").setLevel(logging.WARNING)  # else each process logs where it found credentials
    say = _say if log_format == "text" else log.info
    try:
        scale = pool_settings(processes, concurrency, target_wait, scale_in_after)
        if not is_supervised():
            argv = [sys.executable, "-m", "onerow.cli.start.worker_process", *sys.argv[1:]]
            seconds = parse_duration(grace, "grace").total_seconds()
            if scale is not None and until_idle:
                raise BadInput(
                    "--until-idle needs a fixed number of processes", fix="write --processes 2", field="processes"
                )
            supervisor = Supervisor(
                argv, processes[0], say, grace=seconds, once=until_idle, max_tasks=max_tasks,
                max_memory=None if max_memory is None else parse_size(max_memory, "--max-memory"),
                scaler=None if scale is None else PoolScaler(scale), reload=reload,
            )  # fmt: skip
            if reload:
                watch_sources(project_folder(Path.cwd()), supervisor.restart, say)
            with beside(supervisor, health, protect, say):
                sys.exit(supervisor.run())
        supervised = Supervised(say)
        queue = load_app(app, store)
        for handler in own_handlers:
            handler.setFormatter(formatter(log_format, queue.masker))
        worker = Worker(
            queue, concurrency=concurrency, interval=interval, grace=grace, phases=phases, until_idle=until_idle,
            prestart=prestart,
            republish=reload,  # during development the latest code is the definition
            show_output=sys.stderr.isatty() if show_output is None else show_output,
        )  # fmt: skip
        if log_format == "text":
            _announce(queue)
        if until_idle and processes[0] > 1:
            leave_when_idle(worker, False)  # until the supervisor says that all are
        ease_collector()
        sys.exit(_run(worker, supervised, scale))
    except OnerowError as error:
        if log_format == "text":
            raise
        log.error(str(error), extra={"error_class": type(error).__name__} | ({"fix": error.fix} if error.fix else {}))
        sys.exit(exit_code(error))


def _say(line: str) -> None:
    click.echo(f"onerow: {line}", err=True)


def _announce(queue: Queue) -> None:
    click.echo(f"store     {shown_store(queue)}", err=True)
    for pipeline in queue.pipelines.values():
        click.echo(f"pipeline  {pipeline.name}: {' → '.join(phase.name for phase in pipeline.plan.phases)}", err=True)


def _run(worker: Worker, supervised: Supervised, scale: ScaleSettings | None) -> int:
    # May come twice: a service manager may signal every process, and the supervisor passes the same stop on.
    on_stop_signal(lambda: worker.stop(by_signal=True))
    if hasattr(signal, "SIGUSR1"):  # not on Windows
        faulthandler.register(signal.SIGUSR1)  # prints the stacks of all threads
    supervised.serve(worker)
    if scale is not None:
        supervised.report_need(worker, scale)
    code = worker.run()
    if must_end(worker):
        # A thread that does not end would block interpreter shutdown.
        sys.stderr.flush()
        os._exit(code)
    return DISMISSED if is_dismissed(worker) and code == 0 else code
