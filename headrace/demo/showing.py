"""What the demo shows on the terminal: a request and its decision in two lines, the sum, and how to go on."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from headrace import values
from headrace.demo.requests import MODEL
from headrace.demo.sending import Answered
from headrace.up import Addresses
from headrace_protos.headrace.v1 import decision_pb2


def show_answered(console: Console, number: int, answered: Answered) -> None:
    decision = answered.recorded.decision
    mark = "[red]x[/]" if answered.faults else "[green]v[/]"
    style = values.TIER_STYLES.get(decision.tier, "white")
    console.print(
        f"{mark} {number:2} {escape(answered.request.title):32.32} {_padded_verdict(decision)} "
        f"{values.budget(decision):>9}  [{style}]{escape(decision.pool):39}[/] {escape(answered.node or '-'):10} "
        f"{answered.seconds * 1000:6.0f} ms",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"      [dim]{escape(_why(answered))}[/]", soft_wrap=True, highlight=False)
    for fault in answered.faults:
        console.print(f"      [red]{escape(fault)}[/]", soft_wrap=True)


def _padded_verdict(decision: decision_pb2.Decision) -> str:
    """In a column: the colours' markup does not count in its width."""
    return values.verdict(decision) + " " * (9 - len(decision.sensitivity.verdict))


def _why(answered: Answered) -> str:
    decision = answered.recorded.decision
    parts = [f"{c.name} {c.points:+.0f}" for c in decision.sensitivity.contributions]
    score = f"score {decision.sensitivity.score:.0f} = {', '.join(parts) or 'nothing speaks'}"
    session = f"session {answered.request.session}: " if answered.request.session else ""
    stream = " (streamed)" if answered.request.stream else ""
    return f"{session}{', '.join(decision.reasons)}{stream}; {score}"


def show_summary(console: Console, every: Sequence[Answered]) -> None:
    by_pool = Counter((a.recorded.decision.sensitivity.verdict, a.recorded.decision.pool) for a in every)
    console.print(
        f"\n[bold]{len(every)} requests, {sum(not a.faults for a in every)} answered by the pool they were sent to[/]"
    )
    for (verdict, pool), count in sorted(by_pool.items()):
        style = values.VERDICT_STYLES.get(verdict, "white")
        console.print(f"  {count:3}  [{style}]{verdict:9}[/]  {escape(pool)}", highlight=False)


def show_next_steps(console: Console, addresses: Addresses) -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Write a haiku"}], "max_tokens": 40})
    # As it was called itself, so that the lines can be pasted where no environment is activated.
    folder = f"{os.path.dirname(sys.argv[0])}/" if os.path.dirname(sys.argv[0]) else ""
    console.print("\n[bold]Go on with[/]", highlight=False)
    for command in (
        f"curl -i http://{addresses.gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        f"echo '{body}' | {folder}headrace explain -s {addresses.grpc}",
        f"{folder}headrace nodes -s {addresses.grpc}",
        f"{folder}headrace pools -s {addresses.grpc}",
        f"{folder}headrace decisions -n 20 -s {addresses.grpc}",
        f"{folder}headrace status -s {addresses.grpc}",
        f"{folder}grpcurl -plaintext {addresses.grpc} list",
        f"{folder}grpcurl -plaintext {addresses.grpc} headrace.v1.Fleet/ListPools",
        f"curl http://{addresses.metrics}/metrics",
    ):
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)
