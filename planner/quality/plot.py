"""The report as one picture, for the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.errors import HeadraceError
from controlplane.model import Verdict
from planner.quality.asking import Mode
from planner.quality.report import Evaluation
from planner.quality.statistics import Estimate
from planner.quality.summary import Gap, Group, ModeGap, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    Verdict.SENSITIVE: "#b5179e",
    Verdict.NEUTRAL: "#f08c00",
    Verdict.TOLERANT: "#0085ad",
    None: "#222222",
}
_NOISE = "#a3a3a3"
_WIDTH_INCHES = 14.5
_ROW_INCHES = 0.36
_LOWER_INCHES = 3.9
_DOTS_PER_INCH = 110
# How far the noise floor is drawn below its gap, in rows.
_BELOW = 0.2

_LEGEND = (
    "Dots are estimates, lines their 95% intervals; the colour is the verdict, of a category that of most of its "
    "requests. In grey the full tier against itself, asked again: that much is none of the format's doing."
)

_Row = tuple[str, Verdict | None, ModeGap]


class PlotsMissingError(HeadraceError):
    """matplotlib is not installed."""


def check_plots() -> None:
    """Raises PlotsMissingError, before an evaluation that would end without its picture."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        raise PlotsMissingError("a picture needs matplotlib; install it with: pip install 'headrace[plots]'") from None


def draw(evaluation: Evaluation, file: Path) -> None:
    """Writes a PNG of an evaluation that has compared something."""
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    summary = evaluation.summary
    rows = _rows(summary)
    upper = _ROW_INCHES * len(rows) + 1.4
    style: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "text.parse_math": False,  # categories are anybody's words
    }
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH_INCHES, upper + _LOWER_INCHES), layout="constrained")
        grid = figure.add_gridspec(2, 1, height_ratios=(upper, _LOWER_INCHES))
        above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
        above.suptitle(_title(evaluation), fontsize=14, x=0.01, ha="left", fontweight="bold")
        rate, shift, first, speed = above.subplots(1, 4, width_ratios=(1.25, 1, 1, 1))
        same, own = below.subplots(1, 2, width_ratios=(1.9, 1))
        _draw_rates(rate, rows)
        _draw_shifts(shift, rows)
        _draw_first_texts(first, rows)
        _draw_speeds(speed, rows)
        _draw_curves(same, summary)
        _draw_as_asked(own, summary)
        below.supxlabel(_LEGEND, fontsize=10, x=0.01, ha="left", color="#555555")
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)


def _title(evaluation: Evaluation) -> str:
    compared = sum(each.compared for each in evaluation.measured)
    models = " and ".join(sorted({each.judged.model for each in evaluation.measured}))
    early = "" if evaluation.complete else ", ended early"
    return f"What quantization changes in the answers of {models}: {compared} requests{early}"


def _rows(summary: Summary) -> Sequence[_Row]:
    """All, each verdict, and the categories with the widest gap first, as far as they have greedy answers."""
    found: list[_Row] = []

    def add(name: str, verdict: Verdict | None, group: Group) -> None:
        if (gap := group.gaps.get(Mode.GREEDY)) is not None:
            found.append((f"{name} ({gap.quantized.requests})", verdict, gap))

    add("all", None, summary.overall)
    for group in summary.verdicts:
        add(f"judged {group.verdict}", group.verdict, group)
    for group in sorted(summary.categories, key=_divergence, reverse=True):
        add(group.category or "", _verdict_of(group, summary), group)
    return found


def _divergence(group: Group) -> float:
    gap = group.gaps.get(Mode.GREEDY)
    return gap.quantized.divergence.value if gap is not None and gap.quantized.divergence is not None else 0.0


def _verdict_of(category: Group, summary: Summary) -> Verdict | None:
    """That of most of its requests."""
    cells = [cell for cell in summary.cells if cell.category == category.category]
    return max(cells, key=lambda cell: cell.requests).verdict if cells else None


# --- the upper row: one line for each group ------------------------------------------------------------------------


