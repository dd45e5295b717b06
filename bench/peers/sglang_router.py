"""sglang-router, in its default policy and in round robin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from environments import environment

from peers.contestant import Contestant, Engines, Running, free_port, program

VERSION = "0.3.2"


def _starting(*policy: str) -> Callable[[Engines, Path], AbstractAsyncContextManager[Running]]:
    @asynccontextmanager
    async def start(engines: Engines, folder: Path) -> AsyncIterator[Running]:
        port = free_port()
        python = environment("sglang-router", f"sglang-router=={VERSION}") / "bin" / "python"
        argv: list[str | Path] = [python, "-m", "sglang_router.launch_router"]
        argv += ["--host", "127.0.0.1", "--port", str(port)]
        argv += ["--prometheus-port", str(free_port()), "--log-level", "warn", "--worker-urls", *engines.urls, *policy]
        async with program(argv, port, "router", folder) as running:
            yield running

    return start


SGLANG_ROUTER = Contestant(f"sglang-router {VERSION}", _starting())
SGLANG_ROUTER_ROUND_ROBIN = Contestant(f"sglang-router {VERSION}, round robin", _starting("--policy", "round_robin"))
