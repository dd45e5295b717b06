"""The report on a terminal: three tables and what they say about the policy."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner.quality.advice import Advice, Finding, WeightChange
from planner.quality.asking import Mode
from planner.quality.report import Evaluation
from planner.quality.statistics import Estimate, Quartiles
from planner.quality.summary import Group, Summary

_STYLES = {"sensitive": "magenta", "neutral": "white", "tolerant": "cyan"}
_FINDING_STYLES = {
    Finding.TOO_LAX: "bold red",
    Finding.TOO_STRICT: "bold yellow",
    Finding.BORNE_OUT: "green",
    Finding.OPEN: "dim",
}


def show(console: Console, evaluation: Evaluation) -> None:
    _show_counts(console, evaluation)
    if not evaluation.summary.overall.gaps:
        return
    summary = evaluation.summary
    console.print(
        "\nAnswers of the quantized tier against the full tier's; [dim]in grey the full tier's against its own, asked "
        "again. Intervals are of 95%.[/]",
        highlight=False,
    )
    _show_greedy(console, summary)
    _show_as_asked(console, summary)
    _show_latency(console, summary)
    _show_advice(console, evaluation.advice)


def _show_counts(console: Console, evaluation: Evaluation) -> None:
    ended = "" if evaluation.complete else ", ended early"
    compared = sum(each.compared for each in evaluation.measured)
    console.print(f"[bold]{compared} of {evaluation.asked} requests compared[/]{ended}", highlight=False)
    for reason in dict.fromkeys(each.reason for each in evaluation.aside):
        numbers = [str(each.number) for each in evaluation.aside if each.reason == reason]
        shown = ", ".join(numbers[:8]) + (" ..." if len(numbers) > 8 else "")
        console.print(f"[yellow]{len(numbers)} not sent[/] ({shown}): {escape(reason)}", highlight=False)
    for failure, count in evaluation.failures.most_common():
        console.print(f"[red]{count} without an answer[/]: {escape(failure)}", highlight=False)


def _show_greedy(console: Console, summary: Summary) -> None:
    unit = summary.overall.gaps[Mode.GREEDY].quantized.unit if Mode.GREEDY in summary.overall.gaps else "tokens"
    table = _table(
        "greedy", "requests", "answers changed", f"divergences per 100 {unit}", f"still the same ({unit})",
        "log-probability shift", "longer by (tokens)",
    )  # fmt: skip
    for name, group in _rows(summary):
        if (found := group.gaps.get(Mode.GREEDY)) is None:
            continue
        own, noise = found.quantized, found.noise
        table.add_row(
            name,
            str(own.requests),
            _beside(_percent(own.changed), _percent(noise.changed) if noise else None),
            _beside(_number(own.divergence, 100, 1), _number(noise.divergence, 100, 1) if noise else None),
            _quartiles(own.first_divergence),
            _beside(_number(own.prefix_shift, 1, 3), _number(noise.prefix_shift, 1, 3) if noise else None),
            _number(own.length_difference, 1, 1, signed=True),
        )
    console.print(table)
    console.print(
        "[dim]still the same: after so many a quarter, half and three quarters of the answers have diverged. Shift: "
        "mean absolute difference per token, up to there.[/]\n",
        highlight=False,
    )


def _show_as_asked(console: Console, summary: Summary) -> None:
    table = _table("as asked", "requests", "answers changed", "log-probability of the answer", "longer by (tokens)")
    for name, group in _rows(summary):
        if (found := group.gaps.get(Mode.AS_ASKED)) is None:
            continue
        own, noise = found.quantized, found.noise
        table.add_row(
            name,
            str(own.requests),
            _beside(_percent(own.changed), _percent(noise.changed) if noise else None),
            _beside(
                _number(own.answer_difference, 1, 3, signed=True),
                _number(noise.answer_difference, 1, 3, signed=True) if noise else None,
            ),
            _beside(
                _number(own.length_difference, 1, 1, signed=True),
                _number(noise.length_difference, 1, 1, signed=True) if noise else None,
            ),
        )
    if table.rows:
        console.print(table)
        console.print("[dim]log-probability: difference of the means per token.[/]\n", highlight=False)


def _show_latency(console: Console, summary: Summary) -> None:
    table = _table("quantized against full", "requests", "first text (ms)", "decoding speed")
    for name, group in _rows(summary):
        if (found := group.gaps.get(Mode.GREEDY)) is None:
            continue
        own = found.quantized
        table.add_row(
            name, str(own.requests), _number(own.first_text, 1000, 0, signed=True), _number(own.speed, 1, 2, "x")
        )
    if table.rows:
        console.print(table)


def _show_advice(console: Console, advice: tuple[Advice, ...]) -> None:
    console.print("\n[bold]What this says about the policy[/]")
    for each in advice:
        style = _FINDING_STYLES[each.finding]
        console.print(
            f"[{style}]{each.finding}[/]: {escape(each.category)}, judged [{_STYLES[each.verdict]}]{each.verdict}[/] "
            f"({each.requests} request{'s' if each.requests > 1 else ''}): {escape(each.why)}",
            highlight=False,
        )
        for rule in each.rules:
            console.print(f"    because of {escape(rule)}", highlight=False)
        if each.change is not None:
            console.print(f"    {escape(_change(each.change))}", highlight=False)
    console.print(
        "[dim]Each line is of few requests and its own interval: of twenty lines, one may be there by chance. Try a "
        "change on other requests before you set it.[/]",
        highlight=False,
    )


def _change(change: WeightChange) -> str:
    others = ", ".join(f"{count} of {category}" for category, count in change.others) or "none"
    return (
        f"{change.setting} at {change.proposed:g} instead of {change.current:g} would give {change.moved} of these "
        f"{change.requests} another verdict; of the other requests measured: {others}"
    )


def _rows(summary: Summary) -> Iterator[tuple[str, Group]]:
    yield "[bold]all[/]", summary.overall
    for group in summary.verdicts:
        yield f"[{_STYLES[group.verdict or '']}]{group.verdict}[/]", group
    for group in summary.categories:
        yield f"  {escape(group.category or '')}", group


def _beside(value: str, noise: str | None) -> str:
    return value if noise is None else f"{value}  [dim]{noise}[/]"


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _number(estimate: Estimate | None, scale: float, digits: int, suffix: str = "", *, signed: bool = False) -> str:
    if estimate is None:
        return "-"
    form = f"{'+' if signed else ''}.{digits}f"
    value, low, high = (f"{scale * each:{form}}" for each in (estimate.value, estimate.low, estimate.high))
    return f"{value}{suffix} ({low} to {high})"


def _quartiles(found: Quartiles) -> str:
    return " / ".join("never" if each is None else str(each) for each in (found.first, found.median, found.third))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
