"""Starts the demo's fleet, sends its requests one by one, and shows what was decided about each, and why."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import httpx
from rich.console import Console
from rich.markup import escape

from controlplane.config.addresses import split_address
from controlplane.config.settings import Settings
from controlplane.errors import HeadraceError
from controlplane.etcd.server import free_ports
from controlplane.policy.settings import ContextClass
from headrace import tables
from headrace.demo.requests import DEMO_REQUESTS, MODEL, DemoRequest
from headrace.up import System, running_system
from headrace_protos.headrace.v1 import decision_pb2, fleet_pb2, fleet_pb2_grpc

FLEET_SECONDS = 60.0
OUTCOME_SECONDS = 10.0
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class DemoEngine:
    """One llama.cpp server. `context` is in tokens for each of `slots` sequences."""

    name: str
    quantization: str
    context: int
    slots: int


# The 4-bit engine runs many short sequences, the 16-bit one few long ones: both dimensions of routing can be seen.
DEMO_ENGINES = (
    DemoEngine("demo-4bit", "gguf-q4", context=1024, slots=4),
    DemoEngine("demo-16bit", "fp16", context=4096, slots=2),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A request of the demo and what became of it. `faults` is empty when the pool that was named answered it."""

    request: DemoRequest
    recorded: decision_pb2.RecordedDecision
    faults: tuple[str, ...]


def demo_settings() -> Settings:
    """The defaults, on other ports where the usual ones are taken, and with a threshold that suits so small a model."""
    settings = Settings()
    control, ext_proc = settings.control_plane, settings.ext_proc
    return replace(
        settings,
        gateway=replace(settings.gateway, address=_free(settings.gateway.address)),
        control_plane=replace(
            control, grpc=_free(control.grpc), xds=_free(control.xds), metrics=_free(control.metrics)
        ),
        ext_proc=replace(
            ext_proc,
            listen=_free(ext_proc.listen),
            health=_free(ext_proc.health),
            metrics=_free(ext_proc.metrics),
        ),
        envoy=replace(settings.envoy, admin=_free(settings.envoy.admin)),
        policy=replace(settings.policy, context_classes=(ContextClass("short", 1024), ContextClass("long"))),
    )


@asynccontextmanager
async def running_demo(model_files: dict[str, Path], log_dir: Path) -> AsyncIterator[System]:
    """The system with both engines registered and ready. `model_files` are GGUF files by quantization format."""
    async with running_system(demo_settings(), log_dir=log_dir) as system:
        ports = free_ports(len(DEMO_ENGINES))
        for engine, port in zip(DEMO_ENGINES, ports, strict=True):
            await system.add_program(
                engine.name,
                [
                    *(sys.executable, "-m", "headrace.demo.engine"),
                    *(str(model_files[engine.quantization]), str(port), MODEL),
                    *("--context", str(engine.context), "--slots", str(engine.slots)),
                ],
            )
        for engine, port in zip(DEMO_ENGINES, ports, strict=True):
            await system.add_program(
                f"{engine.name}-agent",
                [
                    *(sys.executable, "-m", "headrace", "node"),
                    *("--config", str(system.config_file)),
                    *("--engine-url", f"http://127.0.0.1:{port}", "--node-id", engine.name),
                    *("--format", engine.quantization, "--drain-grace", "1"),
                ],
            )
        await _until_ready(system)
        yield system


