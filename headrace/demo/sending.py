"""Sends the demo's requests, and checks of each that the pool that was decided for is the one that answered it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import httpx

from headrace.demo.requests import DEMO_REQUESTS, DemoRequest
from headrace.up import Addresses
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2, fleet_pb2_grpc

ANSWER_SECONDS = 120.0
OUTCOME_SECONDS = 10.0
POLL_SECONDS = 0.1
_NOT_RECORDED = decision_pb2.RecordedDecision()


@dataclass(frozen=True, slots=True)
class Answered:
    """A request and what became of it. `node` is the node that answered, by its id, else its address; `faults` is empty
    when all went as decided."""

    request: DemoRequest
    recorded: decision_pb2.RecordedDecision
    node: str
    seconds: float
    faults: tuple[str, ...]


async def send_requests(addresses: Addresses) -> AsyncIterator[Answered]:
    """The demo's requests, one after the other."""
    async with (
        httpx.AsyncClient(base_url=f"http://{addresses.gateway}", timeout=ANSWER_SECONDS, trust_env=False) as http,
        grpc.aio.insecure_channel(addresses.grpc) as channel,
    ):
        fleet = fleet_pb2_grpc.FleetStub(channel)
        nodes = await fleet.ListNodes(fleet_pb2.ListNodesRequest())
        names = {node.spec.address: node.spec.node_id for node in nodes.nodes}
        for request in DEMO_REQUESTS:
            started = time.monotonic()
            answer = await _send(http, request)
            seconds = time.monotonic() - started
            recorded = await _recorded(fleet, answer.request_id) if answer.request_id else _NOT_RECORDED
            node = names.get(recorded.outcome.upstream, recorded.outcome.upstream)
            yield Answered(request, recorded, node, seconds, tuple(_faults(answer, recorded, names)))


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    request_id: str
    pool: str
    text: str


async def _send(http: httpx.AsyncClient, request: DemoRequest) -> _Answer:
    headers = {"content-type": "application/json", **request.headers}
    if request.session is not None:
        headers["x-session-id"] = request.session
    body = json.dumps(request.body).encode()
    try:
        response = await http.post(request.path, content=body, headers=headers)
    except httpx.HTTPError as error:  # on a machine that has too much to do, say
        return _Answer(status=0, request_id="", pool="", text=f"{type(error).__name__}: no whole answer")
    return _Answer(
        status=response.status_code,
        request_id=response.headers.get("x-request-id", ""),
        pool=response.headers.get("x-headrace-pool", ""),
        text=_text_of_stream(response.text) if request.stream else response.text,
    )


def _text_of_stream(content: str) -> str:
    """The answer's text out of server-sent events; empty when the stream did not end as it should."""
    events = [line.removeprefix("data: ") for line in content.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return ""
    chunks: list[dict[str, Any]] = [json.loads(event) for event in events[:-1]]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


async def _recorded(fleet: fleet_pb2_grpc.FleetStub, request_id: str) -> decision_pb2.RecordedDecision:
    """The decision and outcome of a request, once Envoy's access log has brought them."""
    deadline = time.monotonic() + OUTCOME_SECONDS
    while time.monotonic() < deadline:
        answer: fleet_pb2.ListDecisionsResponse = await fleet.ListDecisions(fleet_pb2.ListDecisionsRequest(limit=20))
        for recorded in answer.decisions:
            if recorded.request_id == request_id:
                return recorded
        await asyncio.sleep(POLL_SECONDS)
    return _NOT_RECORDED


def _faults(answer: _Answer, recorded: decision_pb2.RecordedDecision, names: Mapping[str, str]) -> Iterator[str]:
    decision, outcome = recorded.decision, recorded.outcome
    if answer.status != httpx.codes.OK:
        yield f"status {answer.status}: {answer.text[:200]}"
    elif not answer.text:
        yield "the answer is empty or was cut"
    if not recorded.HasField("decision"):
        yield "its decision did not come back in the access log"
    elif not decision.pool == answer.pool == outcome.cluster:
        yield f"decided for {decision.pool}, answered by {outcome.cluster}, the client was told {answer.pool}"
    elif outcome.upstream not in names:
        yield f"answered by {outcome.upstream}, which is no node"
