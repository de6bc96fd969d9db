"""`onerow simulate`: run a plan on a virtual clock, compare plans, search the cheapest, and compare with real workers."""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec.structs import asdict, replace

from onerow.cli import formatting
from onerow.cli.output import Cell, Output
from onerow.cli.session import Session, with_session
from onerow.core.errors import BadInput
from onerow.simulator.charts import check_chart_file, write_chart
from onerow.simulator.from_store import measured_plan
from onerow.simulator.measurements import Result
from onerow.simulator.model import SimulatedPlan
from onerow.simulator.reading import read_plan
from onerow.simulator.search import Found, Tried, find_workers, read_condition
from onerow.simulator.simulation import simulate


@click.command("simulate")
@click.argument("plans", nargs=-1, type=click.Path(path_type=Path), metavar="PLAN.toml…")
@click.option("--compare", is_flag=True, help="Run several plans and show them side by side.")
@click.option(
    "--find", type=click.Choice(["workers"]), help="Search the smallest number of workers (or maximum, if it scales)."
)
@click.option("--wait", metavar="CONDITION", help="With --find: how long tasks may wait, such as 'p99<30s'.")
@click.option(
    "--from-store",
    is_flag=True,
    help="Take what the plan leaves out from the store: phases, arrivals and times of the last day.",
)
@click.option("--pipeline", metavar="NAME", help="With --from-store: the pipeline; default: the only one.")
@click.option("--seed", type=click.IntRange(0), help="Use another seed than the plan's.")
@click.option("--chart", type=click.Path(path_type=Path), metavar="FILE", help="Write a chart, as .png or .svg.")
@click.option(
    "--validate",
    is_flag=True,
    help="Compare the simulator with real workers, on a new SQLite file and on --store if it is given.",
)
@click.option("--seconds", type=click.FloatRange(1, 3600), default=60, show_default=True, help="--validate: per load.")
@with_session
def command(
    session: Session,
    plans: tuple[Path, ...],
    compare: bool,
    find: str | None,
    wait: str | None,
    from_store: bool,
    pipeline: str | None,
    seed: int | None,
    chart: Path | None,
    validate: bool,
    seconds: float,
) -> None:
    """Try a plan of arrivals, service times, limits and workers on a virtual clock, before you pay for it.

    The rules are those of the workers, the scaling decision is that of `onerow scale`. The same seed gives the same
    answer.
    """
    if validate:
        if plans or compare or find or wait or from_store or pipeline or chart or seed is not None:
            raise BadInput(
                "--validate takes no plan, and only --seconds, --store and --json go with it",
                fix="onerow simulate --validate",
            )
        _validate(session, seconds)
        return
    if (find is None) != (wait is None):
        raise BadInput("--find and --wait belong together", fix="onerow simulate PLAN --find workers --wait 'p99<30s'")
    if pipeline is not None and not from_store:
        raise BadInput("--pipeline belongs to --from-store", field="pipeline")
    if compare and find is not None:
        raise BadInput("--compare and --find can't be combined", fix="search each plan by itself")
    if chart is not None:
        check_chart_file(chart)
    known = measured_plan(session.queue, pipeline) if from_store else None
    read = [read_plan(path, known) for path in plans]
    if known is not None and not plans:
        read = [known]
        if known.workers.count == 0 and find is None:
            raise BadInput("no worker is running, so there is nothing to simulate", fix="give a plan with workers")
    if not read:
        raise BadInput("no plan is given", fix="onerow simulate PLAN.toml, or --from-store", field="plan")
    if len(read) > 1 and not compare:
        raise BadInput(f"{len(read)} plans are given", fix="compare them: onerow simulate --compare a.toml b.toml")
    names = Counter(plan.name for plan in read)
    read = [
        replace(plan, name=str(path)) if names[plan.name] > 1 else plan
        for plan, path in zip(read, plans or [Path()], strict=True)
    ]
    if seed is not None:
        read = [replace(plan, seed=seed) for plan in read]
    if wait is not None:
        results = _find(session.out, read[0], wait)
    else:
        results = [simulate(plan) for plan in read]
        _show(session.out, results, compare)
    if chart is not None and results:
        hint = write_chart(results, chart)
        session.out.aside(f"wrote {chart}" + (f"; {hint}" if hint else ""))
    if wait is not None and not results:
        sys.exit(1)


def _show(out: Output, results: Sequence[Result], compare: bool) -> None:
    if out.as_json:
        out.json(results if compare else results[0])
        return
    if compare:
        _table_of_results(out, results)
        return
    _table_of_periods(out, results[0])
    out.line()
    _summary(out, results[0])


def _table_of_periods(out: Output, result: Result) -> None:
    columns = [">at", ">arrived", ">completed", ">failed", ">backlog", ">peak", ">running", ">workers"]
    columns += [">wait p50", ">p95", ">p99", ">cost", ">per 1,000"]
    rows: list[list[Cell]] = [
        [
            _moment(period.at),
            f"{period.arrived:,}",
            f"{period.completed:,}",
            (formatting.number(period.failed), "red"),
            (f"{period.backlog:,}", "yellow" if period.backlog else ""),
            f"{period.most_backlog:,}",
            f"{period.running:,}",
            f"{period.workers:,}" + (f" +{period.starting:,}" if period.starting else ""),
            _wait(period.wait_p50),
            _wait(period.wait_p95),
            _wait(period.wait_p99),
            _money(period.cost),
            _money(period.cost_per_thousand),
        ]
        for period in result.periods
    ]
    out.table(columns, rows)


