"""`headrace up` and its nodes as a person runs them: processes of their own, on free ports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from controlplane import child
from support.waiting import until

START_SECONDS = 90.0
STOP_SECONDS = 20.0

FREE_PORTS = """
gateway: {address: "127.0.0.1:0"}
control_plane: {grpc: "127.0.0.1:0", xds: "127.0.0.1:0", metrics: "127.0.0.1:0"}
ext_proc: {listen: "127.0.0.1:0", health: "127.0.0.1:0", metrics: "127.0.0.1:0"}
envoy: {admin: "127.0.0.1:0", concurrency: 1}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ran to its end."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class RunningSystem:
    """`addresses` are those of the ready file; `folder` holds the logs and the state."""

    addresses: dict[str, str]
    process: asyncio.subprocess.Process
    folder: Path
    http: httpx.AsyncClient

    @property
    def gateway(self) -> str:
        return f"http://{self.addresses['gateway']}"

    async def headrace(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Runs the command line against this system's control plane."""
        return await headrace(*arguments, "--control-plane", self.addresses["grpc"], stdin=stdin)

    async def listed(self, what: str, *arguments: str) -> list[dict[str, Any]]:
        """The items of `headrace WHAT --json`."""
        ended = await self.headrace(what, "--json", *arguments)
        assert ended.status == 0, ended.err
        items: list[dict[str, Any]] = json.loads(ended.out)[what]
        return items

    async def until_pools(self, *names: str) -> None:
        """Waits until just these pools have a ready node."""

        async def ready() -> bool:
            return sorted(p["name"] for p in await self.listed("pools") if p["ready_nodes"]) == sorted(names)

        await until(ready, START_SECONDS)

    @asynccontextmanager
    async def node(self, engine_url: str, node_id: str, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The agent of an engine as a process, as long as the context lasts; it leaves gracefully."""
        argv = [sys.executable, "-m", "headrace", "node", "--engine-url", engine_url, "--node-id", node_id]
        argv += ["--control-plane", self.addresses["grpc"], "--drain-grace", "1", *flags]
        with (self.folder / f"{node_id}.log").open("ab") as log:
            process = await child.start(argv, stdout=log)
        try:
            yield process
        finally:
            await child.stop(process, STOP_SECONDS)

    def pid_of(self, part: str) -> int:
        """The process id of a part, by a word of its command line such as `ext-proc`."""
        for pid, argv in _children_of(self.process.pid):
            if part in argv:
                return pid
        raise AssertionError(f"no child of headrace up runs {part}: {list(_children_of(self.process.pid))}")

    async def kill(self, part: str) -> None:
        """kill -9 of a part, and waits until `headrace up` has started it again."""
        pid = self.pid_of(part)
        os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            return any(part in argv and other != pid for other, argv in _children_of(self.process.pid))

        await until(again, START_SECONDS)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")


@asynccontextmanager
async def running_system(config: str = FREE_PORTS) -> AsyncIterator[RunningSystem]:
    """`headrace up` until traffic can flow; it and all that it started are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(config)
        ready_file = folder / "ready.json"
        argv = [sys.executable, "-m", "headrace", "up", "--config", str(folder / "config.yaml")]
        argv += ["--ready-file", str(ready_file), "--log-dir", str(folder / "logs")]
        with (folder / "up.log").open("wb") as log:
            process = await child.start(argv, stdout=log)
        try:

            def ready() -> bool:
                assert process.returncode is None, (folder / "up.log").read_text()
                return ready_file.exists()

            await until(ready, START_SECONDS)
            addresses = json.loads(ready_file.read_text())
            async with httpx.AsyncClient(
                base_url=f"http://{addresses['gateway']}", timeout=60.0, trust_env=False
            ) as http:
                yield RunningSystem(addresses, process, folder, http)
        finally:
            await child.stop(process, STOP_SECONDS)


async def headrace(*arguments: str, stdin: bytes = b"") -> Ended:
    """Runs the command line to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(START_SECONDS):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def _children_of(parent: int) -> list[tuple[int, list[str]]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended meanwhile
            if int(status[1]) == parent and status[0] != "Z":
                found.append((int(folder.name), argv))
    return found
