"""The demo's fleet: the whole system, and one engine in 4 and one in 16 bits with their agents."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from controlplane.config.addresses import split_address
from controlplane.config.settings import Settings
from controlplane.errors import HeadraceError
from controlplane.etcd.server import free_ports
from controlplane.policy.settings import ContextClass
from headrace.demo.requests import MODEL
from headrace.up import System, running_system
from headrace_protos.headrace.v1 import fleet_pb2, fleet_pb2_grpc

READY_SECONDS = 60.0
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


async def _until_ready(system: System) -> None:
    async with grpc.aio.insecure_channel(system.addresses.grpc) as channel:
        fleet = fleet_pb2_grpc.FleetStub(channel)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            answer = await fleet.ListNodes(fleet_pb2.ListNodesRequest())
            if sum(node.ready and node.HasField("load") for node in answer.nodes) == len(DEMO_ENGINES):
                return
            await asyncio.sleep(POLL_SECONDS)
    raise HeadraceError(f"the engines were not ready after {READY_SECONDS:.0f} s; see the logs in {system.log_dir}")


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
