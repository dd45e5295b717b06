"""What fleets cost by where two context classes part, as a picture, for the extra `plots`.

By formulas, so that all fleets of a picture are reckoned alike: not every bound can be simulated in time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.plan.fleet import PlannedFleet
from planner.plan.planning import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHORT, _LONG, _PLAN, _ONE, _PAPERS = "#0085ad", "#b5179e", "#2b9348", "#222222", "#8a8a8a"
_INCHES = (10.0, 5.6)
_DOTS_PER_INCH = 110


def draw(plan: Plan, title: str, file: Path) -> None:
    """Writes a PNG."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    style: dict[Any, Any] = {"axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(figsize=_INCHES, layout="constrained")
        figure.suptitle(_conclusion(plan), x=0.01, ha="left", fontsize=14, fontweight="bold")
        axes = figure.subplots()
        axes.set_title(f"{title}; by formulas", loc="left", fontsize=10, color="#555555")
        _draw_bounds(axes, plan)
        _draw_lines(axes, plan)
        axes.set_xlabel("bound between the two context classes (tokens); on the bars the share of short requests")
        axes.set_ylabel("dollars an hour")
        axes.set_ylim(bottom=0, top=1.12 * _highest(plan))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)


def _conclusion(plan: Plan) -> str:
    saved = plan.saving(plan.honest)
    if saved is None:
        return "No single pool meets the targets"
    if saved < 0.005:
        return "One pool, set up well, is as cheap as any other fleet"
    pools = len(plan.fleet.pools)
    return f"{pools} pools cost {saved:.0%} less than one, set up well" if pools > 1 else f"It costs {saved:.0%} less"


def _draw_bounds(axes: Axes, plan: Plan) -> None:
    places = range(len(plan.by_bound))
    short = [_cost(fleet, bound) for bound, fleet in plan.by_bound]
    long = [fleet.dollars_per_hour - below for (_, fleet), below in zip(plan.by_bound, short, strict=True)]
    axes.bar(places, short, color=_SHORT, width=0.7, label="two full pools: short")
    axes.bar(places, long, bottom=short, color=_LONG, width=0.7, label="two full pools: long")
    for place, (bound, fleet) in enumerate(plan.by_bound):
        alpha = sum(pool.share for pool in fleet.pools if pool.up_to == bound)
        axes.annotate(
            f"{alpha:.0%}",
            xy=(place, fleet.dollars_per_hour),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="#555555",
        )
    axes.set_xticks(list(places), [f"{bound:,}" for bound, _ in plan.by_bound])


def _draw_lines(axes: Axes, plan: Plan) -> None:
    lines = (
        (plan.papers, _PAPERS, "one pool as papers set it up", ":"),
        (plan.honest, _ONE, "one pool set up well", "--"),
        (plan.fleet, _PLAN, f"the plan, {_formats(plan.fleet)}", "-"),
    )
    for fleet, colour, name, dashes in lines:
        if fleet is not None:
            cost = fleet.dollars_per_hour
            axes.axhline(cost, color=colour, linestyle=dashes, linewidth=1.8, label=f"{name}: {cost:,.0f} $/h")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9.5)


def _formats(fleet: PlannedFleet) -> str:
    """What tells it from the bars."""
    return " and ".join(dict.fromkeys(pool.size.engine.quantization for pool in fleet.pools))


def _cost(fleet: PlannedFleet, bound: int) -> float:
    return sum(pool.size.dollars_per_hour for pool in fleet.pools if pool.up_to == bound)


def _highest(plan: Plan) -> float:
    fleets = [plan.fleet, plan.honest, plan.papers, *(fleet for _, fleet in plan.by_bound)]
    return max(fleet.dollars_per_hour for fleet in fleets if fleet is not None)