async def show_requests(system: System, console: Console) -> list[Shown]:
    """Sends the demo's requests, a line for each as it ends."""
    shown: list[Shown] = []
    async with (
        httpx.AsyncClient(base_url=f"http://{system.addresses.gateway}", timeout=120.0, trust_env=False) as http,
        grpc.aio.insecure_channel(system.addresses.grpc) as channel,
    ):
        fleet = fleet_pb2_grpc.FleetStub(channel)
        nodes = await fleet.ListNodes(fleet_pb2.ListNodesRequest())
        names = {node.spec.address: node.spec.node_id for node in nodes.nodes}
        for number, request in enumerate(DEMO_REQUESTS, 1):
            started = time.monotonic()
            answer = await _send(http, request)
            seconds = time.monotonic() - started
            recorded = await _recorded(fleet, answer.request_id)
            result = Shown(request, recorded, tuple(_faults(answer, recorded, names)))
            shown.append(result)
            _show(console, number, result, names, seconds)
    return shown


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
    async with http.stream("POST", request.path, content=body, headers=headers) as response:
        content = (await response.aread()).decode("utf-8", "replace")
        text = _text_of_stream(content) if request.stream else content
        return _Answer(
            status=response.status_code,
            request_id=response.headers.get("x-request-id", ""),
            pool=response.headers.get("x-headrace-pool", ""),
            text=text,
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
    return decision_pb2.RecordedDecision()


def _faults(answer: _Answer, recorded: decision_pb2.RecordedDecision, names: dict[str, str]) -> Iterator[str]:
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


def _show(console: Console, number: int, shown: Shown, names: dict[str, str], seconds: float) -> None:
    decision, outcome = shown.recorded.decision, shown.recorded.outcome
    mark = "[red]x[/]" if shown.faults else "[green]v[/]"
    node = names.get(outcome.upstream, outcome.upstream or "-")
    style = tables.TIER_STYLES.get(decision.tier, "white")
    console.print(
        f"{mark} {number:2} {escape(shown.request.title):32.32} {_padded_verdict(decision)} "
        f"{tables.budget(decision):>9}  [{style}]{escape(decision.pool):39}[/] {escape(node):10} "
        f"{seconds * 1000:6.0f} ms",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"      [dim]{escape(_why(shown))}[/]", soft_wrap=True, highlight=False)
    for fault in shown.faults:
        console.print(f"      [red]{escape(fault)}[/]", soft_wrap=True)


def _padded_verdict(decision: decision_pb2.Decision) -> str:
    """In a column: the colours' markup does not count in its width."""
    return tables.verdict(decision) + " " * (9 - len(decision.sensitivity.verdict))


def _why(shown: Shown) -> str:
    decision = shown.recorded.decision
    parts = [f"{c.name} {c.points:+.0f}" for c in decision.sensitivity.contributions]
    score = f"score {decision.sensitivity.score:.0f} = {', '.join(parts) or 'nothing speaks'}"
    session = f"session {shown.request.session}: " if shown.request.session else ""
    stream = " (streamed)" if shown.request.stream else ""
    return f"{session}{', '.join(decision.reasons)}{stream}; {score}"


def show_summary(console: Console, shown: list[Shown]) -> None:
    by_pool = Counter((s.recorded.decision.sensitivity.verdict, s.recorded.decision.pool) for s in shown)
    console.print(
        f"\n[bold]{len(shown)} requests, {sum(not s.faults for s in shown)} answered by the pool they were sent to[/]"
    )
    for (verdict, pool), count in sorted(by_pool.items()):
        style = tables.VERDICT_STYLES.get(verdict, "white")
        console.print(f"  {count:3}  [{style}]{verdict:9}[/]  {escape(pool)}", highlight=False)


def show_next_steps(console: Console, system: System) -> None:
    gateway, grpc_address = system.addresses.gateway, system.addresses.grpc
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Write a haiku"}], "max_tokens": 40})
    console.print("\n[bold]Go on with[/]", highlight=False)
    for command in (
        f"curl -i http://{gateway}/v1/chat/completions -H 'content-type: application/json' -d '{body}'",
        f"echo '{body}' | headrace explain -s {grpc_address}",
        f"headrace nodes -s {grpc_address}",
        f"headrace pools -s {grpc_address}",
        f"headrace decisions -n 20 -s {grpc_address}",
        f"headrace status -s {grpc_address}",
        f"grpcurl -plaintext {grpc_address} list",
        f"grpcurl -plaintext {grpc_address} headrace.v1.Fleet/ListPools",
        f"curl http://{system.addresses.metrics}/metrics",
    ):
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)


async def _until_ready(system: System) -> None:
    async with grpc.aio.insecure_channel(system.addresses.grpc) as channel:
        fleet = fleet_pb2_grpc.FleetStub(channel)
        deadline = time.monotonic() + FLEET_SECONDS
        while time.monotonic() < deadline:
            answer = await fleet.ListNodes(fleet_pb2.ListNodesRequest())
            if sum(node.ready and node.HasField("load") for node in answer.nodes) == len(DEMO_ENGINES):
                return
            await asyncio.sleep(POLL_SECONDS)
    raise HeadraceError(f"the engines were not ready after {FLEET_SECONDS:.0f} s; see the logs in {system.log_dir}")


def _free(address: str) -> str:
    """The address if it can be had now, else port 0 on the same host."""
    host, port = split_address(address)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return f"{host}:0"
    return address
