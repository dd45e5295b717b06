"""A plan on a terminal: the fleet as a table, and what it is worth against what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape

from controlplane.model import FormatTier
from headrace.columns import Column
from headrace.columns import show as show_table
from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.plan.planning import WORTHWHILE, Plan
from planner.sizing.closed_form import ASSUMPTIONS

_STYLES = {FormatTier.FULL: "magenta", FormatTier.QUANTIZED: "cyan"}


def show(console: Console, plan: Plan, about: Sequence[str]) -> None:
    """`about` are lines that say what was planned for."""
    for line in about:
        console.print(escape(line), highlight=False)
    console.print()
    _show_fleet(console, plan)
    told = "as simulated, routed by the policy's own decisions" if plan.is_tried else "by formulas, not simulated"
    console.print(f"[dim]instances and times {told}[/]", highlight=False)
    console.print()
    for line in _comparisons(plan):
        console.print(line, highlight=False)
    if plan.closed_form is not None:
        console.print()
        _show_closed_form(console, plan)


def _show_fleet(console: Console, plan: Plan) -> None:
    columns = (
        Column("tier"),
        Column("tokens"),
        Column("share", 4, right=True),
        Column("engines", wraps=True),
        Column("context", 5, right=True),
        Column("sequences", 3, right=True),
        Column("GPUs", 2, right=True),
        Column("$/h", right=True),
        Column("kW", 7, right=True),
        Column("occupied", 6, right=True),
        Column("TTFT P99", 1, right=True),
        Column("TPOT P99" if plan.is_tried else "TPOT", 1, right=True),
    )
    rows = [_pool(pool) for pool in plan.fleet.pools]
    show_table(console, columns, [*rows, _all(plan.fleet)] if len(rows) > 1 else rows)


def _all(fleet: PlannedFleet) -> Sequence[str]:
    watts = "?" if fleet.kilowatts is None else f"{fleet.kilowatts:.1f}"
    return "", "", "", "all", "", "", f"{fleet.gpus}", f"{fleet.dollars_per_hour:,.2f}", watts, "", "", ""


def _pool(pool: PlannedPool) -> Sequence[str]:
    size = pool.size
    return (
        f"[{_STYLES[pool.tier]}]{pool.tier}[/]",
        f"{pool.above + 1}-{pool.up_to}",
        f"{pool.share:.1%}",
        f"{size.instances} x {escape(size.engine.name)}",
        str(size.engine.max_context),
        str(size.engine.max_sequences),
        str(size.gpus),
        f"{size.dollars_per_hour:,.2f}",
        "?" if size.watts is None else f"{size.watts / 1000:.1f}",
        f"{size.busy:.0%}",
        f"{1000 * size.ttft_seconds:.0f} ms",
        f"{1000 * size.tpot_seconds:.0f} ms",
    )


def _comparisons(plan: Plan) -> Iterator[str]:
    yield from _against(plan, plan.honest, "one pool, set up as well as it can be")
    yield from _against(plan, plan.papers, "one pool of 64K with room for the longest, as papers compare")
    cost = plan.fleet.dollars_per_hour
    for fleet in plan.others[:3]:
        classes = f"classes to {', '.join(map(str, (*fleet.bounds, fleet.context)))}" if fleet.bounds else "one class"
        engines = " + ".join(f"{pool.size.instances} x {escape(pool.size.engine.name)}" for pool in fleet.pools)
        yield (
            f"  also found: {classes}: {fleet.dollars_per_hour:,.2f} $/h ({fleet.dollars_per_hour / cost - 1:+.1%}), "
            f"{engines}"
        )
    if plan.others and plan.others[0].dollars_per_hour < cost:
        yield f"  Fewer pools were preferred: more of them would save less than {WORTHWHILE:.0%}."


def _against(plan: Plan, baseline: PlannedFleet | None, what: str) -> Iterator[str]:
    saved = plan.saving(baseline)
    if baseline is None or saved is None:
        yield f"against {what}: none meets the targets"
        return
    style = "green" if saved > 0.005 else "yellow"
    yield (
        f"against {what}: [{style}]{saved:+.1%}[/] of {baseline.dollars_per_hour:,.2f} $/h "
        f"({baseline.gpus} GPUs: {baseline.pools[0].size.instances} x {escape(baseline.pools[0].size.engine.name)}, "
        f"{baseline.pools[0].size.engine.max_sequences} sequences)"
    )


def _show_closed_form(console: Console, plan: Plan) -> None:
    form = plan.closed_form
    assert form is not None
    console.print(
        f"[dim]The closed form alpha (1 - 1/rho) says {form.saving:.1%} for two classes at {form.bound}: alpha "
        f"{form.alpha:.3f}, rho {form.rho:.2f}. It assumes that {'; that '.join(ASSUMPTIONS)}.[/]",
        highlight=False,
    )
