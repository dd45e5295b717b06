"""`headrace decisions`: what was decided and what became of it, the last first, or as it happens."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import grpc
import typer
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.config.quantities import parse_duration
from controlplane.digests import session_digest
from controlplane.grpc_calling import ControlPlaneTarget
from controlplane.messages import timestamp
from controlplane.policy.identity import tenant_of_name
from headrace import tables
from headrace.commands.calling import as_fields, call, print_json, told
from headrace.commands.options import AsJson, ConfigFile, ControlPlaneAddress, TokenFile, chosen_target
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc

_DIGEST = re.compile(r"id:[0-9a-f]{32}")
_TENANT = re.compile(r"(?:name|key):.*")


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
    status_from, status_to = _statuses(status)
    request = fleet_pb2.ListDecisionsRequest(
        limit=limit,
        model=model,
        pool=pool,
        tier=tier,
        tenant=tenant if not tenant or _TENANT.fullmatch(tenant) else tenant_of_name(tenant),
        verdict=verdict,
        reason=reason,
        session=session if not session or _DIGEST.fullmatch(session) else session_digest(session),
        request_id=request_id,
        status_from=status_from,
        status_to=status_to,
        since=_moment(since, "--since"),
        until=_moment(until, "--until"),
        errors_only=errors,
    )
    target = chosen_target(config, control_plane, token_file)
    if follow:
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(target, request, as_json=json))
        return
    answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.ListDecisions, request)
    _warn(answer.ledger_trouble)
    if json:
        print_json(answer)
    else:
        tables.show_decisions(answer.decisions)


async def _follow(target: ControlPlaneTarget, request: fleet_pb2.ListDecisionsRequest, *, as_json: bool) -> None:
    """Until the control plane goes, or Ctrl-C."""
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
                    tables.show_line(line, markup=not as_json)
        except grpc.aio.AioRpcError as error:
            raise told(error, target) from None


def _warn(ledger_trouble: str) -> None:
    if ledger_trouble:
        typer.echo(f"the ledger cannot be asked, these are from memory: {ledger_trouble}", err=True)


def _statuses(text: str) -> tuple[int, int]:
    """From and to. Raises BadParameter."""
    if not text:
        return 0, 0
    if re.fullmatch(r"[1-5]xx", text):
        return int(text[0]) * 100, int(text[0]) * 100 + 99
    if re.fullmatch(r"[1-5][0-9][0-9]", text):
        return int(text), int(text)
    raise typer.BadParameter(f"{text!r} is no HTTP status; write one as 429, or a class as 5xx", param_hint="--status")


def _moment(text: str, option: str) -> Timestamp | None:
    """Raises BadParameter."""
    if not text:
        return None
    with suppress(ValueError):
        seconds = parse_duration(text)
        assert isinstance(seconds, float)
        return timestamp(max(time.time() - seconds, 0.0))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time; write how long ago, as 10m, or when, as 2026-11-30T08:00", param_hint=option
        ) from None
    return timestamp((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
