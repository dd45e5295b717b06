"""The report on a terminal: what it says about the policy, and three tables of numbers.

It reads without colour, and in 100 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from planner.quality.advice import Advice, WeightChange
from planner.quality.asking import Mode
from planner.quality.comparing import LEAST_REQUESTS, Comparison, Finding
from planner.quality.conclusion import conclude, say
from planner.quality.report import Ending, Evaluation
from planner.quality.statistics import Estimate, Quartiles
from planner.quality.summary import Gap, Group, Summary

_STYLES = {"sensitive": "magenta", "neutral": "yellow", "tolerant": "cyan"}
_FINDING_STYLES = {Finding.CONTRADICTED: "bold red", Finding.BORNE_OUT: "green", Finding.OPEN: "dim"}
_NAME_WIDTH = 16


@dataclass(frozen=True, slots=True)
class _Column:
    """`of` is what is told of a gap, in the line of the quantized tier and, where `noise`, in that of the noise."""

    title: str
    of: Callable[[Gap], str]
    noise: bool = True


def show(console: Console, evaluation: Evaluation) -> None:
    _show_counts(console, evaluation)
    if not evaluation.summary.overall.gaps:
        return
    summary = evaluation.summary
    console.print(
        "\nAnswers of the quantized tier in comparison with the full tier's, and below each, as `noise`, the full "
        "tier's own when it was asked again: that much is not the format's doing. In brackets intervals of 95%.",
        highlight=False,
    )
    _show_greedy(console, summary)
    _show_as_asked(console, summary)
    _show_course(console, summary)
    _show_separations(console, evaluation)
    _show_advice(console, evaluation.advice)


def _show_counts(console: Console, evaluation: Evaluation) -> None:
    ended = "" if evaluation.ending is Ending.WHOLE else f", {evaluation.ending}"
    formats = f": {evaluation.formats_told} on {evaluation.models}" if evaluation.formats_told else ""
    compared = f"{evaluation.compared} of {evaluation.asked} requests compared"
    console.print(f"[bold]{compared}[/]{ended}{escape(formats)}", highlight=False)
    for reason in dict.fromkeys(each.reason for each in evaluation.aside):
        numbers = [str(each.number) for each in evaluation.aside if each.reason == reason]
        shown = ", ".join(numbers[:8]) + (" ..." if len(numbers) > 8 else "")
        console.print(f"[yellow]{len(numbers)} not sent[/] ({shown}): {escape(reason)}", highlight=False)
    for failure, count in evaluation.failures.most_common():
        console.print(f"[red]{count} without an answer[/]: {escape(failure)}", highlight=False)


# --- tables --------------------------------------------------------------------------------------------------------


def _show_greedy(console: Console, summary: Summary) -> None:
    unit = _unit(summary)
    columns = (
        _Column("answers\nchanged", lambda gap: _percent(gap.changed)),
        _Column(f"divergences\nper 100 {unit}", lambda gap: _number(gap.divergence, 100, 1)),
        _Column("log-probability\nshift per token", lambda gap: _number(gap.prefix_shift, 1, 3)),
    )
    if _show_table(console, "greedy", columns, summary, Mode.GREEDY):
        console.print(
            "Higher is worse. The shift is the mean absolute difference, up to where the answers diverge.\n",
            highlight=False,
        )


def _show_as_asked(console: Console, summary: Summary) -> None:
    columns = (
        _Column("answers\nchanged", lambda gap: _percent(gap.changed)),
        _Column("log-probability\nof the answer", lambda gap: _number(gap.answer_difference, 1, 3, signed=True)),
        _Column("longer by\n(tokens)", lambda gap: _number(gap.length_difference, 1, 1, signed=True)),
    )
    if _show_table(console, "as asked", columns, summary, Mode.AS_ASKED):
        console.print("Log-probability: difference of the means per token.\n", highlight=False)


def _show_course(console: Console, summary: Summary) -> None:
    unit = _unit(summary)
    columns = (
        _Column(f"still the same\nfor ({unit})", lambda gap: _quartiles(gap.first_divergence), noise=False),
        _Column("longer by\n(tokens)", lambda gap: _number(gap.length_difference, 1, 1, signed=True), noise=False),
        _Column("first text later\nby (ms)", lambda gap: _number(gap.first_text, 1000, 0, signed=True), noise=False),
        _Column("decoding speed", lambda gap: _number(gap.speed, 1, 2, "x"), noise=False),
    )
    if _show_table(console, "greedy", columns, summary, Mode.GREEDY):
        console.print(
            "Still the same: after so many a quarter, half and three quarters of the answers have diverged, or - where "
            "they never did. First text: above 0 is later. Speed: above 1x is faster than the full tier.",
            highlight=False,
        )


def _show_table(console: Console, title: str, columns: Sequence[_Column], summary: Summary, mode: Mode) -> bool:
    """Whether there is anything to show."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, no_wrap=True, max_width=_NAME_WIDTH)
    with_noise = any(column.noise for column in columns)
    if with_noise:
        table.add_column("re-\nquests", justify="right")
    for column in columns:
        table.add_column(column.title, overflow="fold")
    for name, group in _rows(summary):
        if (found := group.gaps.get(mode)) is None:
            continue
        requests = [str(found.quantized.requests)] if with_noise else []
        table.add_row(name, *requests, *(column.of(found.quantized) for column in columns))
        if with_noise and found.noise is not None:
            told = (column.of(found.noise) if column.noise else "" for column in columns)
            table.add_row("    noise", "", *told, style="dim")
    if table.rows:
        console.print(table)
    return bool(table.rows)


