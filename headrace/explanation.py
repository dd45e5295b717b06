"""What `headrace explain` shows of a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from controlplane.policy.access import KEYS_UNCHECKED
from controlplane.policy.select import SCORES
from headrace.columns import Column, show
from headrace.console import console, plain_table, print_table
from headrace.values import marked, pressure, verdict
from headrace_protos.headrace.v1 import decision_pb2


def show_explanation(decision: decision_pb2.Decision, weights: Mapping[str, float]) -> None:
    """`weights` are those of the pools' marks, by name."""
    out = console()
    where = f"[bold]{escape(decision.pool)}[/]" if decision.pool else "[bold]nowhere[/]"
    goes = f"waits for {escape(' or '.join(decision.waits_for))}" if decision.waits_for else f"goes to {where}"
    out.print(f"{decision.action}: {escape(decision.endpoint)} of {escape(decision.model or 'no model')} {goes}")
    out.print(f"why: {escape(', '.join(decision.reasons))}")
    if decision.HasField("refusal"):
        out.print(f"[red]{decision.refusal.status} {decision.refusal.code}[/]: {escape(decision.refusal.message)}")
        if decision.refusal.code == KEYS_UNCHECKED:
            out.print("explain has no key secret, and the filter has one: ask as a tenant by --tenant NAME")
    if decision.HasField("pressure"):
        out.print(f"pressure: {pressure(decision)}")
    if decision.asked_model:
        out.print(f"{escape(decision.model)} stands in for {escape(decision.asked_model)}")
    if decision.output_limit:
        out.print(f"each choice may have {decision.output_limit} tokens")
    if decision.HasField("would_do"):
        would = decision.would_do
        limit = f" with {would.output_limit} tokens" if would.output_limit else ""
        where = f" to {escape(would.pool)}" if would.pool else ""
        out.print(
            f"[bold yellow]DRY RUN[/]: governed, it would be {would.action}{where}{limit}: "
            f"{escape(', '.join(would.reasons))}"
        )
    if decision.pinned:
        out.print(f"the session was pinned to {decision.pinned}")
    if decision.HasField("sensitivity"):
        out.print(f"\nsensitivity: {verdict(decision)}, score {decision.sensitivity.score:g}")
        table = plain_table("contribution", "points", "because")
        for part in decision.sensitivity.contributions:
            table.add_row(escape(part.name), f"{part.points:+g}", escape(part.why))
        print_table(table, out)
    if decision.HasField("budget"):
        out.print(f"\nbudget: {_budget_in_words(decision.budget)}")
    if decision.alternatives:
        out.print("\npools:")
        _show_alternatives(out, decision.alternatives, weights)
    for change in decision.would_change:
        out.print(f"- {escape(change)}")


def _budget_in_words(budget: decision_pb2.Budget) -> str:
    rests_on = escape(budget.rests_on) + (f" from {budget.samples} requests" if budget.samples else "")
    margin = budget.prompt_tokens / budget.likely_prompt_tokens if budget.likely_prompt_tokens else 1.0
    return (
        f"{budget.prompt_tokens} prompt + {budget.output_tokens} output tokens\n"
        f"prompt: {escape(budget.category)}, {budget.likely_prompt_tokens} tokens are likely and {margin:.2f} times as "
        f"many counted, {budget.ratio:.3g} bytes per token ({rests_on})\n"
        f"output: {escape(budget.output_from)}"
    )


def _show_alternatives(
    out: Console, alternatives: Sequence[decision_pb2.Alternative], weights: Mapping[str, float]
) -> None:
    """Each mark times its weight, so that they add up to the total. What gives no pool anything is left out."""
    scores = [n for n, _ in SCORES if any(a.scores.get(n, 0.0) * weights.get(n, 0.0) for a in alternatives)]
    columns = [Column("pool", wraps=True), Column("total")]
    columns += [Column(f"{name}\n0 to {weights[name]:g}") for name in scores]
    rows = []
    for alternative in sorted(alternatives, key=lambda found: -found.total):
        pool = marked(escape(alternative.pool), overridden=bool(alternative.overridden))
        if alternative.excluded_by:
            rows.append((f"{pool}\n[dim]{escape(alternative.excluded_by)}[/]", "-", *("" for _ in scores)))
        else:
            parts = (f"{alternative.scores[name] * weights[name]:.2f}" for name in scores)
            rows.append((pool, f"{alternative.total:.2f}", *parts))
    show(out, columns, rows)
