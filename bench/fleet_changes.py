"""How long the fleet's changes take to reach traffic: a node that registers, one that dies, one whose agent dies.

    python bench/fleet_changes.py [ROUNDS]

Everything is real but the engines, which answer at once. Prints a table of seconds, and the requests that failed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from headrace_protos.headrace.v1 import node_pb2, registry_pb2, registry_pb2_grpc
from support.engine import EngineShape, FakeEngine, running_engine
from support.system import RunningSystem, running_system

MODEL = "bench-model"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
POLL_SECONDS = 0.002


async def main(rounds: int) -> None:
    async with running_system() as system, grpc.aio.insecure_channel(system.addresses["grpc"]) as channel:
        registry = registry_pb2_grpc.RegistryStub(channel)
        rows = {
            "registered -> first answer": await repeat(rounds, lambda: until_served(system, registry)),
            "deregistered -> refused": await repeat(rounds, lambda: until_refused(system, registry)),
            "engine dead -> out of Envoy's rotation": await repeat(3, lambda: until_ejected(system, registry)),
            "agent dead (no heartbeat) -> left the fleet": await repeat(3, lambda: until_left(system, registry)),
        }
    print(f"{'seconds':46} {'min':>8} {'median':>8} {'max':>8} {'rounds':>7}")
    for name, seconds in rows.items():
        print(f"{name:46} {min(seconds):8.3f} {statistics.median(seconds):8.3f} {max(seconds):8.3f} {len(seconds):7}")


async def repeat(rounds: int, measure: Callable[[], Any]) -> list[float]:
    return [await measure() for _ in range(rounds)]


async def until_served(system: RunningSystem, registry: Any) -> float:
    async with running_engine(EngineShape(model=MODEL)) as engine:
        started = time.perf_counter()
        async with registered(registry, engine):
            await until(lambda: answers(system, 200))
            return time.perf_counter() - started


async def until_refused(system: RunningSystem, registry: Any) -> float:
    async with running_engine(EngineShape(model=MODEL)) as engine:
        async with registered(registry, engine):
            await until(lambda: answers(system, 200))
        started = time.perf_counter()
        await until(lambda: answers(system, 404, 503))
        return time.perf_counter() - started


async def until_ejected(system: RunningSystem, registry: Any) -> float:
    """One of two engines closes its port; requests go on meanwhile, and none may fail."""
    async with running_engine(EngineShape(model=MODEL)) as stays, registered(registry, stays, "stays"):
        await until(lambda: answers(system, 200))
        dying = running_engine(EngineShape(model=MODEL))
        engine = await dying.__aenter__()
        async with registered(registry, engine, "dies"):
            await until(lambda: served(system, engine))
            await dying.__aexit__(None, None, None)
            started = time.perf_counter()
            failed = 0
            while not await is_out(system, engine):
                failed += not await answers(system, 200)
            if failed:
                print(f"{failed} requests failed while an engine was dead and still in rotation")
            return time.perf_counter() - started


async def until_left(system: RunningSystem, registry: Any) -> float:
    async with running_engine(EngineShape(model=MODEL)) as engine:
        started = time.perf_counter()
        await registry.Register(registry_pb2.RegisterRequest(node=describe(engine, "silent")))
        await until(lambda: answers(system, 200))
        await until(lambda: is_gone(system, "silent"))
        return time.perf_counter() - started


def describe(engine: FakeEngine, node_id: str) -> node_pb2.NodeSpec:
    model = node_pb2.ServedModel(id=MODEL, format="fp16", max_context=4096, max_sequences=8)
    return node_pb2.NodeSpec(node_id=node_id, address=engine.address, models=[model], health_path="/health")


@asynccontextmanager
async def registered(registry: Any, engine: FakeEngine, node_id: str = "bench") -> AsyncIterator[None]:
    """Registered, with heartbeats, as long as the context lasts."""
    answer = await registry.Register(registry_pb2.RegisterRequest(node=describe(engine, node_id)))
    load = node_pb2.LoadReport(healthy=True)

    async def heartbeats() -> AsyncIterator[registry_pb2.HeartbeatRequest]:
        while True:
            yield registry_pb2.HeartbeatRequest(session_id=answer.session_id, load=load)
            await asyncio.sleep(answer.heartbeat_seconds)

    stream = registry.Heartbeat(heartbeats())
    reading = asyncio.ensure_future(_drain(stream))
    try:
        yield
    finally:
        reading.cancel()
        stream.cancel()
        await registry.Deregister(registry_pb2.DeregisterRequest(session_id=answer.session_id))


async def _drain(stream: Any) -> None:
    async for _ in stream:
        pass


async def answers(system: RunningSystem, *statuses: int) -> bool:
    return (await system.http.post("/v1/chat/completions", json=BODY)).status_code in statuses


async def served(system: RunningSystem, engine: FakeEngine) -> bool:
    await answers(system, 200)
    return bool(engine.inference_requests)


async def is_out(system: RunningSystem, engine: FakeEngine) -> bool:
    """Whether Envoy's active health check has failed for the engine."""
    async with httpx.AsyncClient(trust_env=False) as admin:
        clusters = (await admin.get(f"http://{system.addresses['envoy_admin']}/clusters?format=json")).json()
    for cluster in clusters["cluster_statuses"]:
        for host in cluster.get("host_statuses", []):
            socket = host["address"].get("socket_address", {})
            if f"{socket.get('address')}:{socket.get('port_value')}" == engine.address:
                return bool(host["health_status"].get("failed_active_health_check"))
    return True


async def is_gone(system: RunningSystem, node_id: str) -> bool:
    return all(node.spec.node_id != node_id for node in await system.nodes())


async def until(condition: Callable[[], Any]) -> None:
    while not await condition():
        await asyncio.sleep(POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
