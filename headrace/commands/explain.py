"""`headrace explain`: what would be decided about a request, and why, by a running fleet or one written down."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from controlplane.errors import ConfigurationError
from controlplane.fleet import form_fleet
from controlplane.learning.rooms import RoomWatch, free_of
from controlplane.messages import decision_message
from controlplane.model import FormatTier, HttpRequest
from controlplane.policy.access import CLAIMED
from controlplane.policy.explain import explain_request
from controlplane.policy.table import compile_table
from controlplane.registry.fleet_file import load_fleet
from headrace.commands.calling import call, print_json
from headrace.commands.options import (
    AsJson,
    ConfigFile,
    ControlPlaneAddress,
    RequestHeaders,
    TokenFile,
    chosen_target,
    read_headers,
    read_settings,
    read_text,
)
from headrace.explanation import show_explanation
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc


def explain(
    body: Annotated[Path | None, typer.Argument(metavar="[FILE or -]", help="The request's body as JSON.")] = None,
    header: RequestHeaders = None,
    path: Annotated[str, typer.Option(help="The request's path.")] = "/v1/chat/completions",
    fleet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Decide offline, by this list of nodes."),
    ] = None,
    pinned: Annotated[
        FormatTier | None,
        typer.Option(help="Decide as for a session that is pinned to this tier; sessions are not looked up."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Decide as for this tenant; API keys and tokens are not checked here."),
    ] = None,
    config: ConfigFile = None,
    control_plane: ControlPlaneAddress = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """Show what would be decided about a request, and why; nothing is sent to any engine."""
    headers = read_headers(header) | ({CLAIMED: tenant} if tenant is not None else {})
    request = HttpRequest("POST", path, headers, _read_body(body))
    if fleet is not None:
        policy = read_settings(config).policy
        now = time.time()
        written = load_fleet(read_text(fleet), str(fleet), now)
        formed = form_fleet(written.sessions, written.loads, policy, now)
        rooms = RoomWatch().rooms(formed, policy.selection.load, now)
        table = compile_table("offline", formed.pools, policy)
        decision = decision_message(
            explain_request(request, table, lambda cluster: free_of(cluster, rooms) != 0, pinned)
        )
        weights: Mapping[str, float] = asdict(policy.selection.weights)
    else:
        target = chosen_target(config, control_plane, token_file)
        message = fleet_pb2.ExplainRequest(
            method=request.method,
            path=request.path,
            headers=request.headers,
            body=request.body,
            pinned=pinned or "",
        )
        answer = call(target, fleet_pb2_grpc.FleetStub, lambda s: s.Explain, message)
        decision, weights = answer.decision, answer.weights
    if json:
        print_json(decision)
    else:
        show_explanation(decision, weights)


def _read_body(file: Path | None) -> bytes:
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError([f"{file}: cannot be read: {error.strerror}"]) from error