def _unit(summary: Summary) -> str:
    gap = summary.overall.gaps.get(Mode.GREEDY)
    return gap.quantized.unit if gap is not None else "tokens"


def _rows(summary: Summary) -> Iterator[tuple[str, Group]]:
    yield "[bold]all[/]", summary.overall
    for group in summary.verdicts:
        yield f"[{_STYLES[group.verdict or '']}]{group.verdict}[/]", group
    for group in summary.categories:
        yield f"  {escape(group.category or '')}", group


# --- what it says --------------------------------------------------------------------------------------------------


def _show_separations(console: Console, evaluation: Evaluation) -> None:
    conclusion = conclude(evaluation.summary, evaluation.separations)
    console.print("\n[bold]What this says about the policy[/]")
    console.print(f"[bold]{escape(conclusion)}.[/]\n", highlight=False)
    for each in evaluation.separations:
        found = each.comparison
        console.print(
            f"{_told(found)}: requests judged {_verdict(each.more)} ({found.requests[0]}) change more than "
            f"those judged {_verdict(each.less)} ({found.requests[1]})",
            highlight=False,
        )
        _show_comparison(console, found, str(each.more), str(each.less))


def _show_advice(console: Console, advice: tuple[Advice, ...]) -> None:
    console.print("\n[bold]Category by category[/]")
    few = [each for each in advice if min(each.comparison.requests) < LEAST_REQUESTS]
    for each in advice:
        if each in few:
            continue
        strict = each.verdict == "sensitive"
        claim = f", change {'more' if strict else 'less'} than {_verdict(each.against)} ones" if each.against else ""
        console.print(
            f"{_told(each.comparison)}: {escape(each.category)}, judged {_verdict(each.verdict)} ({each.requests} "
            f"request{'s' if each.requests > 1 else ''}){claim}",
            highlight=False,
        )
        names = (each.category, str(each.against)) if strict else (str(each.against), each.category)
        _show_comparison(console, each.comparison, *names)
        for line in (each.note, *(f"because of {rule}" for rule in each.rules), *map(_change, _changes(each))):
            if line:
                _indented(console, line)
    if few:
        told = ", ".join(f"{each.category} judged {each.verdict} ({each.requests})" for each in few)
        console.print(
            f"{_finding(Finding.OPEN)}, with fewer than {LEAST_REQUESTS} requests to compare: {escape(told)}",
            highlight=False,
        )
    console.print(
        "Each line has its own interval: of twenty groups that do not differ, one may be told apart by chance. Try a "
        "change on other requests before you set it.",
        highlight=False,
    )


def _show_comparison(console: Console, found: Comparison, more: str, less: str) -> None:
    for contrast in found.contrasts:
        _indented(console, say(contrast, sum(found.requests), more, less))
    if found.why_open:
        _indented(console, found.why_open)


def _told(found: Comparison) -> str:
    return _finding(found.finding)


def _finding(finding: Finding) -> str:
    return f"[{_FINDING_STYLES[finding]}]{finding}[/]"


def _verdict(verdict: str | None) -> str:
    return f"[{_STYLES[verdict or '']}]{verdict}[/]"


def _indented(console: Console, line: str) -> None:
    console.print(Padding(escape(line), (0, 0, 0, 4), expand=False), highlight=False)


def _changes(advice: Advice) -> Sequence[WeightChange]:
    return (advice.change,) if advice.change is not None else ()


def _change(change: WeightChange) -> str:
    others = ", ".join(f"{count} of {category}" for category, count in change.others) or "none"
    return (
        f"{change.setting} at {change.proposed:g} instead of {change.current:g} would give {change.moved} of these "
        f"{change.requests} another verdict; of the other requests measured: {others}"
    )


# --- numbers -------------------------------------------------------------------------------------------------------


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _number(estimate: Estimate | None, scale: float, digits: int, suffix: str = "", *, signed: bool = False) -> str:
    if estimate is None:
        return "-"
    form = f"{'+' if signed else ''}.{digits}f"
    value, low, high = (f"{scale * each:{form}}" for each in (estimate.value, estimate.low, estimate.high))
    return f"{value}{suffix} ({low} to {high})"


def _quartiles(found: Quartiles) -> str:
    return " / ".join("-" if each is None else str(each) for each in (found.first, found.median, found.third))
