"""What a contestant is, and how one that is a single program is run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from controlplane import child
from controlplane.etcd.server import free_ports
from support.processes import descendants
from support.waiting import until

START_SECONDS = 120.0
STOP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Engines:
    """What answers: two engines that serve the same model."""

    ports: tuple[int, int]
    model: str

    @property
    def urls(self) -> tuple[str, str]:
        first, second = self.ports
        return f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}"


@dataclass(frozen=True, slots=True)
class Running:
    """`port` takes chat requests. `processes` gives the process ids by what each does."""

    port: int
    processes: Callable[[], Mapping[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """`key` is its name on the command line. `start` gets the engines and a folder for its files. Above `most_rate`
    requests a second it is not asked at fixed rates, since it could not answer them."""

    key: str
    name: str
    start: Callable[[Engines, Path], AbstractAsyncContextManager[Running]]
    most_rate: float = float("inf")


@asynccontextmanager
async def program(
    argv: Sequence[str | Path], port: int, role: str, folder: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Running]:
    """Runs one program until it answers a chat request at `port`."""
    with (folder / f"{role}.log").open("wb") as log:
        process = await child.start([str(word) for word in argv], stdout=log, env=env)
    try:
        await answering(port, lambda: process.returncode)
        yield Running(port, lambda: {role: (process.pid, *descendants(process.pid))})
    finally:
        await child.stop(process, STOP_SECONDS)


async def answering(port: int, ended: Callable[[], int | None]) -> None:
    """Waits until a chat request is answered with 200. `ended` gives the program's exit status, None while it runs."""
    body = {"model": "llama", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}

    async def answers() -> bool:
        assert ended() is None, f"the program ended with {ended()}"
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            return (await client.post(url, json=body)).status_code == 200
        except httpx.HTTPError:
            return False

    async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client:
        await until(answers, START_SECONDS)


def free_port() -> int:
    return free_ports(1)[0]
