"""Single values of decisions and pools, as markup for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape

from controlplane.ledger.mistakes import Misroute
from headrace_protos.headrace.v1 import decision_pb2

VERDICT_STYLES = {"sensitive": "magenta", "neutral": "white", "tolerant": "cyan"}
TIER_STYLES = {"full": "magenta", "quantized": "cyan"}
PRESSURE_STYLES = {"normal": "green", "elevated": "yellow", "critical": "red"}
_MISTAKES = (Misroute.TOO_SMALL, Misroute.TOO_LARGE)


def verdict(decision: decision_pb2.Decision) -> str:
    name = decision.sensitivity.verdict
    return f"[{VERDICT_STYLES.get(name, 'white')}]{name}[/]" if name else "-"


def budget(decision: decision_pb2.Decision) -> str:
    return f"{decision.budget.prompt_tokens}+{decision.budget.output_tokens}" if decision.HasField("budget") else "-"


def status(outcome: decision_pb2.Outcome) -> str:
    style = "green" if 200 <= outcome.status < 300 else "red"
    flags = f" {','.join(outcome.flags)}" if outcome.flags else ""
    return f"[{style}]{outcome.status or 'client left'}{flags}[/]"


def mistake(recorded: decision_pb2.RecordedDecision) -> str:
    """Of the context class; empty when none is known."""
    return f"[red]{recorded.misroute}[/]" if recorded.misroute in _MISTAKES else ""


def tokens(outcome: decision_pb2.Outcome) -> str:
    if not outcome.HasField("prompt_tokens") and not outcome.HasField("completion_tokens"):
        return "-"
    return f"{outcome.prompt_tokens}+{outcome.completion_tokens}"


def pressures(of_tiers: Iterable[decision_pb2.Pressure]) -> str:
    """Each tier in its state; those in the same one together."""
    states: dict[str, list[str]] = {}
    for found in of_tiers:
        states.setdefault(found.state, []).append(found.qos_tier)
    if list(states) == ["normal"]:
        return "[green]normal[/]"
    shown = (f"[{PRESSURE_STYLES.get(state, 'white')}]{state}[/] for {', '.join(t)}" for state, t in states.items())
    return "; ".join(shown) or "?"


def pressure(decision: decision_pb2.Decision) -> str:
    """By what a decision was governed."""
    found = decision.pressure
    by = f" by {found.signal}" if found.signal else ""
    state = f"[{PRESSURE_STYLES.get(found.state, 'white')}]{found.state}[/]"
    return f"{state} for {found.qos_tier} in {escape(decision.pressed_pool)}, level {found.level:.2f}{by}"


def marked(text: str, *, overridden: bool) -> str:
    """Says of a load, and of what was decided by it, that an operator has overridden it."""
    return f"{text} [bold red]OVERRIDDEN[/]" if overridden else text