def _draw_rates(axes: Axes, rows: Sequence[_Row]) -> None:
    unit = rows[0][2].quantized.unit if rows else "tokens"
    _dots(axes, rows, lambda gap: gap.divergence, scale=100)
    axes.set_title(f"Divergences of greedy answers, per 100 {unit}")
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    for tick, (_, verdict, _) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(_COLOURS[verdict])


def _draw_shifts(axes: Axes, rows: Sequence[_Row]) -> None:
    _dots(axes, rows, lambda gap: gap.prefix_shift)
    axes.set_title("Log-probability shift per token")
    axes.set_xlim(left=0)
    axes.tick_params(labelleft=False)


def _draw_first_texts(axes: Axes, rows: Sequence[_Row]) -> None:
    _dots(axes, rows, lambda gap: gap.first_text, scale=1000, noise=False)
    axes.set_title("First text later by (ms)")
    axes.axvline(0, color=_NOISE, linewidth=1)
    axes.tick_params(labelleft=False)


def _draw_speeds(axes: Axes, rows: Sequence[_Row]) -> None:
    _dots(axes, rows, lambda gap: gap.speed, noise=False)
    axes.set_title("Decoding speed, quantized / full")
    axes.axvline(1, color=_NOISE, linewidth=1)
    axes.tick_params(labelleft=False)


def _dots(
    axes: Axes, rows: Sequence[_Row], of: Callable[[Gap], Estimate | None], *, scale: float = 1.0, noise: bool = True
) -> None:
    for place, (_, verdict, gap) in enumerate(rows):
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color="#f5f5f5", linewidth=0, zorder=0)
        if noise and gap.noise is not None:
            _dot(axes, place + _BELOW, of(gap.noise), scale, _NOISE, small=True)
        _dot(axes, place - (_BELOW / 2 if noise else 0), of(gap.quantized), scale, _COLOURS[verdict])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _dot(axes: Axes, place: float, found: Estimate | None, scale: float, colour: str, *, small: bool = False) -> None:
    if found is not None:
        width = 1.2 if small else 2.2
        axes.plot([scale * found.low, scale * found.high], [place, place], color=colour, linewidth=width)
        axes.plot([scale * found.value], [place], "o", color=colour, markersize=3.5 if small else 6.5)


# --- the lower row -------------------------------------------------------------------------------------------------


def _draw_curves(axes: Axes, summary: Summary) -> None:
    """The share of answers that are still the same, by verdict, beside the full tier's own."""
    gaps = [(group.verdict, group.gaps[Mode.GREEDY]) for group in summary.verdicts if Mode.GREEDY in group.gaps]
    overall = summary.overall.gaps.get(Mode.GREEDY)
    curves = [(f"{verdict}, quantized", _COLOURS[verdict], gap.quantized.curve) for verdict, gap in gaps]
    if overall is not None and overall.noise is not None:
        curves.append(("all, full against full again", _NOISE, overall.noise.curve))
    end = max((curve[-1][0] for _, _, curve in curves), default=0) * 1.05 + 1
    for name, colour, curve in curves:
        steps, still = zip(*curve, (end, curve[-1][1]), strict=True)
        axes.step(steps, [100 * each for each in still], where="post", color=colour, linewidth=2, label=name)
    axes.set_ylim(0, 103)
    axes.set_xlim(0, end)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.set_title("Greedy answers that are still the same (%)")
    axes.set_xlabel(f"after so many {overall.quantized.unit if overall else 'tokens'}")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.94), fontsize=9)


def _draw_as_asked(axes: Axes, summary: Summary) -> None:
    """By verdict: answers at the requests' own temperature, where sampling makes noise of its own."""
    rows = [
        (f"{group.verdict} ({gap.quantized.requests})", group.verdict, gap)
        for group in summary.verdicts
        if (gap := group.gaps.get(Mode.AS_ASKED)) is not None
    ]
    _dots(axes, rows, lambda gap: gap.changed, scale=100)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    for tick, (_, verdict, _) in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(_COLOURS[verdict])
    axes.set_xlim(-3, 103)
    axes.set_title("Changed answers at their own temperature (%)")
