"""How right the estimates of tokens were, as tables of 80 columns: one for each model, a line for each category."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from headrace.console import console
from headrace_protos.headrace.v1 import calibration_pb2

_STYLES = {"learned": "green", "pinned": "yellow", "prior": "cyan"}
_COLUMNS = (
    "\ntext",
    "\nsamples",
    "bytes per\ntoken",
    "\nbias",
    "error\nP50",
    "\nP95",
    "\nP99",
    "short\n>10%",
    "\nat",
    "too\nsmall",
    "too\nlarge",
    "in\nforce",
)
_LEGEND = (
    "In %: mean and absolute errors of the expected prompt tokens; requests whose\n"
    "safe estimate was short by more than 10%; requests sent to a class too small\n"
    "or too large for them, at each bound between context classes."
)


def show(models: Iterable[calibration_pb2.ModelCalibration]) -> None:
    out = console()
    shown = False
    for model in models:
        if shown:
            out.print()
        shown = True
        out.print(f"[bold]{escape(model.model)}[/]{_state(model)}", highlight=False, soft_wrap=True)
        if model.categories:
            out.print(_table(model))
        else:
            out.print("nothing is learned yet: priors are in force")
    if not shown:
        out.print("no model is served, and nothing is learned of any")
    else:
        out.print(f"\n[dim]{_LEGEND}[/]", highlight=False)


def _state(model: calibration_pb2.ModelCalibration) -> str:
    parts = []
    if model.HasField("pinned_at"):
        parts.append(f"[yellow]pinned[/] since {model.pinned_at.ToDatetime():%Y-%m-%d %H:%M} UTC")
    if model.generation:
        parts.append(f"reset {model.generation} times" if model.generation > 1 else "reset once")
    if model.refused:
        parts.append(f"{model.refused} implausible reports ignored")
    return "".join(f", {part}" for part in parts)


def _table(model: calibration_pb2.ModelCalibration) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for place, name in enumerate(_COLUMNS):
        is_text = place in {0, len(_COLUMNS) - 1}
        table.add_column(name, justify="left" if is_text else "right", overflow="fold", no_wrap=True)
    for each in model.categories:
        state = _in_force(model, each)
        force = f"[{_STYLES[state]}]{state}[/]"
        if not each.samples:  # pinned, and forgotten since
            table.add_row(each.category, "0", *("-" for _ in _COLUMNS[3:]), force)
            continue
        table.add_row(
            each.category,
            str(each.samples),
            f"{each.ratio:.2f} ±{each.deviation:.2f}",
            f"{100 * each.bias:+.1f}",
            *map(_percent, (each.p50_error, each.p95_error, each.p99_error, each.short_share)),
            "\n".join(_bound(routed.threshold) for routed in each.mis_routed) or "-",
            "\n".join(_percent(routed.too_small_share) for routed in each.mis_routed) or "-",
            "\n".join(_percent(routed.too_large_share) for routed in each.mis_routed) or "-",
            force,
        )
    return table


def _in_force(model: calibration_pb2.ModelCalibration, category: calibration_pb2.CategoryAccuracy) -> str:
    """What filters estimate by. Of a pinned model's categories those that it is not pinned to are at priors."""
    if not category.HasField("in_force"):
        return "prior"
    return "pinned" if model.HasField("pinned_at") else "learned"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _bound(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)
