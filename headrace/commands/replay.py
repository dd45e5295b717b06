"""`headrace replay`: recorded decisions against another policy, and what would change."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import ParseDict, ParseError
from rich.console import Console

from controlplane.config.load import load_policy
from controlplane.errors import ConfigurationError, HeadraceError, UnavailableError
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.ledger.asking import UnreadableError, decisions_asked
from controlplane.ledger.encoding import ended_of
from controlplane.ledger.sla import finished
from controlplane.policy.settings import Policy
from headrace.commands.calling import call
from headrace.commands.options import (
    AsJson,
    ConfigFile,
    ControlPlaneAddress,
    TokenFile,
    check_writable,
    chosen_target,
    read_text,
)
from headrace_protos.headrace.v1 import admin_pb2, admin_pb2_grpc, decision_pb2, fleet_pb2, fleet_pb2_grpc
from planner.plots import check_plots
from planner.replay import plot, terminal
from planner.replay.blind import unseen
from planner.replay.replaying import replay as replayed
from planner.replay.report import document
from planner.replay.summary import summarise

# As many as a control plane gives at once.
_PAGE = 1000


class NothingRecordedError(HeadraceError):
    """No decision was found to replay."""


def replay(
    policy: Annotated[Path, typer.Argument(help="The other policy: YAML of the shape of the `policy` section.")],
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Decisions as `headrace decisions --json` prints them, with --follow too; - is standard input. "
            "Without it, the control plane's ledger is asked.",
        ),
    ] = None,
    under: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The policy under which they were recorded; without it, the one in force now."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--number", "-n", min=1, help="At most so many, the last ones.")] = 10_000,
    tenant: Annotated[str, typer.Option(help="Only of this tenant, by its name or as --json shows it.")] = "",
    since: Annotated[
        str, typer.Option(help="Only those recorded since: 10m ago, or 2026-11-30T08:00 (UTC, unless it says).")
    ] = "",
    until: Annotated[str, typer.Option(help="Only those recorded before, in the same way.")] = "",
    png_file: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write the report as a picture.")
    ] = None,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json_output: AsJson = False,
) -> None:
    """Replay recorded decisions against another policy: what would change, for whom, and how sure that is.

    Nothing is sent, and nothing of the fleet changes.
    """
    try:
        words = {"tenant": tenant, "since": since, "until": until}
        asked = decisions_asked(words, time.time())
    except UnreadableError as error:
        raise typer.BadParameter(str(error), param_hint=f"--{error.name}") from None
    if png_file is not None:
        check_plots()
        check_writable(png_file)
    now = load_policy(read_text(policy), str(policy))
    target = chosen_target(config, control_plane, token_file)
    try:
        was = load_policy(read_text(under), str(under)) if under is not None else _policy_in_force(target)
    except UnavailableError as error:
        raise UnavailableError(f"{error}, or name the policy that was in force with --under") from None
    if file is None:
        found = list(_asked(target, asked, limit))
    else:
        matching = (each for each in _read(file) if _is_asked_for(each, asked))
        found = sorted(matching, key=lambda each: each.recorded.ToMicroseconds(), reverse=True)[:limit]
    if not found:
        raise NothingRecordedError("no decision was recorded that matches; see `headrace decisions`")
    summary = summarise(replayed(found, was, now), lambda each: finished(ended_of(each)), was, now, unseen(was, now))
    if json_output:
        typer.echo(json.dumps(document(summary), indent=2, ensure_ascii=False))
    else:
        terminal.show(_console(), summary)
    if png_file is not None:
        plot.draw(summary, png_file)


def _policy_in_force(target: ControlPlaneTarget) -> Policy:
    answer = call(target, admin_pb2_grpc.AdminStub, lambda s: s.GetPolicy, admin_pb2.GetPolicyRequest())
    return load_policy(answer.policy_yaml, "policy in force")


def _asked(
    target: ControlPlaneTarget, asked: fleet_pb2.ListDecisionsRequest, limit: int
) -> Iterator[decision_pb2.RecordedDecision]:
    """The last ones first, page by page. Pages overlap by the microsecond that the one before ended in."""
    seen: set[tuple[int, int]] = set()
    told = ""
    while len(seen) < limit:
        asked.limit = _PAGE
        answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.ListDecisions, asked)
        if answer.ledger_trouble and not told:
            told = answer.ledger_trouble
            typer.echo(f"the ledger cannot be asked, these are from memory: {told}", err=True)
        new = [d for d in answer.decisions if (d.recorded.ToMicroseconds(), d.recorder) not in seen]
        for each in new[: limit - len(seen)]:
            seen.add((each.recorded.ToMicroseconds(), each.recorder))
            yield each
        if len(answer.decisions) < _PAGE or not new:
            return
        asked.until.FromMicroseconds(answer.decisions[-1].recorded.ToMicroseconds() + 1)


def _read(file: Path) -> list[decision_pb2.RecordedDecision]:
    """One JSON value a line, or one value over all lines. Raises ConfigurationError."""
    name = "standard input" if str(file) == "-" else str(file)
    text = sys.stdin.buffer.read().decode(errors="replace") if str(file) == "-" else read_text(file)
    found = []
    for number, value in _values(text, name):
        several = value.get("decisions") if isinstance(value, dict) else value
        for each in several if isinstance(several, list) else [value]:
            try:
                recorded = ParseDict(each, decision_pb2.RecordedDecision(), ignore_unknown_fields=True)
            except (ParseError, AttributeError, TypeError, ValueError) as error:
                raise ConfigurationError([f"{name}, line {number}: is no recorded decision: {error}"]) from None
            if not recorded.HasField("time"):
                raise ConfigurationError([f"{name}, line {number}: is no recorded decision: it has no time"])
            found.append(recorded)
    return found


def _values(text: str, name: str) -> Iterator[tuple[int, Any]]:
    with suppress(ValueError):
        whole = json.loads(text)
        yield 1, whole
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise ConfigurationError([f"{name}, line {number}: is no JSON: {error}"]) from None


def _is_asked_for(recorded: decision_pb2.RecordedDecision, asked: fleet_pb2.ListDecisionsRequest) -> bool:
    at = recorded.recorded.ToMicroseconds()
    return (
        (not asked.tenant or recorded.decision.tenant == asked.tenant)
        and (not asked.HasField("since") or asked.since.ToMicroseconds() <= at)
        and (not asked.HasField("until") or asked.until.ToMicroseconds() > at)
    )


def _console() -> Console:
    """At full width where the output is not a terminal, so that a pipe gets every word."""
    console = Console()
    if not console.is_terminal:
        console.width = 400
    return console
