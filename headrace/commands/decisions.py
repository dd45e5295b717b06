"""`headrace decisions`: what was decided and what became of it, the last first, or as it happens."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Annotated

import grpc
import typer

from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.ledger.asking import UnreadableError, decisions_asked
from controlplane.messages import as_fields
from headrace import tables
from headrace.commands.calling import call, print_json, told
from headrace.commands.options import AsJson, ConfigFile, ControlPlaneAddress, TokenFile, chosen_target
from headrace.console import show_line
from headrace.status_lines import short
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc


def decisions(
    limit: Annotated[
        int, typer.Option("--number", "-n", min=0, help="How many, the last ones; with --follow, of those that were.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show further ones as they are recorded.")] = False,
    model: Annotated[str, typer.Option("--model", "-m", help="Only of this model.")] = "",
    pool: Annotated[str, typer.Option("--pool", "-p", help="Only those sent to this pool.")] = "",
    tier: Annotated[str, typer.Option(help="Only those sent to this format tier: full or quantized.")] = "",
    tenant: Annotated[str, typer.Option(help="Only of this tenant, by its name or as --json shows it.")] = "",
    verdict: Annotated[str, typer.Option(help="Only those judged sensitive, neutral or tolerant.")] = "",
    reason: Annotated[str, typer.Option(help="Only those with this among their reasons.")] = "",
    mistake: Annotated[
        str,
        typer.Option(help="Only those whose context class proved too_small or too_large, none of both, or unknown."),
    ] = "",
    status: Annotated[str, typer.Option(help="Only those answered so, as 429 or 5xx.")] = "",
    session: Annotated[str, typer.Option(help="Only of this session, by its id or the digest that --json shows.")] = "",
    request_id: Annotated[str, typer.Option(help="Only the one with this x-request-id.")] = "",
    errors: Annotated[
        bool, typer.Option("--errors", help="Only those without an answer, or with 400 and above.")
    ] = False,
    since: Annotated[
        str, typer.Option(help="Only those recorded since: 10m ago, or 2026-11-30T08:00 (UTC, unless it says).")
    ] = "",
    until: Annotated[str, typer.Option(help="Only those recorded before, in the same way.")] = "",
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """List decisions with their reasons and what became of the requests, the last first."""
    if limit == 0 and not follow:
        raise typer.BadParameter("must be at least 1, unless --follow is given", param_hint="--number")
    words = {
        "limit": str(limit),
        "model": model,
        "pool": pool,
        "tier": tier,
        "tenant": tenant,
        "verdict": verdict,
        "reason": reason,
        "mistake": mistake,
        "status": status,
        "session": session,
        "request_id": request_id,
        "errors": "true" if errors else "",
        "since": since,
        "until": until,
    }
    try:
        request = decisions_asked(words, time.time())
    except UnreadableError as error:
        raise typer.BadParameter(str(error), param_hint=f"--{error.name}") from None
    target = chosen_target(config, control_plane, token_file)
    if follow:
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(target, request, as_json=json))
        return
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.ListDecisions, request)
    _warn(answer.ledger_trouble)
    if json:
        print_json(answer)
        return
    tables.show_decisions(answer.decisions)
    if told_short := short(answer.unrecorded):
        show_line(f"of decisions made then: {told_short}", markup=True)


async def _follow(target: ControlPlaneTarget, request: fleet_pb2.ListDecisionsRequest, *, as_json: bool) -> None:
    """Until the control plane goes, or Ctrl-C."""
    told_live = False
    async with target.open() as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        stream = stub.FollowDecisions(fleet_pb2.FollowDecisionsRequest(filter=request), metadata=target.metadata)
        try:
            async for answer in stream:
                _warn(answer.ledger_trouble)
                if answer.missed:
                    typer.echo(f"{answer.missed} decisions were recorded faster than they could be shown", err=True)
                for recorded in answer.decisions:
                    line = json.dumps(as_fields(recorded), ensure_ascii=False) if as_json else tables.decision(recorded)
                    show_line(line, markup=not as_json)
                if request.limit and not told_live:
                    told_live = True
                    typer.echo("--- these were before; what follows is live ---", err=True)
        except grpc.aio.AioRpcError as error:
            raise told(error, target) from None


def _warn(ledger_trouble: str) -> None:
    if ledger_trouble:
        typer.echo(f"the ledger cannot be asked, these are from memory: {ledger_trouble}", err=True)
