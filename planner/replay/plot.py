"""The report as one picture, for the extra `plots`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.model import Action
from planner.replay.replaying import Standing
from planner.replay.report import ASSUMPTION
from planner.replay.summary import NOWHERE, Group, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACTIONS = {
    Action.PASS: "#0085ad",
    Action.DEGRADE: "#f0b429",
    Action.FALLBACK: "#7b5ea7",
    Action.QUEUE: "#9aa5b1",
    Action.REJECT: "#c92a2a",
    Action.ANSWER: "#d9d9d9",
}
_AS_IT_WAS, _CAPPED, _REJECTED, _ADMITTED = "#d9d9d9", "#f0b429", "#c92a2a", "#2b8a3e"
_CERTAIN, _LIKELY = "#0085ad", "#8fc1d4"
_MOST_TENANTS = 10
_SIZE_INCHES = (14.0, 8.0)
_DOTS_PER_INCH = 110
# A part of a bar that is narrower than this share of the axis has no number in it.
_NARROW = 0.06

# Name, colour and width of one part of a bar.
_Part = tuple[str, str, float]


def draw(summary: Summary, file: Path) -> None:
    """Writes a PNG; that of the same summary is the same."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    style: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "font.size": 11,
        "legend.fontsize": 10,
        "ytick.major.size": 0,
        "text.parse_math": False,  # names of tenants are anybody's words
    }
    tiers = [group for group in summary.tiers if group.name != NOWHERE]
    with rc_context(style):
        figure = Figure(figsize=_SIZE_INCHES, layout=ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.25))
        figure.suptitle(_title(summary.overall), fontsize=15, x=0.01, ha="left", fontweight="bold")
        (actions, tenants), (tokens, violations) = figure.subplots(2, 2)
        _draw_actions(actions, tiers)
        _draw_tenants(tenants, summary.tenants)
        _draw_tokens(tokens, tiers)
        _draw_violations(violations, tiers)
        figure.supxlabel(ASSUMPTION, fontsize=10, x=0.01, ha="left", color="#555555")
        figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)


def _title(overall: Group) -> str:
    certain = overall.standings[Standing.CERTAIN] / overall.requests if overall.requests else 0.0
    return f"{overall.changed:,} of {overall.requests:,} requests would change; the answer is certain for {certain:.0%}"


def _draw_actions(axes: Axes, tiers: Sequence[Group]) -> None:
    """Two bars for each QoS tier: as it was, and as it would be."""
    rows = []
    for group in tiers:
        for side, name in enumerate((f"{_words(group.name)}, was", "would be")):
            counts = {a: sum(n for pair, n in group.actions.items() if pair[side] is a) for a in Action}
            rows.append((name, [(str(a), _ACTIONS[a], 100 * n / group.requests) for a, n in counts.items()]))
    places = [place + 0.4 * side for place in range(len(tiers)) for side in (0, 1)]
    axes.set_title("What is done with requests, %")
    _draw_bars(axes, rows, places, height=0.36, end=100)


def _draw_tenants(axes: Axes, tenants: Sequence[Group]) -> None:
    axes.set_title("Requests that would change, % of each tenant's")
    rows, notes = [], []
    for group in [group for group in tenants if group.name != NOWHERE][:_MOST_TENANTS]:
        certain, changed = (100 * n / group.requests for n in (group.changed_for_certain, group.changed))
        parts = [("certain", _CERTAIN, certain), ("hangs on what was not recorded", _LIKELY, changed - certain)]
        rows.append((_short(group.name), parts))
        notes.append(f"{group.changed:,} of {group.requests:,}")
    _draw_bars(axes, rows, range(len(rows)), notes=notes, end=100)


def _draw_tokens(axes: Axes, tiers: Sequence[Group]) -> None:
    axes.set_title("Tokens of prompts and answers, thousands")
    rows, notes = [], []
    for group in tiers:
        spared = group.tokens_saved + group.tokens_rejected
        parts = [
            ("as it was", _AS_IT_WAS, (group.tokens_used - spared) / 1000),
            ("of rejected requests", _REJECTED, group.tokens_rejected / 1000),
            ("beyond caps", _CAPPED, group.tokens_saved / 1000),
            ("more, of admitted ones", _ADMITTED, group.tokens_admitted / 1000),
        ]
        rows.append((_words(group.name), parts))
        net = group.tokens_admitted - spared
        notes.append(f"{net / group.tokens_used:+.0%}" if group.tokens_used and net else "")
    _draw_bars(axes, rows, range(len(rows)), notes=notes)


def _draw_violations(axes: Axes, tiers: Sequence[Group]) -> None:
    """Of the requests that violated what their tier is promised: what would be done with them."""
    axes.set_title("Requests that missed their SLA, and what they would meet")
    rows, notes = [], []
    for group in tiers:
        others = group.violated - group.violated_rejected - group.violated_degraded
        parts = [
            ("the same, or sent elsewhere", _AS_IT_WAS, others),
            ("rejected", _REJECTED, group.violated_rejected),
            ("a lower cap", _CAPPED, group.violated_degraded),
        ]
        rows.append((_words(group.name), parts))
        met = f"; {group.met_rejected:,} that kept it rejected" if group.met_rejected else ""
        notes.append(f"of {group.judged:,}{met}")
    _draw_bars(axes, rows, range(len(rows)), notes=notes)


def _draw_bars(
    axes: Axes,
    rows: Sequence[tuple[str, Sequence[_Part]]],
    places: Iterable[float],
    *,
    notes: Sequence[str] = (),
    height: float = 0.55,
    end: float | None = None,
) -> None:
    """A bar of parts for each row, with its note after it."""
    places = list(places)
    longest = end or max((sum(width for *_, width in parts) for _, parts in rows), default=0) or 1
    named: set[str] = set()
    for number, (place, (_, parts)) in enumerate(zip(places, rows, strict=True)):
        left = 0.0
        for name, colour, width in parts:
            if not width:
                continue
            axes.barh(place, width, height, left, color=colour, label=None if name in named else name)
            named.add(name)
            if width >= _NARROW * longest:
                dark = colour in {"#0085ad", "#c92a2a", "#7b5ea7", "#2b8a3e"}
                words, ink = f"{width:,.0f}", "white" if dark else "black"
                axes.text(left + width / 2, place, words, ha="center", va="center", color=ink, fontsize=10)
            left += width
        if notes:
            axes.text(left + 0.01 * longest, place, notes[number], va="center", fontsize=10, color="#555555")
    axes.set_yticks(places, [name for name, _ in rows])
    axes.set_ylim(max(places, default=0) + 0.6, min(places, default=0) - 0.6)
    axes.set_xlim(0, longest * (1.35 if notes else 1.0))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    if named:
        legend = axes.legend(
            frameon=False, ncols=6, loc="upper left", bbox_to_anchor=(-0.02, 0.04), columnspacing=1.0, handlelength=1.2
        )
        legend.set_in_layout(False)  # else a long one makes the bars short


def _words(tier: str) -> str:
    return tier.replace("_", " ")


def _short(name: str, most: int = 26) -> str:
    name = name.removeprefix("name:")
    return name if len(name) <= most else f"{name[: most - 3]}..."
