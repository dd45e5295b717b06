"""The report as one picture, for the extra `plots`: for people who were not there and know no statistics.

Its title is the conclusion. Each line is a group of requests, each panel a question with the side that is worse.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.model import Verdict
from planner.quality.asking import Mode
from planner.quality.comparing import LEAST_REQUESTS
from planner.quality.conclusion import conclude
from planner.quality.report import Ending, Evaluation
from planner.quality.statistics import Estimate
from planner.quality.summary import Gap, Group, ModeGap, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    Verdict.SENSITIVE: "#b5179e",
    Verdict.NEUTRAL: "#c77700",
    Verdict.TOLERANT: "#0085ad",
    None: "#222222",
}
_NOISE = "#8a8a8a"
_WIDTH_INCHES = 13.0
_ROW_INCHES = 0.4
_LINE_INCHES = 0.3
_FOOT_INCHES = 1.6
_DOTS_PER_INCH = 110
_TITLE_CHARACTERS = 100
_LABEL_CHARACTERS = 34
# How far the noise is drawn below its gap, in rows.
_BELOW = 0.24


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    verdict: Verdict | None
    gap: ModeGap


@dataclass(frozen=True, slots=True)
class _Panel:
    """`at` is where nothing has changed."""

    title: str
    hint: str
    of: Callable[[Gap], Estimate | None]
    scale: float
    at: float
    noise: bool

    def found(self, row: _Row) -> Estimate | None:
        """Nothing of a single request: it tells nothing of others."""
        return self.of(row.gap.quantized) if row.gap.quantized.requests > 1 else None


def draw(evaluation: Evaluation, file: Path) -> None:
    """Writes a PNG of an evaluation that has compared something."""
    from matplotlib import rc_context  # noqa: PLC0415

    style: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "text.parse_math": False,  # categories are anybody's words
    }
    with rc_context(style):
        picture(evaluation).savefig(file, format="png", dpi=_DOTS_PER_INCH)


def picture(evaluation: Evaluation) -> Figure:
    """Beside `draw`, for whoever looks at its parts."""
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    rows = _rows(evaluation.summary)
    panels = [panel for panel in _panels(rows) if any(panel.found(row) is not None for row in rows)]
    title = textwrap.fill(conclude(evaluation.summary, evaluation.separations), _TITLE_CHARACTERS)
    head = _LINE_INCHES * (2.2 + title.count("\n"))
    height = _ROW_INCHES * len(rows) + _FOOT_INCHES + head
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - head / height))
    figure = Figure(figsize=(_WIDTH_INCHES, height), layout=layout)
    above = 1 - _LINE_INCHES / 3 / height
    figure.text(0.01, above, title, fontsize=15, fontweight="bold", va="top", linespacing=1.3)
    above -= _LINE_INCHES * (1.1 + title.count("\n")) / height
    figure.text(0.01, above, _facts(evaluation), fontsize=11, color="#555555", va="top")
    if panels:
        every = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(every, panels, strict=True):
            _draw(axes, panel, rows)
        _label(every[0], rows)
        _add_legend(figure)
    return figure


def _facts(evaluation: Evaluation) -> str:
    early = "" if evaluation.ending is Ending.WHOLE else f", {evaluation.ending}"
    tokens = evaluation.settings.get("max_tokens")
    day = f"{evaluation.date.day} {evaluation.date:%B %Y}"
    facts = (
        evaluation.models,
        evaluation.formats_told,
        f"{evaluation.compared} request{'s' if evaluation.compared > 1 else ''}{early}",
        f"greedy answers of at most {tokens} tokens" if tokens else "greedy answers",
        day,
    )
    return "  ·  ".join(fact for fact in facts if fact)


def _panels(rows: Sequence[_Row]) -> tuple[_Panel, ...]:
    unit = rows[0].gap.quantized.unit if rows else "tokens"
    return (
        _Panel(
            f"How often answers take another turn\n(per 100 {unit} that were the same)",
            "further right is worse  →",
            lambda gap: gap.divergence,
            scale=100,
            at=0,
            noise=True,
        ),
        _Panel(
            "How far the model is moved\n(log-probability of each token)",
            "further right is worse  →",
            lambda gap: gap.prefix_shift,
            scale=1,
            at=0,
            noise=True,
        ),
        _Panel(
            "How fast it writes\n(times the speed of the full tier)",
            "←  slower      faster  →",
            lambda gap: gap.speed,
            scale=1,
            at=1,
            noise=False,
        ),
    )


def _rows(summary: Summary) -> Sequence[_Row]:
    """All, each verdict, and the categories that change most first, as far as they have greedy answers."""
    found: list[_Row] = []

    def add(label: str, verdict: Verdict | None, group: Group) -> None:
        if (gap := group.gaps.get(Mode.GREEDY)) is not None:
            found.append(_Row(label, verdict, gap))

    add(f"all ({summary.overall.requests})", None, summary.overall)
    for group in summary.verdicts:
        add(f"judged {group.verdict} ({group.requests})", group.verdict, group)
    for group in sorted(summary.categories, key=_divergence, reverse=True):
        verdict, share = _verdict_of(group, summary)
        told = f" ({group.requests}, {share}{verdict})"
        category = textwrap.shorten(group.category or "", _LABEL_CHARACTERS - len(told), placeholder="…")
        add(category + told, verdict, group)
    return found


def _divergence(group: Group) -> float:
    gap = group.gaps.get(Mode.GREEDY)
    return gap.quantized.divergence.value if gap is not None and gap.quantized.divergence is not None else 0.0


def _verdict_of(category: Group, summary: Summary) -> tuple[Verdict | None, str]:
    """That of most of its requests, and the word for it where it is not that of all."""
    cells = [cell for cell in summary.cells if cell.category == category.category]
    return max(cells, key=lambda cell: cell.requests).verdict, "mostly " if len(cells) > 1 else ""


# --- panels --------------------------------------------------------------------------------------------------------


def _draw(axes: Axes, panel: _Panel, rows: Sequence[_Row]) -> None:
    left, right = _limits(panel, rows)
    axes.set_xlim(left, right)
    axes.axvline(panel.at, color="#555555", linewidth=1, zorder=1)
    for place, row in enumerate(rows):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color="#f5f5f5", linewidth=0, zorder=0)
        if (found := panel.found(row)) is None:
            axes.text(max(left, panel.at), place, "   too few to tell", fontsize=9, color=_NOISE, va="center")
            continue
        _mark(axes, place - (_BELOW / 3 if panel.noise else 0), found, panel.scale, _COLOURS[row.verdict])
        if panel.noise and row.gap.noise is not None and (noise := panel.of(row.gap.noise)) is not None:
            _mark(axes, place + _BELOW, noise, panel.scale, _NOISE, noise=True)
    axes.set_title(panel.title, fontsize=11, loc="left", linespacing=1.4)
    axes.set_xlabel(panel.hint, fontsize=10, color="#555555")
    axes.locator_params(axis="x", nbins=6)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _limits(panel: _Panel, rows: Sequence[_Row]) -> tuple[float, float]:
    """So that all estimates are seen, and the intervals of groups that are large enough to be judged by: those of
    others may be wider than everything else."""
    found = [(row, estimate) for row in rows if (estimate := panel.found(row)) is not None]
    seen = [panel.at, *(panel.scale * estimate.value for _, estimate in found)]
    large = [estimate for row, estimate in found if row.gap.quantized.requests >= LEAST_REQUESTS]
    seen += [panel.scale * end for estimate in large for end in (estimate.low, estimate.high)]
    low, high = min(seen), max(seen)
    margin = 0.08 * (high - low) or 0.1 * max(abs(high), 1.0)
    if not large:
        margin *= 4
    # What cannot be below where nothing has changed begins there.
    return (low - margin if low < panel.at or not panel.noise else low), high + margin


def _label(axes: Axes, rows: Sequence[_Row]) -> None:
    axes.tick_params(labelleft=True)
    axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=11)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(_COLOURS[row.verdict])


def _mark(axes: Axes, place: float, found: Estimate, scale: float, colour: str, *, noise: bool = False) -> None:
    """A line from end to end of the interval, with an arrow where it goes on beyond the axis."""
    left, right = axes.get_xlim()
    low, high = max(scale * found.low, left), min(scale * found.high, right)
    axes.plot([low, high], [place, place], color=colour, linewidth=1.2 if noise else 2.4, solid_capstyle="butt")
    shape = {"marker": "D", "markersize": 4, "markerfacecolor": "white"} if noise else {"marker": "o", "markersize": 7}
    axes.plot([scale * found.value], [place], color=colour, linestyle="", clip_on=False, zorder=3, **shape)  # type: ignore[arg-type]
    for end, beyond, arrow in ((left, scale * found.low < left, "<"), (right, scale * found.high > right, ">")):
        if beyond:
            axes.plot([end], [place], arrow, color=colour, markersize=5 if noise else 7, clip_on=False, zorder=3)


def _add_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    figure.legend(
        handles=[
            Line2D([], [], color=_COLOURS[None], marker="o", markersize=7, linewidth=2.4),
            Line2D([], [], color=_NOISE, marker="D", markersize=4, markerfacecolor="white", linewidth=1.2),
        ],
        labels=[
            "quantized against full, and how sure that is (95%): the more requests, the shorter the line",
            "full against full, asked again: chance, not the format",
        ],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=10,
    )
