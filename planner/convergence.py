"""How fast the estimates of models' tokens became right, as a picture, for the extra `plots`: one panel for each model,
one line for each category."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace_protos.headrace.v1 import calibration_pb2

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"prose": "#0085ad", "code": "#b5179e", "cjk": "#f08c00", "mixed": "#2b9348", "other": "#555555"}
_LEADER = "#a3a3a3"
_PANELS_BESIDE = 3
_PANEL_INCHES = (4.9, 3.7)
_DOTS_PER_INCH = 110
# What is further off is off the panel: the first sample alone may be by any amount.
_MOST_PERCENT = 60.0
_LEAST_PERCENT = 10.0
# Between two labels, as a share of the panel's height.
_LABEL_GAP = 0.065


def can_be_drawn(models: Sequence[calibration_pb2.ModelCalibration]) -> bool:
    """Whether there is any line."""
    return any(_lines(model) for model in models)


def draw(models: Sequence[calibration_pb2.ModelCalibration], file: Path) -> None:
    """Writes a PNG. Models of which nothing is learned are left out."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    drawn = [model for model in models if _lines(model)]
    beside = min(len(drawn), _PANELS_BESIDE)
    below = ceil(len(drawn) / beside)
    style: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "text.parse_math": False,  # models are anybody's words
    }
    with rc_context(style):
        figure = Figure(figsize=(_PANEL_INCHES[0] * beside + 1, _PANEL_INCHES[1] * below + 0.8), layout="constrained")
        figure.suptitle("Error of the token estimate", x=0.01, ha="left", fontsize=14, fontweight="bold")
        figure.supxlabel("samples learned from", fontsize=10)
        figure.supylabel("mean absolute error (%)", fontsize=10)
        panels = figure.subplots(below, beside, sharex=True, sharey=True, squeeze=False).flat
        highest = max(100 * point.error for model in drawn for line in _lines(model) for point in line.convergence)
        top = min(max(1.05 * highest, _LEAST_PERCENT), _MOST_PERCENT)
        longest = max(line.convergence[-1].samples for model in drawn for line in _lines(model))
        for axes, model in zip(panels, drawn, strict=False):
            _draw_model(axes, model, top, longest)
        for axes in list(panels):
            axes.set_visible(False)
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)


def _lines(model: calibration_pb2.ModelCalibration) -> list[calibration_pb2.CategoryAccuracy]:
    return [category for category in model.categories if category.convergence]


def _draw_model(axes: Axes, model: calibration_pb2.ModelCalibration, top: float, longest: int) -> None:
    lines = _lines(model)
    axes.set_title(model.model, fontsize=11)
    axes.set_xscale("log")
    axes.set_xlim(0.9, max(longest, 10) * 1.15)
    axes.set_ylim(0, top)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(labelbottom=True, labelleft=True)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    for line in lines:
        # The last point is of as many samples as there are yet.
        samples = [min(point.samples, line.samples) for point in line.convergence]
        errors = [100 * point.error for point in line.convergence]
        axes.plot(samples, errors, "o-", color=_colour(line), linewidth=2, markersize=3.5)
    ends = [min(100 * line.convergence[-1].error, top) for line in lines]
    for line, place in zip(lines, _apart(ends, _LABEL_GAP * top), strict=True):
        last = line.convergence[-1]
        leader = [min(last.samples, line.samples), axes.get_xlim()[1]], [min(100 * last.error, top), place]
        axes.plot(*leader, ":", color=_LEADER, linewidth=0.9, clip_on=False)
        axes.annotate(
            f"{line.category} {100 * last.error:.1f}%",
            xy=(1.0, place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=_colour(line),
            annotation_clip=False,
        )


def _colour(line: calibration_pb2.CategoryAccuracy) -> str:
    return _COLOURS.get(line.category, "#000000")


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved up as far as needed for no two to be nearer than the gap."""
    found = list(places)
    lowest = 0.0
    for index in sorted(range(len(found)), key=found.__getitem__):
        found[index] = max(found[index], lowest)
        lowest = found[index] + gap
    return found
