"""A fleet under growing load, as one picture: how long the first token takes, and how much is good in each tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.model import QosTier
from planner.simulation.report import SimulationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {QosTier.GUARANTEED: "#b5179e", QosTier.STANDARD: "#0085ad", QosTier.BEST_EFFORT: "#c77700"}
_INCHES = (12.0, 4.8)
_DOTS_PER_INCH = 110


@dataclass(frozen=True, slots=True)
class Load:
    """What came of this many requests per second."""

    requests_per_second: float
    report: SimulationReport


def draw(loads: Sequence[Load], asked: float, title: str, file: Path) -> None:
    """Writes a PNG. `asked` is the load that the fleet is meant for, in requests per second."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    style: dict[Any, Any] = {"axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(figsize=_INCHES, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        left, right = figure.subplots(1, 2)
        _draw_ttft(left, loads)
        _draw_good(right, loads)
        for axes in (left, right):
            axes.axvline(asked, color="#999999", linewidth=1, linestyle="--")
            axes.set_xlabel("requests per second that come; dashed: the workload's own")
            axes.grid(axis="y", color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.set_xlim(left=0)
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)


def _draw_ttft(axes: Axes, loads: Sequence[Load]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415 - as above

    rates = [load.requests_per_second for load in loads]
    for quantile, colour in (("p99", "#222222"), ("p50", "#8a8a8a")):
        seconds = [getattr(load.report.whole.ttft, quantile) for load in loads]
        axes.plot(rates, seconds, color=colour, marker="o", markersize=4)
        axes.annotate(
            f" {quantile.upper()}", (rates[-1], seconds[-1]), color=colour, va="center", annotation_clip=False
        )
    axes.set_yscale("log")
    # Labels at 1, 2 and 5, since the times may lie within one power of ten.
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title("Seconds to the first token, of those who were served", loc="left", fontsize=11)


def _draw_good(axes: Axes, loads: Sequence[Load]) -> None:
    rates = [load.requests_per_second for load in loads]
    tiers = [tier for tier in QosTier if any(tier in load.report.tiers for load in loads)]
    for tier in tiers:
        good = [100 * load.report.tiers[tier].good for load in loads]
        label = tier.replace("_", " ") if len(tiers) > 1 else "all"
        axes.plot(rates, good, color=_COLOURS[tier], marker="o", markersize=4, label=label)
    axes.set_ylim(0, 105)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    axes.set_title("Served within the targets, of all that came", loc="left", fontsize=11)
    if len(tiers) > 1:
        axes.legend(frameon=False, loc="lower left")
