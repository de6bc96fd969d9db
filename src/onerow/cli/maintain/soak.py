"""`onerow soak`: run a store with real workers under seeded faults, and check the recorded history against the promises."""

import itertools
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

import click

from onerow.cli.output import Output
from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.core.urls import mask_password
from onerow.soak.fresh_stores import fresh_store
from onerow.soak.injecting import Restartable
from onerow.soak.report import Report, read_report
from onerow.soak.run import Soak, free_folder, run
from onerow.soak.schedule import DEFAULT, FAULTS, Fault, parse_faults, plan, read_plan, shrink, write_plan

_RESTART_WITHIN = 120.0


class RestartCommand:
    """A command that stops the database server at once and starts it again."""

    def __init__(self, command: str) -> None:
        self._argv = shlex.split(command)

    def restart(self) -> None:
        done = subprocess.run(
            self._argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RESTART_WITHIN, check=False
        )
        if done.returncode:
            raise BadInput(
                f"--restart-command ended with {done.returncode}: {done.stderr.strip()[-500:]}", field="restart-command"
            )


def _list_faults(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        for name, text in FAULTS.items():
            click.echo(f"{name:<16} {text}")
        ctx.exit()


@click.command("soak")
@click.option("--store", metavar="URL", help="An empty store; default: a new SQLite file.")
@click.option("--tasks", type=click.IntRange(1, 1_000_000), default=2_000, show_default=True, help="Number of tasks.")
@click.option("--seed", type=click.IntRange(0), help="Decides about tasks and faults; default: a new one.")
@click.option("--faults", default=DEFAULT, metavar="NAME=N,…", help="Faults and how many of each; '' for none.")
@click.option(
    "--list-faults", is_flag=True, is_eager=True, expose_value=False, callback=_list_faults, help="List the faults."
)
@click.option("--workers", type=click.IntRange(1, 256), default=4, show_default=True, help="Worker processes.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(1, 1_000), default=8, show_default=True, help="Concurrent tasks of each."
)
@click.option("--lease", default="5s", show_default=True, help="Lease of each phase.")
@click.option(
    "--recovery", default="3s", show_default=True,
    help="Time after the lease within which the task of a killed worker must run again; more on a loaded machine.",
)  # fmt: skip
@click.option("--longest", default="400ms", show_default=True, help="Duration of the longest bodies.")
@click.option("--restart-command", metavar="COMMAND", help="Restarts the database server at once; for restart-store.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="New folder for the records.")
@click.option("--replay", type=click.Path(path_type=Path), metavar="DIR|FILE", help="Use the faults of an earlier run.")
@click.option(
    "--shrink", "shrink_runs", type=click.IntRange(1, 1_000), metavar="RUNS",
    help="If it fails, repeat it with fewer faults, at most this many times; each run has an empty store of its own.",
)  # fmt: skip
@click.option("--check", "checked", type=click.Path(path_type=Path), metavar="DIR", help="Only check earlier records.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    server: Restartable | None,
    store: str | None,
    tasks: int,
    seed: int | None,
    faults: str,
    workers: int,
    concurrency: int,
    lease: str,
    recovery: str,
    longest: str,
    restart_command: str | None,
    folder: Path | None,
    replay: Path | None,
    shrink_runs: int | None,
    checked: Path | None,
    as_json: bool,
) -> None:
    """Run tasks of three phases while workers are killed and stopped and the store fails, then check every record.

    The seed decides what each task does and which fault comes after which share of the work. Processes and the database
    are real, so a run does not repeat exactly. --check reads the records of an earlier run again. The exit code is 1 if a
    promise was broken.
    """
    out = Output(as_json)
    if checked is not None:
        _finish(out, checked, read_report(checked), as_json=as_json)
        return
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    planned = (
        plan(seed, parse_faults(faults))
        if replay is None
        else read_plan(replay / "faults.json" if replay.is_dir() else replay)
    )

    def once(chosen: Sequence[Fault], where: Path, url: str | None = store) -> Report:
        where = where.absolute()
        run(
            Soak(
                url or f"sqlite:///{where / 'soak.db'}", where, tasks, seed, chosen, workers, concurrency,
                lease=parse_duration(lease, "lease").total_seconds(),
                recovery=parse_duration(recovery, "recovery").total_seconds(),
                pace=parse_duration(longest, "longest").total_seconds(),
                server=server if restart_command is None else RestartCommand(restart_command),
            ),
            _show,
        )  # fmt: skip
        return read_report(where)

    def again(chosen: Sequence[Fault], where: Path) -> Report:
        with nullcontext(None) if store is None else fresh_store(store, _show) as url:
            return once(chosen, where, url)

    signal.signal(signal.SIGTERM, _interrupted)
    folder = folder or free_folder(Path.cwd(), seed)
    _show(f"seed {seed}, {tasks:,} tasks, {len(planned):,} faults; records in {folder}")
    if store is not None:
        _show(f"store {mask_password(store)}")
    report = once(planned, folder)
    if report.failed and shrink_runs is not None:
        fewer = _shrunk(planned, folder, shrink_runs, again)
        write_plan(folder / "fewer.json", fewer)
        _show(f"still fails with {len(fewer)} of {len(planned)} faults, which are in {folder / 'fewer.json'}")
    _finish(out, folder, report, as_json=as_json)


def _shrunk(
    planned: Sequence[Fault], folder: Path, runs: int, again: Callable[[Sequence[Fault], Path], Report]
) -> list[Fault]:
    """Return fewer faults with which the run fails too; each run has a folder of its own in that of the first."""
    numbers = itertools.count(1)

    def fails(chosen: Sequence[Fault]) -> bool:
        number = next(numbers)
        failed = again(chosen, folder / f"run-{number}").failed
        _show(f"run {number} with {len(chosen)} faults: {'fails too' if failed else 'no violation'}")
        return failed

    return shrink(planned, fails, runs=runs)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # so that all worker processes are ended


def _show(line: str) -> None:
    click.echo(line, err=True)


def _finish(out: Output, folder: Path, report: Report, *, as_json: bool) -> None:
    if as_json:
        out.json({"figures": report.figures, "injected": report.injected, "violations": report.violations})
    else:
        for line in report.lines():
            click.echo(line)
        click.echo("")
        broken = [rule for rule, found in report.violations.items() if found]
        click.echo(f"broken: {', '.join(broken)} (records in {folder})" if broken else "every promise was kept")
    if report.failed:
        sys.exit(1)
