"""Simulated fleets on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.columns import Column
from headrace.columns import show as show_table
from planner.simulation.formats import FormatResult
from planner.simulation.replications import Interval, interval
from planner.simulation.report import Ending, Figures, SimulationReport

_COLUMNS = (
    Column("of", wraps=True),
    Column("requests", 2, right=True),
    Column("served", right=True),
    Column("good", right=True),
    Column("goodput/s", 5, right=True),
    Column("tokens/s", 1, right=True),
    Column("TTFT P50", 3, right=True),
    Column("TTFT P99", 1, right=True),
    Column("TPOT P50", 4, right=True),
    Column("TPOT P99", 2, right=True),
    Column("preempted", 7, right=True),
    Column("instances", 8, right=True),
    Column("busy", 6, right=True),
    Column("$/h", 3, right=True),
)

Select = Callable[[SimulationReport], Figures]


def show(console: Console, reports: Sequence[SimulationReport]) -> None:
    """Means over the courses; with several, 95% intervals of the two figures that decide."""
    first = reports[0]
    console.print(escape(first.source), highlight=False)
    told = f"{len(reports)} course{'s' if len(reports) > 1 else ''} of {first.seconds:,.0f} s after the warm-up"
    console.print(f"[dim]{told}; good: served within the targets of its tier, of all that came[/]\n", highlight=False)
    show_table(console, _COLUMNS, _rows(reports))
    console.print()
    tokens = interval(reports, lambda report: report.whole.tokens_per_second)
    ttft = interval(reports, lambda report: report.whole.ttft.p99)
    if not math.isnan(tokens.half + ttft.half):
        console.print(f"tokens/s {_pm(tokens, ',.0f')}, TTFT P99 {_pm(ttft, '.3f')} s, with 95%", highlight=False)
    lost = {ending: sum(report.whole.endings[ending] for report in reports) for ending in Ending}
    del lost[Ending.SERVED]
    told = ", ".join(f"{count:,} {ending.replace('_', ' ')}" for ending, count in lost.items() if count)
    console.print(f"not served{' in all courses' if len(reports) > 1 else ''}: {told or 'none'}", highlight=False)
    price = _mean(reports, lambda report: report.dollars_per_million_tokens)
    if math.isfinite(price):
        console.print(f"${price:,.2f} for a million output tokens", highlight=False)


def _rows(reports: Sequence[SimulationReport]) -> Iterator[Sequence[str]]:
    first = reports[0]
    for place, pool in enumerate(first.pools):
        busy = _mean(reports, lambda report, place=place: report.pools[place].busy)  # type: ignore[misc]
        cells = _cells(reports, lambda report, place=place: report.pools[place].figures)  # type: ignore[misc]
        yield escape(pool.name), *cells, str(pool.instances), f"{busy:.0%}", f"{pool.dollars_per_hour:,.2f}"
    if len(first.tiers) > 1:
        for tier in first.tiers:
            cells = _cells(reports, lambda report, tier=tier: report.tiers[tier])  # type: ignore[misc]
            yield (*(f"[cyan]{cell}[/]" for cell in (tier, *cells)), "", "", "")
    dollars = sum(pool.dollars_per_hour for pool in first.pools)
    instances = str(sum(pool.instances for pool in first.pools))
    cells = _cells(reports, lambda report: report.whole)
    yield tuple(f"[bold]{cell}[/]" for cell in ("all", *cells, instances, "", f"{dollars:,.2f}"))


def show_formats(console: Console, results: Sequence[FormatResult], engine: str, *, half: int, tolerant: float) -> None:
    console.print(
        f"{half} full and {half} 4-bit engines, {tolerant:.0%} of the requests tolerant, at full load; "
        f"{escape(engine)}\n",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "gain of 4 bits",
        f"{2 * half} full, tokens/s",
        "mixed",
        f"against {2 * half} full",
        f"against {half} full alone",
    ):
        table.add_column(column, justify="right", overflow="fold")
    for result in results:
        table.add_row(
            f"{result.gain:.2f}",
            _pm(result.all_full, ",.0f"),
            _pm(result.mixed, ",.0f"),
            f"{result.over_all_full:+.1%}",
            f"{result.over_half:+.1%}",
        )
    console.print(table)
    console.print("\n[dim]as many engines in both fleets is the fair question; the last column counts those added[/]")


def _cells(reports: Sequence[SimulationReport], of: Select) -> tuple[str, ...]:
    def mean(figure: Callable[[Figures], float]) -> float:
        return _mean(reports, lambda report: figure(of(report)))

    return (
        f"{mean(lambda f: f.requests):,.0f}",
        _number(mean(lambda f: 1 - f.not_served if f.requests else math.nan), ".2%"),
        _number(mean(lambda f: f.good if f.requests else math.nan), ".2%"),
        f"{mean(lambda f: f.goodput):,.1f}",
        f"{mean(lambda f: f.tokens_per_second):,.0f}",
        _seconds(mean(lambda f: f.ttft.p50)),
        _seconds(mean(lambda f: f.ttft.p99)),
        _seconds(mean(lambda f: f.tpot.p50)),
        _seconds(mean(lambda f: f.tpot.p99)),
        _number(mean(lambda f: f.preemptions if f.requests else math.nan), ".3f"),
    )


def _mean(reports: Sequence[SimulationReport], figure: Callable[[SimulationReport], float]) -> float:
    """Over the courses that have the figure; NaN where none has."""
    having = [report for report in reports if not math.isnan(figure(report))]
    return interval(having, figure).mean if having else math.nan


def _number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _pm(found: Interval, form: str) -> str:
    spread = "" if math.isnan(found.half) else f" ± {found.half:{form}}"
    return f"{found.mean:{form}}{spread}"
