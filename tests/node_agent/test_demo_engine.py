"""The demo's engine process: how it ends. What it answers is tested with the llama.cpp adapter."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import httpx
import pytest

from controlplane import child
from headrace.demo.models import find_q4_model
from support.llama import running_llama
from support.waiting import until

ENDS_WITHIN = 3.0

PARENT = """
import asyncio, sys
from controlplane import child

async def main():
    process = await child.start(sys.argv[1:])
    print(process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def is_running(pid: int) -> bool:
    """A zombie has ended: nobody in a container may be there to bury it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_at_once_even_while_it_answers(number: signal.Signals) -> None:
    async with running_llama(slots=1) as engine, httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        asked = asyncio.create_task(
            client.post("/v1/completions", json={"model": engine.model, "prompt": "Once", "max_tokens": 2000})
        )
        await until(lambda: _busy(client))
        engine.process.send_signal(number)
        async with asyncio.timeout(ENDS_WITHIN):
            assert await engine.process.wait() == -number
        with pytest.raises(httpx.HTTPError):
            await asked


async def test_a_signal_ends_it_while_the_model_is_loaded() -> None:
    argv = [sys.executable, "-m", "headrace.demo.engine", str(find_q4_model()), "0", "m", "--context", "512"]
    process = await child.start([*argv, "--slots", "1"], stdout=asyncio.subprocess.DEVNULL)
    await until(lambda: _has_mapped(process.pid, "xllamacpp"), 30)
    process.terminate()
    async with asyncio.timeout(ENDS_WITHIN):
        assert await process.wait() == -signal.SIGTERM


async def test_it_ends_when_its_parent_is_killed() -> None:
    argv = [sys.executable, "-m", "headrace.demo.engine", str(find_q4_model()), "0", "m", "--context", "512"]
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, *argv, "--slots", "1"), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    await until(lambda: _has_mapped(pid, "xllamacpp"), 30)
    parent.kill()
    await parent.wait()
    await until(lambda: not is_running(pid), ENDS_WITHIN)


def _has_mapped(pid: int, library: str) -> bool:
    if not os.path.exists(f"/proc/{pid}/maps"):
        return False
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return library in maps.read()


async def _busy(client: httpx.AsyncClient) -> bool:
    return any(slot["is_processing"] for slot in (await client.get("/slots")).json())
