"""vllm-router, in its default policy and in round robin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from environments import environment

from peers.contestant import Contestant, Engines, Running, free_port, program

VERSION = "0.1.17"


def _starting(*policy: str) -> Callable[[Engines, Path], AbstractAsyncContextManager[Running]]:
    @asynccontextmanager
    async def start(engines: Engines, folder: Path) -> AsyncIterator[Running]:
        port = free_port()
        router = environment("vllm-router", f"vllm-router=={VERSION}") / "bin" / "vllm-router"
        argv: list[str | Path] = [router, "--host", "127.0.0.1", "--port", str(port)]
        argv += ["--prometheus-port", str(free_port()), "--log-level", "warning"]
        argv += ["--worker-urls", *engines.urls, *policy]
        async with program(argv, port, "router", folder) as running:
            yield running

    return start


VLLM_ROUTER = Contestant(f"vllm-router {VERSION}", _starting())
VLLM_ROUTER_ROUND_ROBIN = Contestant(f"vllm-router {VERSION}, round robin", _starting("--policy", "round_robin"))
