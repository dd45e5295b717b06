"""vllm-router and sglang-router, of one origin and with the same options: in default policies, and in round robin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from environments import environment

from peers.contestant import Contestant, Engines, Running, free_port, program

_VLLM = "vllm-router==0.1.17"
_SGLANG = "sglang-router==0.3.2"

Starting = Callable[[Engines, Path], AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def _start(
    package: str, command: tuple[str, ...], options: tuple[str, ...], engines: Engines, folder: Path
) -> AsyncIterator[Running]:
    port = free_port()
    name, _, _ = package.partition("==")
    executable, *arguments = command
    argv: list[str | Path] = [environment(name, package) / "bin" / executable, *arguments]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    argv += ["--worker-urls", *engines.urls, *options]
    async with program(argv, port, "router", folder) as running:
        yield running


def _vllm(*policy: str) -> Starting:
    return partial(_start, _VLLM, ("vllm-router",), ("--log-level", "warning", *policy))


def _sglang(*policy: str) -> Starting:
    return partial(_start, _SGLANG, ("python", "-m", "sglang_router.launch_router"), ("--log-level", "warn", *policy))


ROUND_ROBIN = ("--policy", "round_robin")
VLLM_ROUTER = Contestant("vllm-router", _VLLM.replace("==", " "), _vllm())
VLLM_ROUTER_ROUND_ROBIN = Contestant("vllm-router-round-robin", f"{VLLM_ROUTER.name}, round robin", _vllm(*ROUND_ROBIN))
SGLANG_ROUTER = Contestant("sglang-router", _SGLANG.replace("==", " "), _sglang())
SGLANG_ROUTER_ROUND_ROBIN = Contestant(
    "sglang-router-round-robin", f"{SGLANG_ROUTER.name}, round robin", _sglang(*ROUND_ROBIN)
)