def _summary(out: Output, result: Result) -> None:
    lost = ", ".join(
        f"{count:,} {what}"
        for count, what in (
            (result.failed, "failed"),
            (result.retried, "attempts retried"),
            (result.died, "workers died"),
            (result.rescued, "tasks rescued"),
        )
        if count
    )
    out.fields(
        [
            ("plan", f"{result.plan} (seed {result.seed}, {result.method})"),
            ("tasks", f"{result.arrived:,} arrived, {result.completed:,} completed" + (f"; {lost}" if lost else "")),
            (
                "wait",
                f"p50 {_wait(result.wait_p50)}, p95 {_wait(result.wait_p95)}, p99 {_wait(result.wait_p99)}"
                if result.wait_p50 is not None
                else "no task waited or started",
            ),
            ("backlog", f"{result.backlog:,} at the end, at most {result.most_backlog:,}"),
            ("workers", f"{result.mean_workers:g} paid on average, {result.most_workers:,} at most; slots of each: {result.slots}"),
            (
                "cost",
                f"{_money(result.cost)}, {_money(result.cost_per_thousand)} per thousand tasks" if result.cost else "",
            ),
        ]
    )  # fmt: skip


def _table_of_results(out: Output, results: Sequence[Result]) -> None:
    columns = ["plan", ">arrived", ">completed", ">failed", ">wait p50", ">p95", ">p99", ">backlog", ">at most"]
    rows: list[list[Cell]] = [
        [
            (result.plan, "bold"),
            f"{result.arrived:,}",
            f"{result.completed:,}",
            (formatting.number(result.failed), "red"),
            _wait(result.wait_p50),
            _wait(result.wait_p95),
            _wait(result.wait_p99),
            f"{result.backlog:,}",
            f"{result.most_backlog:,}",
            f"{result.mean_workers:g}",
            _money(result.cost),
            _money(result.cost_per_thousand),
        ]
        for result in results
    ]
    out.table([*columns, ">workers", ">cost", ">per 1,000"], rows)


def _find(out: Output, plan: SimulatedPlan, wait: str) -> list[Result]:
    condition = read_condition(wait)

    def progress(tried: Tried) -> None:
        waited = _wait(tried.wait) if tried.wait is not None else "no waits"
        workers = f"{tried.workers:,} worker{'' if tried.workers == 1 else 's'}"
        out.aside(f"{workers}: {condition.quantile} {waited}" + ("" if tried.enough else ", too few"))

    found = find_workers(plan, condition, progress)
    if out.as_json:
        out.json(found)
    else:
        _show_found(out, found)
    return [] if found.result is None else [found.result]


def _show_found(out: Output, found: Found) -> None:
    rows: list[list[Cell]] = [
        [
            (f"{tried.workers:,}", "bold green" if tried.workers == found.workers else ""),
            _wait(tried.wait),
            f"{tried.backlog:,}",
            _money(tried.cost),
            "enough" if tried.enough else ("too few", "yellow"),
        ]
        for tried in found.tried
    ]
    out.table([f">{found.what}", f">wait {found.condition[:3]}", ">backlog", ">cost", ""], rows)
    out.line()
    if found.result is None or found.workers is None:
        out.line(f"no number of workers is enough for {found.condition} ({found.simulations} simulations)")
        if found.tried[-1].workers >= found.most:
            out.line(f"{found.most:,} are the most that are tried, and they are too few")
        else:
            out.line("a limit, a rate, claims_in or the start time of workers makes tasks wait: change those")
        return
    out.line(f"{found.what} = {found.workers} is the least with {found.condition} ({found.simulations} simulations)")
    _summary(out, found.result)


def _validate(session: Session, seconds: float) -> None:
    from onerow.simulator.validation import DISTURBED, validate

    out = session.out
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="onerow-simulate-") as folder:
        urls = [f"sqlite:///{Path(folder) / 'validate.db'}", *([session.url] if session.url else [])]
        for url in urls:
            comparisons += validate(url, seconds, progress=out.aside)
    agrees = all(each.agrees for each in comparisons)
    if out.as_json:
        out.json([asdict(each) | {"difference": each.difference} for each in comparisons])
    else:
        rows: list[list[Cell]] = []
        for each in comparisons:
            wait = each.figure == "wait p50"
            rows.append(
                [
                    each.store,
                    f"{each.load:.0%}",
                    each.figure,
                    f"{each.simulated * 1000:,.0f}ms" if wait else f"{each.simulated:,.1f}",
                    f"{each.measured * 1000:,.0f}ms" if wait else f"{each.measured:,.1f}",
                    "" if each.difference is None else f"{each.difference:+.1%}",
                    ("agrees", "green") if each.agrees else ("disagrees", "bold red"),
                ]
            )
        out.table(["store", ">load", "figure", ">simulated", ">measured", ">difference", ""], rows)
        out.line("simulation and reality agree" if agrees else "simulation and reality disagree")
        if (most := max(each.disturbed for each in comparisons)) > DISTURBED:
            out.line(f"the machine was busy with other work (threads woke up {most:.0%} late): measure on a quiet one")
    if not agrees:
        sys.exit(1)


def _moment(seconds: float) -> str:
    """Format a time since the start as hours and minutes, or finer if it is short."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}" + (f":{rest:04.1f}".replace(".0", "") if rest else "")


def _wait(seconds: float | None) -> str:
    return "" if seconds is None else formatting.span(seconds)


def _money(value: float | None) -> str:
    if not value:
        return ""
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"
